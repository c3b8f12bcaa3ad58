"""What mteb keeps of our encoders and loads them by, and what its own wrapper of CDE keeps a context by."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mteb
import numpy as np
import pytest
from mteb.models import ModelMeta
from mteb.models.model_implementations.cde_models import CDEWrapper

from cde.benchmark import BenchmarkEncoder, model_meta
from cde_studies.benchmark.offline import offline_tasks
from tests.tiny_encoders import CORPUS, TEXTS, bi_encoder, contextual

SAVED = {
    "bi-encoder": (bi_encoder, {"context": "none"}),
    "contextual": (contextual, {"context": "own", "seed": 3}),
    "bound": (lambda: contextual().with_context(CORPUS, size=3), {"context": "none"}),
}


@pytest.mark.parametrize("kind", SAVED)
def test_a_saved_encoder_has_an_entry_that_mteb_accepts_and_loads_it_by(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CDE_PRECISION", "float32")  # that of the tiny encoders
    make, experiment = SAVED[kind]
    encoder: Any = make()
    encoder.save_pretrained(tmp_path / "tiny")
    meta = model_meta(tmp_path / "tiny", seed=3)
    assert ModelMeta.model_validate(dict(meta)) == meta
    assert (meta.name, meta.embed_dim, meta.experiment_kwargs) == ("cde/tiny", 32, experiment)
    # one that is bound is saved without its first stage
    model = encoder.model.second_stage if kind == "bound" else encoder
    assert meta.n_parameters == sum(weight.numel() for weight in model.parameters())
    loaded = meta.load_model(device="cpu")
    assert isinstance(loaded, BenchmarkEncoder) and hash(loaded.mteb_model_meta) == hash(meta)
    where = {"task_metadata": offline_tasks(["DocstringSTS"])[0].metadata, "hf_subset": "default"}
    vectors = loaded.encode([{"text": TEXTS}], hf_split="test", **where)
    bound = encoder
    if kind == "contextual":
        bound = encoder.with_context(loaded.drawn["DocstringSTS", "test", "default"], size=None)
    np.testing.assert_allclose(vectors, bound.encode_documents(TEXTS), atol=1e-5)


def test_two_trainings_have_two_revisions(tmp_path: Path) -> None:
    for seed in (0, 1):
        bi_encoder(seed=seed).save_pretrained(tmp_path / str(seed))
    metas = [model_meta(tmp_path / str(seed), "me/tiny") for seed in (0, 1, 1)]
    assert metas[0] != metas[1] == metas[2]


@pytest.mark.parametrize("name", ["jxm/cde-small-v1", "jxm/cde-small-v2"])
def test_published_checkpoints_have_mteb_s_entry_with_our_loader(name: str) -> None:
    meta, theirs = model_meta(name, seed=1), mteb.get_model_meta(name)
    assert ModelMeta.model_validate(dict(meta)) == meta
    same = ("name", "revision", "embed_dim", "n_parameters", "license", "training_datasets")
    assert all(getattr(meta, one) == getattr(theirs, one) for one in same)
    assert meta.loader is not theirs.loader and meta.loader_kwargs == {"path": name}
    assert meta.experiment_kwargs == {"context": "own", "seed": 1, "prefixes": "of the task"}


class Heard:
    """In the place of the published model: it notes the texts of each context."""

    def __init__(self) -> None:
        self.contexts: list[set[str]] = []

    def encode(self, texts: Any, convert_to_tensor: bool = False, **_: Any) -> Any:
        if convert_to_tensor:
            self.contexts.append(set(map(str, texts)))
        return np.zeros((len(texts), 2), np.float32)


def wrapper() -> Any:
    made: Any = object.__new__(CDEWrapper)
    made.model, made.model_prompts, made.max_sentences = Heard(), {}, 3
    return made


def test_mteb_s_wrapper_keeps_the_context_of_the_first_split_and_ours_has_one_for_each() -> None:
    """As `mteb_tasks` says; where this fails, mteb has mended it."""
    where = {"task_metadata": offline_tasks(["DocstringSTS"])[0].metadata, "hf_subset": "default"}
    theirs, ours = wrapper(), BenchmarkEncoder(contextual(), "tiny")
    for split, texts in (("dev", CORPUS[:4]), ("test", TEXTS[:4])):
        for model in (theirs, ours):
            model.encode([{"text": texts}], hf_split=split, **where)
    (context,) = theirs.model.contexts
    assert context <= set(CORPUS[:4]), "texts of the split `test` were read beside those of `dev`"
    drawn = {split: set(texts) for (_, split, _), texts in ours.drawn.items()}
    assert drawn["dev"] <= set(CORPUS[:4]) and drawn["test"] <= set(TEXTS[:4])


def test_mteb_s_wrapper_asks_its_list_for_the_corpus_and_ours_is_given_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    task = offline_tasks(["DocstringReranking"], share=0.06)[0]
    task.load_data()
    listed = SimpleNamespace(
        load_data=lambda: None,
        convert_v1_dataset_format_to_v2=lambda: None,
        dataset={"default": {"test": {"corpus": SimpleNamespace(map=lambda _: {"text": TEXTS})}}},
    )
    monkeypatch.setattr(mteb, "get_task", lambda name: listed)
    where = {"task_metadata": task.metadata, "hf_subset": "default", "hf_split": "test"}
    theirs, ours = wrapper(), BenchmarkEncoder(contextual(), "tiny", tasks=[task])
    theirs.encode([{"text": ["one"]}], **where)
    assert theirs.model.contexts[0] <= set(TEXTS), "not the corpus of the task at hand"
    rows = task.dataset["default"]["test"]
    ours.index(rows["corpus"], **where)
    ours.search(rows["queries"], top_k=10, **where)
    assert set(*ours.drawn.values()) <= set(rows["corpus"]["text"])

"""Folders in the layout of jxm/cde-small-v1 and -v2, with the authors' tiny random weights."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import huggingface_hub
import huggingface_hub.constants
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_encoders import CORPUS, TEXTS, load, one_by_one, tokenizer
from torch import Tensor

from cde.models import BiEncoder, ContextualEncoder, CorpusEncoder, published, weights
from cde.models.encoder import load_tokenizer

GOLDEN = Path(__file__).parents[1] / "golden"
NAMES = {
    "hub": "nomic-ai/nomic-bert-2048",
    "train": "nomic-ai/nomic-bert-2048",
    "v2": "answerdotai/ModernBERT-base",
}
CASES = {
    "hf_a": "hub", "hf_d_biases_geglu": "hub", "train_a": "train", "train_c_tpd2": "train",
    "mbert_a": "v2",
}  # fmt: skip


@pytest.fixture(autouse=True)
def no_hub(monkeypatch: pytest.MonkeyPatch, asked_hosts: list[str]) -> Iterator[None]:
    """A test that connects to anything fails, though the Hub's client believes it is online."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    yield
    assert not asked_hosts


def case(name: str) -> tuple[dict[str, Any], dict[str, Any], dict[str, Tensor]]:
    """The content of a case's config.json, its backbone's dimensions, its inputs and outputs."""
    described = json.loads((GOLDEN / f"{name}.json").read_text())
    contextual = {**described["contextual_config"], "embedder": NAMES[CASES[name]]}
    return contextual, described["backbone_config"], load_file(GOLDEN / f"{name}.io.safetensors")


def published_folder(folder: Path, name: str, **changes: Any) -> Path:
    """A case's config and weights under their published names, and code that must not run."""
    folder.mkdir(parents=True, exist_ok=True)
    code = {"auto_map": {"AutoConfig": "model.Config", "AutoModel": "model.Model"}}
    (folder / "config.json").write_text(json.dumps({**case(name)[0], **code, **changes}))
    (folder / "model.py").write_text("raise SystemExit('the code in the folder was run')\n")
    stored = json.loads((GOLDEN / f"{name}.json").read_text())["weights_file"]
    save_file(load_file(GOLDEN / stored), folder / "model.safetensors", metadata={"format": "pt"})
    return folder


@pytest.fixture
def dimensions(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Make the name in a case's config that of its tiny backbone."""

    def known(name: str) -> None:
        contextual, backbone, _ = case(name)
        monkeypatch.setitem(published.BACKBONE_DIMENSIONS, contextual["embedder"], backbone)

    return known


def outputs(model: ContextualEncoder, io: dict[str, Tensor]) -> dict[str, Tensor]:
    """Context vectors, documents and queries, of the inputs that the authors' code was given."""
    with torch.no_grad():
        context = model.first_stage(io["dataset_input_ids"], io["dataset_attention_mask"])
        return {
            "first_stage.output": context,
            "second_stage.docs": model.second_stage(io["input_ids"], io["attention_mask"], context),
            "second_stage.queries": model.second_stage(
                io["query_input_ids"], io["query_attention_mask"], context
            ),
        }


# --- vectors


@pytest.mark.parametrize("name", CASES)
def test_a_folder_gives_the_authors_vectors(name: str, tmp_path: Path, dimensions: Any) -> None:
    """In either kernel; coordinates are of size 4: 2e-5 is their rounding in float32."""
    dimensions(name)
    io = case(name)[2]
    folder = published_folder(tmp_path, name)
    # `trust_remote_code` runs "hub" over NomicBERT, whoever trained it, and "v2" over ModernBERT
    assert load(folder).config.variant == ("v2" if name == "mbert_a" else "hub")
    for kernel in ("sdpa", "eager"):
        model = load(folder, variant=CASES[name], attn_implementation=kernel)
        assert model.config.variant == CASES[name]
        assert not model.training
        for output, vectors in outputs(model, io).items():
            np.testing.assert_allclose(vectors, io[output], atol=2e-5, err_msg=output)


@pytest.mark.parametrize(
    ("name", "variant", "changes", "message"),
    [
        ("hf_a", "v2", {}, "variant 'v2' runs on ModernBERT"),
        ("mbert_a", "hub", {}, "variant 'hub' runs on NomicBERT.*take variant=v2"),
        ("hf_a", "v3", {}, "variant must be one of hub, train, v2; it is 'v3'"),
        # dataset_backbone stands before embedder, as in the authors' training code
        ("hf_a", None, {"dataset_backbone": NAMES["v2"]}, "variant 'v2' runs on ModernBERT"),
    ],
)
def test_a_pass_that_the_weights_do_not_have_is_refused(
    name: str, variant: Any, changes: Any, message: str, tmp_path: Path, dimensions: Any
) -> None:
    dimensions(name)
    with pytest.raises(ValueError, match=message):
        load(published_folder(tmp_path, name, **changes), variant=variant)


# --- texts


@pytest.mark.parametrize("name", ["hf_a", "mbert_a"])
def test_texts_are_embedded_as_the_second_stage_embeds_their_tokens(
    name: str, tmp_path: Path, dimensions: Any
) -> None:
    """With the published prompts, and six context documents."""
    dimensions(name)
    folder = published_folder(tmp_path, name)
    tokenizer().save_pretrained(folder)
    model = load(folder)
    encoder = model.with_context(CORPUS)
    assert "6 of 7 texts" in repr(encoder)

    def second(ids: Tensor, mask: Tensor | None) -> Tensor:
        return model.second_stage(ids, mask, encoder.context)

    for encode, prompt in (
        (encoder.encode_documents, "search_document: "),
        (encoder.encode_queries, "search_query: "),
    ):
        expected = one_by_one(model, TEXTS, second, prompt)
        np.testing.assert_allclose(encode(TEXTS), expected, atol=1e-5)


def test_a_nomic_checkpoint_without_a_tokenizer_gets_that_of_minilm(
    tmp_path: Path, dimensions: Any
) -> None:
    """Both are bert-base-uncased's; the folder's own, or the caller's, comes first."""
    dimensions("hf_a")
    folder = published_folder(tmp_path, "hf_a")
    text = "Red boats: an unaffable harbour"
    assert load(folder).tokenizer(text)["input_ids"] == load_tokenizer("minilm")(text)["input_ids"]
    mine = tokenizer()
    assert load(folder, tokenizer=mine).tokenizer is mine
    mine.save_pretrained(folder)
    assert load(folder).tokenizer(text)["input_ids"] == mine(text)["input_ids"]
    by_name = load(folder, tokenizer="minilm").tokenizer(text)["input_ids"]
    assert by_name == load_tokenizer("minilm")(text)["input_ids"]


# --- saving


@pytest.mark.parametrize("name", CASES)
def test_a_saved_checkpoint_keeps_its_vectors_and_its_pass(
    name: str, tmp_path: Path, dimensions: Any
) -> None:
    """Bit for bit in the same kernel; the dimensions of the backbones are in the folder now."""
    dimensions(name)
    io = case(name)[2]
    model = load(
        published_folder(tmp_path / "published", name), variant=CASES[name], tokenizer=tokenizer()
    )
    model.save_pretrained(tmp_path / "ours")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(published, "BACKBONE_DIMENSIONS", {})
        again = load(tmp_path / "ours")
    assert again.config.variant == CASES[name]
    before, after = outputs(model, io), outputs(again, io)
    assert all(torch.equal(after[output], vectors) for output, vectors in before.items())
    one, two = (each.with_context(CORPUS, seed=3) for each in (model, again))
    assert repr(one) == repr(two)
    np.testing.assert_array_equal(one.encode_queries(TEXTS), two.encode_queries(TEXTS))
    other = "train" if CASES[name] == "hub" else "hub"
    with pytest.raises(
        ValueError, match=f"was saved with the variant {CASES[name]!r}; {other!r} was asked for"
    ):
        load(tmp_path / "ours", variant=other)


# --- weights in several files, and folders that are not checkpoints


@pytest.fixture
def sharded(tmp_path: Path, dimensions: Any) -> Path:
    """The weights of hf_a in two files, as the Hub keeps large ones."""
    dimensions("hf_a")
    folder = published_folder(tmp_path / "sharded", "hf_a")
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    parts = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    places = {name: parts[row % 2] for row, name in enumerate(sorted(tensors))}
    for part in parts:
        save_file(
            {name: tensors[name] for name, place in places.items() if place == part}, folder / part
        )
    return folder


def test_weights_in_several_files_are_read_from_all_of_them(sharded: Path, tmp_path: Path) -> None:
    io = case("hf_a")[2]
    expected = outputs(load(published_folder(tmp_path / "whole", "hf_a")), io)
    computed = outputs(load(sharded), io)
    assert all(torch.equal(computed[output], vectors) for output, vectors in expected.items())


def test_a_damaged_part_is_named_and_of_a_missing_one_its_tensors(sharded: Path) -> None:
    part = sharded / "model-00002-of-00002.safetensors"
    part.write_bytes(part.read_bytes()[:2000])
    with pytest.raises(
        ValueError, match="model-00002-of-00002.safetensors is cut short or damaged"
    ):
        load(sharded)
    part.unlink()
    with pytest.raises(ValueError, match="do not fit the model.\\nmissing: second_stage_model"):
        load(sharded)


def test_weights_that_can_run_code_are_not_read(tmp_path: Path, dimensions: Any) -> None:
    dimensions("hf_a")
    folder = published_folder(tmp_path, "hf_a")
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    torch.save(tensors, folder / "pytorch_model.bin")
    with pytest.raises(
        FileNotFoundError, match="pytorch_model.bin is not read, since it can run code: convert it"
    ):
        load(folder)


# --- repositories


def test_a_repository_that_cannot_be_had_names_what_is_accepted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[str, Any]] = []

    def out_of_reach(name: str, revision: Any = None, **_: Any) -> str:
        asked.append((name, revision))
        raise huggingface_hub.errors.LocalEntryNotFoundError("offline")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", out_of_reach)
    monkeypatch.setattr(weights, "notice_being_offline", lambda: None)
    accepted = (
        "no model 'jxm/none'.*Accepted are 'minilm' \\(offline\\), the path of a folder, "
        "or a Hub repository"
    )
    for read in (
        ContextualEncoder.from_pretrained,
        BiEncoder.from_pretrained,
        CorpusEncoder.from_pretrained,
    ):
        with pytest.raises(ConnectionError, match=accepted):
            read("jxm/none", revision="main")
    for start in (ContextualEncoder.from_backbone, BiEncoder.from_backbone):
        with pytest.raises(ConnectionError, match=accepted):
            start("jxm/none")
    assert asked == [("jxm/none", "main")] * 3 + [("jxm/none", None)] * 2


def test_a_repository_is_read_from_where_the_hub_puts_it_at_the_revision_asked_for(
    tmp_path: Path, dimensions: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither code nor pickled weights are fetched."""
    dimensions("hf_a")
    folder, asked = published_folder(tmp_path, "hf_a"), []

    def there(name: str, revision: Any = None, allow_patterns: Any = None) -> str:
        asked.append((name, revision))
        for unsafe in ("model.py", "pytorch_model.bin"):
            assert not list(
                huggingface_hub.utils.filter_repo_objects([unsafe], allow_patterns=allow_patterns)
            )
        needed = [
            "config.json", "model.safetensors", "model.safetensors.index.json", "tokenizer.json",
            "vocab.txt",
        ]  # fmt: skip
        assert (
            list(huggingface_hub.utils.filter_repo_objects(needed, allow_patterns=allow_patterns))
            == needed
        )
        return str(folder)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", there)
    monkeypatch.setattr(weights, "notice_being_offline", lambda: None)
    io = case("hf_a")[2]
    model = ContextualEncoder.from_pretrained("jxm/tiny", revision="abc", device="cpu")
    assert asked == [("jxm/tiny", "abc")]
    np.testing.assert_allclose(
        outputs(model, io)["second_stage.docs"], io["second_stage.docs"], atol=2e-5
    )

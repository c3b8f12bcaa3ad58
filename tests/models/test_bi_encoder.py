"""The bi-encoder against sentence-transformers and transformers, its folders, its settings."""

from __future__ import annotations

import json
import os
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_encoders import (
    BACKBONES,
    TEXTS,
    backbone,
    backbone_folder,
    bi_encoder,
    contextual,
    one_by_one,
    unit,
)
from transformers import AutoModel, AutoTokenizer

import cde
import cde.models.encoder
from cde.models import BiEncoder, ContextualEncoder
from cde.surrogate import minilm_folder
from cde.training import build_model
from cde_studies.dwell.encoder_decoder import EncoderDecoder


@pytest.fixture(scope="module")
def small() -> BiEncoder:
    return bi_encoder(query_prefix="query: ", document_prefix="text: ")


@pytest.fixture
def saved(small: BiEncoder, tmp_path: Path) -> Path:
    small.save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def load(folder: Path) -> BiEncoder:
    return BiEncoder.from_pretrained(folder, device="cpu", precision="float32")


# --- vectors, against other implementations


def test_minilm_is_that_of_sentence_transformers(docstrings: list[str]) -> None:
    from sentence_transformers import SentenceTransformer

    peer = SentenceTransformer(str(minilm_folder()), device="cpu").encode(
        docstrings, normalize_embeddings=True
    )
    minilm = BiEncoder.from_backbone("minilm", precision="float32", max_tokens=256, device="cpu")
    vectors = minilm.encode_documents(docstrings)
    assert (vectors.dtype, vectors.shape) == (np.float32, (len(docstrings), 384))
    np.testing.assert_allclose(vectors, peer, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)


def states_of_transformers() -> tuple[Any, tuple[torch.Tensor, ...]]:
    """Tokens of `TEXTS`, and all hidden states that MiniLM has of them in `transformers`."""
    tokens = AutoTokenizer.from_pretrained(minilm_folder())(
        TEXTS, padding=True, return_tensors="pt"
    )
    model = AutoModel.from_pretrained(minilm_folder())
    with torch.no_grad():
        return tokens, model(**tokens, output_hidden_states=True).hidden_states


def test_the_first_layers_are_those_of_the_whole_model_and_their_mean_the_vector() -> None:
    tokens, states = states_of_transformers()
    weights = tokens["attention_mask"][..., None].float()
    for layers in (0, 1, 4):
        model = BiEncoder.from_backbone("minilm", layers, precision="float32", device="cpu")
        expected = unit((states[layers] * weights).sum(1) / weights.sum(1))
        np.testing.assert_allclose(model.encode_documents(TEXTS), expected, atol=1e-5)


def test_with_cls_pooling_the_vector_is_the_first_token_s_whatever_the_padding() -> None:
    tokens, states = states_of_transformers()
    peer = states[-1][:, 0]
    model = BiEncoder.from_backbone("minilm", precision="float32", device="cpu", pooling="cls")
    np.testing.assert_allclose(model.encode_documents(TEXTS), unit(peer), atol=1e-5)
    names = ("input_ids", "attention_mask")
    with torch.no_grad():  # padding on both sides
        moved = model(*(torch.nn.functional.pad(tokens[name], (3, 0)) for name in names))
    np.testing.assert_allclose(unit(moved), unit(peer), atol=1e-5)


@pytest.mark.parametrize("kernel", ["sdpa", "eager"])
@pytest.mark.parametrize("family", BACKBONES)
def test_every_family_gives_the_mean_of_the_states_that_transformers_gives(
    family: str, kernel: str, tmp_path: Path
) -> None:
    """From a folder of transformers; texts longer than ModernBERT's window of 8 among them."""
    folder = backbone_folder(tmp_path, family)
    model = BiEncoder.from_backbone(
        folder, precision="float32", device="cpu", attn_implementation=kernel
    )
    peer = backbone(family)
    expected = one_by_one(
        model, TEXTS, lambda ids, mask: peer(input_ids=ids).last_hidden_state.mean(1)
    )
    np.testing.assert_allclose(model.encode_documents(TEXTS), expected, atol=1e-5)
    assert max(len(model.tokenizer(text)["input_ids"]) for text in TEXTS) > 20


@pytest.mark.parametrize("family", BACKBONES)
def test_a_token_s_state_is_that_of_transformers_wherever_the_padding_stands(family: str) -> None:
    model, peer = bi_encoder(family), backbone(family)
    peer.load_state_dict(model.backbone.state_dict(), strict=False)  # all but a pooler
    rows = [torch.tensor([3, 9, 4, 7, 5]), torch.tensor([3, 8, 5])]
    ids = torch.stack([rows[0], torch.nn.functional.pad(rows[1], (2, 0))])
    padding = torch.tensor([[1, 1, 1, 1, 1], [0, 0, 1, 1, 1]])
    with torch.inference_mode():
        states, mask = model.token_states(ids, padding)
        assert mask is not None
        assert mask.sum(dim=1).tolist() == [5, 3]
        for row, own, kept in zip(rows, states, mask, strict=True):
            expected = peer(input_ids=row[None]).last_hidden_state[0]
            torch.testing.assert_close(own[kept], expected, atol=1e-5, rtol=1e-4)


# --- texts


def test_a_text_longer_than_the_learned_positions_is_cut() -> None:
    """BERT has vectors for 128 positions and none for the 129th, whatever max_tokens says."""
    long = "boat " * 100
    bound = contextual("bert").with_context([long, "tides"])
    for encoder in (bi_encoder("bert", max_tokens=512), bound):
        np.testing.assert_allclose(*encoder.encode_documents([long, f"{long} x"]), atol=1e-6)


# --- folders


def test_a_saved_encoder_gives_the_same_vectors_to_the_bit(small: BiEncoder, saved: Path) -> None:
    again = load(saved)
    np.testing.assert_array_equal(again.encode_queries(TEXTS), small.encode_queries(TEXTS))
    np.testing.assert_array_equal(again.encode_documents(TEXTS), small.encode_documents(TEXTS))
    assert again.dim == small.dim
    assert not again.training


def test_a_folder_of_another_type_is_refused(tmp_path: Path) -> None:
    bi_encoder().save_pretrained(tmp_path / "bi")
    contextual().save_pretrained(tmp_path / "contextual")
    for kind, folder, message in (
        (BiEncoder, minilm_folder(), "a model of type 'bert', not 'cde-bi-encoder'.*from_backbone"),
        (
            BiEncoder,
            tmp_path / "contextual",
            "of type 'cde-contextual-encoder'.*ContextualEncoder.from_pretrained",
        ),
        (
            ContextualEncoder,
            minilm_folder(),
            "of type 'bert', neither saved by ContextualEncoder nor.*from_backbone",
        ),
        (ContextualEncoder, tmp_path / "bi", "of type 'cde-bi-encoder', neither"),
    ):
        with pytest.raises(ValueError, match=message):
            kind.from_pretrained(folder)


@pytest.mark.parametrize("kept", [0, 5, 400, -1])
def test_weights_that_are_cut_short_are_refused(saved: Path, kept: int) -> None:
    whole = (saved / "model.safetensors").read_bytes()
    (saved / "model.safetensors").write_bytes(whole[:kept])
    with pytest.raises(ValueError, match="model.safetensors is cut short or damaged"):
        load(saved)


def test_weights_that_do_not_fit_are_all_named(saved: Path) -> None:
    """Missing, unexpected, of another shape, NaN: nothing is filled at random."""
    tensors = load_file(saved / "model.safetensors")
    names = sorted(tensors)
    del tensors[names[0]]
    tensors[names[1]] = torch.zeros(3)
    tensors[names[2]] = tensors[names[2]].clone()
    tensors[names[2]].view(-1)[5] = torch.nan
    tensors["backbone.extra"] = torch.zeros(1)
    save_file(tensors, saved / "model.safetensors")
    with pytest.raises(ValueError, match="do not fit") as caught:
        load(saved)
    lines = dict(line.split(": ", 1) for line in str(caught.value).splitlines()[1:])
    assert lines["missing"] == names[0]
    assert lines["unexpected"] == "backbone.extra"
    assert lines["of another shape"].startswith(f"{names[1]} (3,), expected")
    assert lines["with NaN or infinite numbers"] == names[2]


def test_a_pretrained_backbone_with_a_missing_or_nan_tensor_is_refused(tmp_path: Path) -> None:
    """transformers would fill the one at random and take the other."""
    weights = backbone_folder(tmp_path, "bert") / "model.safetensors"
    tensors = load_file(weights)
    name = next(name for name in tensors if "attention.self.query.weight" in name)
    lost = tensors.pop(name)
    for changed, message in (
        ({**tensors, name: lost * torch.inf}, f"with NaN or infinite numbers: {name}"),
        (tensors, f"missing: {name}"),
    ):
        save_file(changed, weights, metadata={"format": "pt"})
        with pytest.raises(ValueError, match=message):
            BiEncoder.from_backbone(tmp_path)


@pytest.mark.parametrize("layers", [-1, 7])
def test_more_layers_than_there_are_and_fewer_than_none_are_refused(layers: int) -> None:
    message = f"layers must be 0 to 6 for this backbone; they are {layers}"
    with pytest.raises(ValueError, match=message):
        BiEncoder.from_backbone("minilm", layers)
    with pytest.raises(ValueError, match=message):
        ContextualEncoder.from_backbone("minilm", first_stage_layers=layers)


def test_minilm_is_the_one_that_is_built_in_whatever_folder_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key of a run has no weights of what is built in."""
    monkeypatch.chdir(tmp_path)
    backbone_folder(Path("minilm"), "bert")
    assert BiEncoder.from_backbone("minilm", 0).dim == 384
    assert BiEncoder.from_backbone(Path("minilm"), 0).dim == 32
    bi_encoder().save_pretrained("minilm")
    config = cde.TrainConfig(architecture="bi-encoder", layers=0)
    assert build_model(config).dim == 384
    assert BiEncoder.from_pretrained("minilm").dim == 32


@pytest.mark.parametrize(
    ("replaces", "moved"),
    [(False, 0), (False, 3), (False, 6), (True, 0), (True, 1), (True, 3), (True, 6)],
)
def test_an_interrupted_save_is_refused_or_the_old_model_or_the_new_and_no_mixture(
    replaces: bool, moved: int, tmp_path: Path, small: BiEncoder
) -> None:
    """The weights of one with the prefix of the other would embed without an error."""
    new = bi_encoder(seed=1, query_prefix="other: ")
    if replaces:
        small.save_pretrained(tmp_path)
    move, calls = os.replace, iter(range(10))

    def some(source: Any, target: Any) -> None:
        if next(calls) == moved:
            raise KeyboardInterrupt
        move(source, target)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(cde.models.encoder.os, "replace", some)
        new.save_pretrained(tmp_path)
    try:
        found = load(tmp_path)
    except (FileNotFoundError, ValueError):
        return
    assert replaces, "a new folder can be read only once it is complete"
    whole = [model.encode_queries(TEXTS) for model in (small, new)]
    assert any((found.encode_queries(TEXTS) == expected).all() for expected in whole)


def test_a_save_replaces_weights_that_lay_in_several_files(saved: Path) -> None:
    """An index that stays behind must not bring back the weights that were there before."""
    save_file(load_file(saved / "model.safetensors"), saved / "part.safetensors")
    names = load_file(saved / "part.safetensors")
    index = {"metadata": {}, "weight_map": dict.fromkeys(names, "part.safetensors")}
    (saved / "model.safetensors.index.json").write_text(json.dumps(index))
    (saved / "model.safetensors").unlink()
    other = bi_encoder(seed=1)
    other.save_pretrained(saved)
    np.testing.assert_array_equal(load(saved).encode_queries(TEXTS), other.encode_queries(TEXTS))


# --- settings


@pytest.mark.parametrize(
    ("make", "setting", "nearest"),
    [
        (partial(ContextualEncoder.from_backbone, "minilm"), "contextsize", "context_size"),
        (partial(BiEncoder.from_backbone, "minilm"), "layer", "layers"),
        (EncoderDecoder.small, "poolin", "pooling"),
    ],
)
def test_a_misspelt_setting_is_answered_with_the_nearest(
    make: Any, setting: str, nearest: str
) -> None:
    """transformers would take it and forget it."""
    with pytest.raises(ValueError, match=rf"there is no setting {setting} \({nearest}\?\)"):
        make(**{setting: 1})

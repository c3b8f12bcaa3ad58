"""Weights without MiniLM's own rows come back to the bit; what differs is never left out."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_encoders import BRIEF
from torch import Tensor

import cde
from cde.models import BiEncoder, ContextualEncoder
from cde.models.weights import with_minilm_rows, without_minilm_rows

WORDS = "backbone.embeddings.word_embeddings.weight"


def same_bits(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(
        torch.equal(one[name].view(torch.uint8), other[name].view(torch.uint8))
        for name in one
        if one[name].ndim
    )


@pytest.fixture(scope="module")
def tensors() -> dict[str, Tensor]:
    return BiEncoder.from_backbone("minilm", layers=1).state_dict()


def changed(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Numbers that compare as equal though they are not, and one that never does."""
    table = tensors[WORDS].clone()
    table[3] = 0.0
    table[4] = -0.0
    table[5, 1] = float("nan")
    table[-1] += 1e-3
    return {**tensors, WORDS: table}


@pytest.mark.parametrize("change", [dict, changed])
def test_what_is_left_out_comes_back_to_the_bit(tensors, change) -> None:
    whole = change(tensors)
    small = without_minilm_rows(whole)
    assert WORDS not in small
    assert same_bits(with_minilm_rows(small), dict(whole))
    assert sum(tensor.numel() for tensor in small.values()) < sum(
        tensor.numel() for name, tensor in whole.items() if name != WORDS
    ) + 5 * (384 + 1)


@pytest.mark.parametrize(
    "other",
    [
        lambda table: table * 0.999,  # decayed: every row is another one
        lambda table: table[:1000].clone(),  # a vocabulary of its own
        lambda table: table.bfloat16(),
    ],
)
def test_other_tables_stay_as_they_are(tensors, other) -> None:
    whole = {**tensors, WORDS: other(tensors[WORDS])}
    assert same_bits(without_minilm_rows(whole), whole)
    assert same_bits(with_minilm_rows(whole), whole)


@pytest.mark.parametrize("tied", [False, True])
def test_two_stages_are_saved_small_and_read_whole(tied: bool, tmp_path: Path) -> None:
    model = ContextualEncoder.from_backbone("minilm", layers=1, tie_token_embeddings=tied)
    with torch.no_grad():
        model.first_stage.backbone.embeddings.word_embeddings.weight[7] += 1
    model.save_pretrained(tmp_path, without_minilm_rows(model.state_dict()))
    assert (tmp_path / "model.safetensors").stat().st_size < 20e6
    read = ContextualEncoder.from_pretrained(tmp_path)
    assert same_bits(dict(read.state_dict()), dict(model.state_dict()))


def test_rows_that_do_not_fit_are_an_error(tensors, tmp_path: Path) -> None:
    model = BiEncoder.from_backbone("minilm", layers=1)
    model.save_pretrained(tmp_path, without_minilm_rows(model.state_dict()))
    stored = load_file(tmp_path / "model.safetensors")
    (rows,) = [name for name in stored if name.endswith("@changed-rows-of-minilm")]
    stored[rows] = torch.tensor([40_000], dtype=torch.int32)
    save_file(stored, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match="do not fit it"):
        BiEncoder.from_pretrained(tmp_path)


@pytest.mark.slow
def test_a_stored_run_takes_little_room_and_reads_as_it_was_trained(private_cache: Path) -> None:
    pairs = cde.Pairs(["red boats", "green hills"] * 4, [f"on water {n}" for n in range(8)])
    run = cde.train(cde.TrainConfig(architecture="bi-encoder", layers=1, **BRIEF), pairs)
    file = run.folder / "model" / "model.safetensors"
    table = BiEncoder.from_pretrained(run.folder / "model").state_dict()[WORDS]
    assert file.stat().st_size < table.nbytes / 4
    start = BiEncoder.from_backbone("minilm", layers=1)
    ids = start.tokenizer(["red boats green hills on water"])["input_ids"][0]
    moved = (table != start.state_dict()[WORDS]).any(dim=1).nonzero().flatten().tolist()
    numbers = start.tokenizer(["0 1 2 3 4 5 6 7"])["input_ids"][0]
    assert set(ids) <= set(moved) <= {*ids, *numbers}  # the words of its texts, and no others
    from sentence_transformers import SentenceTransformer

    expected = run.model().encode_documents(["red boats"])
    sentences = SentenceTransformer(str(run.folder / "model"), device="cpu")
    assert abs(sentences.encode_document(["red boats"]) - expected).max() < 2e-2

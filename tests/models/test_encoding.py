"""Batches of texts by length, and what the loop over them promises; the model is a stand-in."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from tiny_encoders import tokenizer
from torch import Tensor

from cde.models import encoder as encoding
from cde.models.encoder import encode_texts, token_batches, tokenise

LETTERS = "abcdefghij"
Batch = tuple[Tensor, Tensor | None]


class Counter:
    """In the model's place: how often each letter occurs, and a list of what it was given."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []

    def __call__(self, ids: Tensor, mask: Tensor | None) -> Tensor:
        self.batches.append((ids, mask))
        seen = torch.ones_like(ids) if mask is None else mask
        letters = torch.nn.functional.one_hot(ids, 64)[..., 5 : 5 + len(LETTERS)]
        return (letters * seen[..., None]).sum(1).float()


def encode(texts: list[str], model: Counter, **options: object) -> NDArray[np.float32]:
    chosen = {
        "shape": (len(LETTERS),), "max_tokens": 64, "device": torch.device("cpu"),
        "precision": "float32", "normalise": False, **options,
    }  # fmt: skip
    return encode_texts(texts, tokenizer(), model, **chosen)  # type: ignore[arg-type]


def spaced(text: str) -> str:
    """Each letter a token of its own, of the kind that stands at the start of a word."""
    return " ".join(text)


LISTS = st.lists(st.text(LETTERS, min_size=1, max_size=20).map(spaced), min_size=1, max_size=25)


@given(st.lists(st.integers(1, 600), max_size=60), st.integers(1, 3000), st.integers(0, 300))
def test_batches_hold_every_text_once_within_the_work_longest_first(
    lengths: list[int], work: int, extra: int
) -> None:
    """And none is smaller than it needs to be: the next, shorter text would not have fitted."""
    batches = token_batches(lengths, work, extra)
    order = [index for batch in batches for index in batch]
    assert sorted(order) == list(range(len(lengths)))
    assert [lengths[index] for index in order] == sorted(lengths, reverse=True)
    for batch in batches:
        cost = lengths[batch[0]] + extra  # of its longest text, and so of each
        assert len(batch) == 1 or len(batch) * cost <= work
        assert batch is batches[-1] or (len(batch) + 1) * cost > work


@given(LISTS, st.integers(1, 300))
def test_each_row_is_that_of_its_text_whatever_the_batches(texts: list[str], work: int) -> None:
    """Duplicates included, which are embedded once: the list is lengthened by its own beginning."""
    texts, model = texts + texts[: len(texts) // 2], Counter()
    vectors = encode(texts, model, work=work)
    np.testing.assert_array_equal(
        vectors, [[text.count(letter) for letter in LETTERS] for text in texts]
    )
    assert sum(len(ids) for ids, _ in model.batches) == len(set(texts))
    assert all(len(ids) == 1 or ids.numel() <= work for ids, _ in model.batches)


@given(LISTS)
def test_padding_stands_on_the_right_where_the_mask_is_false(texts: list[str]) -> None:
    model = Counter()
    encode(texts, model)
    for ids, mask in model.batches:
        lengths = [len(row) for row in tokenise(tokenizer(), texts, 64)]
        assert ids.shape[1] in lengths
        real = torch.ones_like(ids, dtype=torch.bool) if mask is None else mask
        assert ((ids == 0) == ~real).all()
        assert (real[:, 1:] <= real[:, :-1]).all()
        assert mask is None or not mask.all()  # nothing is masked where nothing is padded


def test_texts_of_several_portions_are_tokenised_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [spaced(LETTERS[: i % 10 + 1]) for i in range(23)]
    whole = tokenise(tokenizer(), texts, 7)
    monkeypatch.setattr(encoding, "_PORTION", 5)
    parts = tokenise(tokenizer(), texts, 7)
    assert [row.tolist() for row in parts] == [row.tolist() for row in whole]
    assert max(len(row) for row in whole) == 7
    assert all((row[0], row[-1]) == (1, 2) for row in whole)


def test_several_vectors_a_text_keep_their_shape_and_are_normalised_each() -> None:
    def twice(ids: Tensor, mask: Tensor | None) -> Tensor:
        counts = Counter()(ids, mask)
        return torch.stack([counts, 2 * counts.flip(1)], dim=1)

    texts = [spaced("ab"), spaced("cddd"), spaced("ab")]
    plain = encode(texts, twice)  # type: ignore[arg-type]
    assert plain.shape == (3, 2, 10)
    assert plain[1, 0].tolist() == [0, 0, 1, 3, 0, 0, 0, 0, 0, 0]
    np.testing.assert_array_equal(plain[:, 1], 2 * plain[:, 0, ::-1])
    normalised = encode(texts, twice, normalise=True)  # type: ignore[arg-type]
    lengths = np.linalg.norm(normalised, axis=-1)
    np.testing.assert_allclose(lengths, 1, atol=1e-6)


def test_vectors_that_are_not_finite_are_refused() -> None:
    def broken(ids: Tensor, mask: Tensor | None) -> Tensor:
        return Counter()(ids, mask) / 0

    with pytest.raises(ValueError, match="vectors that are not finite"):
        encode([spaced("ab")], broken)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("precision", "expected"), [("float32", torch.float32), ("bfloat16", torch.bfloat16)]
)
def test_the_precision_is_that_of_matrix_products(precision: str, expected: torch.dtype) -> None:
    products: list[Tensor] = []

    def product(ids: Tensor, mask: Tensor | None) -> Tensor:
        products.append(Counter()(ids, mask) @ torch.eye(10))
        return products[-1]

    vectors = encode([spaced("aab")], product, precision=precision)  # type: ignore[arg-type]
    assert products[0].dtype == expected
    assert vectors.dtype == np.float32
    assert vectors[0].tolist() == [2, 1, 0, 0, 0, 0, 0, 0, 0, 0]

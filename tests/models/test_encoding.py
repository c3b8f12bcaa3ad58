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
from cde.validation import checked_texts

LETTERS = "abcdefghij"
Batch = tuple[Tensor, Tensor | None]

pytestmark = pytest.mark.usefixtures("one_thread")


class Counter:
    """Stands in for the model: how often each letter occurs in a text, and a list of what it was
    given.
    """

    def __init__(self) -> None:
        self.batches: list[Batch] = []

    def __call__(self, ids: Tensor, mask: Tensor | None) -> Tensor:
        self.batches.append((ids, mask))
        seen = torch.ones_like(ids) if mask is None else mask
        letters = torch.nn.functional.one_hot(ids, 64)[..., 5 : 5 + len(LETTERS)]
        return (letters * seen[..., None]).sum(1).float()


def encode(texts: list[str], model: Counter, **options: object) -> NDArray[np.float32]:
    chosen = {
        "shape": (len(LETTERS),),
        "max_tokens": 64,
        "device": torch.device("cpu"),
        "precision": "float32",
        "normalise": False,
        **options,
    }
    return encode_texts(texts, tokenizer(), model, **chosen)  # type: ignore[arg-type]


def spaced(text: str) -> str:
    return " ".join(
        text
    )  # each letter a token of its own, of the kind that stands at the start of a word


LISTS = st.lists(st.text(LETTERS, min_size=1, max_size=20).map(spaced), min_size=1, max_size=25)


# --- batches


@given(st.lists(st.integers(0, 600), max_size=60), st.integers(1, 3000), st.integers(0, 300))
def test_batches_hold_every_text_once_within_the_work_longest_first(
    lengths: list[int], work: int, extra: int
) -> None:
    batches = token_batches(lengths, work, extra)
    order = [index for batch in batches for index in batch]
    assert sorted(order) == list(range(len(lengths)))
    assert all(batches)
    assert [lengths[index] for index in order] == sorted(lengths, reverse=True)
    for batch in batches:
        assert (
            len(batch) == 1 or len(batch) * (max(lengths[index] for index in batch) + extra) <= work
        )


@given(
    st.lists(st.integers(1, 600), min_size=1, max_size=60),
    st.integers(1, 3000),
    st.integers(0, 300),
)
def test_no_batch_has_room_for_the_text_after_it(lengths: list[int], work: int, extra: int) -> None:
    """So that no batch is smaller than it needs to be: the next, shorter text would not have
    fitted.
    """
    batches = token_batches(lengths, work, extra)
    for batch in batches[:-1]:
        assert (len(batch) + 1) * (lengths[batch[0]] + extra) > work


def test_the_context_counts_as_work() -> None:
    assert [len(batch) for batch in token_batches([10] * 6, 60)] == [6]
    assert [len(batch) for batch in token_batches([10] * 6, 60, extra=10)] == [3, 3]
    assert [len(batch) for batch in token_batches([10] * 3, 60, extra=500)] == [1, 1, 1]


# --- the loop


@given(LISTS, st.integers(1, 300))
def test_each_row_is_that_of_its_text_whatever_the_batches(texts: list[str], work: int) -> None:
    """Duplicates included: the list is lengthened by its own beginning."""
    texts = texts + texts[: len(texts) // 2]
    vectors = encode(texts, Counter(), work=work)
    np.testing.assert_array_equal(
        vectors, [[text.count(letter) for letter in LETTERS] for text in texts]
    )


@given(LISTS, st.integers(1, 300))
def test_each_distinct_text_is_embedded_once(texts: list[str], work: int) -> None:
    model = Counter()
    encode(texts + texts, model, work=work)
    assert sum(len(ids) for ids, _ in model.batches) == len(set(texts))
    shapes = [ids.shape for ids, _ in model.batches]
    assert all(rows == 1 or rows * length <= work for rows, length in shapes)
    assert [length for _, length in shapes] == sorted(
        (length for _, length in shapes), reverse=True
    )


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


def test_vectors_have_unit_length_unless_asked_otherwise() -> None:
    texts = [spaced("abc"), spaced("aa")]
    np.testing.assert_allclose(
        np.linalg.norm(encode(texts, Counter(), normalise=True), axis=1), 1, atol=1e-6
    )
    np.testing.assert_allclose(
        np.linalg.norm(encode(texts, Counter()), axis=1), [3**0.5, 2], atol=1e-6
    )


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


def test_embedding_leaves_no_graph_behind() -> None:
    weight = torch.ones(10, requires_grad=True)
    made: list[Tensor] = []

    def weighted(ids: Tensor, mask: Tensor | None) -> Tensor:
        made.append(Counter()(ids, mask) * weight)
        return made[-1]

    encode([spaced("ab")], weighted)  # type: ignore[arg-type]
    assert not made[0].requires_grad


# --- texts and precision


@pytest.mark.parametrize("texts", [[], ["a"], ("a", "b"), np.array(["a", "b"])])
def test_lists_of_strings_come_back_as_lists(texts: list[str]) -> None:
    assert checked_texts(texts) == list(texts)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ("red boats", "one string was given: put it in a list"),
        (["a", 3], "item 1 is of type int"),
        (["a", "b", None], "item 2 is of type NoneType"),
        ([b"a"], "item 0 is of type bytes"),
        ([["a"]], "item 0 is of type list"),
    ],
)
def test_anything_else_is_refused_by_its_place_and_type(texts: list[str], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        checked_texts(texts)


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

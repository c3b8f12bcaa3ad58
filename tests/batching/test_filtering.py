"""S(q, d) of Eq. 4 against its definition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cde
from cde.batching.filtering import removed_share


def vectors(n: int, hard: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    # whole numbers, so that equal scores are exactly equal
    return (
        generator.integers(-3, 4, (n, 3)).astype(np.float32),
        generator.integers(-3, 4, (n * (1 + hard), 3)).astype(np.float32),
    )


@given(
    n=st.integers(1, 9),
    hard=st.integers(0, 3),
    seed=st.integers(0, 10**6),
    epsilon=st.integers(-4, 4),
    absolute=st.booleans(),
    block=st.integers(1, 10),
)
def test_it_is_the_set_of_equation_4(
    n: int, hard: int, seed: int, epsilon: int, absolute: bool, block: int
) -> None:
    queries, documents = vectors(n, hard, seed)
    threshold = float(epsilon) if absolute else None
    filtered = cde.false_negatives(queries, documents, float(epsilon), threshold, block)
    for i in range(n):
        for j in range(len(documents)):
            own = i == j or (j >= n and (j - n) // hard == i)
            score = queries[i] @ documents[j]
            limit = epsilon if absolute else queries[i] @ documents[i] + epsilon
            assert filtered[i, j] == (not own and score >= limit)


@given(n=st.integers(1, 9), seed=st.integers(0, 10**6))
def test_a_larger_margin_filters_less(n: int, seed: int) -> None:
    queries, documents = vectors(n, 1, seed)
    narrow, wide = (cde.false_negatives(queries, documents, epsilon) for epsilon in (0.0, 1.0))
    assert not (wide & ~narrow).any()


def test_a_copy_of_the_labelled_document_is_filtered() -> None:
    generator = np.random.default_rng(0)
    queries = generator.normal(size=(300, 64)).astype(np.float32)
    documents = generator.normal(size=(300, 64)).astype(np.float32)
    documents[7] = documents[3]
    filtered = cde.false_negatives(queries, documents, block=128)
    assert filtered[3, 7] and filtered[7, 3]


def test_the_removed_share_is_that_of_a_loop_over_pairs() -> None:
    queries, documents = vectors(9, 0, 3)
    batches = [np.array([0, 3, 5, 7]), np.array([8, 1, 2]), np.array([4])]
    expected = np.full(9, np.nan)
    for batch in batches[:2]:
        for row in batch:
            mates = [other for other in batch if other != row]
            gone = [queries[row] @ documents[m] >= queries[row] @ documents[row] for m in mates]
            expected[row] = np.mean(gone)
    found = removed_share(queries, documents, batches)
    np.testing.assert_allclose(found, expected)
    assert 0 < np.nanmean(found) < 1


@pytest.mark.parametrize(
    ("queries", "documents", "message"),
    [
        (np.zeros((2, 3)), np.zeros((3, 3)), "3 documents for 2 queries"),
        (np.zeros((2, 3)), np.zeros((2, 4)), "must be"),
        (np.zeros((0, 3)), np.zeros((2, 3)), "2 documents for 0 queries"),
        (np.full((2, 3), np.nan), np.zeros((2, 3)), "not numbers"),
    ],
)
def test_what_does_not_fit_is_refused(
    queries: np.ndarray, documents: np.ndarray, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        cde.false_negatives(queries.astype(np.float32), documents.astype(np.float32))


@pytest.mark.parametrize("n", [5, 7, 13, 33])
def test_every_copy_of_the_labelled_document_is_left_out_whatever_the_sum_s_last_bit(
    n: int,
) -> None:
    for seed in range(20):
        generator = np.random.default_rng(seed)
        queries, documents = generator.normal(size=(2, n, 384)).astype(np.float32)
        documents[n - 1] = documents[0]
        filtered = cde.false_negatives(queries, documents)
        assert filtered[0, n - 1] and filtered[n - 1, 0]

"""S(q, d) of Eq. 4 against its definition, and hard negatives."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cde
from cde.batching import negatives
from cde.batching.negatives import mine_hard_negatives


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
    with patch.object(negatives, "_ROWS", block):
        filtered = cde.false_negatives(queries, documents, float(epsilon), threshold)
    for i in range(n):
        for j in range(len(documents)):
            own = i == j or (j >= n and (j - n) // hard == i)
            score = queries[i] @ documents[j]
            limit = epsilon if absolute else queries[i] @ documents[i] + epsilon
            assert filtered[i, j] == (not own and score >= limit)


@pytest.mark.parametrize("n", [5, 7, 13, 33, 300])
def test_a_copy_of_the_labelled_document_is_filtered(n: int) -> None:
    """Whatever the last bit of the sum, and in any block of rows."""
    for seed in range(20):
        generator = np.random.default_rng(seed)
        queries, documents = generator.normal(size=(2, n, 384)).astype(np.float32)
        documents[n - 1] = documents[0]
        with patch.object(negatives, "_ROWS", 128):
            filtered = cde.false_negatives(queries, documents)
        assert filtered[0, n - 1] and filtered[n - 1, 0]


def test_vectors_of_few_bits_are_compared_as_floats() -> None:
    """Products of int8 would overflow, and those of float16 tie."""
    small = np.random.default_rng(0).integers(-99, 100, (2, 40, 3)).astype(np.int8)
    half = (small[:, :, :2] / 99).astype(np.float16)
    for queries, documents in (small, half):
        exact = queries.astype(np.float32), documents.astype(np.float32)
        assert (cde.false_negatives(queries, documents) == cde.false_negatives(*exact)).all()
        mined = mine_hard_negatives(queries, documents, 2)
        assert (mined == mine_hard_negatives(*exact, 2)).all()


def test_what_does_not_fit_is_refused() -> None:
    bad = np.full((3, 3), np.nan)
    for call, message in (
        (lambda: cde.false_negatives(np.eye(3)[:2], np.eye(3)), "3 documents for 2 queries"),
        (lambda: cde.false_negatives(bad, np.eye(3)), "query_vectors must hold finite numbers"),
        (lambda: mine_hard_negatives(np.eye(3), np.eye(3)[:2], 1), "must both be"),
        (lambda: mine_hard_negatives(np.eye(3), bad, 1), "document_vectors must hold finite"),
        (lambda: mine_hard_negatives(np.eye(3), np.eye(3), 1, epsilon=np.nan), "epsilon must be"),
    ):
        with pytest.raises(ValueError, match=message):
            call()


def test_hard_negatives_are_the_nearest_that_are_not_false() -> None:
    generator = np.random.default_rng(0)
    vectors = generator.normal(size=(60, 8)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    queries = vectors + 0.3 * generator.normal(size=vectors.shape).astype(np.float32)
    domains = np.array(["a", "b"])[np.arange(60) % 2]
    negatives = mine_hard_negatives(queries, vectors, 3, domains.tolist(), epsilon=-0.1)
    for row in range(60):
        scores = {
            other: queries[row] @ vectors[other]
            for other in range(60)
            if other != row and domains[other] == domains[row]
        }
        true = {
            other: score
            for other, score in scores.items()
            if score < queries[row] @ vectors[row] - 0.1
        }
        expected = sorted(true, key=lambda other: -true[other])[:3]
        assert negatives[row].tolist()[: len(expected)] == expected


def test_hard_negatives_of_a_large_domain_are_those_of_a_small_one() -> None:
    """Domains are mined in blocks of rows: each query's own document is its own in every block."""
    generator = np.random.default_rng(0)
    documents = generator.normal(size=(1500, 6)).astype(np.float32)
    documents /= np.linalg.norm(documents, axis=1, keepdims=True)
    queries = documents + 0.4 * generator.normal(size=documents.shape).astype(np.float32)
    mined = mine_hard_negatives(queries, documents, 1)[:, 0]
    scores = queries @ documents.T
    true = np.where(scores < np.diag(scores)[:, None], scores, -np.inf)
    assert (mined == true.argmax(axis=1)).mean() > 0.99


def at(*cosines: float) -> np.ndarray:
    """Vectors with these cosines to (1, 0), on one side of it; below 0 on the other."""
    return np.array([[abs(one), np.sign(one) * (1 - one**2) ** 0.5] for one in cosines], np.float32)


def test_false_negatives_are_mined_last_and_copies_of_the_labelled_document_never() -> None:
    queries = np.array([[1, 0], [0.99, 0.01], [0.98, 0], [0.97, 0], [0.96, 0]], np.float32)
    # 1 is a copy of 0; 4 is as near, and another document
    documents = at(0.9, 0.9, 0.3, 0.2, -0.9)
    assert mine_hard_negatives(queries, documents, 3)[0].tolist() == [2, 3, 4]
    # a margin below 0 makes false negatives of documents that score less than the labelled one
    mined = mine_hard_negatives(queries, at(1.0, 0.9, 0.3, 0.2, 0.1), 4, epsilon=-0.5)
    assert mined[0].tolist() == [2, 3, 4, 1]
    # whatever the vectors' lengths
    again = mine_hard_negatives(100 * queries, at(1.0, 0.9, 0.3, 0.2, 0.1), 4, epsilon=-50)
    assert again[0].tolist() == [2, 3, 4, 1]
    with pytest.raises(ValueError, match="pair 0 has too few documents for 4 .*: 3 of 5 do not"):
        mine_hard_negatives(queries, documents, 4)


@pytest.mark.parametrize("domains", [None, ["a", "a", "b", "a", "a", "a", "b"]])
def test_no_answer_of_the_query_is_mined_nor_a_copy_of_one(domains: list[str] | None) -> None:
    """Pairs 0, 1 and 2 ask one question; 3 has the text of its second answer."""
    queries = at(1.0, 1.0, 1.0, 0.9, 0.8, 0.7, 0.6)
    documents = at(0.8, 0.99, 0.85, 0.99, 0.4, 0.3, 0.2)
    mined = mine_hard_negatives(queries, documents, 1, domains).ravel().tolist()
    assert mined[:3] == ([4, 4, 4] if domains is None else [4, 4, 6])
    with pytest.raises(ValueError, match="0 of 4 do not answer it"):
        mine_hard_negatives(np.ones((4, 8), np.float32), np.ones((4, 8), np.float32), 2)

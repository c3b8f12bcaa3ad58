"""Drift is nothing without change, more where more has changed, and blind to what it must not see."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from cde_studies.results.staleness import moved, vector_drift, vocabulary_drift

RANDOM = np.random.default_rng(0)
SEA = [f"word{a} sea{b} boat{c}" for a, b, c in RANDOM.integers(0, 12, (240, 3))]
SOUP = [f"word{a} leek{b} pan{c}" for a, b, c in RANDOM.integers(0, 12, (240, 3))]


def vectors(rows: int, shift: float = 0.0, dim: int = 16) -> np.ndarray:
    return RANDOM.normal(size=(rows, dim)) + shift


@pytest.mark.parametrize("size", [16, 64, 120])
def test_a_sample_of_the_corpus_itself_has_not_drifted(size: int) -> None:
    """A context is a small sample: how small must not look like drift."""
    assert vocabulary_drift(SEA[:size], SEA[120:]) < 0.08
    assert vector_drift(vectors(size), vectors(240)) < 0.25


def test_words_drift_the_further_the_more_of_the_corpus_is_replaced() -> None:
    found = [
        vocabulary_drift(SEA[:120], [*SEA[120 + gone :], *SOUP[:gone]])
        for gone in range(0, 121, 30)
    ]
    assert all(later > earlier for earlier, later in pairwise(found))
    assert found[-1] > 0.5
    other = [f"tree{n % 7} hill{n % 5}" for n in range(120)]
    assert vocabulary_drift(SEA[:120], other) == pytest.approx(1.0)


def test_the_order_of_texts_says_nothing_but_by_the_draw() -> None:
    before, now = SEA[:120], [*SEA[120:180], *SOUP[:60]]
    shuffled = [now[row] for row in RANDOM.permutation(len(now))]
    drift = vocabulary_drift(before, now)
    assert vocabulary_drift(before, shuffled) == pytest.approx(drift, abs=0.05)


def test_vector_drift_is_the_distance_of_means_and_knows_no_unit_or_place() -> None:
    before, now = vectors(3000), vectors(3000, shift=0.5)
    found = vector_drift(before, now)
    assert found == pytest.approx(0.5, abs=0.05)
    turned = np.linalg.qr(RANDOM.normal(size=(16, 16)))[0]
    assert vector_drift(7 * before @ turned + 3, 7 * now @ turned + 3) == pytest.approx(found)
    assert vector_drift(now, before) == pytest.approx(found)


def test_moved_is_nothing_in_the_same_context_and_one_where_documents_change_places() -> None:
    before = vectors(50)
    assert moved(before, before) == 0
    assert moved(before, np.roll(before, 1, axis=0)) == pytest.approx(1, abs=0.1)
    step = before + 0.01 * RANDOM.normal(size=before.shape)
    assert moved(100 * before, 100 * step) == pytest.approx(moved(before, step))

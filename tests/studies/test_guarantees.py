"""The triangle inequality on the sphere, and what clusters promise by it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pairs_in_groups import drawn, unit

from cde_studies.batches.guarantees import cosine_bounds, negative_guarantees


@given(st.floats(0, np.pi), st.floats(0, np.pi))
def test_the_bounds_are_reached_in_the_plane(first: float, second: float) -> None:
    low, high = cosine_bounds(np.cos(first), np.cos(second))
    on_both_sides = [np.cos(first + second), np.cos(first - second)]
    assert high == pytest.approx(max(on_both_sides), abs=1e-9)
    farthest = -1.0 if first + second > np.pi else min(on_both_sides)
    assert low == pytest.approx(farthest, abs=1e-9)


def test_what_is_guaranteed_is_so() -> None:
    queries, documents = drawn(60, 4)
    documents = unit(queries + 0.4 * documents)  # near its query
    found = negative_guarantees(queries, documents, (queries[:, 0] > 0).astype(np.int64))
    assert 0 < found["guaranteed"].mean() < 1
    assert (found["guaranteed"] <= found["harder"]).all()


def test_random_clusters_hold_the_hardest_negatives_by_chance_alone() -> None:
    queries, documents = drawn(400, 8, 2)
    labels = np.random.default_rng(4).integers(4, size=400)
    found = negative_guarantees(queries, documents, labels)
    excess = found["hardest_inside"] - found["by_chance"]
    assert abs(excess.mean()) < 4 * excess.std() / np.sqrt(len(excess))
    assert found["inside"].mean() == pytest.approx(found["outside"].mean(), abs=0.02)


def test_neither_a_turn_nor_the_names_of_clusters_matter() -> None:
    queries, documents = drawn(50, 5, 5)
    labels = np.random.default_rng(7).integers(3, size=50)
    turn = np.linalg.qr(np.random.default_rng(8).normal(size=(5, 5)))[0].astype(np.float32)
    one = negative_guarantees(queries, documents, labels)
    other = negative_guarantees(queries @ turn, documents @ turn, 7 - labels)
    np.testing.assert_allclose(one, other, atol=1e-5)


def test_copies_of_the_own_document_are_no_negatives() -> None:
    queries, documents = drawn(20, 4, 9)
    labels = np.arange(20) % 2
    alone = negative_guarantees(queries, documents, labels, np.array([0]))
    twice = negative_guarantees(
        np.vstack([queries, queries[:1]]),
        np.vstack([documents, documents[:1]]),
        np.append(labels, 0),
        np.array([0]),
    )
    same = ["inside", "outside", "hardest_inside", "by_chance"]
    np.testing.assert_allclose(alone[same], twice[same], atol=1e-6)

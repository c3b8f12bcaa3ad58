"""Batches and clusters against plain loops: objectives, similarity, difficulty, the filter."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pairs_in_groups import drawn, groups, unit

from cde.batching.clustering import cluster_pairs
from cde.batching.packing import pack_batches
from cde_studies.batches.statistics import (
    batch_difficulty,
    batch_objective,
    cluster_members,
    cluster_statistics,
    mean_pairwise_cosine,
    paired_distance,
    removed_share,
)


def test_equation_3_by_hand() -> None:
    flat = np.array([[0.0], [4.0]], np.float32), np.array([[2.0], [2.0]], np.float32)
    # centre 2: (0 + 2 + 0 + 2) / 2
    assert paired_distance(*flat, [np.array([0, 1])]) == pytest.approx(2)
    # centres 1 and 3
    assert paired_distance(*flat, [np.array([0]), np.array([1])]) == pytest.approx(2)


@given(st.integers(0, 50), st.lists(st.integers(0, 3), min_size=2, max_size=15))
def test_equation_2_equals_the_double_sum(seed: int, labels: list[int]) -> None:
    queries, documents = drawn(len(labels), 5, seed)
    batches = cluster_members(np.array(labels))
    each = [
        (documents[i] @ queries[j] + documents[j] @ queries[i]) / 2
        for batch in batches
        for i in batch
        for j in batch
        if i != j
    ]
    if each:
        found = batch_objective(queries, documents, batches)
        assert found == pytest.approx(np.mean(each), abs=1e-5)
    if len(labels) == 2:
        whole = batch_objective(queries, documents, [np.arange(2)])
        of_batch = batch_difficulty(queries, documents, np.arange(2))
        assert whole == pytest.approx(of_batch["mean"], abs=1e-6)


def test_clustered_batches_come_nearer_to_both_objectives_than_shuffled_ones() -> None:
    queries, documents, _ = groups(10, 40, noise=0.4)
    labels = cluster_pairs(queries, documents, cluster_size=20)
    clustered, shuffled = (pack_batches(one, 20) for one in (labels, np.zeros_like(labels)))
    scores = [batch_objective(queries, documents, one) for one in (clustered, shuffled)]
    assert scores[0] > scores[1] + 0.1
    # the clusters themselves, uncut, are nearer still
    ways = (cluster_members(labels), clustered, shuffled)
    distances = [paired_distance(queries, documents, one) for one in ways]
    assert distances[0] < distances[1] < distances[2] - 0.1


@given(st.integers(0, 20), st.lists(st.sampled_from([0, 1, 4]), min_size=1, max_size=20))
def test_statistics_equal_those_of_a_double_loop_in_pandas(seed: int, labels: list[int]) -> None:
    vectors = np.random.default_rng(seed).normal(size=(len(labels), 3)).astype(np.float32)
    sources = [("scipy", "torch", "numpy")[seed % (place + 1) % 3] for place in range(len(labels))]
    statistics = cluster_statistics(vectors, np.array(labels), sources)
    frame = pd.DataFrame({"cluster": labels, "source": sources})
    assert statistics["size"].to_dict() == frame.groupby("cluster").size().to_dict()
    held = frame.groupby("cluster")["source"]
    assert statistics["source"].to_dict() == held.agg(lambda s: s.mode()[0]).to_dict()
    shares = held.agg(lambda s: s.value_counts(normalize=True).max())
    assert statistics["source_share"].to_dict() == pytest.approx(shares.to_dict())
    for cluster, rows in frame.groupby("cluster"):
        own = unit(vectors[rows.index])
        mates = [own[i] @ own[j] for i in range(len(own)) for j in range(len(own)) if i != j]
        expected = pytest.approx(np.mean(mates) if mates else np.nan, abs=1e-5, nan_ok=True)
        assert statistics.loc[cluster, "similarity"] == expected


def test_statistics_at_the_edges() -> None:
    assert np.isnan(mean_pairwise_cosine(np.ones((1, 3))))
    with_zeros = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 0.0]])
    assert mean_pairwise_cosine(with_zeros) == pytest.approx(1 / 3)
    assert [len(members) for members in cluster_members(np.array([0, 2, 2]))] == [1, 0, 2]


def test_difficulty_by_hand() -> None:
    """Queries on two axes, documents on the same and between: cosines 0 and √½."""
    half = np.sqrt(0.5)
    queries = np.array([[1, 0], [0, 1]], np.float32)
    documents = np.array([[1, 0], [half, half]], np.float32)
    for temperature in (1.0, 0.25):
        difficulty = batch_difficulty(queries, documents, np.array([0, 1]), None, temperature)
        assert difficulty["mean"] == pytest.approx((half + 0) / 2)
        assert difficulty["hardest"] == pytest.approx((half + 0) / 2)
        one, root = 1 / temperature, half / temperature
        expected = np.log(np.exp(one) + np.exp(root)) - one + np.log(1 + np.exp(root)) - root
        assert difficulty["loss"] == pytest.approx(expected / 2)


def test_the_removed_share_is_that_of_a_loop_over_pairs() -> None:
    # whole numbers, so that equal scores are exactly equal
    queries, documents = np.random.default_rng(3).integers(-3, 4, (2, 9, 3)).astype(np.float32)
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

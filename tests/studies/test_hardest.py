"""Bounds, search and all ways of Eq. 2, against each other and against plain loops."""

from __future__ import annotations

import math

import numpy as np
import pytest
from pairs_in_groups import drawn

from cde.batching.packing import pack_batches
from cde_studies.batches.hardest import (
    all_partitions,
    direct_search,
    objective_bounds,
    partition_objectives,
)
from cde_studies.batches.statistics import (
    batch_objective,
    cut_clusters,
    mates_met_again,
    mean_pair_distance,
    paired_distance,
)


@pytest.mark.parametrize(("count", "batch"), [(4, 2), (6, 3), (8, 2), (8, 4), (3, 3)])
def test_all_ways_are_there_once(count: int, batch: int) -> None:
    ways = all_partitions(count, batch)
    groups = count // batch
    expected = math.factorial(count) // (math.factorial(batch) ** groups * math.factorial(groups))
    assert ways.shape == (expected, groups, batch)
    assert (np.sort(ways.reshape(expected, -1), axis=1) == np.arange(count)).all()
    assert len({frozenset(frozenset(one) for one in way) for way in ways.tolist()}) == expected


def test_the_objective_of_a_way_is_that_of_its_batches() -> None:
    queries, documents = drawn(8, 4)
    ways = all_partitions(8, 4)
    expected = [batch_objective(queries, documents, list(way)) for way in ways]
    objectives = partition_objectives(queries, documents, ways)
    np.testing.assert_allclose(objectives, expected, atol=1e-6)


def test_no_batches_pass_the_bounds() -> None:
    queries, documents = drawn(8, 4)
    worst, best = objective_bounds(queries, documents, 4, 100, np.random.default_rng(0), block=3)
    values = partition_objectives(queries, documents, all_partitions(8, 4))
    assert len(worst) == len(best) == 8
    assert worst.mean() <= values.min() + 1e-6
    assert best.mean() >= values.max() - 1e-6


def test_the_search_uses_each_pair_once_and_beats_chance() -> None:
    queries, documents = drawn(60, 4)
    hard_batches = direct_search(queries, documents, 8, np.random.default_rng(0))
    assert len(hard_batches) == 7
    assert len(set(np.concatenate(hard_batches).tolist())) == 56
    shuffled = pack_batches(np.zeros(60, np.int64), 8)
    of = [batch_objective(queries, documents, batches) for batches in (hard_batches, shuffled)]
    assert of[0] > of[1]


def test_m_is_at_most_twice_equation_3() -> None:
    queries, documents = drawn(12, 4)
    batches = [np.arange(6), np.arange(6, 12)]
    m = mean_pair_distance(queries, documents, batches)
    assert m <= 2 * paired_distance(queries, documents, batches)
    first = [
        np.linalg.norm(documents[i] - queries[j]) + np.linalg.norm(documents[j] - queries[i])
        for i in range(6)
        for j in range(6)
        if i != j
    ]
    assert mean_pair_distance(queries, documents, batches[:1]) == pytest.approx(np.mean(first))


def test_cut_clusters_counts_what_is_split_and_dropped() -> None:
    labels = np.array([0, 0, 1, 1, 2, 2, 2])
    counts = cut_clusters(labels, [np.array([0, 1, 2]), np.array([3, 4, 5])])
    assert counts["clusters split"] == pytest.approx(1 / 3)
    assert counts["clusters in a batch"] == 2
    assert counts["pairs dropped"] == pytest.approx(1 / 7)


def test_equal_epochs_meet_again_whole_and_a_last_odd_one_is_left_out() -> None:
    first = [np.array([0, 1]), np.array([2, 3])]
    other = [np.array([0, 2]), np.array([1, 3])]
    assert mates_met_again([first, first, first, other, first]).tolist() == [1, 0]

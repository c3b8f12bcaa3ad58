"""Packing clusters into batches, the greedy tour, strata, the sampler, and plans."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pairs_in_groups import unit

from cde.batching import packing as batching
from cde.batching.packing import BatchSampler, PlannedBatches, greedy_tour, pack_batches


@st.composite
def packings(draw: st.DrawFn) -> dict:
    """Clusters that each lie in one of two domains, and a way of packing them."""
    n = draw(st.integers(1, 120))
    labels = np.array(draw(st.lists(st.integers(0, 9), min_size=n, max_size=n)))
    return {
        "labels": labels,
        "batch_size": draw(st.integers(1, 40)),
        "order": draw(st.sampled_from(["random", "tsp"])),
        "vectors": np.random.default_rng(0).normal(size=(n, 4)).astype(np.float32),
        "domains": labels % 2,
        "seed": draw(st.integers(0, 5)),
    }


# packing


@given(packings())
def test_every_pair_is_in_exactly_one_batch_or_at_most_one(packing: dict) -> None:
    """And no batch crosses a domain unless asked to."""
    labels, size, domains = packing["labels"], packing["batch_size"], packing["domains"]
    for cross in (False, True):
        kept = pack_batches(**packing, drop_last=False, cross_domains=cross)
        assert sorted(np.concatenate(kept).tolist()) == list(range(len(labels)))
        assert all(1 <= len(batch) <= size for batch in kept)
        parts = [len(labels)] if cross else [int((domains == domain).sum()) for domain in (0, 1)]
        assert len(kept) == sum(-(-part // size) for part in parts)
        crossing = sum(len(set(domains[batch])) > 1 for batch in kept)
        # of two domains laid end to end, one batch at most holds the border
        inevitable = cross and all((domains == domain).sum() % size for domain in (0, 1))
        assert int(inevitable) <= crossing <= int(cross)
        if max(parts) < size:
            with pytest.raises(ValueError, match="not one batch"):
                pack_batches(**packing, drop_last=True, cross_domains=cross)
            continue
        whole = pack_batches(**packing, drop_last=True, cross_domains=cross)
        given_out = [row for batch in whole for row in batch.tolist()]
        assert len(given_out) == len(set(given_out))
        assert all(len(batch) == size for batch in whole)
        assert cross or all(len(set(domains[batch])) == 1 for batch in whole)
        assert len(whole) == sum(part // size for part in parts)


@given(packings(), st.booleans())
def test_packing_keeps_clusters_together(packing: dict, cross: bool) -> None:
    """A cluster of c pairs touches no more batches than it must, plus one for where it begins."""
    labels, size = packing["labels"], packing["batch_size"]
    batches = pack_batches(**packing, drop_last=False, cross_domains=cross)
    for cluster in set(labels.tolist()):
        count = int((labels == cluster).sum())
        held = [
            int((labels[batch] == cluster).sum()) for batch in batches if cluster in labels[batch]
        ]
        assert len(held) <= -(-count // size) + 1
        # all but its first and its last batch hold nothing else
        assert sum(own == size for own in held) >= len(held) - 2


def test_across_domains_any_two_may_meet() -> None:
    """The domains are laid end to end in a new order each time."""
    domains = np.repeat(["a", "b", "c"], 3)
    met = set()
    for seed in range(30):
        batches = pack_batches(np.arange(9), 2, domains=domains, seed=seed, cross_domains=True)
        met |= {tuple(sorted(set(domains[batch]))) for batch in batches}
    assert {pair for pair in met if len(pair) == 2} == {("a", "b"), ("a", "c"), ("b", "c")}


@given(st.lists(st.integers(0, 4), min_size=1, max_size=40), st.integers(1, 50))
def test_centroids_are_means_however_the_vectors_are_read(labels: list[int], block: int) -> None:
    local = np.unique(labels, return_inverse=True)[1]
    vectors = np.random.default_rng(0).normal(size=(2 * len(labels), 3)).astype(np.float32)
    rows = np.arange(0, 2 * len(labels), 2)
    expected = [vectors[rows][local == cluster].mean(axis=0) for cluster in range(local.max() + 1)]
    assert batching._centroids(vectors, rows, local, block) == pytest.approx(
        np.stack(expected), abs=1e-5
    )


def test_neighbours_on_the_tour_share_a_batch() -> None:
    vectors = np.array([[0], [100], [1], [101], [2], [102]], np.float32).repeat(3, axis=0)
    labels = np.arange(6).repeat(3)
    for seed in range(5):
        batches = pack_batches(labels, 9, "tsp", vectors, seed=seed)
        labels_by_batch = sorted(sorted(set(labels[batch].tolist())) for batch in batches)
        assert labels_by_batch == [[0, 2, 4], [1, 3, 5]]


def test_the_tour_of_a_domain_starts_where_the_seed_says() -> None:
    """On a ring of 16 clusters, batches of two begin at even places or at odd ones."""
    angles = 2 * np.pi * np.arange(16) / 16
    ring = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    partitions = {
        frozenset(
            frozenset(batch.tolist())
            for batch in pack_batches(range(16), 2, "tsp", ring, seed=seed)
        )
        for seed in range(8)
    }
    assert len(partitions) > 1


@pytest.mark.parametrize("drop_last", [False, True])
def test_pairs_within_a_batch_are_in_random_order(drop_last: bool) -> None:
    """Looking at the first rows of a batch, a short one too, is looking at a sample of it."""
    labels = np.repeat([0, 1], 50)
    firsts = [
        pack_batches(labels, 100 if drop_last else 101, seed=seed, drop_last=drop_last)[0][:10]
        for seed in range(20)
    ]
    assert all(len(set(labels[first])) == 2 for first in firsts)


def test_clusters_with_one_number_in_two_domains_are_two() -> None:
    vectors = np.array([[0], [9], [5], [0], [9], [5]], np.float32)
    batches = pack_batches([0, 1, 2, 0, 1, 2], 3, "tsp", vectors, ["a", "a", "a", "b", "b", "b"])
    assert sorted(sorted(batch.tolist()) for batch in batches) == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"order": "tsp"}, "from centroid to centroid: give vectors"),
        ({"domains": ["a"]}, "domains must hold one for each of the 4 pairs; it has 1"),
        ({"domains": [None, *"aaa"]}, "domains must be strings or numbers; item 0 is None"),
    ],
)
def test_bad_packing_is_named(change: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        pack_batches(**{"labels": np.zeros(4, np.int64), "batch_size": 2, **change})


def test_nothing_to_pack() -> None:
    empty = np.zeros(0, np.int64)
    assert pack_batches(empty, 4) == pack_batches(empty, 4, cross_domains=True) == []


# the tour


def brute_force(centroids: np.ndarray, start: int) -> list[int]:
    """The tour by its definition: distances in float64, the lowest index among equals."""
    centroids = centroids.astype(np.float64)
    tour, rest = [start], [place for place in range(len(centroids)) if place != start]
    while rest:
        distances = ((centroids[rest] - centroids[tour[-1]]) ** 2).sum(axis=1)
        tour.append(rest.pop(int(distances.argmin())))
    return tour


@given(
    st.integers(1, 260),
    st.integers(1, 8),
    st.integers(0, 1000),
    st.sampled_from(["normal", "grid", "offset", "few"]),
)
def test_the_tour_is_that_of_brute_force(k: int, dim: int, seed: int, kind: str) -> None:
    """Also where distances tie, float32 cannot tell near from nearest, or places are shared."""
    generator = np.random.default_rng(seed)
    centroids = generator.normal(size=(k, dim))
    if kind == "grid":
        centroids = centroids.round()
    if kind == "few":
        centroids = centroids[generator.integers(0, min(k, 3), k)]
    centroids = (centroids + (1000 if kind == "offset" else 0)).astype(np.float32)
    assert greedy_tour(centroids, start=k // 2).tolist() == brute_force(centroids, k // 2)


@pytest.mark.parametrize("dim", [1, 2, 384])
def test_the_tour_is_that_of_brute_force_when_lists_run_out(dim: int) -> None:
    """Lists are made anew several times, and single steps follow."""
    centroids = unit(np.random.default_rng(dim).normal(size=(1200, max(dim, 2))))[:, :dim]
    assert greedy_tour(centroids, 7).tolist() == brute_force(centroids, 7)


def test_a_tour_of_nothing_is_empty_and_one_that_cannot_be_is_refused() -> None:
    assert greedy_tour(np.zeros((0, 3), np.float32)).tolist() == []
    with pytest.raises(ValueError, match="start must be one of the 3 centroids; it is 3"):
        greedy_tour(np.eye(3, dtype=np.float32), 3)
    with pytest.raises(ValueError, match="finite numbers"):
        greedy_tour(np.full((3, 2), np.nan, np.float32))
    with pytest.raises(ValueError, match=r"centroids.*between ±1e\+15"):
        greedy_tour(np.eye(3) * 1e25)
    assert greedy_tour(np.array([[0.0], [9e14], [4e14]])).tolist() == [0, 2, 1]


def test_equally_near_centroids_are_visited_in_order() -> None:
    """The corners of a simplex: more of them are equally near than a list of neighbours holds."""
    corners = np.eye(300, dtype=np.float32)
    assert (
        greedy_tour(corners, 250).tolist()
        == brute_force(corners, 250)
        == [250, *range(250), *range(251, 300)]
    )
    # differences that float32 loses: the nearest may be in no list
    corners += 1e-9 * np.random.default_rng(0).normal(size=corners.shape).astype(np.float32)
    assert greedy_tour(corners, 250).tolist() == brute_force(corners, 250)


# strata


def test_strata_come_in_random_order() -> None:
    strata = np.repeat([0, 1], 500)
    batches = pack_batches(np.zeros(1000, np.int64), 10, domains=strata, seed=1)
    of_the_first = sum(int(strata[batch[0]]) == 0 for batch in batches[:50])
    assert 10 < of_the_first < 40


# the sampler


def take(sampler: BatchSampler, count: int) -> list[list[int]]:
    return [batch.tolist() for batch in itertools.islice(sampler, count)]


@given(packings(), st.booleans())
def test_an_epoch_of_the_sampler_is_that_of_packing(packing: dict, cross: bool) -> None:
    kept = {**packing, "drop_last": False, "cross_domains": cross}
    sampler = BatchSampler(**kept)
    for epoch in range(3):
        expected = pack_batches(**{**kept, "seed": packing["seed"] + epoch})
        assert sampler.batches_per_epoch == len(expected)
        assert take(sampler, len(expected)) == [batch.tolist() for batch in expected]
        assert sampler.epoch == epoch


@settings(max_examples=40)
@given(packings(), st.integers(0, 30), st.integers(0, 30))
def test_a_sampler_goes_on_where_another_stopped(
    packing: dict, before: int, elsewhere: int
) -> None:
    """In mid-epoch, at an epoch's end, after several; whatever the one that goes on did before."""
    first, second = (BatchSampler(**packing, drop_last=False) for _ in range(2))
    take(first, before)
    state = json.loads(json.dumps(first.state_dict()))
    expected = take(first, 25)
    take(second, elsewhere)
    second.load_state_dict(state)
    assert take(second, 25) == expected
    second.load_state_dict(state)
    assert second.state_dict() == state


SETTINGS = {
    "labels": np.repeat(np.arange(6), 4),
    "batch_size": 4,
    "order": "tsp",
    "vectors": np.random.default_rng(0).normal(size=(24, 3)),
    "domains": ["a"] * 12 + ["b"] * 12,
    "seed": 0,
}


@pytest.mark.parametrize(
    "change",
    [
        {"labels": np.repeat(np.arange(6), 4)[::-1]},
        {"labels": np.repeat(np.arange(3), 8)},
        {"batch_size": 2},
        {"order": "random"},
        {"vectors": np.random.default_rng(1).normal(size=(24, 3))},
        {"domains": None},
        {"seed": 1},
        {"drop_last": False},
        {"cross_domains": True},
    ],
    ids=str,
)
def test_a_state_of_other_settings_is_refused(change: dict) -> None:
    state = BatchSampler(**SETTINGS).state_dict()
    with pytest.raises(ValueError, match="other settings"):
        BatchSampler(**{**SETTINGS, **change}).load_state_dict(state)


def test_a_state_serves_every_rank_and_any_number_of_them() -> None:
    alone = BatchSampler(**SETTINGS)
    take(alone, 3)
    state, expected = alone.state_dict(), take(alone, 9)
    for rank in range(2):
        shared = BatchSampler(**SETTINGS, ranks=2, rank=rank)
        shared.load_state_dict(state)
        assert take(shared, 9) == expected


@given(st.integers(1, 5), st.integers(1, 6), st.integers(0, 60))
def test_ranks_share_each_batch_equally(ranks: int, share: int, spare: int) -> None:
    batch_size = ranks * share
    labels = np.arange(batch_size + spare) % 4
    samplers = [BatchSampler(labels, batch_size, ranks=ranks, rank=rank) for rank in range(ranks)]
    assert len({sampler.batches_per_epoch for sampler in samplers}) == 1
    for _ in range(2 * samplers[0].batches_per_epoch + 1):
        batches = [next(sampler) for sampler in samplers]
        slices = [sampler.slice(batch) for sampler, batch in zip(samplers, batches, strict=True)]
        assert {len(part) for part in slices} == {share}
        assert np.concatenate(slices).tolist() == batches[0].tolist()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ranks": 3}, "batch_size must be a multiple of ranks; they are 4 and 3"),
        ({"ranks": 2, "rank": 2}, "rank must be 0 to ranks − 1; they are 2 and 2"),
        ({"ranks": 2, "drop_last": False}, "short batches, which 2 ranks cannot share"),
        ({"batch_size": 16}, "not one batch of 16 pairs can be filled"),
    ],
)
def test_bad_samplers_are_named(change: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        BatchSampler(**{**SETTINGS, **change})


# plans


PLAN = np.random.default_rng(3).permutation(20).reshape(5, 4)


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_a_plan_is_read_row_by_row_and_ranks_share_each(ranks: int) -> None:
    readers = [PlannedBatches(PLAN, ranks, rank) for rank in range(ranks)]
    assert {reader.batches_per_epoch for reader in readers} == {len(PLAN)}
    for row in PLAN:
        parts = [reader.slice(next(reader)) for reader in readers]
        np.testing.assert_array_equal(np.concatenate(parts), row)


def test_it_goes_on_where_it_stood_and_refuses_the_state_of_another_plan() -> None:
    first, second = PlannedBatches(PLAN), PlannedBatches(PLAN)
    for _ in range(7):
        next(first)
    second.load_state_dict(first.state_dict())
    np.testing.assert_array_equal(next(second), next(first))
    with pytest.raises(ValueError, match="another plan"):
        PlannedBatches(PLAN[::-1]).load_state_dict(first.state_dict())


def test_a_plan_that_is_no_table_is_refused() -> None:
    for wrong in ([1, 2], [[0.5, 1.0]], np.zeros((0, 3), np.int64)):
        with pytest.raises(ValueError, match="must be a table"):
            PlannedBatches(wrong)

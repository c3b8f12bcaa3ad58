"""Paired k-means, batches made of its clusters, and their difficulty."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cde.batching import batch_difficulty, greedy_tour, pack_batches
from cde.clustering import cluster_pairs, cluster_sizes


def unit(rows: np.ndarray) -> np.ndarray:
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def groups(number: int, size: int, noise: float = 0.05, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Pairs in well separated groups: query vectors, document vectors, group of each."""
    generator = np.random.default_rng(seed)
    centres = unit(generator.normal(size=(number, 16)))
    truth = np.repeat(np.arange(number), size)
    noisy = [unit(centres[truth] + noise * generator.normal(size=(number * size, 16))) for _ in range(2)]
    return noisy[0], noisy[1], truth


def test_separated_groups_are_found_whole() -> None:
    queries, documents, truth = groups(8, 20)
    labels = cluster_pairs(queries, documents, cluster_size=20, attempts=10)
    # every group in one cluster (k-means may leave two groups together, never cut one)
    assert all(len(set(labels[truth == group])) == 1 for group in range(8))
    assert labels.max() + 1 >= 6


def test_the_same_seed_gives_the_same_clusters() -> None:
    queries, documents, _ = groups(5, 30, noise=0.5)
    first, second = (cluster_pairs(queries, documents, cluster_size=10, iterations=10, seed=3) for _ in range(2))
    assert (first == second).all()


def test_equation_3_pairs_whose_documents_resemble_each_other_s_queries_meet() -> None:
    """(d, q) and (d', q') with d ≈ q' and d' ≈ q are near by m; ordinary k-means on d⊕q would part them."""
    generator = np.random.default_rng(0)
    a, b, far_a, far_b = unit(generator.normal(size=(4, 32)))
    jitter = lambda v, n: unit(v + 0.01 * generator.normal(size=(n, 32)))  # noqa: E731
    documents = np.concatenate([jitter(a, 10), jitter(b, 10), jitter(far_a, 20)])
    queries = np.concatenate([jitter(b, 10), jitter(a, 10), jitter(far_b, 20)])
    labels = cluster_pairs(queries, documents, cluster_size=40)
    assert len(set(labels)) == 1
    swapped = cluster_pairs(documents, queries, cluster_size=40)
    assert len(set(swapped)) == 1


def test_clusters_never_cross_a_domain() -> None:
    queries, documents, _ = groups(4, 25, noise=0.5)
    domains = np.array(["a", "b"] * 50)
    labels = cluster_pairs(queries, documents, cluster_size=10, domains=domains.tolist(), iterations=5)
    assert not set(labels[domains == "a"]) & set(labels[domains == "b"])
    assert sorted(set(labels)) == list(range(labels.max() + 1))
    assert cluster_sizes(labels).sum() == 100


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cluster_size": 0}, "cluster_size must be 1 or more"),
        ({"domains": ["a"]}, "one domain for each of the 100 pairs"),
        ({"document_vectors": np.zeros((3, 16), np.float32)}, r"must both be \(n, dim\)"),
    ],
)
def test_bad_input_is_named(change: dict, message: str) -> None:
    queries, documents, _ = groups(4, 25)
    with pytest.raises(ValueError, match=message):
        cluster_pairs(**{"query_vectors": queries, "document_vectors": documents, **change})


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_packing_is_a_partition_that_keeps_clusters_and_domains(data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 120))
    labels = np.array(data.draw(st.lists(st.integers(0, 9), min_size=n, max_size=n)))
    domains = labels % 2  # a cluster lies in one domain
    size = data.draw(st.integers(1, 40))
    order = data.draw(st.sampled_from(["random", "tsp"]))
    vectors = np.random.default_rng(0).normal(size=(n, 4)).astype(np.float32)
    batches = pack_batches(labels, size, order, vectors, domains, seed=data.draw(st.integers(0, 5)), drop_last=False)
    assert sorted(np.concatenate(batches).tolist()) == list(range(n))
    assert all(len(set(domains[batch])) == 1 for batch in batches)
    for cluster in set(labels.tolist()):
        # a cluster of c pairs touches no more batches than it must, plus one for where it begins
        touched = sum(cluster in labels[batch] for batch in batches)
        assert touched <= -(-int((labels == cluster).sum()) // size) + 1
    whole = pack_batches(labels, size, order, vectors, domains, drop_last=True)
    assert all(len(batch) == size for batch in whole)
    assert sum(map(len, whole)) == sum(int((domains == d).sum()) // size * size for d in (0, 1))


def test_a_new_seed_is_a_new_order_and_the_same_seed_the_same() -> None:
    labels = np.repeat(np.arange(20), 5)
    same = [np.concatenate(pack_batches(labels, 10, seed=1)).tolist() for _ in range(2)]
    assert same[0] == same[1] != np.concatenate(pack_batches(labels, 10, seed=2)).tolist()


@given(st.integers(1, 30), st.integers(0, 1000))
def test_the_tour_visits_all_and_each_step_is_the_nearest(k: int, seed: int) -> None:
    centroids = np.random.default_rng(seed).normal(size=(k, 3)).astype(np.float32)
    tour = greedy_tour(centroids, start=k // 2)
    assert tour[0] == k // 2 and sorted(tour.tolist()) == list(range(k))
    for step in range(k - 1):
        rest = centroids[tour[step + 1 :]]
        distances = np.linalg.norm(rest - centroids[tour[step]], axis=1)
        assert distances[0] <= distances.min() + 1e-4


def test_difficulty_by_hand() -> None:
    """Queries on two axes, documents on the same and between: cosines 0 and √½."""
    half = np.sqrt(0.5)
    queries = np.array([[1, 0], [0, 1]], np.float32)
    documents = np.array([[1, 0], [half, half]], np.float32)
    found = batch_difficulty(queries, documents, np.array([0, 1]), temperature=1.0)
    assert found["mean"] == pytest.approx((half + 0) / 2)
    assert found["hardest"] == pytest.approx((half + 0) / 2)
    expected = (np.log(np.exp(1) + np.exp(half)) - 1 + np.log(np.exp(0) + np.exp(half)) - half) / 2
    assert found["loss"] == pytest.approx(expected)
    with pytest.raises(ValueError, match="it has 1"):
        batch_difficulty(queries, documents, np.array([0]))


def test_clustered_batches_are_harder_than_shuffled_ones() -> None:
    """The direction of Eq. 2, where the answer is known: groups that are near within and far between."""
    queries, documents, truth = groups(10, 20)
    hard = [batch_difficulty(queries, documents, b)["mean"] for b in pack_batches(truth, 20)]
    easy = [batch_difficulty(queries, documents, b)["mean"] for b in pack_batches(np.zeros_like(truth), 20)]
    assert min(hard) > max(easy)

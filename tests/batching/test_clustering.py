"""Paired and one-sided k-means, and shards."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pairs_in_groups import groups
from sklearn.cluster import KMeans

from cde.batching import clustering
from cde.batching.clustering import cluster_pairs, cluster_vectors, paired_points, run_kmeans


def same_partition(first: np.ndarray, second: np.ndarray) -> bool:
    pairs = set(zip(first.tolist(), second.tolist(), strict=True))
    return len(pairs) == len(set(first.tolist())) == len(set(second.tolist()))


def test_the_same_seed_gives_the_same_clusters_and_another_one_others() -> None:
    queries, documents, _ = groups(5, 30, noise=0.5)
    first, second, other = (
        cluster_pairs(queries, documents, cluster_size=10, iterations=10, seed=seed)
        for seed in (3, 3, 4)
    )
    assert (first == second).all()
    assert not same_partition(first, other)


def test_the_paper_s_settings_are_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """100 iterations, best of 3, every point, ⌈n / cluster_size⌉ centroids; one side: spherical."""
    import faiss

    asked = []
    ours = faiss.Kmeans

    def recorded(dim: int, clusters: int, **options: object) -> object:
        asked.append({"dim": dim, "clusters": clusters, **options})
        return ours(dim, clusters, **options)

    monkeypatch.setattr(faiss, "Kmeans", recorded)
    queries, documents, _ = groups(5, 21, noise=0.5)
    cluster_pairs(queries, documents, cluster_size=10)
    cluster_vectors(documents, cluster_size=10)
    paired = {"spherical": False, "dim": 32, "max_points_per_centroid": 210}
    one_side = {"spherical": True, "dim": 16, "max_points_per_centroid": 105}
    expected = [{"niter": 100, "clusters": 11, **kind} for kind in [paired] * 3 + [one_side] * 3]
    names = expected[0].keys()
    assert [{name: run[name] for name in names} for run in asked] == expected


@pytest.mark.parametrize("spherical", [False, True])
def test_the_attempts_are_those_of_faiss(spherical: bool) -> None:
    import faiss

    _, documents, _ = groups(12, 20, noise=0.3)
    theirs = faiss.Kmeans(
        16, 12, niter=100, nredo=5, seed=3, spherical=spherical, min_points_per_centroid=1,
        max_points_per_centroid=240,
    )  # fmt: skip
    theirs.train(documents)
    run = run_kmeans(documents, 12, spherical, attempts=5, seed=3)
    assert (run.centroids == theirs.centroids).all()
    assert run.objective[-1] == pytest.approx(theirs.obj[-1] / 240)


def test_equation_3_a_pair_counts_in_both_orders() -> None:
    """Pairs (d, q) = (a, b) and (b, a) meet, though k-means on d⊕q alone would rather part them."""
    a, b, c, d = np.array([[0.5, 0], [-0.5, 0], [0.23, 0.81], [-0.31, 0.81]], np.float32)
    documents = np.repeat([a, b, c], [10, 10, 20], axis=0)
    queries = np.repeat([b, a, d], [10, 10, 20], axis=0)
    labels = cluster_pairs(queries, documents, cluster_size=20, attempts=10)
    assert labels[0] == labels[10] != labels[20]
    plain = KMeans(2, n_init=10, random_state=0).fit_predict(np.hstack([documents, queries]))
    assert plain[0] == plain[20] != plain[10]
    # which of the two vectors is the query's makes no difference
    assert same_partition(labels, cluster_pairs(documents, queries, cluster_size=20, attempts=10))


def test_a_pair_belongs_to_the_centroid_nearest_to_its_document_with_its_query() -> None:
    queries, documents, _ = groups(5, 30, noise=0.5)
    labels = cluster_pairs(queries, documents, cluster_size=10, iterations=5)
    run = run_kmeans(paired_points(queries, documents), 15, iterations=5)
    assert same_partition(labels, run.nearest(np.hstack([documents, queries])))
    # the mirrored points would have parted the pairs otherwise
    assert not same_partition(labels, run.nearest(np.hstack([queries, documents])))


def test_clusters_never_cross_a_domain() -> None:
    queries, documents, _ = groups(4, 25, noise=0.5)
    domains = np.array(["a", "b"] * 50)
    for labels in (
        cluster_pairs(queries, documents, cluster_size=10, domains=domains.tolist(), iterations=5),
        # so many centroids that some are nearest to mirrored points alone: no number is skipped for
        # them
        cluster_pairs(queries, documents, cluster_size=1, domains=domains.tolist(), iterations=5),
        cluster_vectors(queries, cluster_size=10, domains=domains.tolist(), iterations=5),
    ):
        assert not set(labels[domains == "a"]) & set(labels[domains == "b"])
        assert sorted(set(labels)) == list(range(labels.max() + 1))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"domains": ["a"]}, "domains must hold one for each of the 100 pairs; it has 1"),
        ({"document_vectors": np.full((100, 16), np.nan, np.float32)}, "they hold nan to nan"),
        ({"document_vectors": np.full((100, 16), 1e25, np.float32)}, r"between ±1e\+15"),
        ({"shard_size": 5}, r"shard_size must be cluster_size \(10\) or more; it is 5"),
    ],
)
def test_bad_input_is_named(change: dict, message: str) -> None:
    queries, documents, _ = groups(4, 25)
    given = {"query_vectors": queries, "document_vectors": documents, "cluster_size": 10}
    with pytest.raises(ValueError, match=message):
        cluster_pairs(**{**given, **change})


def test_paired_points_by_hand() -> None:
    points = paired_points(np.array([[1, 2], [3, 4]]), np.array([[5, 6], [7, 8]]))
    assert points.tolist() == [[5, 6, 1, 2], [7, 8, 3, 4], [1, 2, 5, 6], [3, 4, 7, 8]]


def test_the_objective_ends_as_low_as_scikit_learn_s() -> None:
    queries, documents, _ = groups(10, 60, noise=0.4)
    points = paired_points(queries, documents)
    run = run_kmeans(points, 20)
    distances = ((points[:, None] - run.centroids) ** 2).sum(axis=2)
    assert (run.nearest(points) == distances.argmin(axis=1)).all()
    assert run.objective[-1] == pytest.approx(distances.min(axis=1).mean(), rel=1e-3)
    peer = KMeans(20, n_init=3, max_iter=100, random_state=0).fit(points)
    assert run.objective[-1] < 1.1 * peer.inertia_ / len(points)


@pytest.mark.parametrize("spherical", [False, True])
def test_more_attempts_are_never_worse(spherical: bool) -> None:
    _, documents, _ = groups(12, 20, noise=0.3)
    ends = [
        run_kmeans(documents, 12, spherical, attempts=attempts).objective[-1]
        for attempts in (1, 3, 6)
    ]
    assert ends == sorted(ends, reverse=not spherical)
    assert ends[0] != ends[-1]


def test_vectors_cluster_by_direction_or_by_distance() -> None:
    """Two directions at two lengths: the cosine sees the former, the distance the latter."""
    vectors = np.array([[1, 0.1], [50, 0], [0.1, 1], [0, 50]] * 5, np.float32)
    by_direction = cluster_vectors(vectors, cluster_size=10, attempts=10)
    assert same_partition(by_direction, np.array([0, 0, 1, 1] * 5))
    _, documents, _ = groups(5, 30, noise=0.6)
    lengths = 2.0 ** np.random.default_rng(0).integers(-3, 4, size=(150, 1)).astype(np.float32)
    assert (cluster_vectors(documents * lengths, 10) == cluster_vectors(documents, 10)).all()
    by_distance = run_kmeans(vectors, 3, attempts=10).nearest(vectors)
    assert same_partition(by_distance, np.array([0, 1, 0, 2] * 5))


def test_as_many_clusters_as_pairs() -> None:
    vectors = np.eye(6, dtype=np.float32)
    assert sorted(cluster_vectors(vectors, cluster_size=1).tolist()) == list(range(6))
    assert run_kmeans(vectors, 6).objective.tolist() == [0]
    assert run_kmeans(vectors, 6, spherical=True).objective.tolist() == [1]
    assert len(set(cluster_pairs(vectors, vectors, cluster_size=1).tolist())) > 3


@given(st.integers(10, 60), st.integers(10, 60), st.integers(0, 3))
def test_shards_share_out_every_domain(n: int, shard_size: int, seed: int) -> None:
    shards = clustering.domain_shards(2 * n, 5, ["a", "b"] * n, shard_size, seed)
    assert sorted(np.concatenate(shards).tolist()) == list(range(2 * n))
    assert all(len(shard) <= shard_size and len(set(shard % 2)) == 1 for shard in shards)
    assert len(shards) == 2 * -(-n // shard_size)
    assert all((np.diff(shard) > 0).all() for shard in shards)
    sizes = [len(shard) for shard in shards]
    assert max(sizes) - min(sizes) <= 1


def test_pairs_are_dealt_into_shards_at_random() -> None:
    first, other = (clustering.domain_shards(100, 5, None, 50, seed)[0].tolist() for seed in (0, 1))
    assert first != other and 15 < sum(row < 50 for row in first) < 35


def test_each_shard_is_clustered_on_its_own_and_numbered_after_the_one_before() -> None:
    queries, documents, _ = groups(5, 30, noise=0.5)
    labels = cluster_pairs(queries, documents, 10, iterations=5, shard_size=40, seed=1)
    offset = 0
    for rows in clustering.domain_shards(150, 10, None, 40, 1):
        alone = cluster_pairs(queries[rows], documents[rows], 10, iterations=5, seed=1)
        assert (labels[rows] == alone + offset).all()
        offset += alone.max() + 1


@pytest.mark.parametrize("kind", [np.float32, np.float16])
def test_a_file_gives_the_same_clusters_as_memory(kind: type, tmp_path: Path) -> None:
    queries, documents, _ = (part.astype(kind) for part in groups(5, 30, noise=0.5))
    files = []
    for name, vectors in (("queries", queries), ("documents", documents)):
        file = np.memmap(tmp_path / name, dtype=kind, mode="w+", shape=vectors.shape)
        file[:] = vectors
        file.flush()
        files.append(np.memmap(tmp_path / name, dtype=kind, mode="r", shape=vectors.shape))
    options = {"cluster_size": 10, "iterations": 5, "shard_size": 40}
    assert (cluster_pairs(*files, **options) == cluster_pairs(queries, documents, **options)).all()
    assert (cluster_vectors(files[1], **options) == cluster_vectors(documents, **options)).all()


def test_of_a_file_no_more_than_a_shard_is_in_memory(tmp_path: Path) -> None:
    n, dim, shard = 16000, 64, 1000
    file = np.memmap(tmp_path / "vectors", dtype=np.float32, mode="w+", shape=(n, dim))
    file[:] = np.random.default_rng(0).normal(size=(n, dim))
    tracemalloc.start()
    try:
        cluster_pairs(file, file, cluster_size=500, iterations=1, attempts=1, shard_size=shard)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 30 * dim * shard + 100 * n < 4 * n * dim

"""Paired and one-sided k-means, shards, sparse vectors; what clusters are like, and the two
objectives.
"""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.cluster import KMeans

from cde.batching import clustering
from cde.batching.clustering import (
    cluster_pairs,
    cluster_sizes,
    cluster_vectors,
    paired_points,
    run_kmeans,
)
from cde.batching.packing import batch_difficulty, pack_batches
from cde.batching.statistics import (
    batch_objective,
    cluster_members,
    cluster_statistics,
    mean_pairwise_cosine,
    paired_distance,
)
from cde.lexical import sparse_vectors


def unit(rows: np.ndarray) -> np.ndarray:
    return (rows / np.linalg.norm(rows, axis=-1, keepdims=True)).astype(np.float32)


def groups(
    number: int, size: int, noise: float = 0.05, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Pairs in well separated groups: query vectors, document vectors, group of each."""
    generator = np.random.default_rng(seed)
    centres = unit(generator.normal(size=(number, 16)))
    truth = np.repeat(np.arange(number), size)
    noisy = [
        unit(centres[truth] + noise * generator.normal(size=(number * size, 16))) for _ in range(2)
    ]
    return noisy[0], noisy[1], truth


def same_partition(first: np.ndarray, second: np.ndarray) -> bool:
    pairs = set(zip(first.tolist(), second.tolist(), strict=True))
    return len(pairs) == len(set(first.tolist())) == len(set(second.tolist()))


# paired k-means


def test_separated_groups_are_found_whole() -> None:
    queries, documents, truth = groups(8, 20)
    labels = cluster_pairs(queries, documents, cluster_size=20, attempts=10)
    # every group in one cluster (k-means may leave two groups together, never cut one)
    assert all(len(set(labels[truth == group])) == 1 for group in range(8))
    assert labels.max() + 1 >= 6


def test_the_same_seed_gives_the_same_clusters_and_another_one_others() -> None:
    queries, documents, _ = groups(5, 30, noise=0.5)
    first, second, other = (
        cluster_pairs(queries, documents, cluster_size=10, iterations=10, seed=seed)
        for seed in (3, 3, 4)
    )
    assert (first == second).all()
    assert not same_partition(first, other)


def test_the_paper_s_settings_are_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """100 iterations, best of 3, Euclidean, every point, ⌈n / cluster_size⌉ centroids; spherical
    for one side.
    """
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
    both = {"niter": 100, "clusters": 11}
    assert len(asked) == 6
    for run in asked[:3]:
        assert (
            run.items()
            >= {**both, "spherical": False, "dim": 32, "max_points_per_centroid": 210}.items()
        )
    for run in asked[3:]:
        assert (
            run.items()
            >= {**both, "spherical": True, "dim": 16, "max_points_per_centroid": 105}.items()
        )


@pytest.mark.parametrize("spherical", [False, True])
def test_the_attempts_are_those_of_faiss(spherical: bool) -> None:
    import faiss

    _, documents, _ = groups(12, 20, noise=0.3)
    theirs = faiss.Kmeans(
        16,
        12,
        niter=100,
        nredo=5,
        seed=3,
        spherical=spherical,
        min_points_per_centroid=1,
        max_points_per_centroid=240,
    )
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
        assert cluster_sizes(labels).sum() == 100


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cluster_size": 0}, "cluster_size must be 1 or more; it is 0"),
        ({"domains": ["a"]}, "domains must hold one for each of the 100 pairs; it has 1"),
        ({"document_vectors": np.zeros((3, 16), np.float32)}, r"must both be \(n, dim\)"),
        ({"document_vectors": np.full((100, 16), np.nan, np.float32)}, "not numbers"),
        ({"iterations": 0}, "iterations and attempts must be 1 or more; they are 0 and 3"),
        (
            {"attempts": 0, "cluster_size": 100},
            "iterations and attempts must be 1 or more; they are 100 and 0",
        ),
        ({"shard_size": 5}, r"shard_size must be cluster_size \(10\) or more; it is 5"),
    ],
)
def test_bad_input_is_named(change: dict, message: str) -> None:
    queries, documents, _ = groups(4, 25)
    given = {"query_vectors": queries, "document_vectors": documents, "cluster_size": 10}
    with pytest.raises(ValueError, match=message):
        cluster_pairs(**{**given, **change})


def test_bad_input_of_the_others_is_named() -> None:
    with pytest.raises(ValueError, match=r"vectors must be \(n, dim\); they are \(3,\)"):
        cluster_vectors(np.zeros(3, np.float32))
    with pytest.raises(ValueError, match="there are no pairs"):
        cluster_vectors(np.zeros((0, 3), np.float32))
    with pytest.raises(ValueError, match=r"clusters 1 to n; they are \(3, 2\) and 4"):
        run_kmeans(np.zeros((3, 2), np.float32), 4)
    with pytest.raises(ValueError, match="there are no pairs"):
        paired_points(np.zeros((0, 3)), np.zeros((0, 3)))


# k-means itself


def test_paired_points_by_hand() -> None:
    points = paired_points(np.array([[1, 2], [3, 4]]), np.array([[5, 6], [7, 8]]))
    assert points.tolist() == [[5, 6, 1, 2], [7, 8, 3, 4], [1, 2, 5, 6], [3, 4, 7, 8]]


def test_the_objective_falls_and_ends_as_low_as_scikit_learn_s() -> None:
    queries, documents, _ = groups(10, 60, noise=0.4)
    points = paired_points(queries, documents)
    run = run_kmeans(points, 20)
    assert (np.diff(run.objective) <= 1e-6).all() and run.objective[0] > 1.1 * run.objective[-1]
    # the last value is that of the centroids that are returned
    distances = ((points - run.centroids[run.nearest(points)]) ** 2).sum(axis=1)
    assert run.objective[-1] == pytest.approx(distances.mean(), rel=1e-3)
    assert (
        run.nearest(points) == ((points[:, None] - run.centroids) ** 2).sum(axis=2).argmin(axis=1)
    ).all()
    peer = KMeans(20, n_init=3, max_iter=100, random_state=0).fit(points)
    assert run.objective[-1] < 1.1 * peer.inertia_ / len(points)


def test_spherical_k_means_raises_the_cosine_and_keeps_centroids_of_length_one() -> None:
    _, documents, _ = groups(10, 60, noise=0.4)
    run = run_kmeans(documents, 20, spherical=True)
    assert (np.diff(run.objective) >= -1e-6).all() and run.objective[-1] > 1.1 * run.objective[0]
    assert np.linalg.norm(run.centroids, axis=1) == pytest.approx(np.ones(20), abs=1e-5)
    assert (run.nearest(documents) == (documents @ run.centroids.T).argmax(axis=1)).all()


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
    by_distance = cluster_vectors(vectors, cluster_size=7, spherical=False, attempts=10)
    assert same_partition(by_distance, np.array([0, 1, 0, 2] * 5))


def test_as_many_clusters_as_pairs() -> None:
    vectors = np.eye(6, dtype=np.float32)
    assert sorted(cluster_vectors(vectors, cluster_size=1).tolist()) == list(range(6))
    assert run_kmeans(vectors, 6).objective.tolist() == [0]
    assert run_kmeans(vectors, 6, spherical=True).objective.tolist() == [1]
    assert len(set(cluster_pairs(vectors, vectors, cluster_size=1).tolist())) > 3


# shards and files


def test_a_shard_that_holds_all_is_no_shard() -> None:
    queries, documents, _ = groups(5, 30, noise=0.5)
    whole = cluster_pairs(queries, documents, 10, iterations=5)
    assert (cluster_pairs(queries, documents, 10, iterations=5, shard_size=150) == whole).all()
    assert (cluster_pairs(queries, documents, 10, iterations=5, shard_size=149) != whole).any()


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


# sparse vectors


def test_sparse_vectors_compare_texts_by_their_words() -> None:
    queries = ["red boats", "the price of houses", "of the"]
    documents = ["a red boat on the water", "house prices rise", "water"]
    query_vectors, document_vectors = sparse_vectors(queries, documents, dim=4)
    assert query_vectors.shape == document_vectors.shape == (3, 4)
    assert query_vectors.dtype == np.float32
    assert np.linalg.norm(query_vectors, axis=1) == pytest.approx(
        [1, 1, 0], abs=1e-5
    )  # "of the" keeps no term
    scores = query_vectors @ document_vectors.T
    assert scores[0].argmax() == 0 and scores[1].argmax() == 1
    assert (sparse_vectors(queries, documents, dim=4)[0] == query_vectors).all()


def test_all_dimensions_keep_every_cosine() -> None:
    """Without a reduction to speak of, cosines are those of the tf-idf rows."""
    documents = ["alpha beta", "beta gamma", "gamma gamma delta", "alpha delta"]
    vectors = np.concatenate(sparse_vectors(documents[:2], documents[2:], dim=4))
    frequency, texts = np.array([2, 2, 2, 2]), 4
    counts = np.array([[1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 2, 1], [1, 0, 0, 1]])
    weights = np.where(counts, 1 + np.log(np.maximum(counts, 1)), 0) * (
        np.log((1 + texts) / (1 + frequency)) + 1
    )
    assert vectors @ vectors.T == pytest.approx(unit(weights) @ unit(weights).T, abs=1e-5)


def test_too_many_dimensions_are_named() -> None:
    with pytest.raises(ValueError, match="2 texts of 3 terms allow dim 1 to 2; it is 5"):
        sparse_vectors(["red boats"], ["houses"], dim=5)


def test_sparse_vectors_stand_in_for_the_surrogate_s() -> None:
    words = [["alpha", "beta", "gamma"], ["delta", "epsilon", "zeta"]]
    generator = np.random.default_rng(0)
    truth = np.repeat([0, 1], 20)
    texts = [[" ".join(generator.choice(words[group], 2)) for group in truth] for _ in range(2)]
    labels = cluster_pairs(*sparse_vectors(*texts, dim=4), cluster_size=10, attempts=10)
    assert all(len(set(truth[labels == cluster])) == 1 for cluster in set(labels.tolist()))


# objectives


def draw_pairs(seed: int, n: int, dim: int = 5) -> tuple[np.ndarray, np.ndarray]:
    both = unit(np.random.default_rng(seed).normal(size=(2, n, dim)))
    return both[0], both[1]


def distance(queries: np.ndarray, documents: np.ndarray, i: int, j: int) -> float:
    """m of Eq. 3."""
    return float(
        np.linalg.norm(documents[i] - queries[j]) + np.linalg.norm(documents[j] - queries[i])
    )


def test_objectives_by_hand() -> None:
    queries = np.array([[1, 0], [0, 1], [0, 1]], np.float32)
    documents = np.array([[1, 0], [0.6, 0.8], [1, 0]], np.float32)
    # f(d0, q1) = 0, f(d1, q0) = 0.6
    assert batch_objective(queries, documents, [np.array([0, 1])]) == pytest.approx(0.3)
    # six ordered pairs: q0 with d1, d2: 0.6, 1; q1 with d0, d2: 0, 0; q2 with d0, d1: 0, 0.8
    assert batch_objective(queries, documents, [np.arange(3)]) == pytest.approx(2.4 / 6)
    # one pair alone has no batch-mate
    assert batch_objective(queries, documents, [np.array([0, 1]), np.array([2])]) == pytest.approx(
        0.3
    )
    flat = np.array([[0.0], [4.0]], np.float32), np.array([[2.0], [2.0]], np.float32)
    assert paired_distance(*flat, [np.array([0, 1])]) == pytest.approx(
        2
    )  # centre 2: (0 + 2 + 0 + 2) / 2
    assert paired_distance(*flat, [np.array([0]), np.array([1])]) == pytest.approx(
        2
    )  # centres 1 and 3
    with pytest.raises(ValueError, match="none of the 1 batches has two pairs"):
        batch_objective(queries, documents, [np.array([0])])
    with pytest.raises(ValueError, match="no pairs in the batches"):
        paired_distance(queries, documents, [])
    for measure in (batch_objective, paired_distance):
        with pytest.raises(ValueError, match=r"must both be \(n, dim\)"):
            measure(queries, documents[:2], [np.array([0, 1])])


@given(st.integers(0, 50), st.lists(st.integers(0, 3), min_size=2, max_size=15))
def test_equation_2_equals_the_double_sum(seed: int, labels: list[int]) -> None:
    queries, documents = draw_pairs(seed, len(labels))
    batches = cluster_members(np.array(labels))
    each = [
        (documents[i] @ queries[j] + documents[j] @ queries[i]) / 2
        for batch in batches
        for i in batch
        for j in batch
        if i != j
    ]
    if each:
        assert batch_objective(queries, documents, batches) == pytest.approx(
            np.mean(each), abs=1e-5
        )
    if len(labels) == 2:
        whole = batch_objective(queries, documents, [np.arange(2)])
        assert whole == pytest.approx(
            batch_difficulty(queries, documents, np.arange(2))["mean"], abs=1e-6
        )


@given(st.integers(0, 50), st.integers(2, 10))
def test_equation_3_bounds_the_distance_of_batch_mates(seed: int, n: int) -> None:
    queries, documents = draw_pairs(seed, n)
    mates = [distance(queries, documents, i, j) for i in range(n) for j in range(n) if i != j]
    assert np.mean(mates) <= 2 * paired_distance(queries, documents, [np.arange(n)]) + 1e-5


def test_the_paper_s_distance_has_no_triangle_inequality() -> None:
    """The outer two pairs are at distance 0 from the middle one, and not from each other."""
    a, b = np.eye(2)
    documents, queries = np.stack([a, b, a]), np.stack([b, a, b])
    assert distance(queries, documents, 0, 1) == distance(queries, documents, 1, 2) == 0
    assert distance(queries, documents, 0, 2) == pytest.approx(2 * np.sqrt(2))


def test_clustered_batches_come_nearer_to_both_objectives_than_shuffled_ones() -> None:
    queries, documents, _ = groups(10, 40, noise=0.4)
    labels = cluster_pairs(queries, documents, cluster_size=20)
    clustered, shuffled = pack_batches(labels, 20), pack_batches(np.zeros_like(labels), 20)
    assert (
        batch_objective(queries, documents, clustered)
        > batch_objective(queries, documents, shuffled) + 0.1
    )
    assert (
        paired_distance(queries, documents, clustered)
        < paired_distance(queries, documents, shuffled) - 0.1
    )
    # the clusters themselves, uncut, are nearer still
    members = cluster_members(labels)
    assert paired_distance(queries, documents, members) < paired_distance(
        queries, documents, clustered
    )


# statistics


@given(st.integers(0, 20), st.lists(st.sampled_from([0, 1, 4]), min_size=1, max_size=20))
def test_statistics_equal_those_of_a_double_loop_in_pandas(seed: int, labels: list[int]) -> None:
    vectors = np.random.default_rng(seed).normal(size=(len(labels), 3)).astype(np.float32)
    sources = [("scipy", "torch", "numpy")[seed % (place + 1) % 3] for place in range(len(labels))]
    statistics = cluster_statistics(vectors, np.array(labels), sources)
    frame = pd.DataFrame({"cluster": labels, "source": sources})
    assert statistics["size"].to_dict() == frame.groupby("cluster").size().to_dict()
    assert (
        statistics["source"].to_dict()
        == frame.groupby("cluster")["source"].agg(lambda s: s.mode()[0]).to_dict()
    )
    shares = frame.groupby("cluster")["source"].agg(lambda s: s.value_counts(normalize=True).max())
    assert statistics["source_share"].to_dict() == pytest.approx(shares.to_dict())
    for cluster, rows in frame.groupby("cluster"):
        own = unit(vectors[rows.index])
        mates = [own[i] @ own[j] for i in range(len(own)) for j in range(len(own)) if i != j]
        expected = np.mean(mates) if mates else np.nan
        assert statistics.loc[cluster, "similarity"] == pytest.approx(
            expected, abs=1e-5, nan_ok=True
        )


def test_statistics_at_the_edges() -> None:
    assert np.isnan(mean_pairwise_cosine(np.ones((1, 3))))
    assert mean_pairwise_cosine(np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 0.0]])) == pytest.approx(
        1 / 3
    )
    assert cluster_members(np.zeros(0, np.int64)) == []
    assert [len(members) for members in cluster_members(np.array([0, 2, 2]))] == [1, 0, 2]
    assert list(cluster_statistics(np.eye(3), np.array([0, 2, 2])).columns) == [
        "size",
        "similarity",
    ]
    with pytest.raises(
        ValueError, match="labels must name one for each of the 3 vectors; there are 2"
    ):
        cluster_statistics(np.eye(3), np.array([0, 2]))
    with pytest.raises(
        ValueError, match="sources must name one for each of the 3 vectors; there are 1"
    ):
        cluster_statistics(np.eye(3), np.array([0, 2, 2]), ["scipy"])

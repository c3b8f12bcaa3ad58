"""Clusters of training pairs that make hard batches (CDE §4.1, Eqs. 2 and 3; clustering paper §2).

Eq. 3 asks for clusters of pairs that are near by the distance m((d, q), (d', q')) = ‖φ(d) − ψ(q')‖
+ ‖φ(d') − ψ(q)‖. As in the paper, each pair enters k-means as two points, φ(d)⊕ψ(q) and ψ(q)⊕φ(d),
and belongs, as in the authors' code, to the centroid nearest to the first; a centroid that attracts
second points alone stays empty. Unlike the authors, and as the paper says, the distance is
Euclidean, the vectors are not reduced to 128 dimensions first, and every point is used in training.
FAISS does the k-means, on the GPU where there is one. The clustering paper looks at one side only
(`cluster_vectors`).

**Sets larger than memory.** Vectors may be memory-mapped, in float32 or float16. With `shard_size`,
the pairs of a domain are shuffled by the seed and dealt into shards of at most so many pairs. Each
is clustered on its own, as the authors do above 50 million pairs, and one at a time is in memory,
at about 28 · dim bytes a pair.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cde.progress import progress
from cde.validation import Positions, Vectors, array_of_numbers, checked_whole, group_numbers, shown

__all__ = ["KMeansRun", "cluster_pairs", "cluster_vectors", "paired_points", "run_kmeans"]

_LARGEST = 1e15


def cluster_pairs(
    query_vectors: Vectors,
    document_vectors: Vectors,
    cluster_size: int = 256,
    domains: Sequence[str] | None = None,
    iterations: int = 100,
    attempts: int = 3,
    seed: int = 0,
    shard_size: int | None = None,
) -> Positions:
    """Asymmetric paired k-means (CDE Eq. 3), within each domain.

    Args:
        query_vectors, document_vectors: `(n, dim)` float32 (or float16) surrogate vectors of the
            pairs; they may be memory-mapped.
        cluster_size: pairs a cluster, on average: n pairs get ⌈n / cluster_size⌉ centroids.
        domains: the domain of each pair; clusters never cross it. By default all are one domain.
        iterations, attempts: how many k-means makes; it keeps the attempt with the least distance.
        seed: seed of the starts, and of the shuffle that deals pairs into shards.
        shard_size: cluster domains of more pairs in shards of at most so many (see above).

    Returns:
        `(n,)` int64 labels from 0 on, numbered domain after domain, shard after shard.

    Example:
        >>> vectors = np.repeat(np.eye(2, dtype=np.float32), 4, axis=0)
        >>> labels = cluster_pairs(vectors, vectors, cluster_size=4)
        >>> len(set(labels[:4])), len(set(labels[4:])), len(set(labels))
        (1, 1, 2)
    """
    query_vectors = array_of_numbers(query_vectors, "query_vectors")
    document_vectors = array_of_numbers(document_vectors, "document_vectors")
    check_pairs(query_vectors, document_vectors)

    def points_of(rows: Positions) -> Vectors:
        return paired_points(query_vectors[rows], document_vectors[rows])

    shards = domain_shards(len(query_vectors), cluster_size, domains, shard_size, seed)
    return _cluster(points_of, shards, cluster_size, False, iterations, attempts, seed)


def cluster_vectors(
    vectors: Vectors,
    cluster_size: int = 256,
    domains: Sequence[str] | None = None,
    iterations: int = 100,
    attempts: int = 3,
    seed: int = 0,
    shard_size: int | None = None,
) -> Positions:
    """Spherical k-means on one side of the pairs, documents or queries (clustering paper §2 and
    §3.1): vectors and centroids have length 1. The other arguments are those of `cluster_pairs`.
    """
    vectors = array_of_numbers(vectors, "vectors")
    if vectors.ndim != 2:
        raise ValueError(f"vectors must be (n, dim); they are {vectors.shape}")

    def points_of(rows: Positions) -> Vectors:
        import faiss

        points = np.ascontiguousarray(vectors[rows], dtype=np.float32)
        require_distances(points, "vectors")
        faiss.normalize_L2(points)
        return points

    shards = domain_shards(len(vectors), cluster_size, domains, shard_size, seed)
    return _cluster(points_of, shards, cluster_size, True, iterations, attempts, seed)


def _cluster(
    points_of: Callable[[Positions], Vectors],
    shards: list[Positions],
    cluster_size: int,
    spherical: bool,
    iterations: int,
    attempts: int,
    seed: int,
) -> Positions:
    labels, offset = np.zeros(sum(map(len, shards)), np.int64), 0
    title = f"clustering {len(labels):,} pairs"
    for rows in progress(shards, title, unit="parts") if len(shards) > 1 else shards:
        points, clusters = points_of(rows), max(1, math.ceil(len(rows) / cluster_size))
        if clusters == 1:
            _check_points(points, iterations, attempts)
        else:
            # the first points of the pairs decide; a centroid without any gets no number
            run = run_kmeans(points, clusters, spherical, iterations, attempts, seed)
            labels[rows] = np.unique(run.nearest(points[: len(rows)]), return_inverse=True)[1]
        del points  # before the next shard's are made
        labels[rows] += offset
        offset = int(labels[rows].max()) + 1
    return labels


class KMeansRun(NamedTuple):
    """Centroids, `(k, dim)`, FAISS's index of them, and the objective before each update,
    `(iterations,)`: the mean of squared distances to the nearest centroid, which falls; if
    `spherical` of cosines, which rises.
    """

    centroids: Vectors
    objective: NDArray[np.float64]
    index: Any

    def nearest(self, points: Vectors) -> Positions:
        """The nearest centroid of each of `(n, dim)` float32 points, `(n,)` int64."""
        found = self.index.search(np.ascontiguousarray(points, dtype=np.float32), 1)[1]
        return np.asarray(found[:, 0], dtype=np.int64)


def run_kmeans(
    points: Vectors,
    clusters: int,
    spherical: bool = False,
    iterations: int = 100,
    attempts: int = 3,
    seed: int = 0,
) -> KMeansRun:
    """FAISS's k-means on all of the points `(n, dim)`, without domains and shards."""
    import faiss

    points = np.ascontiguousarray(points, dtype=np.float32)
    clusters = checked_whole(clusters, "clusters", 0)
    if points.ndim != 2 or not 1 <= clusters <= len(points):
        raise ValueError(
            f"points must be (n, dim) and clusters 1 to n; they are {points.shape} and {clusters}"
        )
    _check_points(points, iterations, attempts)
    iterations, attempts, seed = int(iterations), int(attempts), checked_whole(seed, "seed", 0)
    kept: Any = None
    sign = 1 if spherical else -1  # of what is better
    for attempt in progress(range(attempts), f"k-means of {len(points):,}", unit="attempts"):
        kmeans: Any = faiss.Kmeans(
            points.shape[1],
            clusters,
            niter=iterations,
            # the starts that FAISS's own `nredo` takes; its record of the objective runs all
            # attempts together
            seed=(seed + attempt * 15486557) % 2**31,
            spherical=spherical,
            min_points_per_centroid=1,
            max_points_per_centroid=len(points),  # never a subsample
            gpu=getattr(faiss, "get_num_gpus", lambda: 0)() > 0,
        )
        kmeans.train(points)
        if clusters == len(points):  # FAISS takes the points themselves and records nothing
            kmeans.obj = np.array([np.einsum("ij,ij->", points, points) if spherical else 0.0])
        if kept is None or sign * kmeans.obj[-1] > sign * kept.obj[-1]:
            kept = kmeans
    objective = np.asarray(kept.obj / len(points), dtype=np.float64)
    return KMeansRun(kept.centroids, objective, kept.index)


def paired_points(query_vectors: Vectors, document_vectors: Vectors) -> Vectors:
    """The two points of each pair, `(2n, 2·dim)`: all φ(d)⊕ψ(q), then all ψ(q)⊕φ(d) (§4.1)."""
    check_pairs(query_vectors, document_vectors)
    n, dim = query_vectors.shape
    points = np.empty((2 * n, 2 * dim), np.float32)
    points[:n, :dim] = points[n:, dim:] = document_vectors
    points[:n, dim:] = points[n:, :dim] = query_vectors
    return points


def check_pairs(query_vectors: Vectors, document_vectors: Vectors) -> None:
    if query_vectors.shape != document_vectors.shape or query_vectors.ndim != 2:
        raise ValueError(
            f"query_vectors {query_vectors.shape} and document_vectors {document_vectors.shape} "
            "must both be (n, dim)"
        )


def _check_points(points: Vectors, iterations: int, attempts: int) -> None:
    for value, name, most in ((iterations, "iterations", 10**6), (attempts, "attempts", 10**3)):
        if checked_whole(value, name) > most:
            raise ValueError(f"{name} must be {most} or less; it is {shown(value)}")
    require_distances(points, "vectors")


def require_distances(points: NDArray[Any], name: str) -> None:
    """Refuse what is not a number, and numbers whose squares leave single precision."""
    least, most = (float(points.min()), float(points.max())) if points.size else (0.0, 0.0)
    if not -_LARGEST < least <= most < _LARGEST:  # what is not a number is neither
        raise ValueError(
            f"{name} must hold finite numbers between ±{_LARGEST:g}, of which there are distances; "
            f"they hold {least:g} to {most:g}"
        )


def domain_shards(
    n: int,
    cluster_size: int,
    domains: Sequence[str] | None,
    shard_size: int | None = None,
    seed: int = 0,
) -> list[Positions]:
    """Ascending positions of each shard of each domain; arguments as for `cluster_pairs`."""
    if n == 0:
        raise ValueError("there are no pairs to cluster")
    cluster_size, seed = checked_whole(cluster_size, "cluster_size"), checked_whole(seed, "seed", 0)
    shard_size = None if shard_size is None else checked_whole(shard_size, "shard_size", None)
    if shard_size is not None and shard_size < cluster_size:
        raise ValueError(
            f"shard_size must be cluster_size ({cluster_size}) or more; it is {shard_size}"
        )
    generator, shards = np.random.default_rng(seed), []
    for rows in rows_by_domain(domains, n):
        if shard_size is None or len(rows) <= shard_size:
            shards.append(rows)
        else:  # of nearly one size; ascending, so that a file is read from front to back
            parts = np.array_split(generator.permutation(rows), math.ceil(len(rows) / shard_size))
            shards.extend(np.sort(part) for part in parts)
    return shards


def rows_by_domain(domains: Any, count: int) -> list[Positions]:
    """Ascending positions of the pairs of each domain; None makes them all of one."""
    domains = np.zeros(count) if domains is None else domains
    numbers = group_numbers(domains, "domains", count)
    ordered = np.argsort(numbers, kind="stable")
    return [rows for rows in np.split(ordered, np.cumsum(np.bincount(numbers))[:-1]) if len(rows)]

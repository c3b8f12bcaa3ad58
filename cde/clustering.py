"""Clusters of training pairs that make hard batches (CDE §4.1, Eqs. 2 and 3).

Eq. 2 asks for batches whose pairs are mutually confusable: large f(d, q') + f(d', q) within a
batch. Eq. 3 bounds it by a k-means objective over pairs with the asymmetric distance
m((d, q), (d', q')) = ‖φ(d) − ψ(q')‖ + ‖φ(d') − ψ(q)‖. As in the paper, each pair enters k-means as two
points, φ(d)⊕ψ(q) and ψ(q)⊕φ(d), so that a document is compared with queries and a query with
documents. FAISS does the k-means: 100 iterations, the best of 3 starts.

A pair belongs to the centroid nearest to its first point, φ(d)⊕ψ(q), as in the authors' code. The set
of points is its own mirror image, so a centroid may attract mirrored points alone; it stays empty, and
there are then a few clusters fewer than asked for (`cluster_sizes` tells how large each is).

Cost: iterations × starts × 2n × k × 2·dim multiply-adds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["cluster_pairs", "cluster_sizes"]

Vectors = NDArray[np.float32]
Labels = NDArray[np.int64]


def cluster_pairs(
    query_vectors: Vectors,
    document_vectors: Vectors,
    cluster_size: int = 256,
    domains: Sequence[str] | None = None,
    iterations: int = 100,
    attempts: int = 3,
    seed: int = 0,
) -> Labels:
    """Asymmetric paired k-means (CDE Eq. 3), within each domain.

    Args:
        query_vectors, document_vectors: `(n, dim)` float32 surrogate vectors of the pairs.
        cluster_size: pairs a cluster, on average: a domain of n pairs gets ⌈n / cluster_size⌉ centroids.
        domains: the domain of each pair; clusters never cross it. By default all are one domain.
        iterations, attempts: of k-means; the attempt with the least distance is kept.
        seed: of the starts.

    Returns:
        `(n,)` int64 labels, 0 … number of clusters − 1, numbered domain after domain.

    Raises:
        ValueError: shapes differ, there are no pairs, or cluster_size is below 1.

    Used by the chapter `cluster_difficulty`.

    Example:
        >>> vectors = np.repeat(np.eye(2, dtype=np.float32), 4, axis=0)
        >>> labels = cluster_pairs(vectors, vectors, cluster_size=4)
        >>> len(set(labels[:4])), len(set(labels[4:])), len(set(labels))
        (1, 1, 2)
    """
    query_vectors, document_vectors = np.asarray(query_vectors), np.asarray(document_vectors)
    n = len(query_vectors)
    if query_vectors.shape != document_vectors.shape or query_vectors.ndim != 2:
        raise ValueError(
            f"query_vectors {query_vectors.shape} and document_vectors {document_vectors.shape} must both be (n, dim)"
        )
    if n == 0:
        raise ValueError("there are no pairs to cluster")
    if not (np.isfinite(query_vectors).all() and np.isfinite(document_vectors).all()):
        raise ValueError("some vectors hold values that are not numbers: k-means cannot place them")
    if cluster_size < 1:
        raise ValueError(f"cluster_size must be 1 or more; it is {cluster_size}")
    if domains is not None and len(domains) != n:
        raise ValueError(f"domains must name one domain for each of the {n} pairs; it has {len(domains)}")
    labels = np.zeros(n, np.int64)
    offset = 0
    names = np.zeros(n, np.int64) if domains is None else np.unique(np.asarray(domains), return_inverse=True)[1]
    for domain in range(int(names.max()) + 1):
        rows = np.flatnonzero(names == domain)
        forward = np.concatenate([document_vectors[rows], query_vectors[rows]], axis=1)
        mirrored = np.concatenate([query_vectors[rows], document_vectors[rows]], axis=1)
        found = _nearest_centroids(forward, mirrored, math.ceil(len(rows) / cluster_size), iterations, attempts, seed)
        labels[rows] = np.unique(found, return_inverse=True)[1] + offset
        offset = int(labels[rows].max()) + 1
    return labels


def _nearest_centroids(
    forward: Vectors, mirrored: Vectors, centroids: int, iterations: int, attempts: int, seed: int
) -> Labels:
    if centroids == 1:
        return np.zeros(len(forward), np.int64)
    import faiss

    points = np.ascontiguousarray(np.concatenate([forward, mirrored]), dtype=np.float32)
    kmeans = faiss.Kmeans(
        points.shape[1],
        centroids,
        niter=iterations,
        nredo=attempts,
        seed=seed,
        min_points_per_centroid=1,
        max_points_per_centroid=len(points),  # never a subsample
        gpu=getattr(faiss, "get_num_gpus", lambda: 0)() > 0,
    )
    kmeans.train(points)
    _, nearest = kmeans.index.search(np.ascontiguousarray(forward, dtype=np.float32), 1)
    return np.asarray(nearest[:, 0], dtype=np.int64)


def cluster_sizes(labels: Labels) -> Labels:
    """The number of pairs in each cluster, `(clusters,)` int64.

    Example:
        >>> cluster_sizes(np.array([0, 0, 1])).tolist()
        [2, 1]
    """
    return np.bincount(labels).astype(np.int64)

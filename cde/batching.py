"""Batches of one size, made of clusters of any size (CDE §4.1, "Packing").

Clusters are put in an order, laid end to end, and the row is cut into batches: a cluster larger
than a batch is split, smaller ones that stand side by side share a batch. The order is random, or
that of a greedy traveller: begin anywhere, go on to the nearest centroid not yet visited, so that
the clusters that share a batch are alike (the paper's choice). Pairs within a cluster are shuffled.

Cost: O(n), and O(k² · dim) for the traveller over k clusters.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

__all__ = ["batch_difficulty", "greedy_tour", "pack_batches"]

Vectors = NDArray[np.float32]
Positions = NDArray[np.int64]


def pack_batches(
    labels: Positions,
    batch_size: int,
    order: Literal["random", "tsp"] = "random",
    vectors: Vectors | None = None,
    domains: NDArray[np.generic] | None = None,
    seed: int = 0,
    drop_last: bool = True,
) -> list[Positions]:
    """Cut clusters into batches of one size; no batch crosses a domain.

    Args:
        labels: `(n,)` the cluster of each pair, as `cluster_pairs` gives them. All zero: random batches.
        batch_size: pairs a batch.
        order: "random", or "tsp" for the greedy tour over centroids.
        vectors: `(n, dim)` document vectors, whose means are the centroids; "tsp" needs them.
        domains: `(n,)` the domain of each pair; by default all are one domain.
        seed: of the order of clusters, of pairs within a cluster, and of the batches.
        drop_last: drop what does not fill a batch at the end of a domain; False keeps it as a short batch.

    Returns:
        Batches in random order, each `(batch_size,)` int64 positions of pairs.

    Raises:
        ValueError: an unknown order, "tsp" without vectors, or a batch size below 1.

    Example:
        >>> batches = pack_batches(np.array([0, 0, 1, 1, 2, 2]), batch_size=2)
        >>> sorted(sorted(batch.tolist()) for batch in batches)
        [[0, 1], [2, 3], [4, 5]]
    """
    if order not in ("random", "tsp"):
        raise ValueError(f"order must be 'random' or 'tsp'; it is {order!r}")
    if order == "tsp" and vectors is None:
        raise ValueError("order 'tsp' goes from centroid to centroid: give the documents' vectors")
    if batch_size < 1:
        raise ValueError(f"batch_size must be 1 or more; it is {batch_size}")
    generator = np.random.default_rng(seed)
    labels = np.asarray(labels)
    names = np.zeros(len(labels), np.int64) if domains is None else np.unique(domains, return_inverse=True)[1]
    batches: list[Positions] = []
    for domain in np.unique(names):
        rows = generator.permutation(np.flatnonzero(names == domain))
        clusters, local = np.unique(labels[rows], return_inverse=True)
        if order == "tsp" and vectors is not None:
            tour = greedy_tour(_centroids(vectors[rows], local), int(generator.integers(len(clusters))))
        else:
            tour = generator.permutation(len(clusters))
        place = np.empty(len(clusters), np.int64)
        place[tour] = np.arange(len(clusters))
        row = rows[np.argsort(place[local], kind="stable")]
        whole = len(row) // batch_size * batch_size
        # within a batch the order is random: rows that look at its first queries see all its clusters
        batches.extend(generator.permuted(row[:whole].reshape(-1, batch_size), axis=1))
        if not drop_last and whole < len(row):
            batches.append(row[whole:])
    return [batches[i] for i in generator.permutation(len(batches))]


def _centroids(vectors: Vectors, labels: Positions) -> Vectors:
    order = np.argsort(labels, kind="stable")
    sizes = np.bincount(labels)
    sums = np.add.reduceat(vectors[order], np.concatenate([[0], np.cumsum(sizes)[:-1]]), axis=0)
    return np.asarray(sums / sizes[:, None], dtype=np.float32)


def greedy_tour(centroids: Vectors, start: int = 0) -> Positions:
    """Visit every centroid once, each time going on to the nearest one not yet visited.

    Args:
        centroids: `(k, dim)` float32.
        start: where to begin.

    Returns:
        `(k,)` int64, the centroids in the order of the visit.

    Example:
        >>> greedy_tour(np.array([[0.0], [5.0], [1.0], [6.0]], np.float32)).tolist()
        [0, 2, 1, 3]
    """
    lengths = (centroids**2).sum(axis=1)
    unvisited = np.ones(len(centroids), bool)
    tour = np.empty(len(centroids), np.int64)
    here = start
    for step in range(len(centroids)):
        tour[step] = here
        unvisited[here] = False
        # ‖c − here‖² without the constant ‖here‖²
        distance = np.where(unvisited, lengths - 2 * (centroids @ centroids[here]), np.inf)
        here = int(distance.argmin())
    return tour


def batch_difficulty(
    query_vectors: Vectors,
    document_vectors: Vectors,
    batch: Positions,
    queries: int | None = None,
    temperature: float = 0.02,
) -> dict[str, float]:
    """How hard the negatives of a batch are, by the surrogate (CDE Fig. 6).

    Args:
        query_vectors, document_vectors: `(n, dim)` float32 unit vectors of all pairs.
        batch: `(b,)` positions of the batch's pairs, two or more, in random order.
        queries: look at the first so many queries only (against all documents); by default at all.
        temperature: of the loss (the paper's τ = 0.02).

    Returns:
        mean: mean cosine of a query with the other documents of the batch.
        hardest: mean over queries of the largest such cosine.
        loss: the contrastive loss, in nats, that the surrogate itself has on the batch.

    Raises:
        ValueError: a batch of fewer than two pairs.
    """
    if len(batch) < 2:
        raise ValueError(f"a batch needs two pairs for a negative; it has {len(batch)}")
    rows = batch[:queries]
    scores = query_vectors[rows] @ document_vectors[batch].T
    positive = np.diagonal(scores).copy()
    logits = scores / temperature
    largest = logits.max(axis=1)
    loss = np.log(np.exp(logits - largest[:, None]).sum(axis=1)) + largest - positive / temperature
    np.fill_diagonal(scores, -np.inf)
    hardest = scores.max(axis=1)
    np.fill_diagonal(scores, 0)
    return {
        "mean": float(scores.sum() / (len(rows) * (len(batch) - 1))),
        "hardest": float(hardest.mean()),
        "loss": float(loss.mean()),
    }

"""How hard batches could be at most, by CDE Eq. 2: a direct search, bounds, and all ways of a few.

The batches with the largest objective cannot be searched for exactly, since the ways to cut n pairs
into batches are too many. What can be had is a greedy search, bounds that no batches pass, and for
a dozen pairs every way.

Cost: n² · dim for the search; `count` · n · dim for the bounds; the ways of `all_partitions` grow
faster than exponentially (105 of 8 pairs in twos, 5,775 of 12 in fours).
"""

from __future__ import annotations

from functools import lru_cache
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cde.batching.clustering import cluster_pairs, cluster_vectors
from cde.batching.packing import pack_batches
from cde.progress import progress
from cde.validation import Positions, Vectors
from cde_studies.batches.statistics import batch_objective


def direct_search(
    query_vectors: Vectors,
    document_vectors: Vectors,
    batch_size: int,
    generator: np.random.Generator,
) -> list[Positions]:
    """Batches of a random pair and the unused pairs with the largest terms of Eq. 2, one by one."""
    left, batches = generator.permutation(len(query_vectors)), []
    for _ in progress(range(len(left) // batch_size), "searching batches", unit="batches"):
        one, rest = left[0], left[1:]
        terms = document_vectors[rest] @ query_vectors[one]
        terms = terms + query_vectors[rest] @ document_vectors[one]
        order = np.argpartition(-terms, batch_size - 2)
        batches.append(np.concatenate([[one], rest[order[: batch_size - 1]]]))
        left = rest[np.sort(order[batch_size - 1 :])]
    return batches


def objective_bounds(
    query_vectors: Vectors,
    document_vectors: Vectors,
    batch_size: int,
    count: int,
    generator: np.random.Generator,
    block: int = 500,
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """For some pairs, the mean term of Eq. 2 with the worst and with the best batch-mates, as
    cosines. The means over all pairs are bounds that no batches of this size pass.
    """
    count = min(count, len(query_vectors))
    lowest, highest = [], []
    drawn = generator.choice(len(query_vectors), count, replace=False)
    parts = np.split(drawn, range(block, count, block))
    for rows in progress(parts, "bounding the objective", unit="blocks"):
        terms = query_vectors[rows] @ document_vectors.T + document_vectors[rows] @ query_vectors.T
        terms[np.arange(len(rows)), rows] = -np.inf  # a pair is not a mate of its own
        terms.partition((batch_size - 1, terms.shape[1] - batch_size + 1), axis=1)
        lowest.append(np.sort(terms[:, :batch_size], axis=1)[:, 1:].mean(axis=1) / 2)
        highest.append(terms[:, 1 - batch_size :].mean(axis=1) / 2)
    return np.concatenate(lowest), np.concatenate(highest)


@lru_cache(maxsize=8)
def all_partitions(count: int, batch_size: int) -> Positions:
    """Every way to cut some pairs into batches of one size: `(ways, batches, batch_size)`."""
    return np.array(_partitions(tuple(range(count)), batch_size), dtype=np.int64)


def _partitions(rows: tuple[int, ...], batch_size: int) -> list[list[tuple[int, ...]]]:
    if not rows:
        return [[]]
    head, rest = rows[0], rows[1:]
    return [
        [(head, *mates), *others]
        for mates in combinations(rest, batch_size - 1)
        for others in _partitions(tuple(row for row in rest if row not in mates), batch_size)
    ]


def partition_objectives(
    query_vectors: Vectors, document_vectors: Vectors, partitions: Positions
) -> NDArray[np.float32]:
    """Eq. 2 per pair of batch-mates, of each way to cut a few pairs into batches: `(ways,)`."""
    terms = (query_vectors @ document_vectors.T + document_vectors @ query_vectors.T) / 2
    np.fill_diagonal(terms, 0)
    mates = terms[partitions[..., None], partitions[..., None, :]]
    _, count, size = partitions.shape
    return np.asarray(mates.sum(axis=(1, 2, 3)) / (count * size * (size - 1)), dtype=np.float32)


def try_all(
    query_vectors: Vectors,
    document_vectors: Vectors,
    count: int,
    batch_size: int,
    generator: np.random.Generator,
) -> dict[str, float]:
    """How near to the best batches clustering comes, on a set so small that all are tried.

    A few of the pairs are drawn, clustered, laid out by the greedy traveller and cut.

    Returns:
        ways: number of ways to cut the pairs. Eq. 2 of the `average` way, of the `best`, of
        `paired` k-means and of k-means on `documents only`. Of either its share of the way from the
        average (0) to the best (1); and `paired is best`, 1 or 0.
    """
    drawn = generator.choice(len(query_vectors), count, replace=False)
    seed = int(generator.integers(2**31))
    query_vectors, document_vectors = query_vectors[drawn], document_vectors[drawn]
    ways = all_partitions(count, batch_size)
    values = partition_objectives(query_vectors, document_vectors, ways)
    average, best = float(values.mean()), float(values.max())
    options: dict[str, Any] = {"cluster_size": batch_size, "iterations": 20, "seed": seed}
    made = {
        "paired": cluster_pairs(query_vectors, document_vectors, **options),
        "documents only": cluster_vectors(document_vectors, **options),
    }
    row: dict[str, float] = {"ways": len(ways), "average": average, "best": best}
    for way, labels in made.items():
        batches = pack_batches(labels, batch_size, "tsp", document_vectors, seed=seed)
        row[way] = batch_objective(query_vectors, document_vectors, batches)
    shares = {f"{way}: share of the way": (row[way] - average) / (best - average) for way in made}
    reached = float(np.isclose(row["paired"], best, atol=1e-6))
    return {**row, **shares, "paired is best": reached}

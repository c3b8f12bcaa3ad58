"""How time and memory grow with the number of pairs: clustering, packing, filtering, evaluation.

Vectors are unit vectors of 64 dimensions in groups. Growth is fitted from the sizes on at which
fixed costs no longer weigh. What an algorithm should have stands beside what was measured: 1 where
the work for a pair does not depend on how many there are, 2 where each meets all.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from measuring.comparing import Job, Series
from numpy.typing import NDArray

import cde
from cde.batching.clustering import cluster_pairs
from cde.batching.negatives import false_negatives
from cde.batching.packing import pack_batches
from cde.data.sets import RetrievalSet
from cde_studies.batches.statistics import removed_share

DIM, BATCH, SHARD, QUERIES = 64, 256, 10_000, 200
Vectors = NDArray[np.float32]


@lru_cache(maxsize=8)
def vectors(count: int) -> tuple[Vectors, Vectors]:
    """Query and document vectors, alike in a pair, in groups of about 250."""
    generator = np.random.default_rng(0)
    centres = generator.standard_normal((max(1, count // 250), DIM), np.float32)
    documents = centres[generator.integers(0, len(centres), count)]
    documents += generator.standard_normal((count, DIM), np.float32)
    queries = documents + generator.standard_normal((count, DIM), np.float32)
    for one in (queries, documents):
        one /= np.linalg.norm(one, axis=1, keepdims=True)
    return queries, documents


def clustering(count: int, shard: int | None) -> Job:
    queries, documents = vectors(count)
    options: dict[str, Any] = {"iterations": 10, "attempts": 1, "shard_size": shard}
    return lambda: cluster_pairs(queries, documents, cluster_size=BATCH, **options)


def packing(count: int, order: Any) -> Job:
    labels = np.random.default_rng(0).integers(0, max(1, count // BATCH), count)
    documents = vectors(count)[1] if order == "tsp" else None
    return lambda: pack_batches(labels, BATCH, order=order, vectors=documents)


def filtering(count: int) -> Job:
    queries, documents = vectors(count)
    batches = np.array_split(np.arange(count), max(1, count // BATCH))
    return lambda: removed_share(queries, documents, batches)


def one_batch(count: int) -> Job:
    queries, documents = vectors(count)
    return lambda: false_negatives(queries, documents)


class Stored:
    """An encoder whose vectors cost nothing."""

    def __init__(self, queries: Vectors, documents: Vectors) -> None:
        self.encode_queries = lambda texts: queries[: len(texts)]
        self.encode_documents = lambda texts: documents[: len(texts)]


def evaluation(count: int) -> Job:
    queries, documents = vectors(count)
    ids = [f"d{number}" for number in range(count)]
    asked = [f"q{number}" for number in range(QUERIES)]
    judged = {query: {ids[number]: 1} for number, query in enumerate(asked)}
    collection = RetrievalSet(ids, ids, asked, asked, judged)
    encoder = Stored(queries, documents)
    return lambda: cde.evaluate(encoder, collection)


def series(quick: bool) -> list[Series]:
    most = 2_000 if quick else 1_000_000

    def upto(*sizes: int) -> list[int]:
        return [500, 1_000, 2_000] if quick else [size for size in sizes if size <= most]

    wide = upto(1_000, 10_000, 30_000, 100_000, 300_000, 1_000_000)
    square = upto(1_000, 2_000, 4_000, 8_000, 16_000)
    start = 500 if quick else 10_000
    return [
        Series(
            "clustering",
            "cluster_pairs, one shard",
            "pairs",
            upto(3_000, 10_000, 20_000, 40_000, 80_000),
            2,
            start,
            lambda n: clustering(n, None),
        ),
        Series(
            "clustering",
            f"cluster_pairs, shards of {SHARD:,}",
            "pairs",
            upto(10_000, 30_000, 100_000, 300_000, 1_000_000),
            1,
            start,
            lambda n: clustering(n, SHARD),
        ),
        Series(
            "packing",
            "pack_batches, random",
            "pairs",
            wide,
            1,
            start,
            lambda n: packing(n, "random"),
        ),
        Series(
            "packing", "pack_batches, tsp", "pairs", wide, 1, start, lambda n: packing(n, "tsp")
        ),
        Series("filtering", f"in batches of {BATCH}", "pairs", wide, 1, start, filtering),
        Series("filtering", "in one batch", "pairs", square, 2, square[-3], one_batch),
        Series(
            "evaluation", f"evaluate, {QUERIES} queries", "documents", wide, 1, start, evaluation
        ),
    ]

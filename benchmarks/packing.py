"""What the greedy tour over centroids costs, and how much less than the same tour taken literally.

1. The time of the literal tour (every step looks at every centroid not yet visited, in float64 as
   `greedy_tour` does where it matters) over that of `greedy_tour`, for `--compared` centroids; the
   two tours must be equal. Beside it the float32 loop over all centroids, which may differ from
   them in near ties.
2. Seconds for `--centroids` centroids, of `greedy_tour` and of the float32 loop.
3. Seconds to pack an epoch of `--pairs` pairs.

Centroids are isotropic, where neighbours are hardest to tell apart, or in groups, as those of texts
are.

Rounds alternate in 1., so that a machine that slows down slows all.

    python benchmarks/packing.py [--centroids 20000] [--compared 2000] [--dim 384] [--pairs 1000000]
    [--rounds 3]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import faiss
import numpy as np

from cde.batching.packing import greedy_tour, pack_batches


def literal(centroids: np.ndarray, start: int = 0) -> np.ndarray:
    """The tour by its definition."""
    points, rest = centroids.astype(np.float64), np.delete(np.arange(len(centroids)), start)
    tour = [start]
    while len(rest):
        nearest = int(((points[rest] - points[tour[-1]]) ** 2).sum(axis=1).argmin())
        tour.append(int(rest[nearest]))
        rest = np.delete(rest, nearest)
    return np.array(tour)


def single_precision(centroids: np.ndarray, start: int = 0) -> np.ndarray:
    """The loop that one writes first: one matrix-vector product a step."""
    lengths, unvisited = (centroids**2).sum(axis=1), np.ones(len(centroids), bool)
    tour, here = np.empty(len(centroids), np.int64), start
    for step in range(len(centroids)):
        tour[step], unvisited[here] = here, False
        here = int(
            np.where(unvisited, lengths - 2 * (centroids @ centroids[here]), np.inf).argmin()
        )
    return tour


def centroids(kind: str, count: int, dim: int) -> np.ndarray:
    generator = np.random.default_rng(0)
    vectors = generator.normal(size=(count, dim))
    if kind == "in groups":
        vectors = (
            0.7 * vectors
            + generator.normal(size=(max(1, count // 50), dim)).repeat(50, axis=0)[:count]
        )
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def seconds(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def ratio(numerator: list[float], denominator: list[float]) -> str:
    pairs = [one / other for one, other in zip(numerator, denominator, strict=True)]
    return f"{statistics.median(pairs):.2f} ({min(pairs):.2f} to {max(pairs):.2f})"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--centroids", type=int, default=20_000)
    parser.add_argument("--compared", type=int, default=2_000)
    parser.add_argument("--dim", type=int, default=384)
    parser.add_argument("--pairs", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    print(f"{faiss.omp_get_max_threads()} threads, {options.dim} dimensions")
    for kind in ("isotropic", "in groups"):
        some = centroids(kind, options.compared, options.dim)
        tours = (literal, single_precision, greedy_tour)
        assert (literal(some) == greedy_tour(some)).all(), "not the literal tour"
        rounds = [
            [seconds(lambda tour=tour, some=some: tour(some)) for tour in tours]
            for _ in range(options.rounds)
        ]
        slow, single, ours = (list(column) for column in zip(*rounds, strict=True))
        print(
            f"{options.compared:,} centroids, {kind}: {statistics.median(ours):.2f} s; the "
            "literal tour takes "
            f"{ratio(slow, ours)} times as long, the float32 loop {ratio(single, ours)}",
            flush=True,
        )
        many = centroids(kind, options.centroids, options.dim)
        took = seconds(lambda many=many: greedy_tour(many))
        print(f"{options.centroids:,} centroids, {kind}: {took:.1f} s", end="", flush=True)
        print(
            f", the float32 loop {seconds(lambda many=many: single_precision(many)):.1f} s",
            flush=True,
        )
    labels = np.random.default_rng(0).integers(0, max(1, options.pairs // 256), options.pairs)
    took = seconds(lambda: pack_batches(labels, 256))
    print(f"{options.pairs:,} pairs packed, clusters in random order: {took:.1f} s")

"""K-means to an equal objective: ours against scikit-learn's two, and FAISS' two.

Each may make as few rounds over the points as it needs to come within half a per cent of what ours
reaches after 30 iterations: the mean squared distance to the nearest centroid, computed for all in
the same way. The least number is looked for among a few, from one seed, and is not timed. What does
not come there within the most that is tried is timed at that most, and its comparison says so.
The limit is the multiply-adds of our iterations at the rate of one large product in float32.

Vectors are those of `questions.memory`: a mixture, one component for every ten.
"""

from __future__ import annotations

import math
from functools import cache, lru_cache
from typing import Any

import faiss
import numpy as np
from measuring.comparing import Case, Job, Make, Pair

from cde.batching.clustering import paired_points, run_kmeans
from questions.embedding import product, products_in
from questions.memory import BLOCK, Vectors, mixture

WITHIN, LONG = 1.005, 30
TRIED = (1, 2, 3, 4, 6, 8, 11, 16, 23, 32)
SEED, CLUSTER_SIZE, DIM = 0, 256, 384
OURS = "run_kmeans"
SKLEARN = "scikit-learn, MiniBatchKMeans"
LIMIT = "matrix products, float32"


def objective(points: Vectors, centroids: Vectors) -> float:
    """The mean squared distance of a point to its nearest centroid."""
    nearest, total = faiss.knn(points, centroids, 1)[1][:, 0], 0.0
    for start in range(0, len(points), BLOCK):
        some = slice(start, start + BLOCK)
        apart = points[some].astype(np.float64) - centroids[nearest[some]]
        total += float(np.einsum("ij,ij->", apart, apart))
    return total / len(points)


@lru_cache(maxsize=2)
def points_of(sides: int, count: int) -> np.ndarray:
    queries, documents = map(np.concatenate, zip(*mixture(count, DIM), strict=True))
    return documents if sides == 1 else paired_points(queries, documents)


def _faiss(kind: Any, points: np.ndarray, k: int, iterations: int) -> np.ndarray:
    kmeans = kind(
        points.shape[1],
        k,
        niter=iterations,
        seed=SEED,
        min_points_per_centroid=1,
        max_points_per_centroid=len(points),
    )
    kmeans.train(points)
    return np.asarray(kmeans.centroids)


def _mini_batch(points: np.ndarray, k: int, iterations: int) -> np.ndarray:
    from sklearn.cluster import MiniBatchKMeans

    kmeans = MiniBatchKMeans(
        k,
        max_iter=iterations,
        batch_size=min(1024, len(points) // 4),  # its default, but for a miniature
        random_state=SEED,
        max_no_improvement=None,
        compute_labels=False,
    )
    return np.asarray(kmeans.fit(points).cluster_centers_, np.float32)


def _lloyd(points: np.ndarray, k: int, iterations: int) -> np.ndarray:
    from sklearn.cluster import KMeans

    kmeans = KMeans(k, init="random", n_init=1, max_iter=iterations, tol=0, random_state=SEED)
    return np.asarray(kmeans.fit(points).cluster_centers_, np.float32)


ARMS: dict[str, Any] = {
    OURS: lambda p, k, n: run_kmeans(p, k, iterations=n, attempts=1, seed=SEED).centroids,
    SKLEARN: _mini_batch,
    "scikit-learn, KMeans": _lloyd,
    "faiss.Kmeans": lambda p, k, n: _faiss(faiss.Kmeans, p, k, n),
    "faiss.SuperKmeans": lambda p, k, n: _faiss(faiss.SuperKmeans, p, k, n),
}


@cache
def goal(sides: int, count: int, k: int) -> float:
    points = points_of(sides, count)
    return WITHIN * objective(points, ARMS[OURS](points, k, LONG))


@cache
def fewest(arm: str, sides: int, count: int, k: int) -> tuple[int, float]:
    """Iterations to the goal, or the most that is tried; and the objective there."""
    points, reached, tried = points_of(sides, count), math.inf, 0
    for tried in TRIED:
        reached = objective(points, ARMS[arm](points, k, tried))
        if reached <= goal(sides, count, k):
            break
    return tried, reached


def job(arm: str, sides: int, count: int, k: int, iterations: int = 0) -> Job:
    """Centroids, after so many iterations, or as many as the goal needs."""
    points = points_of(sides, count)
    wanted = iterations or fewest(arm, sides, count, k)[0]
    return lambda: ARMS[arm](points, k, wanted)


def note_on(arm: str, peer: str, sides: int, count: int, k: int) -> str:
    """How many iterations each made, and whether one did not come to the goal."""
    texts = []
    for one in (arm, peer):
        iterations, reached = fewest(one, sides, count, k)
        short = "" if reached <= goal(sides, count, k) else ", and did not come as far"
        texts.append(f"{one}: {iterations} iterations{short}")
    return "; ".join(texts)


def _case(sides: int, name: str, count: int) -> Case:
    k = max(4, math.ceil(count / CLUSTER_SIZE))
    shape = (sides, count, k)
    makes: dict[str, Make] = {arm: lambda arm=arm: job(arm, *shape) for arm in ARMS}
    peers = [arm for arm in ARMS if arm != OURS]
    pairs = [Pair(OURS, peer, note=lambda peer=peer: note_on(OURS, peer, *shape)) for peer in peers]
    return Case(
        "clustering",
        f"{name}, {k} clusters",
        count,
        "vectors" if sides == 1 else "pairs",
        makes | {LIMIT: lambda: product("float32")},
        [*pairs, Pair(OURS, LIMIT, "share of the limit"), Pair(LIMIT, SKLEARN, "limit")],
        {LIMIT: lambda: products_in(fewest(OURS, *shape)[0] * 2 * count * k * DIM * sides**2)},
        lambda ours, peer: (
            objective(points_of(*shape[:2]), ours) / objective(points_of(*shape[:2]), peer)
        ),
        "objective over the peer's",
        {arm: lambda arm=arm: job(arm, *shape, iterations=2) for arm in ARMS},
    )


def cases(quick: bool) -> list[Case]:
    count = 1_000 if quick else 20_000
    return [_case(1, "vectors of one side", count), _case(2, "paired points", count // 2)]

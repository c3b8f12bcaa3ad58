"""The greedy traveller who orders clusters before they are cut into batches (CDE §4.1, "Packing").

Begin anywhere, go on to the nearest centroid not yet visited. Taken literally, every step looks at
every centroid: k² · dim multiply-adds, one memory-bound row of them at a time. Here the nearest
neighbours of all centroids are found at once, by FAISS, and a step looks at the few of its list
that are unvisited. Where none of a list is left, that step searches all unvisited centroids; and
once a part of the centroids is visited, the lists are made anew from the rest, so that this stays
rare.

The tour is the literal one, not an approximation. Distances in float32 are only used to find the
candidates. Whatever lies within their rounding error is compared in float64. A list is trusted only
if its nearest unvisited member is nearer, by more than that error, than the list reaches. Among
equals the lowest index is next.

Cost: about 4/3 · k² · dim multiply-adds in matrix products (`benchmarks/packing.py` measures it).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["cosines_along", "greedy_tour"]

Vectors = NDArray[np.float32]
Positions = NDArray[np.int64]

_NEIGHBOURS = 96  # in a list
_REST = 0.5  # lists are made anew once this part of their centroids is unvisited


def greedy_tour(centroids: Vectors, start: int = 0) -> Positions:
    """Visit every centroid once, each time going on to the nearest one not yet visited.

    Returns:
        `(k,)` int64, the centroids in the order of the visit. Among equally near ones (distances in
        float64) the lowest index comes first.
    """
    centroids = np.asarray(centroids)
    if centroids.ndim != 2 or not np.isfinite(centroids).all():
        raise ValueError(f"centroids must be (k, dim) finite numbers; they are {centroids.shape}")
    if len(centroids) == 0:
        return np.zeros(0, np.int64)
    if not 0 <= start < len(centroids):
        raise ValueError(f"start must be one of the {len(centroids)} centroids; it is {start}")
    # centroids that are equal to the last bit are visited one after the other, in order: one stop
    _, first, stop = np.unique(centroids, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.argsort(order)
    tour = _tour_of_distinct(centroids[first[order]], int(rank[stop[start]]))
    place = np.argsort(tour)[rank[stop]]
    visits = np.argsort(place, kind="stable")
    return np.concatenate([[start], visits[visits != start]]).astype(np.int64)


def _tour_of_distinct(points: NDArray[np.floating], start: int) -> Positions:
    exact = points.astype(np.float64)
    # about their mean, so that a common offset does not drown the differences in rounding
    rough = np.ascontiguousarray(exact - exact.mean(axis=0), dtype=np.float32)
    tour = [start]
    rest = np.arange(len(points))
    while len(tour) < len(points):
        rest = np.concatenate([[tour[-1]], rest[~np.isin(rest, tour)]])
        leg = len(rest) if len(rest) <= 2 * _NEIGHBOURS else len(rest) - int(len(rest) * _REST)
        tour.extend(rest[_leg(exact[rest], rough[rest], leg)].tolist()[1:])
    return np.asarray(tour, dtype=np.int64)


def _leg(exact: NDArray[np.float64], rough: Vectors, steps: int) -> Positions:
    """The first `steps` stops of the tour that begins at row 0."""
    import faiss

    lengths = np.einsum("ij,ij->i", rough, rough)
    # an upper bound on the rounding error of a squared distance in float32, from its parts
    error = 4 * (rough.shape[1] + 4) * float(np.finfo(np.float32).eps) * float(lengths.max())
    distances, lists = faiss.knn(rough, rough, min(_NEIGHBOURS, len(rough)))
    reach = distances[:, -1] if lists.shape[1] < len(rough) else np.full(len(rough), np.inf)
    unvisited = np.ones(len(rough), bool)
    tour = np.empty(steps, np.int64)
    here = 0
    for step in range(steps):
        tour[step] = here
        unvisited[here] = False
        if step + 1 == steps:
            break
        open_places = unvisited[lists[here]]
        near, candidates = distances[here][open_places], lists[here][open_places]
        if not len(near) or near[0] + 2 * error >= reach[here]:
            candidates = np.flatnonzero(unvisited)
            near = (lengths - 2 * (rough @ rough[here]) + lengths[here])[candidates]
        candidates = np.sort(candidates[near <= near.min() + 2 * error])
        if len(candidates) > 1:
            here = int(candidates[((exact[candidates] - exact[here]) ** 2).sum(axis=1).argmin()])
        else:
            here = int(candidates[0])
    return tour


def cosines_along(centroids: Vectors, order: Positions) -> NDArray[np.float64]:
    """The cosine of each centroid with the one that follows it in an order.

    Returns:
        `(k − 1,)`.
    """
    directions = centroids / np.linalg.norm(centroids, axis=1, keepdims=True)
    return np.asarray((directions[order[:-1]] * directions[order[1:]]).sum(axis=1))

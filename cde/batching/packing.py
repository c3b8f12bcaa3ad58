"""Batches of one size, made of clusters of any size (CDE §4.1, "Packing"; clustering paper §2).

Clusters are put in an order, laid end to end, and the row is cut into batches: a cluster larger
than a batch is split, smaller ones that stand side by side share a batch. The order is random, or
that of a greedy traveller: begin anywhere, go on to the nearest centroid not yet visited, so that
the clusters that share a batch are alike (the paper's choice). Pairs within a cluster are shuffled.

As the paper says, this happens within each domain. The authors' code lays the clusters of all
domains end to end first, so that a batch may straddle the border of two: `cross_domains=True`. What
does not fill a batch at the end of a row is dropped or kept as a short batch (`drop_last`); which
pairs these are changes with the epoch.

With labels that are all zero and strata as domains (sources, or clusters within sources), each
batch comes from one stratum, and strata are drawn in proportion to their size, without replacement
(clustering paper §2).

Any way of making batches can be written down before training as a *plan*, a `(steps, batch_size)`
table of positions of pairs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array

from cde.batching.clustering import require_distances, rows_by_domain
from cde.storage import content_hash
from cde.validation import (
    Positions,
    Vectors,
    array_of_numbers,
    checked_switch,
    checked_whole,
    group_numbers,
    shown,
)

__all__ = ["BatchSampler", "PlannedBatches", "greedy_tour", "pack_batches"]

_NEIGHBOURS = 96  # in a list
_REST = 0.5  # lists are made again once this part of their centroids is unvisited


def greedy_tour(centroids: Vectors, start: int = 0) -> Positions:
    """A tour, `(k,)` int64, that goes on to the nearest centroid left, of ties to the first."""
    centroids = array_of_numbers(centroids, "centroids")
    if centroids.ndim != 2:
        raise ValueError(f"centroids must be (k, dim); they are {centroids.shape}")
    require_distances(centroids, "centroids, means of the vectors,")
    if len(centroids) == 0:
        return np.zeros(0, np.int64)
    if (start := checked_whole(start, "start", None)) not in range(len(centroids)):
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


Order = Literal["random", "tsp"]


def pack_batches(
    labels: Positions,
    batch_size: int,
    order: Order = "random",
    vectors: Vectors | None = None,
    domains: Sequence[str] | NDArray[np.generic] | None = None,
    seed: int = 0,
    drop_last: bool = True,
    cross_domains: bool = False,
) -> list[Positions]:
    """Cut clusters into batches of one size; no batch crosses a domain, unless asked for.

    Args:
        labels: `(n,)` the cluster of each pair (`cluster_pairs`). All zero: random batches.
        batch_size: pairs a batch.
        order: "random", or "tsp" for the greedy tour over centroids.
        vectors: `(n, dim)` document vectors, whose means are the centroids; "tsp" needs them.
        domains: `(n,)` the domain of each pair; by default all are one domain.
        seed: seed of the order of clusters, of pairs within a cluster, and of the batches.
        drop_last: drop what does not fill a batch at the end of a domain, or keep it, short.
        cross_domains: the authors' way: the domains' clusters are laid end to end, in random order
            of domains, and cut as one row.

    Returns:
        Batches in random order, each `(batch_size,)` int64 positions of pairs, in random order.

    Example:
        >>> batches = pack_batches(np.array([0, 0, 1, 1, 2, 2]), batch_size=2)
        >>> sorted(sorted(batch.tolist()) for batch in batches)
        [[0, 1], [2, 3], [4, 5]]
    """
    labels = group_numbers(labels, "labels")
    if not len(labels):
        return []
    options = order, vectors, domains, seed, drop_last, cross_domains
    return BatchSampler(labels, batch_size, *options).epoch_batches


class BatchSampler:
    """Batches for ever, epoch after epoch, that every process draws alike and that can go on where
    they stopped.

    Epoch e has the batches `pack_batches(…, seed=seed + e)`. The iterator gives whole batches;
    `slice` is the part of the process `rank` of `ranks`, all of one size. The other arguments are
    those of `pack_batches`.
    """

    def __init__(
        self,
        labels: Positions,
        batch_size: int,
        order: Order = "random",
        vectors: Vectors | None = None,
        domains: Sequence[str] | NDArray[np.generic] | None = None,
        seed: int = 0,
        drop_last: bool = True,
        cross_domains: bool = False,
        ranks: int = 1,
        rank: int = 0,
    ) -> None:
        labels = group_numbers(labels, "labels")
        if not isinstance(order, str) or order not in ("random", "tsp"):
            raise ValueError(f"order must be 'random' or 'tsp'; it is {shown(order)}")
        if order == "tsp" and vectors is None:
            raise ValueError("order 'tsp' goes from centroid to centroid: give vectors")
        # of each domain: its pairs, ascending; the number of each one's cluster; their centroids
        self._rows = rows_by_domain(domains, len(labels))
        self._local = [np.unique(labels[rows], return_inverse=True)[1] for rows in self._rows]
        self._centroids: list[Vectors] | None = None
        if vectors is not None:
            vectors = array_of_numbers(vectors, "vectors")
            if vectors.ndim != 2 or len(vectors) != len(labels):
                raise ValueError(f"vectors must be ({len(labels)}, dim); they are {vectors.shape}")
            if order == "tsp":
                parts = zip(self._rows, self._local, strict=True)
                self._centroids = [_centroids(vectors, rows, local) for rows, local in parts]
        self.batch_size = checked_whole(batch_size, "batch_size")
        self.seed = checked_whole(seed, "seed", 0)
        self.drop_last = checked_switch(drop_last, "drop_last")
        self.cross_domains = checked_switch(cross_domains, "cross_domains")
        self._begin(ranks, rank)

    def _begin(self, ranks: int, rank: int) -> None:
        ranks, rank = checked_whole(ranks, "ranks", None), checked_whole(rank, "rank", None)
        if ranks < 1 or not 0 <= rank < ranks:
            raise ValueError(f"rank must be 0 to ranks − 1; they are {rank} and {ranks}")
        if self.batch_size % ranks:
            said = f"they are {self.batch_size} and {ranks}"
            raise ValueError(f"batch_size must be a multiple of ranks; {said}")
        if ranks > 1 and not self.drop_last:
            raise ValueError(
                f"drop_last=False leaves short batches, which {ranks} ranks cannot share: drop them"
            )
        self.ranks, self.rank, self.epoch, self.position = ranks, rank, 0, 0
        self.epoch_batches = self._pack()

    def _pack(self) -> list[Positions]:
        """The batches of the epoch that it stands in."""
        generator, batch_size = np.random.default_rng(self.seed + self.epoch), self.batch_size
        domains = list(range(len(self._rows)))
        if self.cross_domains:
            generator.shuffle(domains)
        rows = (self._lay_out(domain, generator) for domain in domains)
        batches: list[Positions] = []
        for row in [np.concatenate(list(rows))] if self.cross_domains and domains else rows:
            whole = len(row) // batch_size * batch_size
            # within a batch the order is random: its first queries are of all its clusters
            batches.extend(
                generator.permuted(row[:whole].reshape(-1, min(batch_size, len(row) + 1)), axis=1)
            )
            if not self.drop_last and whole < len(row):
                batches.append(generator.permutation(row[whole:]))
        if not batches:
            sizes = list(map(len, self._rows))
            largest = sum(sizes) if self.cross_domains else max(sizes, default=0)
            raise ValueError(
                f"not one batch of {batch_size} pairs can be filled: the largest domain (or "
                f"cluster, where each is batched alone) has {largest:,} pairs: "
                "take a smaller batch_size or larger clusters"
            )
        return [batches[i] for i in generator.permutation(len(batches))]

    def _lay_out(self, domain: int, generator: np.random.Generator) -> Positions:
        """A domain's pairs, cluster after cluster."""
        rows, local = self._rows[domain], self._local[domain]
        count = int(local.max()) + 1
        shuffled = generator.permutation(len(rows))
        if self._centroids is not None:
            tour = greedy_tour(self._centroids[domain], int(generator.integers(count)))
        else:
            tour = generator.permutation(count)
        place = np.empty(count, np.int64)
        place[tour] = np.arange(count)
        return rows[shuffled[np.argsort(place[local[shuffled]], kind="stable")]]

    @property
    def batches_per_epoch(self) -> int:
        """How many batches an epoch has, the same in each."""
        return len(self.epoch_batches)

    def __iter__(self) -> Iterator[Positions]:
        return self

    def __next__(self) -> Positions:
        if self.position == len(self.epoch_batches):
            self.epoch, self.position = self.epoch + 1, 0
            self.epoch_batches = self._pack()
        self.position += 1
        return self.epoch_batches[self.position - 1]

    def slice(self, batch: Positions) -> Positions:
        """This rank's part of a batch: `(len(batch) / ranks,)`, contiguous."""
        size = len(batch) // self.ranks
        return batch[self.rank * size : (self.rank + 1) * size]

    def state_dict(self) -> dict[str, int | str]:
        """Where it stands, the same on all ranks, with a hash of what its batches are made of."""
        return {**self._settings, "epoch": self.epoch, "position": self.position}

    def load_state_dict(self, state: dict[str, int | str]) -> None:
        """Go on where the sampler that gave this state stood."""
        if not self._settings.items() <= state.items():
            raise ValueError("the state is of another plan, or of other settings or pairs")
        if state["epoch"] != self.epoch:
            self.epoch = int(state["epoch"])
            self.epoch_batches = self._pack()
        self.position = int(state["position"])

    @cached_property
    def _settings(self) -> dict[str, str]:
        tsp = self._centroids is not None
        options = self.batch_size, self.seed, self.drop_last, self.cross_domains, tsp
        arrays: list[NDArray[Any]] = [*self._rows, *self._local, *(self._centroids or [])]
        return {"settings": content_hash([repr(options), *(array.tobytes() for array in arrays)])}


def positions_of_pairs(given: Any, name: str, pairs: int | None = None) -> Positions:
    """A table of positions of pairs as int64, each of which is there."""
    table = array_of_numbers(given, name)
    if table.ndim != 2 or not table.size or table.dtype.kind not in "iu":
        said = f"it is {table.dtype} of shape {table.shape}"
        raise ValueError(f"{name} must be a table of positions of pairs; {said}")
    if pairs is not None and (table.min() < 0 or table.max() >= pairs):
        raise ValueError(
            f"{name} names pairs {table.min()} to {table.max()}; there are {pairs}, numbered from 0"
        )
    return np.ascontiguousarray(table, np.int64)


class PlannedBatches(BatchSampler):
    """A plan `(steps, batch_size)` as training reads it; after its last row it begins again."""

    def __init__(self, plan: ArrayLike, ranks: int = 1, rank: int = 0) -> None:
        self.plan = positions_of_pairs(plan, "plan")
        self.batch_size, self.drop_last = self.plan.shape[1], True
        self._begin(ranks, rank)

    def _pack(self) -> list[Positions]:
        return list(self.plan)

    @cached_property
    def _settings(self) -> dict[str, str]:
        return {"plan": content_hash([repr(self.plan.shape), self.plan.tobytes()])}


def _centroids(vectors: Vectors, rows: Positions, local: Positions, block: int = 65536) -> Vectors:
    sizes = np.bincount(local)
    sums = np.zeros((len(sizes), vectors.shape[1]))
    for start in range(0, len(rows), block):  # of a file, only a block is in memory
        some = vectors[rows[start : start + block]].astype(np.float64)
        places = local[start : start + block], np.arange(len(some))
        sums += csr_array((np.ones(len(some)), places), shape=(len(sizes), len(some))) @ some
    return (sums / sizes[:, None]).astype(np.float32)

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

Batches that are laid down before training are a *plan*, a `(steps, batch_size)` table of positions
of pairs. Any way of making batches can be written as one, and is then trained with.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cde.batching.clustering import rows_by_group
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
    """Visit every centroid once, each time going on to the nearest one not yet visited, of equally
    near ones to that of the lowest index: `(k,)` int64.
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
        labels: `(n,)` the cluster of each pair, as `cluster_pairs` gives them. All zero: random
            batches.
        batch_size: pairs a batch.
        order: "random", or "tsp" for the greedy tour over centroids.
        vectors: `(n, dim)` document vectors, whose means are the centroids; "tsp" needs them.
        domains: `(n,)` the domain of each pair; by default all are one domain.
        seed: seed of the order of clusters, of pairs within a cluster, and of the batches.
        drop_last: drop what does not fill a batch at the end of a domain; False keeps it as a short
            batch.
        cross_domains: the authors' way: the domains' clusters are laid end to end, in random order
            of domains, and cut as one row.

    Returns:
        Batches in random order, each `(batch_size,)` int64 positions of pairs, in random order.

    Example:
        >>> batches = pack_batches(np.array([0, 0, 1, 1, 2, 2]), batch_size=2)
        >>> sorted(sorted(batch.tolist()) for batch in batches)
        [[0, 1], [2, 3], [4, 5]]
    """
    clusters = _Clusters.of(labels, order, vectors, domains)
    batches = _pack(clusters, batch_size, seed, drop_last, cross_domains)
    if not batches and clusters.rows:
        sizes = list(map(len, clusters.rows))
        largest = sum(sizes) if cross_domains else max(sizes)
        raise ValueError(
            f"not one batch of {batch_size} pairs can be filled: the largest domain has "
            f"{largest:,} pairs. Take a smaller batch_size, or drop_last=False"
        )
    return batches


@dataclass(frozen=True)
class _Clusters:
    """Clusters in each domain: ascending positions of a domain's pairs, and the number of each
    one's cluster.
    """

    rows: list[Positions]
    local: list[Positions]
    centroids: list[Vectors] | None
    counts: list[int]

    @classmethod
    def of(
        cls,
        labels: Positions,
        order: Order,
        vectors: Vectors | None,
        domains: Sequence[str] | NDArray[np.generic] | None,
    ) -> _Clusters:
        labels = group_numbers(labels, "labels")
        if not isinstance(order, str) or order not in ("random", "tsp"):
            raise ValueError(f"order must be 'random' or 'tsp'; it is {shown(order)}")
        if order == "tsp" and vectors is None:
            raise ValueError(
                "order 'tsp' goes from centroid to centroid: give the documents' vectors"
            )
        names = np.zeros(len(labels), np.int64)
        if domains is not None:
            names = group_numbers(domains, "domains", len(labels))
        if vectors is not None:
            vectors = array_of_numbers(vectors, "vectors")
            if vectors.ndim != 2 or len(vectors) != len(labels):
                raise ValueError(
                    f"vectors must hold one for each of the {len(labels)} pairs; it has "
                    f"{len(vectors) if vectors.ndim == 2 else f'shape {vectors.shape}'}"
                )
        rows = rows_by_group(names) if len(labels) else []
        local = [np.unique(labels[some], return_inverse=True)[1] for some in rows]
        centroids = None
        if order == "tsp" and vectors is not None:
            centroids = [
                _centroids(vectors, some, own) for some, own in zip(rows, local, strict=True)
            ]
        return cls(rows, local, centroids, [int(own.max()) + 1 for own in local])


def _centroids(vectors: Vectors, rows: Positions, local: Positions, block: int = 65536) -> Vectors:
    sizes = np.bincount(local)
    sums = np.zeros((len(sizes), vectors.shape[1]))
    for start in range(0, len(rows), block):  # of a file, only a block is in memory
        own = local[start : start + block]
        order = np.argsort(own, kind="stable")
        present, first = np.unique(own[order], return_index=True)
        some = vectors[rows[start : start + block]].astype(np.float64)
        sums[present] += np.add.reduceat(some[order], first, axis=0)
    return (sums / sizes[:, None]).astype(np.float32)


def _pack(
    clusters: _Clusters, batch_size: int, seed: int, drop_last: bool, cross_domains: bool
) -> list[Positions]:
    batch_size, seed = checked_whole(batch_size, "batch_size"), checked_whole(seed, "seed", 0)
    drop_last = checked_switch(drop_last, "drop_last")
    cross_domains = checked_switch(cross_domains, "cross_domains")
    generator = np.random.default_rng(seed)
    domains = list(range(len(clusters.rows)))
    if cross_domains:
        generator.shuffle(domains)
    rows = (_lay_out(clusters, domain, generator) for domain in domains)
    batches: list[Positions] = []
    for row in [np.concatenate(list(rows))] if cross_domains and domains else rows:
        whole = len(row) // batch_size * batch_size
        # within a batch the order is random: rows that look at its first queries see all its
        # clusters
        batches.extend(
            generator.permuted(row[:whole].reshape(-1, min(batch_size, len(row) + 1)), axis=1)
        )
        if not drop_last and whole < len(row):
            batches.append(generator.permutation(row[whole:]))
    return [batches[i] for i in generator.permutation(len(batches))]


def _lay_out(clusters: _Clusters, domain: int, generator: np.random.Generator) -> Positions:
    """A domain's pairs, cluster after cluster."""
    count = clusters.counts[domain]
    shuffled = generator.permutation(len(clusters.rows[domain]))
    if clusters.centroids is not None:
        tour = greedy_tour(clusters.centroids[domain], int(generator.integers(count)))
    else:
        tour = generator.permutation(count)
    place = np.empty(count, np.int64)
    place[tour] = np.arange(count)
    order = np.argsort(place[clusters.local[domain][shuffled]], kind="stable")
    return np.asarray(clusters.rows[domain][shuffled[order]], dtype=np.int64)


class BatchSampler:
    """Batches for ever, epoch after epoch, that every process draws alike and that can go on where
    they stopped.

    Epoch e has the batches `pack_batches(…, seed=seed + e)`. The iterator gives whole batches;
    `slice` is the part of the process `rank` of `ranks`, all of one size. `labels` may be None for
    batches from within domains; the other arguments are those of `pack_batches`.
    """

    def __init__(
        self,
        labels: Positions | None,
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
        if labels is None and domains is None:
            raise ValueError("give labels (clusters), domains (strata), or both: neither is given")
        batch_size = checked_whole(batch_size, "batch_size", None)
        ranks, rank = checked_whole(ranks, "ranks", None), checked_whole(rank, "rank", None)
        drop_last = checked_switch(drop_last, "drop_last")
        if ranks < 1 or not 0 <= rank < ranks:
            raise ValueError(f"rank must be 0 to ranks − 1; they are {rank} and {ranks}")
        if batch_size % ranks:
            raise ValueError(
                f"batch_size must be a multiple of ranks; they are {batch_size} and {ranks}"
            )
        if ranks > 1 and not drop_last:
            raise ValueError(
                f"drop_last=False leaves short batches, which {ranks} ranks cannot share: drop them"
            )
        if labels is None:
            labels = np.zeros_like(group_numbers(domains, "domains"))
        seed = checked_whole(seed, "seed", 0)
        self.batch_size, self.seed, self.ranks, self.rank = batch_size, seed, ranks, rank
        self.drop_last, self.cross_domains = drop_last, cross_domains
        self.epoch, self.position = 0, 0
        self._clusters = _Clusters.of(labels, order, vectors, domains)
        self._batches = self._pack()
        if not self._batches:
            raise ValueError(
                f"no batch of {batch_size} in an epoch: no domain of the "
                f"{sum(map(len, self._clusters.rows))} pairs has as many"
            )

    def _pack(self) -> list[Positions]:
        seed = self.seed + self.epoch
        return _pack(self._clusters, self.batch_size, seed, self.drop_last, self.cross_domains)

    @property
    def batches_per_epoch(self) -> int:
        """How many batches an epoch has, the same in each."""
        return len(self._batches)

    def __iter__(self) -> Iterator[Positions]:
        return self

    def __next__(self) -> Positions:
        if self.position == len(self._batches):
            self.epoch, self.position = self.epoch + 1, 0
            self._batches = self._pack()
        self.position += 1
        return self._batches[self.position - 1]

    def slice(self, batch: Positions, rank: int | None = None) -> Positions:
        """A rank's part of a batch, by default this one's: `(len(batch) / ranks,)`, contiguous."""
        size = len(batch) // self.ranks
        rank = self.rank if rank is None else rank
        return batch[rank * size : (rank + 1) * size]

    def state_dict(self) -> dict[str, int | str]:
        """Where the sampler stands, the same on all ranks, with a hash of what its batches are
        made of; any number of ranks can go on from it.
        """
        return {"settings": self._settings, "epoch": self.epoch, "position": self.position}

    def load_state_dict(self, state: dict[str, int | str]) -> None:
        """Go on where the sampler that gave this state stood."""
        if state.get("settings") != self._settings:
            raise ValueError(
                "the state is of a sampler with other settings (pairs, labels, vectors, domains, "
                "batch_size, order, "
                "seed, drop_last or cross_domains): make this one as that one was, or begin anew"
            )
        epoch = int(state["epoch"])
        if epoch != self.epoch:
            self.epoch = epoch
            self._batches = self._pack()
        self.position = int(state["position"])

    @cached_property
    def _settings(self) -> str:
        clusters = self._clusters
        options = (
            self.batch_size,
            self.seed,
            self.drop_last,
            self.cross_domains,
            clusters.centroids is not None,
        )
        arrays = [*clusters.rows, *clusters.local, *(clusters.centroids or [])]
        return content_hash(
            [repr(options), *(np.ascontiguousarray(array).tobytes() for array in arrays)]
        )


class PlannedBatches(BatchSampler):
    """A plan `(steps, batch_size)` as training reads it; after its last row it begins again."""

    def __init__(self, plan: ArrayLike, ranks: int = 1, rank: int = 0) -> None:
        table = np.asarray(plan)
        if table.ndim != 2 or 0 in table.shape or table.dtype.kind not in "iu":
            raise ValueError(
                "a plan must be a table (steps, batch_size) of positions of pairs; it has shape "
                f"{table.shape} and holds {table.dtype}"
            )
        if not 0 <= rank < ranks or table.shape[1] % ranks:
            raise ValueError(
                f"{ranks} ranks cannot share batches of {table.shape[1]}, or rank {rank} is none "
                "of them"
            )
        self.plan: Positions = table.astype(np.int64)
        self.ranks, self.rank, self.drop_last = ranks, rank, True
        self.batch_size = self.plan.shape[1]
        self.epoch, self.position = 0, 0
        self._batches = self._pack()

    def _pack(self) -> list[Positions]:
        return list(self.plan)

    def state_dict(self) -> dict[str, int | str]:
        """Where it stands, and a hash of the plan."""
        return {"plan": self._hash(), "epoch": self.epoch, "position": self.position}

    def load_state_dict(self, state: dict[str, int | str]) -> None:
        """Go on where the one that gave this state stood."""
        if state.get("plan") != self._hash():
            raise ValueError("the state is of another plan: give the same one, or begin anew")
        self.epoch, self.position = int(state["epoch"]), int(state["position"])

    def _hash(self) -> str:
        return content_hash([repr(self.plan.shape), self.plan.tobytes()])

"""How hard in-batch negatives are over sizes of clusters and of batches, by the surrogate (CDE
Fig. 6).

Clusters are laid end to end, in one of two orders, and cut into batches, epoch after epoch. Batches
of different epochs share pairs, so intervals cover the randomness of packing but not what other
texts would give.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import product
from typing import Literal

import numpy as np
import pandas as pd

from cde.batching.packing import BatchSampler
from cde.intervals import Interval, mean_interval
from cde.progress import progress
from cde.validation import Positions, Vectors
from cde_studies.batches.statistics import batch_difficulty

#: orders of clusters, by their names
ORDERS: dict[Literal["random", "tsp"], str] = {"random": "random order", "tsp": "greedy traveller"}
#: the cluster size of pairs in random order, the baseline
SHUFFLED = "shuffled"
_FROM_CLUSTERS, _FROM_BATCHES = "from the largest clusters", "from the largest batches"


def by_size(
    queries: Vectors,
    documents: Vectors,
    clusters_of: Callable[[int], Positions],
    cluster_sizes: Iterable[int],
    batch_sizes: Iterable[int],
    batches: int,
    queries_per_batch: int,
    seed: int,
) -> pd.DataFrame:
    """Difficulty in every order, cluster size and batch size, and of shuffled pairs.

    Returns:
        A line for each: order, cluster size (as text, such as "2,048"), batch size; the means over
        batches of `batch_difficulty` (mean, hardest, loss); clusters, largest, smallest (how many
        clusters there are, and the pairs that they hold); and the difference of the mean from the
        same setting with the largest clusters and with the largest batches, as estimate, low, high.
    """
    sizes, wanted = sorted(set(batch_sizes)), sorted(set(cluster_sizes))
    usable = [size for size in sizes if 2 <= size <= len(queries)]
    if not usable:
        raise ValueError(f"no batch size of {sizes} fits {len(queries)} pairs")
    labels = {f"{size:,}": clusters_of(size) for size in progress(wanted, "k-means", unit="sizes")}
    names = list(labels)
    labels[SHUFFLED] = np.zeros(len(queries), np.int64)  # one cluster of all
    measured = {}
    arms: list[tuple[Literal["random", "tsp"], str]] = [*product(ORDERS, names)]
    for order, name in progress([*arms, ("random", SHUFFLED)], "difficulty", unit="arms"):
        for size in usable:
            sampler = BatchSampler(labels[name], size, order, vectors=documents, seed=seed)
            drawn = (next(sampler) for _ in range(batches))
            made = [batch_difficulty(queries, documents, one, queries_per_batch) for one in drawn]
            measured[order, name, size] = pd.DataFrame(made)
    lines = []
    for (order, name, size), rows in measured.items():
        held = np.bincount(labels[name])
        largest = name if name == SHUFFLED else names[-1]
        lines.append(
            {"order": order, "cluster size": name, "batch size": size}
            | rows.mean().to_dict()
            | {"clusters": len(held), "largest": held.max(), "smallest": held.min()}
            | _bounds(rows, measured[order, largest, size], _FROM_CLUSTERS)
            | _bounds(rows, measured[order, name, usable[-1]], _FROM_BATCHES)
        )
    return pd.DataFrame(lines)


def _bounds(one: pd.DataFrame, other: pd.DataFrame, name: str) -> dict[str, float]:
    """The mean difference of two settings over batches, as columns."""
    interval = mean_interval(one["mean"].to_numpy() - other["mean"].to_numpy())
    return {f"{name}, {bound}": getattr(interval, bound) for bound in ("estimate", "low", "high")}


def from_largest_clusters(rows: pd.DataFrame, batches: int) -> dict[str, Interval]:
    """How much harder batches of the smallest clusters are than those of the largest, in each order
    and batch size: intervals over so many batches, by what is compared, for a page.
    """
    sizes = [one for one in rows["cluster size"].unique() if one != SHUFFLED]  # smallest first
    if len(sizes) < 2:
        return {}
    ends = f"clusters of {sizes[0]} minus {sizes[-1]}"
    return {
        f"{ORDERS[line['order']]}, batches of {line['batch size']:,}: {ends}": _interval(
            line, _FROM_CLUSTERS, batches
        )
        for _, line in rows[rows["cluster size"] == sizes[0]].iterrows()
    }


def from_largest_batches(rows: pd.DataFrame, batches: int) -> dict[str, Interval]:
    """How much harder the smallest batches are than the largest, in each order and cluster size,
    and of shuffled pairs: intervals over so many batches, by what is compared, for a page.
    """
    sizes = sorted(rows["batch size"].unique())
    if len(sizes) < 2:
        return {}
    ends, found = f"batches of {sizes[0]:,} minus {sizes[-1]:,}", {}
    for _, line in rows[rows["batch size"] == sizes[0]].iterrows():
        of = f"{ORDERS[line['order']]}, clusters of {line['cluster size']}"
        if line["cluster size"] == SHUFFLED:
            of = f"{SHUFFLED} pairs (baseline)"
        found[f"{of}: {ends}"] = _interval(line, _FROM_BATCHES, batches)
    return found


def _interval(line: pd.Series[float], of: str, batches: int) -> Interval:
    estimate, low, high = (float(line[f"{of}, {end}"]) for end in ("estimate", "low", "high"))
    return Interval(estimate, low, high, batches, "percentile bootstrap")

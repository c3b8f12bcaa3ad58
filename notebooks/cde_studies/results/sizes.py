"""The sweep of batch and cluster sizes that two chapters read: both encoders, with the filter and
without.

Every run sees the same number of pairs, so that larger batches make fewer steps; a tenth of them is
warm-up.

Cost: that of 4 runs a batch size, cluster size and seed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

from cde.intervals import Interval
from cde_studies.intervals import best_on_grid
from cde_studies.recipes import Recipe
from cde_studies.sweeps import Sweep, sweep

__all__ = ["SizeSweep", "domains_below", "sweep_second_phase", "sweep_sizes"]


@dataclass(frozen=True)
class SizeSweep(Sweep):
    """The rows of `sweep_sizes`, and how scores change with a size."""

    def sizes(self, which: Literal["batch", "cluster"]) -> list[int]:
        """The batch or cluster sizes, in ascending order."""
        return sorted(int(size) for size in self.rows[f"{which}_size"].unique())

    def by_size(
        self,
        which: Literal["batch", "cluster"],
        encoder: str,
        filtered: bool,
        batch_size: int | None = None,
        by: str | list[str] = "seed",
    ) -> pd.DataFrame:
        """NDCG@10 points: a row for each seed (or what `by` names), a column for each size; means
        over the other.
        """
        rows = self.of(where="out", encoder=encoder, filtered=filtered, batch_size=batch_size)
        return 100 * rows.pivot_table(index=by, columns=f"{which}_size", values="ndcg")

    def gain_of_clusters(self, encoder: str, filtered: bool) -> pd.Series[float]:
        """Points by seed and set: the smallest clusters minus the largest; means over batch
        sizes.
        """
        scores = self.by_size("cluster", encoder, filtered, by=["seed", "set"])
        return scores.iloc[:, 0] - scores.iloc[:, -1]

    def gain_of_batches(self, encoder: str, filtered: bool) -> pd.Series[float]:
        """Points by seed and set: the largest batches minus the smallest; means over cluster
        sizes.
        """
        scores = self.by_size("batch", encoder, filtered, by=["seed", "set"])
        return scores.iloc[:, -1] - scores.iloc[:, 0]

    def cells(self) -> pd.Series[float]:
        """Points of each encoder, filtered (or not), batch size and cluster size."""
        cell = ["encoder", "filtered", "batch_size", "cluster_size"]
        return 100 * self.rows.groupby(cell, sort=False)["ndcg"].mean()

    def means_by_size(self) -> pd.DataFrame:
        """Points of each encoder at each size of either kind, with the filter and without.

        Returns:
            Columns encoder, size of a ("cluster" or "batch"), size, filtered, ndcg points.
        """
        kinds: tuple[Literal["cluster", "batch"], ...] = ("cluster", "batch")
        arms = [
            (encoder, which, filtered)
            for encoder in self.rows["encoder"].unique()
            for which in kinds
            for filtered in (True, False)
        ]
        means = {arm: self.by_size(arm[1], arm[0], arm[2]).mean() for arm in arms}
        long = pd.concat(means, names=["encoder", "size of a", "filtered", "size"])
        columns = ["encoder", "size of a", "size", "filtered", "ndcg points"]
        return pd.DataFrame(long.to_frame("ndcg points").reset_index()[columns])

    def best_batch(self, encoder: str, filtered: bool, pairs_seen: int) -> Interval:
        """The decimal logarithm of the batch size at which each seed is best, and its interval.

        Beyond the ends of the sweep it may lie at a single pair, and at all of them in one batch.
        """
        best = self.by_size("batch", encoder, filtered).idxmax(axis=1)
        limits = np.log10([1, *self.sizes("batch"), pairs_seen])
        return best_on_grid(np.log10(best.astype(float)), limits.tolist())


def domains_below(domains: Sequence[str], sizes: Iterable[int]) -> pd.DataFrame:
    """How many domains have fewer pairs than a batch or cluster of some size.

    Returns:
        A line for each size, for the page: size, domains of fewer pairs, their share of all pairs.
    """
    counts = pd.Series(domains).value_counts()
    lines = []
    for size in sizes:
        fewer = counts[counts < size]
        line = {"size": size, "domains of fewer pairs": f"{len(fewer)} of {len(counts)}"}
        share = 100 * fewer.sum() / counts.sum()
        lines.append({**line, "their share of all pairs, %": share})
    return pd.DataFrame(lines)


def sweep_sizes(
    recipe: Recipe,
    batch_sizes: Sequence[int],
    cluster_sizes: Sequence[int],
    pairs_seen: int,
    contextual_attention: str,
    seed: int,
    seeds: int,
) -> pd.DataFrame:
    """Both encoders at every batch and cluster size, with the filter for false negatives and
    without it.

    Every run sees the same number of pairs: larger batches make fewer steps, a tenth of them
    warm-up.

    Returns:
        Rows of `sweep` on the sets out of domain, each contextual encoder in its own context, and
        encoder ("bi-encoder", "contextual"), batch_size, cluster_size, filtered.
    """
    batch_sizes, cluster_sizes = sorted(set(batch_sizes)), sorted(set(cluster_sizes))
    if min(len(batch_sizes), len(cluster_sizes)) < 2:
        raise ValueError(
            f"two batch and two cluster sizes are needed; they are {batch_sizes} and "
            f"{cluster_sizes}"
        )
    if pairs_seen < 2 * batch_sizes[-1]:
        raise ValueError(
            f"pairs_seen must be two of the largest batches ({batch_sizes[-1]}) or more; it is "
            f"{pairs_seen}"
        )
    if recipe.base.context_size > batch_sizes[0]:
        raise ValueError(
            f"the context is drawn from the batch: context_size {recipe.base.context_size} is "
            "more than the smallest "
            f"of batch_sizes, {batch_sizes[0]}"
        )
    largest = pd.Series(recipe.pairs.domains).value_counts().max()
    if batch_sizes[-1] > largest:
        raise ValueError(
            f"the largest domain has {largest} pairs: no batch of {batch_sizes[-1]} can be "
            "filled; name smaller "
            "batch_sizes"
        )
    encoders = {
        "bi-encoder": {"architecture": "bi-encoder"},
        "contextual": {"architecture": "contextual", "attention": contextual_attention},
    }
    factors, arms = [], {}
    for encoder, of_encoder in encoders.items():
        for batch in batch_sizes:
            for cluster in cluster_sizes:
                for filtered in (True, False):
                    arm = f"{encoder}; {batch}; {cluster}; {'filter' if filtered else 'no filter'}"
                    factors.append(
                        {
                            "arm": arm,
                            "encoder": encoder,
                            "batch_size": batch,
                            "cluster_size": cluster,
                            "filtered": filtered,
                        }
                    )
                    steps, epsilon = pairs_seen // batch, 0.0 if filtered else None
                    arms[arm] = {
                        **of_encoder,
                        "batches": "cluster",
                        "batch_size": batch,
                        "cluster_size": cluster,
                        "filter_epsilon": epsilon,
                        "steps": steps,
                        "warmup_steps": max(1, steps // 10),
                    }

    tests = [test for test in recipe.tests() if test.where == "out"]
    rows = sweep(arms, range(seed, seed + seeds), recipe, contexts=("own",), tests=tests)
    return rows.merge(pd.DataFrame(factors), on="arm")


def sweep_second_phase(
    recipe: Recipe, cluster_sizes: Sequence[int], seeds: Sequence[int]
) -> pd.DataFrame:
    """The second phase of a bi-encoder at every cluster size, after the first phase of its seed.

    The first phase has clustered batches; the second has one hard negative a query, and the filter.

    Returns:
        Rows of `sweep` on the sets out of domain, and cluster_size and batch_size.
    """
    arms = {str(size): {"cluster_size": size} for size in cluster_sizes}
    tests = [test for test in recipe.tests() if test.where == "out"]
    first = {"architecture": "bi-encoder", "batches": "cluster"}
    rows = sweep(arms, seeds, recipe, tests=tests, after=first)
    sizes = {"cluster_size": rows["arm"].astype(int), "batch_size": recipe.second["batch_size"]}
    return rows.assign(**sizes)

"""The sweep of batch and cluster sizes that two chapters read: both encoders, with the filter and
without; and whether runs whose batches were harder retrieve better.

Every run sees the same number of pairs: larger batches make fewer steps, a tenth of them warm-up.
The loss at the end is compared with the score over cluster sizes, within a batch size: a loss over
other numbers of negatives would be another loss.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import pandas as pd

from cde.intervals import Interval
from cde_studies.intervals import best_on_grid
from cde_studies.recipes import Recipe, recipe
from cde_studies.sweeps import Sweep, sweep


@dataclass(frozen=True)
class SizeSweep(Sweep):
    """The rows of `sweep_sizes`, and how scores change with a size."""

    def by_size(
        self,
        which: str,
        encoder: str,
        filtered: bool,
        batch_size: int | None = None,
        by: str | list[str] = "seed",
    ) -> pd.DataFrame:
        """NDCG@10 points: a row for each seed (or what `by` names), a column for each size."""
        rows = self.of(where="out", encoder=encoder, filtered=filtered, batch_size=batch_size)
        return 100 * rows.pivot_table(index=by, columns=f"{which}_size", values="ndcg")

    def gain_of_clusters(self, encoder: str, filtered: bool) -> pd.Series[float]:
        """Points by seed and set: the smallest clusters minus the largest."""
        scores = self.by_size("cluster", encoder, filtered, by=["seed", "set"])
        return scores.iloc[:, 0] - scores.iloc[:, -1]

    def gain_of_batches(self, encoder: str, filtered: bool) -> pd.Series[float]:
        """Points by seed and set: the largest batches minus the smallest."""
        scores = self.by_size("batch", encoder, filtered, by=["seed", "set"])
        return scores.iloc[:, -1] - scores.iloc[:, 0]

    def cells(self) -> pd.Series[float]:
        """Points of each encoder, filtered (or not), batch size and cluster size."""
        cell = ["encoder", "filtered", "batch_size", "cluster_size"]
        return 100 * self.rows.groupby(cell, sort=False)["ndcg"].mean()

    def best_batch(self, encoder: str, filtered: bool, pairs_seen: int) -> Interval:
        """The decimal logarithm of the batch size at which each seed is best, and its interval.

        Beyond the ends of the sweep it may lie at a single pair, and at all of them in one batch.
        """
        best = self.by_size("batch", encoder, filtered).idxmax(axis=1)
        limits = np.log10([1, *sorted(self.rows["batch_size"].unique()), pairs_seen])
        return best_on_grid(np.log10(best.astype(float)), limits.tolist())


def long_recipe() -> Recipe:
    """The recipe of long runs, a thousand updates of 128 pairs."""
    return recipe("day", batch_size=128, steps=1000, warmup_steps=100)


def sweep_sizes(
    recipe: Recipe,
    batch_sizes: Sequence[int],
    cluster_sizes: Sequence[int],
    pairs_seen: int,
    contextual_attention: str | None,
    seed: int,
    seeds: int,
) -> pd.DataFrame:
    """The bi-encoder, and with an attention the contextual one, at every batch and cluster size,
    with the filter for false negatives and without it: rows of `sweep` on the sets out of domain,
    each contextual encoder in its own context, and encoder ("bi-encoder", "contextual"),
    batch_size, cluster_size, filtered.
    """
    batch_sizes, cluster_sizes = sorted(set(batch_sizes)), sorted(set(cluster_sizes))
    if max(len(batch_sizes), len(cluster_sizes)) < 2:
        raise ValueError(
            "two sizes of batches or of clusters are needed; they are "
            f"{batch_sizes} and {cluster_sizes}"
        )
    if pairs_seen < 2 * batch_sizes[-1]:
        raise ValueError(
            f"pairs_seen must be two of the largest batches ({batch_sizes[-1]}) or more; it is "
            f"{pairs_seen}"
        )
    if contextual_attention is not None and recipe.base.context_size > batch_sizes[0]:
        raise ValueError(
            f"the context is drawn from the batch: context_size {recipe.base.context_size} is "
            f"more than the smallest of batch_sizes, {batch_sizes[0]}"
        )
    largest = pd.Series(recipe.pairs.domains).value_counts().max()
    if batch_sizes[-1] > largest:
        raise ValueError(
            f"the largest domain has {largest} pairs: no batch of {batch_sizes[-1]} can be "
            "filled; name smaller batch_sizes"
        )
    encoders = {"bi-encoder": {"architecture": "bi-encoder"}}
    if contextual_attention is not None:
        contextual = {"architecture": "contextual", "attention": contextual_attention}
        encoders["contextual"] = contextual
    factors, arms = [], {}
    for encoder, batch, cluster, filtered in product(
        encoders, batch_sizes, cluster_sizes, (True, False)
    ):
        arm = f"{encoder}; {batch}; {cluster}; {'filter' if filtered else 'no filter'}"
        size, steps = {"batch_size": batch, "cluster_size": cluster}, pairs_seen // batch
        factors.append({"arm": arm, "encoder": encoder, **size, "filtered": filtered})
        arms[arm] = {
            **encoders[encoder],
            **size,
            "batches": "cluster",
            "filter_epsilon": 0.0 if filtered else None,
            "steps": steps,
            "warmup_steps": max(1, steps // 10),
        }
    every_seed, tests = range(seed, seed + seeds), recipe.out_of_domain()
    rows = sweep(arms, every_seed, recipe, contexts=("own",), tests=tests)
    return rows.merge(pd.DataFrame(factors), on="arm")


def sweep_second_phase(
    recipe: Recipe, cluster_sizes: Sequence[int], seeds: Sequence[int]
) -> pd.DataFrame:
    """The second phase of a bi-encoder at every cluster size, after the first phase of its seed:
    rows of `sweep` on the sets out of domain, and cluster_size and batch_size. The first phase has
    clustered batches; the second has one hard negative a query, and the filter.
    """
    arms = {str(size): {"cluster_size": size} for size in cluster_sizes}
    first = {"architecture": "bi-encoder", "batches": "cluster"}
    rows = sweep(arms, seeds, recipe, tests=recipe.out_of_domain(), after=first)
    sizes = {"cluster_size": rows["arm"].astype(int), "batch_size": recipe.second["batch_size"]}
    return rows.assign(**sizes)


def loss_and_score(rows: pd.DataFrame) -> pd.DataFrame:
    """Loss and NDCG@10 points (mean over sets) of each run, from rows of `sweep`."""
    by_run = rows.groupby(["seed", "batch_size", "cluster_size"])
    runs = by_run.agg(loss=("loss", "first"), ndcg=("ndcg", "mean")).reset_index()
    return runs.assign(ndcg=100 * runs["ndcg"])


def r_of_seeds(runs: pd.DataFrame) -> pd.Series[float]:
    """Pearson's r of loss and score over the cluster sizes of each seed, averaged over batch sizes,
    without seeds whose loss or score does not vary at any batch size.
    """
    groups = runs.groupby(["seed", "batch_size"])
    each = {key: float(some["loss"].corr(some["ndcg"])) for key, some in groups}
    return pd.Series(each, dtype=float).dropna().groupby(level=0).mean()

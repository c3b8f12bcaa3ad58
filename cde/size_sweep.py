"""The sweep of batch and cluster sizes that two chapters read: both encoders, with the filter and without.

Every run sees the same number of pairs, so that larger batches make fewer steps; a tenth of them is warm-up.

Cost: that of 4 runs a batch size, cluster size and seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from cde.recipes import Recipe
from cde.records import Recorded, recorded
from cde.sweeps import sweep

__all__ = ["SizeSweep", "batch_cluster_sweep"]


@dataclass(frozen=True)
class SizeSweep(Recorded):
    """The rows of a sweep of sizes, and ways to read them.

    Attributes:
        rows: those of `cde.sweeps.sweep` on the sets out of domain, and encoder ("bi-encoder", "contextual"),
            batch_size, cluster_size, filtered.
        note: where they come from.
    """

    def of(
        self, encoder: str, batch: int | None = None, cluster: int | None = None, filtered: bool | None = None
    ) -> pd.DataFrame:
        """The rows of some cells; None takes all sizes, or the filter both on and off."""
        rows = self.rows[self.rows["encoder"] == encoder]
        wanted = {"batch_size": batch, "cluster_size": cluster, "filtered": filtered}
        for column, value in wanted.items():
            if value is not None:
                rows = rows[rows[column] == value]
        return rows

    def score(
        self, encoder: str, batch: int | None = None, cluster: int | None = None, filtered: bool | None = None
    ) -> pd.Series[float]:
        """NDCG@10 of each seed in points, 0 to 100: the mean over sets and over the cells that `of` takes.

        Example:
            >>> rows = pd.DataFrame({"encoder": "bi-encoder", "seed": [0, 0, 1], "batch_size": [8, 16, 8], "ndcg": 0.5})
            >>> SizeSweep(rows, "").score("bi-encoder", batch=8).to_dict()
            {0: 50.0, 1: 50.0}
        """
        return 100 * self.of(encoder, batch, cluster, filtered).groupby("seed")["ndcg"].mean()


def batch_cluster_sweep(
    using: Recipe,
    batch_sizes: Sequence[int],
    cluster_sizes: Sequence[int],
    pairs_seen: int,
    attention: str,
    seed: int,
    seeds: int,
) -> SizeSweep:
    """Both encoders at every batch and cluster size, with the filter for false negatives and without it.

    Every run sees the same number of pairs: larger batches make fewer steps, a tenth of them warm-up.

    Args:
        using: the recipe; its steps, batch and cluster size are not used.
        batch_sizes, cluster_sizes: in pairs.
        pairs_seen: by a run, over all its steps.
        attention: of the contextual encoder.
        seed, seeds: the first seed, and how many.

    Returns:
        The sweep; each contextual encoder is tested in its own context.

    Raises:
        ValueError: fewer than two batch or cluster sizes, fewer pairs than two of the largest batches, a batch smaller
            than the context that is drawn from it, or larger than every domain.

    Used by the chapters `batch_and_cluster_size` and `filtering`.
    """
    batch_sizes, cluster_sizes = sorted(set(batch_sizes)), sorted(set(cluster_sizes))
    if min(len(batch_sizes), len(cluster_sizes)) < 2:
        raise ValueError(f"two batch and two cluster sizes are needed; they are {batch_sizes} and {cluster_sizes}")
    if pairs_seen < 2 * batch_sizes[-1]:
        raise ValueError(
            f"pairs_seen must be two of the largest batches ({batch_sizes[-1]}) or more; it is {pairs_seen}"
        )
    if using.base.context_size > batch_sizes[0]:
        raise ValueError(
            f"the context is drawn from the batch: context_size {using.base.context_size} is more than the smallest of "
            f"batch_sizes, {batch_sizes[0]}"
        )
    largest = pd.Series(using.pairs.domains).value_counts().max()
    if batch_sizes[-1] > largest:
        raise ValueError(
            f"the largest domain has {largest} pairs: no batch of {batch_sizes[-1]} can be filled; name smaller "
            "batch_sizes"
        )
    encoders = {
        "bi-encoder": {"architecture": "bi-encoder"},
        "contextual": {"architecture": "contextual", "attention": attention},
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
                        **of_encoder, "batches": "cluster", "batch_size": batch, "cluster_size": cluster,
                        "filter_epsilon": epsilon, "steps": steps, "warmup_steps": max(1, steps // 10),
                    }  # fmt: skip

    def train_all() -> pd.DataFrame:
        tests = [test for test in using.tests() if test.where == "out"]
        rows = sweep(arms, range(seed, seed + seeds), using, contexts=("own",), tests=tests)
        return rows.merge(pd.DataFrame(factors), on="arm")

    settings = using.kept(
        seed=seed, seeds=seeds, batch_sizes=batch_sizes, cluster_sizes=cluster_sizes, pairs_seen=pairs_seen,
        contextual_attention=attention,
    )  # fmt: skip
    found = recorded("batch-cluster-sweep", using.profile, train_all, can_run=True, settings=settings, costly=True)
    assert found is not None  # can_run=True always gives rows
    return SizeSweep(found.rows, found.note)

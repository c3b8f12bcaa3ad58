"""Whether runs whose batches were harder retrieve better: the loss at the end against the score.

Compared are runs that differ in cluster size, within a batch size: a loss over other numbers of
negatives would be another loss.

Cost: milliseconds.
"""

from __future__ import annotations

import pandas as pd

from cde.intervals import Interval
from cde_studies.intervals import correlation_interval, mean_and_interval

__all__ = ["correlations", "loss_and_score", "r_of_runs", "r_of_seeds"]


def loss_and_score(rows: pd.DataFrame) -> pd.DataFrame:
    """Loss and NDCG@10 points of each run, from rows of `sweep` for each of its sets.

    Returns:
        A row for each run: seed, batch_size, cluster_size, loss, and ndcg (0 to 100), the mean over
        sets.
    """
    by_run = rows.groupby(["seed", "batch_size", "cluster_size"])
    runs = by_run.agg(loss=("loss", "first"), ndcg=("ndcg", "mean")).reset_index()
    return runs.assign(ndcg=100 * runs["ndcg"])


def r_of_seeds(runs: pd.DataFrame) -> pd.Series[float]:
    """Pearson's r of loss and score over the cluster sizes of each seed, averaged over batch sizes.

    Returns:
        r by seed; a seed is left out where loss or score does not vary at any batch size.
    """
    groups = runs.groupby(["seed", "batch_size"])
    each = {key: float(some["loss"].corr(some["ndcg"])) for key, some in groups}
    return pd.Series(each, dtype=float).dropna().groupby(level=0).mean()


def r_of_runs(runs: pd.DataFrame) -> Interval | None:
    """Pearson's r of loss and score over runs, whatever their seed, with a bootstrap interval.

    The interval is too narrow: runs of one cluster size are not independent.

    Returns:
        None for fewer than four runs, or where loss or score does not vary.
    """
    if len(runs) < 4 or pd.isna(runs["loss"].corr(runs["ndcg"])):
        return None
    return correlation_interval(runs["loss"], runs["ndcg"])


def correlations(runs: pd.DataFrame) -> pd.DataFrame:
    """Both kinds of correlation at each batch size, as text for a page.

    Returns:
        A line for each batch size: batch, r of a seed, r of all runs ("–" where there is none), and
        how many runs there are.
    """
    lines = [
        {
            "batch": batch,
            "r of a seed": mean_and_interval(r_of_seeds(some)),
            "r of all runs": r_of_runs(some) or "–",
            "runs": len(some),
        }
        for batch, some in runs.groupby("batch_size")
    ]
    return pd.DataFrame(lines)

"""What packing does to clusters in an epoch, and how much chance there is from one to the next.

Packing cuts clusters (CDE §4.1): some are split over batches, some share one, and what does not
fill a batch is dropped. Where the cuts fall changes with the epoch, and with it who is in a batch
with whom.

Cost: O(n · log n).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cde.progress import progress

__all__ = ["cut_clusters", "mates_met_again"]

Positions = NDArray[np.int64]


def cut_clusters(labels: Positions, batches: Sequence[Positions]) -> dict[str, float]:
    """What the batches of one epoch did to the clusters that they were packed from.

    Returns:
        batches: how many there are.
        clusters split: the share of clusters whose pairs are in more than one batch.
        clusters that share a batch: the share that is in a batch with another cluster.
        clusters in a batch: how many clusters a batch holds, on average.
        pairs dropped: the share of pairs that no batch has.
    """
    if not batches:
        raise ValueError("there is no batch")
    batch_of = _numbers(batches, len(labels))
    there = batch_of >= 0
    together = pd.DataFrame({"cluster": labels[there], "batch": batch_of[there]}).drop_duplicates()
    shared = together.groupby("batch")["cluster"].transform("count") > 1
    return {
        "batches": len(batches),
        "clusters split": float((together["cluster"].value_counts() > 1).mean()),
        "clusters that share a batch": float(shared.groupby(together["cluster"]).any().mean()),
        "clusters in a batch": len(together) / len(batches),
        "pairs dropped": float(1 - there.mean()),
    }


def mates_met_again(epochs: Sequence[Sequence[Positions]]) -> NDArray[np.float64]:
    """The share of its batch-mates of one epoch that a pair meets again in the next.

    Returns:
        `(len(epochs) // 2,)` for epochs 0 and 1, 2 and 3, and so on, which have no epoch in common:
        the mean over the pairs that have a batch in both.
    """
    if not all(epochs) or any(len(epoch[0]) < 2 for epoch in epochs):
        raise ValueError("every epoch needs batches of two pairs or more")
    shares = []
    both_of = list(zip(epochs[::2], epochs[1::2], strict=False))
    for first, second in progress(both_of, "comparing", unit="pairs of epochs"):
        n = 1 + max(int(batch.max()) for batch in (*first, *second))
        batch_of = np.stack([_numbers(first, n), _numbers(second, n)])
        both = batch_of[:, (batch_of >= 0).all(axis=0)]
        _, cell, size = np.unique(both, axis=1, return_inverse=True, return_counts=True)
        shares.append(((size[cell.ravel()] - 1) / (len(first[0]) - 1)).mean())
    return np.array(shares, dtype=np.float64)


def _numbers(batches: Sequence[Positions], n: int) -> Positions:
    """The number of each pair's batch; -1 for a pair that has none."""
    batch_of = np.full(n, -1, np.int64)
    for number, batch in enumerate(batches):
        batch_of[batch] = number
    return batch_of

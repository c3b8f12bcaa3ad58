"""Plans of batches that the clustering chapters train with, one row a step (`cde.train(plan=…)`).

`plan_batches` writes down what a `BatchSampler` would give, `join_plans` puts parts of plans in a
row, and `plan_with_hardest` lays pairs beside their hardest negatives.

Cost: 8 bytes a pair and epoch.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cde.batching.packing import BatchSampler

__all__ = ["join_plans", "plan_batches", "plan_with_hardest"]

Positions = NDArray[np.int64]


def plan_batches(batches: BatchSampler, steps: int) -> Positions:
    """The next batches of a sampler, as a plan.

    Args:
        batches: epoch after epoch, for ever; it stands behind them afterwards.
        steps: how many.

    Returns:
        `(steps, batch_size)` int64.

    Raises:
        ValueError: fewer than one step, or a sampler of batches that differ in size.
    """
    if steps < 1:
        raise ValueError(f"steps must be 1 or more; it is {steps}")
    if not batches.drop_last:
        raise ValueError("a plan has batches of one size: the sampler needs drop_last=True")
    return np.stack([next(batches) for _ in range(steps)])


def join_plans(plans: Sequence[Positions], steps: int) -> Positions:
    """A curriculum: equal parts of several plans, one after the other.

    Args:
        plans: tables of one batch size. Each gives its first rows, as many as its part has.
        steps: of the whole.

    Returns:
        `(steps, batch_size)` int64.

    Raises:
        ValueError: no plan, different batch sizes, or a plan that is too short for its part.
    """
    if len({plan.shape[1] for plan in plans}) != 1:
        raise ValueError(
            "plans to be joined must have one batch size; they have "
            f"{[plan.shape[1] for plan in plans]}"
        )
    parts = [len(part) for part in np.array_split(np.arange(steps), len(plans))]
    for plan, part in zip(plans, parts, strict=True):
        if len(plan) < part:
            raise ValueError(f"a plan of {len(plan)} steps cannot give {part}")
    return np.concatenate([plan[:part] for plan, part in zip(plans, parts, strict=True)])


def plan_with_hardest(hardest: Positions, batch_size: int, steps: int, seed: int = 0) -> Positions:
    """Batches in which pairs stand beside the pair of their hardest negative (clustering paper
    §5.2).

    Half of a batch is drawn by chance, epoch after epoch. Each pair brings the first of its hardest
    negatives that is not in the batch yet, with that document's own query; a pair all of whose
    negatives are there brings one by chance.

    Args:
        hardest: `(n, h)` positions of each query's hardest negatives, the hardest first
            (`cde.batching.negatives.mine_hard_negatives`).
        batch_size: pairs a batch, an even number.
        steps: how many batches.
        seed: seed of the draw.

    Returns:
        `(steps, batch_size)` int64; no pair stands twice in a batch.

    Raises:
        ValueError: an odd batch size, or one larger than the number of pairs.
    """
    n = len(hardest)
    if batch_size < 2 or batch_size % 2 or batch_size > n:
        raise ValueError(f"batch_size must be even and at most {n} pairs; it is {batch_size}")
    generator = np.random.default_rng(seed)
    half, waiting, plan = batch_size // 2, np.zeros(0, np.int64), []
    for _ in range(steps):
        if len(waiting) < half:
            waiting = generator.permutation(n)
        drawn, waiting = waiting[:half], waiting[half:]
        batch = dict.fromkeys(drawn.tolist())
        for row in drawn:
            free = (one for one in hardest[row].tolist() if one not in batch)
            brought = next(free, None)
            while brought is None or brought in batch:
                brought = int(generator.integers(n))
            batch[brought] = None
        plan.append(list(batch))
    return np.array(plan, dtype=np.int64).reshape(steps, batch_size)

"""Batches that are laid down before training: a plan, one row a step.

A plan is a `(steps, batch_size)` table of positions of pairs. So any way of making batches can be
trained with, and compared at equal length: a curriculum is rows of one plan, then rows of another.
`plan_batches` writes down what a `BatchSampler` would give; `join_plans` puts parts of plans in a
row.

Cost: 8 bytes a pair and epoch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cde.batching.packing import BatchSampler
from cde.storage import content_hash

__all__ = ["PlannedBatches", "join_plans", "plan_batches", "plan_with_hardest"]

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

    Example:
        >>> plan = plan_batches(BatchSampler(np.array([0, 0, 1, 1]), batch_size=2), steps=3)
        >>> plan.shape, sorted(sorted(batch) for batch in plan[:2].tolist())
        ((3, 2), [[0, 1], [2, 3]])
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

    Example:
        >>> join_plans([np.zeros((2, 1), int), np.ones((2, 1), int)], steps=3).ravel().tolist()
        [0, 0, 1]
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
            (`cde.training.mine_hard_negatives`).
        batch_size: pairs a batch, an even number.
        steps: how many batches.
        seed: seed of the draw.

    Returns:
        `(steps, batch_size)` int64; no pair stands twice in a batch.

    Raises:
        ValueError: an odd batch size, or one larger than the number of pairs.

    Example:
        >>> plan = plan_with_hardest(np.array([[1], [0], [3], [2]]), batch_size=2, steps=4)
        >>> sorted({tuple(sorted(batch)) for batch in plan.tolist()})
        [(0, 1), (2, 3)]
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


class PlannedBatches:
    """A plan as training reads it: the interface of `BatchSampler`, with the plan for its epoch.

    Args:
        plan: `(steps, batch_size)` positions of pairs; after its last row it begins anew.
        ranks: processes that share a batch.
        rank: which of them this is.

    Raises:
        ValueError: a plan that is no table of whole numbers, or a batch size that `ranks` does not
            divide.

    Example:
        >>> batches = PlannedBatches([[0, 1], [2, 3]], ranks=2, rank=1)
        >>> [batches.slice(next(batches)).tolist() for _ in range(3)]
        [[1], [3], [1]]
    """

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
        self.ranks, self.rank = ranks, rank
        self.batch_size = self.plan.shape[1]
        self.epoch, self.position = 0, 0

    @property
    def batches_per_epoch(self) -> int:
        """How many batches the plan has."""
        return len(self.plan)

    def __iter__(self) -> PlannedBatches:
        return self

    def __next__(self) -> Positions:
        if self.position == len(self.plan):
            self.epoch, self.position = self.epoch + 1, 0
        self.position += 1
        batch: Positions = self.plan[self.position - 1]
        return batch

    def slice(self, batch: Positions, rank: int | None = None) -> Positions:
        """A rank's part of a batch, by default this one's: `(len(batch) / ranks,)`, contiguous."""
        size = len(batch) // self.ranks
        rank = self.rank if rank is None else rank
        return batch[rank * size : (rank + 1) * size]

    def state_dict(self) -> dict[str, Any]:
        """Where it stands, and a hash of the plan."""
        return {"plan": self._hash(), "epoch": self.epoch, "position": self.position}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where the one that gave this state stood.

        Raises:
            ValueError: a state of another plan.
        """
        if state.get("plan") != self._hash():
            raise ValueError("the state is of another plan: give the same one, or begin anew")
        self.epoch, self.position = int(state["epoch"]), int(state["position"])

    def _hash(self) -> str:
        return content_hash([repr(self.plan.shape), self.plan.tobytes()])

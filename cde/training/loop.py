"""Steps of an optimiser that go on, after an interruption, from the last checkpoint.

A checkpoint holds weights, optimiser, schedule, metrics, and where a sampler stands. What a step
draws must depend on the seed and the step alone, so that no random state has to be kept. Files are
written under a temporary name and renamed; the metrics of steps after the last checkpoint are
dropped on resuming. A damaged checkpoint is told of and set aside, and the loop begins again.

Cost: a checkpoint takes three times the weights' size on disk (AdamW keeps two moments).
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol
from zipfile import ZipFile

import torch
from torch import nn

from cde.progress import progress
from cde.storage import atomic_path, disk_error, set_aside

__all__ = ["CHECKPOINT", "Loop"]

#: name of the file that an interrupted loop goes on from
CHECKPOINT = "checkpoint.pt"


class Stateful(Protocol):
    """Whatever stands somewhere: a sampler."""

    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: dict[str, Any], /) -> Any: ...


@dataclass
class Loop:
    """A model in training: its optimiser and schedule, the steps so far, and where they are
    kept.
    """

    model: nn.Module
    optimiser: torch.optim.Optimizer
    schedule: torch.optim.lr_scheduler.LRScheduler
    identity: str
    folder: Path | None = None
    every: int = 0
    sampler: Stateful | None = None
    metrics: list[dict[str, float]] = field(default_factory=list)

    def resume(
        self,
        reads: bool = True,
        shared: Callable[[dict[str, Any] | None], dict[str, Any] | None] = lambda state: state,
    ) -> None:
        """Go on from the folder's checkpoint, if there is one."""
        path = self.folder and self.folder / CHECKPOINT
        if path is None:
            return
        state = shared(_read(path) if reads else None)
        if state is None:
            return
        if state["identity"] != self.identity:
            raise ValueError(
                f"{path} is of a run with other settings; take another folder, or remove it"
            )
        for name, part in self._parts().items():
            part.load_state_dict(state[name])
        self.metrics = state["metrics"]

    def run(
        self,
        step: Callable[[int], dict[str, float]],
        steps: int,
        name: str,
        before_saving: Callable[[], bool] = lambda: True,
    ) -> list[dict[str, float]]:
        """Take the steps that are left.

        Returns:
            The rows of all steps, those before an interruption too.
        """
        for number in progress(range(len(self.metrics), steps), name, unit="steps"):
            self.metrics.append(step(number))
            due = self.every and (number + 1) % self.every == 0
            if self.folder is not None and (due or number + 1 == steps) and before_saving():
                self._save(self.folder / CHECKPOINT)
        return self.metrics

    def _parts(self) -> dict[str, Any]:
        parts = {"model": self.model, "optimiser": self.optimiser, "schedule": self.schedule}
        return parts if self.sampler is None else {**parts, "sampler": self.sampler}

    def _save(self, path: Path) -> None:
        state = {name: part.state_dict() for name, part in self._parts().items()}
        with atomic_path(path) as temporary:
            try:
                torch.save({**state, "identity": self.identity, "metrics": self.metrics}, temporary)
            except RuntimeError as error:  # which is how torch words a disk that is full
                raise disk_error(path, errno.ENOSPC, str(error).splitlines()[0][:200]) from error


def _read(path: Path) -> dict[str, Any] | None:
    """A checkpoint; None where there is none, or a damaged one, which is set aside."""
    if not path.is_file():
        return None
    try:
        # torch writes the sums of what it saves, and does not look at them when it loads
        with ZipFile(path) as parts:
            damaged = parts.testzip()
        if damaged is None:
            return dict(torch.load(path, map_location="cpu", weights_only=True))
    # what reading noise raises is as manifold as noise
    except Exception as error:
        damaged = f"{type(error).__name__}: {str(error)[:200]}"
    set_aside(path, damaged)
    return None

"""What each process of `two_hosts.py` does: it trains one run, and says what it has."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np

from cde.storage import digest_of
from cde.surrogate import Surrogate
from cde.training import TrainConfig, Trainer
from cde.training.runs import train


def watch(begun: list[int], end: signal.Signals | None, at: int) -> None:
    """Note each step that is begun; at one of them, end this process and its launcher."""
    whole = Trainer._take_step

    def watched(self: Trainer, batch: Any, number: int) -> dict[str, float]:
        if end is not None and number == at:
            if "TORCHELASTIC_RUN_ID" in os.environ:
                os.kill(os.getppid(), end)
            os.kill(os.getpid(), end)
        begun.append(number)
        return whole(self, batch, number)

    Trainer._take_step = watched  # type: ignore[method-assign]


def compute_otherwise() -> None:
    """Be a machine whose surrogate has other vectors, more than two kinds of processor differ."""
    whole = Surrogate._compute

    def other(self: Surrogate, texts: list[str], *rest: Any) -> Any:
        vectors = whole(self, texts, *rest)
        vectors += np.random.default_rng(0).normal(0, 0.05, vectors.shape).astype(np.float32)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    Surrogate._compute = other  # type: ignore[method-assign]


def main(task: Path, out: Path) -> None:
    """Train the task's run; leave what this process has of it in `out`.

    The task has the `config`; the process that `dies` by a `signal` (default SIGKILL) `at` a step;
    and what the second process has otherwise: `vectors`, `seed`.
    """
    rank, told, begun = int(os.environ.get("RANK", 0)), json.loads(task.read_text()), []
    dies = signal.Signals(told.get("signal", signal.SIGKILL)) if rank == told["dies"] else None
    watch(begun, dies, told["at"])
    if rank and told.get("vectors"):
        compute_otherwise()
    other = {"seed": told["seed"]} if rank and "seed" in told else {}
    run = train(TrainConfig(**{**told["config"], **other}))
    texts = ["a red boat", "how a list is sorted"]
    answer = {
        "losses": run.metrics["loss"].tolist(),
        "vectors": run.model().with_context(texts).encode_documents(texts).tolist(),
        "weights": digest_of(run.folder / "model" / "model.safetensors"),
        "folder": str(run.folder),
        "first_step": begun[0] if begun else None,
    }
    (out / f"rank-{rank}.json").write_text(json.dumps(answer))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))

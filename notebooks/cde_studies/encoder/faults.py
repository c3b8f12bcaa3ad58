"""One model trained by one process and by two: rightly, and with each fault of §10.3 of the CDE
paper.

What each arm does differently:

- "one process": nothing; it has the whole batch;
- "two processes": they share negatives, and add up their gradients;
- "own negatives": each process has the negatives of its own half of the batch alone;
- "different weights": the second process' copy has noise on its weights from the start;
- "no synchronisation": the two never add up their gradients.

`train_arms` starts this module once with one process and once with two, which is::

    torchrun --standalone --nproc-per-node=2 -m cde_studies.encoder.faults task.json
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import nn

from cde.data import load_pairs, load_retrieval
from cde.progress import progress
from cde.retrieval import evaluate
from cde.training import Processes, TrainConfig, Trainer, build_model, differing_process

#: how many processes → the arms that they train
ARMS = {
    1: ("one process",),
    2: ("two processes", "own negatives", "different weights", "no synchronisation"),
}


@dataclass(frozen=True)
class Task:
    """What all arms train on, and what they are tested on."""

    config: TrainConfig
    pairs: int
    documents: int
    queries: int
    noise: float
    seeds: Sequence[int]


class Unsynchronised(Processes):
    """Processes that keep their gradients to themselves."""

    def add_gradients(self, parameters: Any) -> None:
        """Add up nothing."""


def train_arms(task: Task) -> pd.DataFrame:
    """Train and test every arm with every seed, each arm in as many processes as it needs.

    A row for each arm and seed: `arm`, `seed`, `ndcg` (0 to 1) of the first process' copy, `loss`
    and `accuracy` of the last step, and `detected`, whether `differing_process` found the copies
    unlike at the end. `gradient_difference` is the same in all rows: how far the gradient of two
    processes is from that of one before the first step, relative to its length.
    """
    rows, gradients = [], []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "task.json"
        path.write_text(json.dumps(asdict(task)))
        for count in progress(ARMS, "training in one process, then in two", unit="launches"):
            _start(path, count)
            rows += json.loads(path.with_suffix(f".{count}.json").read_text())
            gradients.append(torch.load(path.with_suffix(f".{count}.pt")))
    one, two = gradients
    apart = torch.stack([(two[name] - one[name]).norm() for name in one]).norm()
    length = torch.stack([gradient.norm() for gradient in one.values()]).norm()
    return pd.DataFrame(rows).assign(gradient_difference=float(apart / length))


def add_noise(model: nn.Module, share: float, seed: int) -> None:
    """Add noise to every matrix of a model, of a share of the matrix' own standard deviation."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.add_(share * parameter.std() * torch.randn_like(parameter))


def _start(path: Path, count: int) -> None:
    """Start this module in so many processes, each with its share of the threads, and wait."""
    launcher = ["torch.distributed.run", "--standalone", f"--nproc-per-node={count}"]
    command = [sys.executable, "-m", *launcher, "-m", "cde_studies.encoder.faults", str(path)]
    threads = max(1, torch.get_num_threads() // count)
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    if torch.cuda.device_count() < count:  # two processes cannot have one GPU each
        environment["CUDA_VISIBLE_DEVICES"] = ""
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[-3000:])


def _work(path: Path) -> None:
    """What each process does: its part of every arm; the first writes down what was found."""
    given = json.loads(path.read_text())
    task = Task(**{**given, "config": TrainConfig(**given["config"])})
    processes = Processes.connect()
    test = load_retrieval("pydocs/networkx").shrink(task.documents, task.queries, 0)
    pairs = load_pairs("pydocs").sample(task.pairs, 0)
    exact = replace(task.config, seed=task.seeds[0], precision="float32")
    trainer = Trainer(exact, pairs, model=build_model(exact), processes=processes)
    trainer._take_step(next(trainer.prepared.batches()), 0)  # the learning rate is still 0
    named = trainer.model.named_parameters()
    gradient = {name: one.grad.clone() for name, one in named if one.grad is not None}
    rows: list[dict[str, Any]] = []
    for arm in ARMS[processes.count]:
        synchronised = arm != "no synchronisation"
        these = processes if synchronised else Unsynchronised(*vars(processes).values())
        for seed in task.seeds:
            config = replace(task.config, seed=seed, share_negatives=arm != "own negatives")
            trainer = Trainer(config, pairs, model=build_model(config), processes=these)
            if arm == "different weights" and these.rank:
                add_noise(trainer.model, task.noise, seed)
            model, metrics = trainer.run()
            unlike = differing_process(model, these) is not None
            row: dict[str, Any] = {"arm": arm, "seed": seed, "detected": unlike}
            row |= {name: metrics[-1][name] for name in ("loss", "accuracy")}
            # the other processes' copies are not tested
            rows.append(row | {"ndcg": 0.0 if these.rank else evaluate(model, test)["ndcg@10"]})
    if processes.rank == 0:
        torch.save(gradient, path.with_suffix(f".{processes.count}.pt"))
        path.with_suffix(f".{processes.count}.json").write_text(json.dumps(rows))


if __name__ == "__main__":
    _work(Path(sys.argv[1]))

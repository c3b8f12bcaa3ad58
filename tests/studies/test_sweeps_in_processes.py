"""A sweep in two processes, one of which is killed, has the numbers of one process."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from cde.data import Pairs, RetrievalSet
from cde.training import TrainConfig
from cde.training.runs import Run
from cde_studies.recipes import EvaluationSet, Recipe
from cde_studies.sweeps import sweep

pytestmark = pytest.mark.usefixtures("one_thread")

WORDS = ("boats", "hills", "lamps", "rivers", "stones", "gardens", "engines", "bridges")
QUERIES = [f"which {a} {b}?" for a in WORDS for b in WORDS]
PAIRS = Pairs(QUERIES, [f"{b} {a}" for a in WORDS for b in WORDS])
TEST = RetrievalSet(
    [str(n) for n in range(8)],
    list(WORDS),
    [str(n) for n in range(8)],
    [f"the {word}" for word in WORDS],
    {str(n): {str(n): 1} for n in range(8)},
)
SMALL = TrainConfig(
    architecture="bi-encoder",
    layers=1,
    batch_size=8,
    batches="random",
    filter_epsilon=None,
    steps=4,
    warmup_steps=1,
    query_tokens=8,
    document_tokens=8,
    checkpoint_every=2,
    precision="float32",
)


def die_once(mark: Path) -> None:
    """End this process the first time."""
    if not mark.exists():
        mark.write_text(str(os.getpid()))
        os.kill(os.getpid(), signal.SIGKILL)


class Deadly(Recipe):
    """A recipe whose second seed kills its worker before it has trained, once."""

    @property
    def pairs(self) -> Pairs:  # type: ignore[override]
        return PAIRS

    def train(self, arm: object, seed: int) -> Run:
        if seed == 1 and self.profile:
            die_once(Path(self.profile))
        return super().train(arm, seed)  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_sweep_in_two_processes_has_the_numbers_of_one(
    small_start: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though one of them is killed."""
    base = replace(SMALL, start=small_start)
    arms = {"low": {"learning_rate": 1e-4}, "high": {"learning_rate": 1e-2}}
    rows = {}
    for jobs in (1, 2):
        monkeypatch.setenv("CDE_CACHE", str(tmp_path / f"cache-{jobs}"))
        monkeypatch.setenv("CDE_JOBS", str(jobs))
        recipe = Deadly(str(tmp_path / "died") if jobs == 2 else "", base, (8, 8), {})
        tests = [EvaluationSet("words", TEST, "out")]
        rows[jobs] = sweep(arms, (0, 1), recipe, tests=tests).drop(columns="step_seconds")
    assert (tmp_path / "died").exists()
    pd.testing.assert_frame_equal(rows[1], rows[2], check_exact=True)

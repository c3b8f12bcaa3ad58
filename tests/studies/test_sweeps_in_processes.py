"""A sweep in two processes has the numbers of one process."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from tiny_encoders import BRIEF

from cde.data import Pairs, RetrievalSet
from cde.training import TrainConfig
from cde_studies.recipes import EvaluationSet, Recipe
from cde_studies.sweeps import sweep

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


class OfWords(Recipe):
    """A recipe whose pairs are those of the words."""

    @property
    def pairs(self) -> Pairs:  # type: ignore[override]
        return PAIRS


@pytest.mark.slow
def test_a_sweep_in_two_processes_has_the_numbers_of_one(
    small_start: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = TrainConfig(architecture="bi-encoder", layers=1, start=small_start, **BRIEF)
    arms = {"low": {"learning_rate": 1e-4}, "high": {"learning_rate": 1e-2}}
    rows = {}
    for jobs in (1, 2):
        monkeypatch.setenv("CDE_CACHE", str(tmp_path / f"cache-{jobs}"))
        monkeypatch.setenv("CDE_JOBS", str(jobs))
        recipe = OfWords("", base, (8, 8), {})
        tests = [EvaluationSet("words", TEST, "out")]
        rows[jobs] = sweep(arms, (0, 1), recipe, tests=tests).drop(columns="step_seconds")
    pd.testing.assert_frame_equal(rows[1], rows[2], check_exact=True)

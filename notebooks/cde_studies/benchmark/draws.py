"""What the draw of a context, and the protocol of the draw, move in scores of mteb's tasks.

Rows are those of `evaluate_tasks`, with a column `seed` of the training run.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import pandas as pd
from mteb.abstasks import AbsTask, AbsTaskClassification

from cde.progress import progress
from cde_studies.benchmark.evaluation import OURS, WRAPPER, Protocol, evaluate_tasks

_PAIRED = ("STS", "PairClassification")
_SETTINGS = ("prefix", "inputs", "split")


def context_gains(rows: pd.DataFrame, one: str, other: str) -> pd.DataFrame:
    """Points that one context has more than another on each task: `(seeds, tasks)`."""
    means = 100 * rows.groupby(["context", "seed", "task"], sort=False)["score"].mean()
    table: pd.DataFrame = (
        (means[one] - means[other]).reset_index().pivot_table("score", "seed", "task", sort=False)
    )
    return table


def gain_by_draw(rows: pd.DataFrame, one: str, other: str) -> pd.DataFrame:
    """Points that each draw of one context has more than the other's mean: `(seeds, draws)`."""
    means = 100 * rows.groupby(["context", "seed", "draw"])["score"].mean()
    base = means[other].groupby("seed").mean()
    table: pd.DataFrame = (
        means[one].sub(base, level="seed").reset_index().pivot_table("score", "seed", "draw")
    )
    return table


def draw_spread(rows: pd.DataFrame, context: str) -> pd.Series[float]:
    """Standard deviation of each task's score from draw to draw of a context, in points; the root
    of the mean square over seeds. Subsets are averaged first.
    """
    chosen = rows[rows["context"] == context]
    of_draws = 100 * chosen.groupby(["task", "seed", "draw"], sort=False)["score"].mean()
    squared = of_draws.groupby(["task", "seed"], sort=False).var()
    spread: pd.Series[float] = squared.groupby("task", sort=False).mean() ** 0.5
    return spread


def protocol_rows(model: Any, tasks: Sequence[AbsTask], draws: int) -> pd.DataFrame:
    """A contextual encoder on each task, in its own context, under every protocol that makes a
    difference there: the way of the authors and of mteb's wrapper for each of `Protocol`'s
    settings. Rows of `evaluate_tasks`, with columns prefix, inputs and split.
    """
    parts = []
    for task in progress(tasks, "tasks under each protocol", unit="tasks"):
        paired, trained = task.metadata.type in _PAIRED, isinstance(task, AbsTaskClassification)
        for given in product(
            [OURS.prefix, WRAPPER.prefix],
            [OURS.inputs, WRAPPER.inputs] if paired else [OURS.inputs],
            [OURS.split, WRAPPER.split] if trained else [OURS.split],
        ):
            rows = evaluate_tasks(model, "protocol", [task], ["own"], draws, Protocol(*given))
            parts.append(rows.assign(**dict(zip(_SETTINGS, given, strict=True))))
    return pd.concat(parts, ignore_index=True)


def protocol_effects(rows: pd.DataFrame) -> pd.DataFrame:
    """What mteb's way of drawing adds to the authors', setting by setting, in points of each task:
    the mean difference over draws and the other settings, NaN where a task has one way alone.
    """
    effects = {}
    for name in _SETTINGS:
        ways = [getattr(OURS, name), getattr(WRAPPER, name)]
        means = 100 * rows.pivot_table("score", "task", name, sort=False)
        effects[name] = means.reindex(columns=ways).diff(axis=1)[ways[1]]
    return pd.DataFrame(effects)

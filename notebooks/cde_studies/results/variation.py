"""How much of a difference of two arms is chance: queries, arithmetic, seeds, collections.

Both arms are trained with each seed, in the machine's own precision and in float32. What moves with
the precision stands for what moves from one machine to another: other instructions round otherwise,
and training carries the rounding on. Scores are kept query by query until the standard error of
each mean difference over queries is known.

Cost: that of training both arms twice with each seed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from cde.progress import progress
from cde_studies.recipes import Recipe
from cde_studies.sweeps import ndcg_by_query

#: what the same run is repeated in
PRECISIONS = ("auto", "float32")


def variation(
    recipe: Recipe, one: Mapping[str, Any], other: Mapping[str, Any], seeds: Sequence[int]
) -> pd.DataFrame:
    """The difference of two bi-encoder arms on each set out of domain, and what moves it: a row for
    each seed, set and precision: seed, set, precision, gain (points of NDCG@10, one minus other),
    query_error (its standard error over queries, in points).
    """
    rows = []
    jobs = [(seed, precision) for seed in seeds for precision in PRECISIONS]
    for seed, precision in progress(jobs, "training twice", unit="pairs of runs"):
        models = [
            recipe.train({**arm, "precision": precision}, seed).model() for arm in (one, other)
        ]
        for test in recipe.out_of_domain():
            first, second = (ndcg_by_query(model, test.collection) for model in models)
            apart = 100 * (first - second)
            error = float(apart.std(ddof=1) / np.sqrt(len(apart)))
            row = {"seed": seed, "set": test.name, "precision": precision}
            rows.append({**row, "gain": float(apart.mean()), "query_error": error})
    return pd.DataFrame(rows)


def sources_of_variation(rows: pd.DataFrame) -> dict[str, float]:
    """Standard deviations of a difference in points, by what would have to be drawn anew:
    "queries", of one set's difference, with another sample of as many queries; "arithmetic" and
    "seeds", of the mean over sets, in another precision and with another seed; "collections", of
    the mean over seeds, on another set.
    """
    own = rows[rows["precision"] == PRECISIONS[0]]
    by_seed = own.groupby("seed")["gain"].mean()
    again = rows[rows["precision"] == PRECISIONS[1]].groupby("seed")["gain"].mean()
    moved = (by_seed - again).dropna()
    return {
        "queries": float(np.sqrt((own["query_error"] ** 2).mean())),
        "arithmetic": float(np.sqrt((moved**2).mean() / 2)) if len(moved) else float("nan"),
        "seeds": float(by_seed.std(ddof=1)) if len(by_seed) > 1 else float("nan"),
        "collections": float(own.groupby("set")["gain"].mean().std(ddof=1)),
    }

"""The gates that chapters of results measure: is the encoder trained far enough to be asked?

`book/gates.yml` has their bounds, `cde_book.claims.gate` enters them. Three follow from the recipe
and from scores that a chapter has in any case. Whether the encoder reads its context is read from
a record of the chapter `context_source`, whose encoders are those of the same recipe.

Cost: BM25 on each test set, a few seconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd

from cde_book import plots
from cde_book.account import account
from cde_book.claims import gate
from cde_book.ledger import gates, ledger
from cde_book.page import folded
from cde_book.records import rows_of_record
from cde_book.verdicts import Reading
from cde_studies.recipes import EvaluationSet, Recipe
from cde_studies.sweeps import Sweep

#: settings in which arms of one recipe may differ and still be its encoders
_OF_ARMS = {"seed", "batches", "architecture", "attention", "filter_epsilon"}


def of_recipe(
    chapter: str,
    recipe: Recipe,
    results: Sweep | None = None,
    *,
    scale: str | None = None,
    bm25: float | None = None,
    updates: int | None = None,
) -> Any:
    """Enter every gate that can be told of a recipe's runs; the table of what they showed."""
    from cde.models.configuration import ContextualConfig

    base = recipe.base
    what, steps = f"{base.steps} steps of {base.batch_size}", updates or base.steps
    dropout = base.model.get("sequence_dropout", ContextualConfig().sequence_dropout)
    readings = [
        gate("enough-updates", steps, f"{steps} steps", scale),
        gate("null-trained", base.steps * base.context_size * dropout, what, scale),
        gate("reads-context", share_moved(recipe, scale or account.profile), what, scale),
    ]
    if results is not None:
        scores = results.score(by="arm")
        if bm25 is None:
            known = rows_of_record("table1-floor", "hours") if scale == "day" else None  # same sets
            bm25 = (known.rows["bm25"] if known else bm25_scores(recipe.tests())).mean()
        weakest = float(scores.min() / bm25)
        readings.append(gate("above-floor", weakest, f"the arm {scores.idxmin()}", scale))
    named = {name for one in ledger().values() if one.chapter == chapter for name in one.gates}
    return show([one for one in readings if one.gate in named])


def bm25_scores(tests: Iterable[EvaluationSet]) -> pd.Series[float]:
    """NDCG@10 of BM25 in points, by set out of domain."""
    from cde.lexical import BM25
    from cde.retrieval import evaluate

    outside = [test for test in tests if test.where == "out"]
    return pd.Series(
        {test.name: 100 * evaluate(BM25(), test.collection)["ndcg@10"] for test in outside}
    )


def share_moved(recipe: Recipe, profile: str) -> float | None:
    """How far documents move from their own to another corpus' context, as a share of the distance
    between documents; None without a record of this recipe's encoders.
    """
    record = rows_of_record("context_moves_embeddings-distances", profile)
    ours = json.loads(json.dumps(recipe.base.to_dict()))
    if record is None or any(
        record.settings.get(name) != value for name, value in ours.items() if name not in _OF_ARMS
    ):
        return None
    rows = record.rows.query("what == 'distance' and kind == 'own and other'")
    rows = rows.groupby("attention")[["moved", "between"]].mean()
    return float((rows["moved"] / rows["between"]).min())  # of the attention that reads least


def show(readings: Sequence[Reading]) -> Any:
    """A folded table of gates: what must be true, what was measured, and whether it is passed."""
    lines = [
        {
            "gate": gate.wording,
            "measured": "not measured" if one.value is None else gate.amount(one.value),
            "must exceed": f"{gate.above:,g}",
            "passed": "yes" if one.passed else "no",
            "on": one.what,
        }
        for one in readings
        for gate in [gates()[one.gate]]
    ]
    passed = sum(one.passed for one in readings)
    names = "; ".join(dict.fromkeys(line["gate"] for line in lines))
    title = f"Gates, {passed} of {len(readings)} passed: {names}"
    return folded(title, plots.table(pd.DataFrame(lines).set_index("gate")))

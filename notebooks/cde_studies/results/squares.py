"""Every domain searched in the context of every other: one square each, and what the squares say.

A domain is also searched in the context of its own documents that are not searched (`APART`), and
with null tokens (`NULL`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cde.data import RetrievalSet
from cde.intervals import holm, paired_test
from cde.models import ContextualEncoder
from cde.progress import progress
from cde_studies.intervals import numbers_of
from cde_studies.recipes import EvaluationSet
from cde_studies.sweeps import ndcg_by_query

_Scores = dict[tuple[str, str], NDArray[np.float64]]

#: the context of the domain that is searched, without any document that is searched
APART = "apart"
#: null tokens
NULL = "null"
#: the mean over all foreign domains
OTHERS = "others"


@dataclass(frozen=True)
class Squares:
    """Scores of domains by the source of the context, and ways to read them."""

    rows: pd.DataFrame

    @property
    def names(self) -> list[str]:
        return list(dict.fromkeys(self.rows["test"]))

    def points(self, rows: pd.DataFrame | None = None) -> pd.DataFrame:
        """NDCG@10 points, means over seeds: a row for each domain searched, a column a context."""
        rows = self.rows if rows is None else rows
        table = rows.pivot_table("ndcg", index="test", columns="context") * 100
        table = table.reindex(columns=[*self.names, APART, NULL])
        return table.reindex(index=self.names)

    def foreign(self) -> pd.DataFrame:
        """Squares with the context of another domain, a row each, by test and context. `differs`:
        from the own context, at 5 % after Holm's correction over them all.
        """
        rows: pd.DataFrame = self.rows[self.rows["seed"] == self.rows["seed"].min()]
        rows = rows[rows["context"].isin(self.names) & (rows["context"] != rows["test"])]
        rows = rows.set_index(["test", "context"])
        rows["differs"] = holm(rows["p"]) < 0.05
        return rows

    def within_a_point(self, rows: pd.DataFrame | None = None) -> pd.DataFrame:
        """Whether a square comes within a point of the best domain's context."""
        table = self.points(rows)[self.names]
        return table.sub(table.max(axis=1), axis=0) >= -1

    def counts(self) -> dict[str, int]:
        """How many squares with a foreign context are what."""
        tested, near = self.foreign(), self.within_a_point()
        differs, difference = tested["differs"], tested["difference"]
        return {
            "squares with a foreign context": len(tested),
            "within a point of the row's best": int(sum(near.loc[one] for one in tested.index)),
            "worse than the own context, Holm": int((differs & (difference < 0)).sum()),
            "better than the own context, Holm": int((differs & (difference > 0)).sum()),
            "less than a point worse, by the interval": int((100 * tested["low"] > -1).sum()),
        }

    def own_minus(self, kind: str) -> pd.Series[float]:
        """The own context's points minus those of a kind of context, by seed and domain."""
        is_own = self.rows["context"] == self.rows["test"]
        others = self.rows["context"].isin(self.names) & ~is_own
        compared = others if kind == OTHERS else self.rows["context"] == kind
        own, other = (
            self.rows[some].groupby(["seed", "test"])["ndcg"].mean() for some in (is_own, compared)
        )
        return (100 * (own - other)).dropna()

    def crossover(self) -> pd.Series[float]:
        """For each seed, the share of squares with a foreign context within a point of the best."""
        foreign = ~np.eye(len(self.names), dtype=bool)
        by_seed = self.rows.groupby("seed")
        return pd.Series(
            {seed: self.within_a_point(rows).to_numpy()[foreign].mean() for seed, rows in by_seed}
        )


def search_squares(
    model_of: Callable[[int], ContextualEncoder],
    seeds: Sequence[int],
    domains: Sequence[EvaluationSet],
    documents: int,
    queries: int,
) -> pd.DataFrame:
    """The rows of `Squares`, with each square's test against the own context, over queries."""
    if len(domains) < 2:
        raise ValueError(f"two domains or more are needed: {[one.name for one in domains]}")
    sets, unsearched = {}, {}
    for one in domains:
        sets[one.name] = one.collection.shrink(documents, queries, 0)
        searched = set(sets[one.name].documents)
        unsearched[one.name] = [text for text in one.collection.documents if text not in searched]
    every = progress(seeds, "training and testing", unit="runs")
    runs = [_scores(model_of(seed), seed, sets, unsearched) for seed in every]
    where, rows = {one.name: one.where for one in domains}, []
    for name, context in runs[0]:
        # over queries, the means over the seeds are compared
        square, own = (np.mean([run[name, one] for run in runs], axis=0) for one in (context, name))
        test = paired_test(square, own)
        about: dict[str, Any] = {"test": name, "where": where[name], "context": context}
        about |= {**numbers_of(test.difference, "difference"), "p": test.p_value}
        for seed, run in zip(seeds, runs, strict=True):
            rows.append({"seed": seed, "ndcg": run[name, context].mean(), **about})
    return pd.DataFrame(rows)


def _scores(
    model: ContextualEncoder,
    seed: int,
    sets: Mapping[str, RetrievalSet],
    unsearched: Mapping[str, Sequence[str]],
) -> _Scores:
    """NDCG@10 of every query of every domain in every context, with one model."""
    every, least = list(sets), model.config.context_size
    jobs: list[Any] = [(name, one.documents, every) for name, one in sets.items()]
    jobs += [(NULL, None, every)]
    jobs += [(APART, texts, [name]) for name, texts in unsearched.items() if len(texts) >= least]
    scores: _Scores = {}
    for context, texts, names in jobs:
        encoder = model.with_context(texts, seed=seed)
        scores |= {(name, context): ndcg_by_query(encoder, sets[name]) for name in names}
    return scores

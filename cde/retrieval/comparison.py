"""Whether one system is better than another, how sure that is, and what would have been seen.

Systems are compared on the same queries: the interval is a bootstrap over queries, and the p-value
that of a randomisation test (Smucker et al. 2007). Scores of training runs on several collections
are compared in tables: the interval then speaks of other seeds and of other collections at once
(`cde.intervals`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from cde.data import RetrievalSet
from cde.intervals import (
    Interval,
    holm,
    mean_interval,
    number_text,
    p_value,
    paired_test,
    smallest_effect,
    table_interval,
)
from cde.retrieval.ranking import score_systems
from cde.retrieval.runs import Run, judged
from cde.retrieval.systems import System
from cde.validation import checked_text, checked_whole, shown

__all__ = ["Comparison", "compare", "compare_all", "compare_tables"]

#: what is compared: a system, or what it found: rankings, or the path of a TREC run file
Compared = System | Mapping[str, Mapping[str, float]] | Path | str


@dataclass(frozen=True)
class Comparison:
    """Two systems on the same queries, or two tables of scores.

    Attributes:
        difference: mean of first minus second, with its interval.
        p_value: two-sided.
        queries: a frame with a row for each query (of tables for each cell): columns first, second,
            difference; what gains most from the first system stands at the top.
    """

    difference: Interval
    p_value: float
    queries: pd.DataFrame

    @property
    def smallest_effect(self) -> float:
        """The smallest difference that such a measurement shows with a probability of 80 %."""
        return smallest_effect(self.difference)

    def __repr__(self) -> str:
        ahead = int((self.queries["difference"] > 0).sum())
        behind = int((self.queries["difference"] < 0).sum())
        what = "cells" if isinstance(self.queries.index, pd.MultiIndex) else "queries"
        return (
            f"Comparison({self.difference}, p = {self.p_value:.3g}; ahead on {ahead}, behind on "
            f"{behind} of {len(self.queries)} {what}; a difference of "
            f"{number_text(self.smallest_effect)} would have been seen)"
        )


def compare(
    first: Compared,
    second: Compared,
    retrieval_set: Any,
    metric: str = "ndcg@10",
    depth: int = 1000,
    seed: int = 0,
    drop_own: bool = True,
) -> Comparison:
    """Whether one system finds more than another on the same queries.

    Args:
        first, second: encoders, rankers such as `BM25()`, models of sentence-transformers; or what
            such systems found: paths of TREC run files, or query id → document id → score.
        retrieval_set: what to search; two judged queries or more. Of runs, judgements alone will
            do: a file of qrels, a mapping, a data frame (`cde.data.sets.read_judgements`).
        metric, depth: as for `evaluate`.
        seed: seed of the bootstrap and of the swaps.
        drop_own: leave out a document that has its query's id, as for `evaluate`. Ids of one's own
            often begin at 0 for both: then False.

    Raises:
        ValueError, TypeError: as for `evaluate`, or fewer than two judged queries.

    Example:
        >>> from cde.lexical import BM25
        >>> toy = RetrievalSet(["d1", "d2"], ["red boats", "green house"], ["q", "r"],
        ...     ["green", "red"], {"q": {"d2": 1}, "r": {"d1": 1}})
        >>> compare(BM25(), {"q": {"d2": 2.0}, "r": {"d2": 1.0, "d1": 0.5}}, toy).difference.n
        2
    """
    scores = _scored({"first": first, "second": second}, retrieval_set, metric, depth, drop_own)
    one, other = (one.tolist() for one in scores.values())
    test = paired_test(one, other, checked_whole(seed, "seed", 0))
    return Comparison(test.difference, test.p_value, _ordered(pd.DataFrame(scores)))


def compare_all(
    systems: Mapping[str, Compared],
    retrieval_set: Any,
    metric: str = "ndcg@10",
    depth: int = 1000,
    seed: int = 0,
    drop_own: bool = True,
) -> pd.DataFrame:
    """Several systems, each held against the first.

    Args:
        systems: by name, as for `compare`; two or more.
        retrieval_set, metric, depth, seed, drop_own: as for `compare`.

    Returns:
        A row for each system: `score`, an `Interval` over queries; and but for the first
        `difference`, an `Interval` of the system minus the first; `p_value`, after Holm's
        correction for so many comparisons; and `smallest_effect`.

    Example:
        >>> from cde.lexical import BM25
        >>> toy = RetrievalSet(["d1", "d2"], ["red boats", "green house"], ["q", "r"],
        ...     ["green", "red"], {"q": {"d2": 1}, "r": {"d1": 1}})
        >>> compare_all({"BM25": BM25(), "b = 0": BM25(b=0.0)}, toy)["p_value"].tolist()
        [nan, 1.0]
    """
    if not isinstance(systems, Mapping) or len(systems) < 2:
        raise ValueError(f"systems must be two or more, by name; they are {shown(systems)}")
    scores = _scored(systems, retrieval_set, metric, depth, drop_own)
    seed = checked_whole(seed, "seed", 0)
    base, *others = scores.values()
    tests = [paired_test(one.tolist(), base.tolist(), seed) for one in others]
    return pd.DataFrame(
        {
            "score": [mean_interval(one, seed) for one in scores.values()],
            "difference": [None, *(test.difference for test in tests)],
            "p_value": [np.nan, *holm([test.p_value for test in tests])],
            "smallest_effect": [np.nan, *(smallest_effect(test.difference) for test in tests)],
        },
        index=pd.Index(list(scores), name="system"),
    )


def compare_tables(first: ArrayLike | pd.DataFrame, second: ArrayLike | pd.DataFrame) -> Comparison:
    """Whether one way of training scores higher than another, over seeds and collections at once.

    Args:
        first, second: `(seeds, collections)` scores, in any unit; of data frames rows and columns
            with the same labels belong together.

    Returns:
        The difference, with an interval over both where there are two or more of each, else over
        the one that there are two or more of (`cde.intervals.table_interval`); its p-value.

    Raises:
        ValueError: tables of different shapes or labels, of one cell, or with what is no number.

    Example:
        >>> better = [[3.0, 5.0], [3.2, 5.4], [2.9, 5.1]]
        >>> compare_tables(better, [[2.0, 4.1], [2.1, 4.5], [2.0, 4.0]]).difference.method
        'random effects of 3 seeds and 2 collections'
    """
    if isinstance(first, pd.DataFrame) and isinstance(second, pd.DataFrame):
        for kind, one, other in (
            ("rows", first.index, second.index),
            ("columns", first.columns, second.columns),
        ):
            if set(one) != set(other) or not (one.is_unique and other.is_unique):
                apart = sorted(map(str, {*one} ^ {*other}))
                raise ValueError(
                    f"the tables' {kind} must have the same labels, each once; in one of them "
                    f"alone: {shown(apart)}"
                )
        second = second.loc[first.index, first.columns]
    tables = [pd.DataFrame(np.asarray(one, np.float64)) for one in (first, second)]
    if tables[0].shape != tables[1].shape:
        raise ValueError(f"the tables differ: {tables[0].shape} and {tables[1].shape}")
    if isinstance(first, pd.DataFrame):
        tables = [one.set_axis(first.index).set_axis(first.columns, axis=1) for one in tables]
    found = table_interval((tables[0] - tables[1]).to_numpy())
    if found is None:
        raise ValueError(
            f"one cell has no interval: give two seeds or two collections, not {tables[0].shape}"
        )
    names = pd.MultiIndex.from_product([tables[0].index, tables[0].columns])
    flat = {"first": tables[0].to_numpy().ravel(), "second": tables[1].to_numpy().ravel()}
    cells = pd.DataFrame(flat, index=names)
    return Comparison(found, p_value(found, 0.0), _ordered(cells))


def _scored(
    systems: Mapping[str, Compared], retrieval_set: Any, metric: str, depth: int, drop_own: bool
) -> dict[str, pd.Series[float]]:
    """The scores of each system on the judged queries."""
    metric = checked_text(metric, "metric")
    given = [_as_system(one) for one in systems.values()]
    if not isinstance(retrieval_set, RetrievalSet):
        runs = [one for one in given if isinstance(one, Run)]
        if len(runs) < len(given):
            raise TypeError(
                "retrieval_set must be a RetrievalSet for a system that searches; judgements do "
                f"for runs alone (paths, rankings). It is {shown(retrieval_set)}"
            )
        retrieval_set = judged(retrieval_set, runs, "judgements")
    tables = score_systems(given, retrieval_set, metric, depth, drop_own)
    if len(tables[0]) < 2:
        raise ValueError(f"{retrieval_set.name} must have two judged queries or more to compare on")
    return {name: table[metric] for name, table in zip(systems, tables, strict=True)}


def _as_system(given: Compared) -> System:
    if isinstance(given, str | Path):
        return Run.read(given)
    return Run(given) if isinstance(given, Mapping) else given


def _ordered(scores: pd.DataFrame) -> pd.DataFrame:
    """Scores of two systems and their difference, the greatest first."""
    table = scores.assign(difference=scores["first"] - scores["second"])
    return table.sort_values("difference", ascending=False, kind="stable")

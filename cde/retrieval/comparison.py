"""Whether one system is better than another, how sure that is, and what would have been seen.

Systems are compared on the same queries: the interval is a bootstrap over queries, and the p-value
that of a randomisation test (Smucker et al. 2007). Scores of training runs on several collections
are compared in tables: the interval then speaks of other seeds and of other collections at once
(`cde.intervals`).

What a system has found already is a `Run`, in TREC's format: lines of query, a word that nothing
reads ("Q0"), document, rank, score and name. As in trec_eval the score counts, and not the rank.
"""

from __future__ import annotations

import gzip
import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from cde.data import RetrievalSet
from cde.data.sets import lines_of, read_judgements
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
from cde.retrieval.ranking import best_first, score_systems, scored
from cde.retrieval.systems import Rankings, System
from cde.storage import atomic_path
from cde.validation import checked_ids, checked_text, checked_whole, shown

__all__ = ["Comparison", "Run", "compare", "compare_all", "compare_tables"]

#: what is compared: a system, or what it found: rankings, or the path of a TREC run file
Compared = System | Mapping[str, Mapping[str, float]] | Path | str


@dataclass(frozen=True)
class Run:
    """A ranker that has ranked: `cde.evaluate` and `cde.compare` take it as they take a model.

    Attributes:
        rankings: query id → document id → score.
        name: what it is called in a file.

    Raises:
        TypeError: rankings that are not a mapping of mappings.
        ValueError: rankings of no query.

    Example:
        >>> run = Run({"q": {"d1": 0.5, "d2": 0.7}}, name="mine")
        >>> toy = RetrievalSet(["d1", "d2"], ["red", "blue"], ["q"], ["sky"], {"q": {"d2": 1}})
        >>> list(run.rank(toy)["q"])
        ['d2', 'd1']
    """

    rankings: Rankings
    name: str = "run"

    def __post_init__(self) -> None:
        given: Any = self.rankings
        well = isinstance(given, Mapping) and all(isinstance(r, Mapping) for r in given.values())
        if not well:
            raise TypeError(f"rankings must be query ids → document ids → scores; {shown(given)}")
        checked_text(self.name, "name")
        if not given:
            raise ValueError(f"the run {self.name!r} ranks no query")

    def __repr__(self) -> str:
        return f"Run({self.name!r}, {len(self.rankings)} queries)"

    @classmethod
    def read(cls, path: Path | str) -> Self:
        """A run file, gzipped or not; blanks or tabs between its fields.

        Raises:
            ValueError: a line without six fields, a score that is not finite, or a document that
                stands twice under one query.
            FileNotFoundError: a path that is not that of a file.
        """
        rankings: dict[str, dict[str, float]] = {}
        name = Path(path).name
        for where, line in lines_of(Path(path)):
            fields = line.split()
            if len(fields) != 6:
                six = "six fields (query, Q0, document, rank, score, name)"
                found = f"this has {len(fields)}: {shown(line.strip())}"
                raise ValueError(f"{where}: a line of a TREC run has {six}; {found}")
            query, _, document, _, score, name = fields
            try:
                value = float(score)
            except ValueError:
                value = math.nan
            if not math.isfinite(value):
                raise ValueError(f"{where}: the score is not a number: {shown(score)}")
            if document in (ranking := rankings.setdefault(query, {})):
                raise ValueError(f"{where}: {shown(document)} stands twice under {shown(query)}")
            ranking[document] = value
        return cls(rankings, name)

    def write(self, path: Path | str) -> None:
        """Write a run file, gzipped if its name ends in .gz, best documents first; for a blank in
        the name stands "_".

        Raises:
            ValueError: an id with a blank in it, which the format cannot hold, or a score that is
                not finite.
            TypeError: an id that is not text, or a score that is not a number.
        """
        tag = "_".join(self.name.split()) or "run"
        opened: Any = gzip.open if Path(path).suffix == ".gz" else open
        with atomic_path(path) as temporary, opened(temporary, "wt", encoding="utf-8") as file:
            for query, given in self.rankings.items():
                checked_ids((query, *given), "ids of a run")
                ranking = best_first(scored(query, given))
                for place, (document, score) in enumerate(ranking.items(), start=1):
                    if split := [one for one in (query, document) if one.split() != [one]]:
                        said = f"the id {shown(split[0])} has a blank"
                        raise ValueError(f"{said}, where TREC's format ends a field")
                    file.write(f"{query} Q0 {document} {place} {score!r} {tag}\n")

    def rank(self, retrieval_set: RetrievalSet, depth: int = 1000) -> Rankings:
        """The best `depth` documents for each query of a set; a ValueError if there are none."""
        if retrieval_set.query_ids and not self.rankings.keys() & {*retrieval_set.query_ids}:
            own, asked = next(iter(self.rankings)), retrieval_set.query_ids[0]
            some = f"it has such as {shown(own)}, and the set such as {shown(asked)}"
            raise ValueError(f"the run {self.name!r} ranks no query of the set: {some}")
        return {
            query: dict(islice(best_first(self.rankings.get(query, {})).items(), depth))
            for query in retrieval_set.query_ids
        }


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
        systems: by name, as for `compare`.
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
    if not isinstance(systems, Mapping) or not systems:
        raise ValueError(f"systems must be one or more, by name; they are {shown(systems)}")
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
        ValueError: tables of different shapes or labels, of one cell, or with what is not a number.

    Example:
        >>> better = [[3.0, 5.0], [3.2, 5.4], [2.9, 5.1]]
        >>> compare_tables(better, [[2.0, 4.1], [2.1, 4.5], [2.0, 4.0]]).difference.method
        'random effects of 3 seeds and 2 collections'
    """
    given: tuple[Any, Any] = first, second
    one, other = (pd.DataFrame(table, dtype=np.float64) for table in given)
    for axis, kind in enumerate(("rows", "columns")):
        names, others = one.axes[axis], other.axes[axis]
        if set(names) != set(others) or not (names.is_unique and others.is_unique):
            apart = f"in one of them alone: {shown(sorted(map(str, {*names} ^ {*others})))}"
            raise ValueError(f"the tables' {kind} must have the same labels, each once; {apart}")
    other = other.loc[one.index, one.columns]
    found = table_interval((one - other).to_numpy())
    if found is None:
        raise ValueError(f"two seeds or two collections are needed; the table is {one.shape}")
    cells = pd.DataFrame({"first": one.stack(), "second": other.stack()})  # noqa: PD013
    return Comparison(found, p_value(found, 0.0), _ordered(cells))


def _scored(
    systems: Mapping[str, Compared], retrieval_set: Any, metric: str, depth: int, drop_own: bool
) -> dict[str, pd.Series[float]]:
    """The scores of each system on the judged queries."""
    metric = checked_text(metric, "metric")
    read = [Run.read(one) if isinstance(one, str | Path) else one for one in systems.values()]
    given = [Run(one) if isinstance(one, Mapping) else one for one in read]
    if not isinstance(retrieval_set, RetrievalSet):
        runs = [one for one in given if isinstance(one, Run)]
        if len(runs) < len(given):
            raise TypeError(
                "retrieval_set must be a RetrievalSet for a system that searches; judgements do "
                f"for runs alone (paths, rankings). It is {shown(retrieval_set)}"
            )
        # of documents that are judged or found, and of queries, without text
        judged = read_judgements(retrieval_set)
        ranked = (*judged.values(), *(one for run in runs for one in run.rankings.values()))
        found, asked = list(dict.fromkeys(chain.from_iterable(ranked))), list(judged)
        texts = [""] * len(found), [""] * len(asked)
        retrieval_set = RetrievalSet(found, texts[0], asked, texts[1], judged, name="judgements")
    tables = score_systems(given, retrieval_set, metric, depth, drop_own)
    if len(tables[0]) < 2:
        raise ValueError(f"{retrieval_set.name} must have two judged queries or more to compare on")
    return {name: table[metric] for name, table in zip(systems, tables, strict=True)}


def _ordered(scores: pd.DataFrame) -> pd.DataFrame:
    """Scores of two systems, and their difference, the greatest first."""
    table = scores.assign(difference=scores["first"] - scores["second"])
    return table.sort_values("difference", ascending=False, kind="stable")

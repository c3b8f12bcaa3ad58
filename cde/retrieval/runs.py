"""Rankings that are there already, and TREC's format for them, which all tools read and write.

A line of a run file has six fields: query, a word that nothing reads ("Q0"), document, rank, score,
and the name of the run. As in trec_eval the score counts, and not the rank.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Self

from cde.data import RetrievalSet
from cde.data.sets import lines_of, read_judgements
from cde.retrieval.ranking import best_first
from cde.retrieval.systems import Rankings
from cde.storage import atomic_path
from cde.validation import checked_text, shown

__all__ = ["Run"]


@dataclass(frozen=True)
class Run:
    """A ranker that has ranked: `cde.evaluate` and `cde.compare` take it as they take a model.

    Attributes:
        rankings: query id → document id → score.
        name: what it is called in a file.

    Raises:
        TypeError: rankings that are no mapping.

    Example:
        >>> run = Run({"q": {"d1": 0.5, "d2": 0.7}}, name="mine")
        >>> toy = RetrievalSet(["d1", "d2"], ["red", "blue"], ["q"], ["sky"], {"q": {"d2": 1}})
        >>> list(run.rank(toy)["q"])
        ['d2', 'd1']
    """

    rankings: Rankings
    name: str = "run"

    def __post_init__(self) -> None:
        if not isinstance(self.rankings, Mapping):
            raise TypeError(
                "rankings must be a mapping of query ids → document ids → scores; they are "
                f"{shown(self.rankings)}"
            )
        checked_text(self.name, "name")

    def __repr__(self) -> str:
        return f"Run({self.name!r}, {len(self.rankings)} queries)"

    @classmethod
    def read(cls, path: Path | str) -> Self:
        """A run file, gzipped or not; blanks or tabs between its fields.

        Raises:
            ValueError: a line without six fields, a score that is no number, or a document that
                stands twice under one query.
            FileNotFoundError: a path that is not that of a file.
        """
        rankings: dict[str, dict[str, float]] = {}
        name = Path(path).name
        for where, line in lines_of(Path(path)):
            fields = line.split()
            if len(fields) != 6:
                raise ValueError(
                    f"{where}: a line of a TREC run has six fields (query, Q0, document, rank, "
                    f"score, name); this has {len(fields)}: {shown(line.strip())}"
                )
            query, _, document, _, score, name = fields
            try:
                value = float(score)
            except ValueError:
                raise ValueError(f"{where}: the score is no number: {shown(score)}") from None
            if document in (ranking := rankings.setdefault(query, {})):
                raise ValueError(f"{where}: {shown(document)} stands twice under {shown(query)}")
            ranking[document] = value
        return cls(rankings, name)

    def write(self, path: Path | str) -> None:
        """Write a run file, best documents first.

        Raises:
            ValueError: an id or a name with a blank in it, which the format cannot hold.
        """
        tag = self.name.replace(" ", "_")
        with atomic_path(path) as temporary, temporary.open("w", encoding="utf-8") as file:
            for query, ranking in self.rankings.items():
                for place, (document, score) in enumerate(best_first(ranking).items(), start=1):
                    if split := [one for one in (query, document) if one.split() != [one]]:
                        raise ValueError(
                            f"the id {shown(split[0])} has a blank, which TREC's format takes for "
                            "the end of a field"
                        )
                    file.write(f"{query} Q0 {document} {place} {float(score)!r} {tag}\n")

    def rank(self, retrieval_set: RetrievalSet, depth: int = 1000) -> Rankings:
        """The best `depth` documents of each of a set's queries: none, where the run has none."""
        return {
            query: dict(islice(best_first(self.rankings.get(query, {})).items(), depth))
            for query in retrieval_set.query_ids
        }


def judged(qrels: Any, runs: list[Run], name: str) -> RetrievalSet:
    """A set of judgements alone, for runs: its documents are those that are judged or found, and
    have no text.
    """
    judgements = read_judgements(qrels)
    if not isinstance(judgements, Mapping):
        raise TypeError(
            "judgements must be a RetrievalSet, or qrels: a file, a mapping or a data frame; they "
            f"are {shown(qrels)}"
        )
    found: dict[str, None] = {}
    for ranked in (*judgements.values(), *(one for run in runs for one in run.rankings.values())):
        found |= dict.fromkeys(ranked)
    queries = list(judgements)
    texts = [[""] * len(ids) for ids in (found, queries)]
    return RetrievalSet(list(found), texts[0], queries, texts[1], judgements, name=name)

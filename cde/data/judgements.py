"""Judgements in whatever form people keep them: by query a mapping of grades, a set or a list of
relevant documents; a table; a file of trec_eval (`query 0 document grade`) or of BEIR (`query
document grade`, by tabs, with a header or without).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

import pandas as pd

from cde.validation import shown

__all__ = ["read_judgements"]

_HEADER = ("query-id", "query_id", "qid", "query")
_GRADE = re.compile(r"[+-]?[0-9]{1,99}(\.0*)?", re.ASCII)


def read_judgements(given: Any) -> Any:
    """Judgements as query id → document id → grade.

    Args:
        given: a mapping of query ids to mappings of grades, or to relevant documents (a set, a
            list, one id), whose grade is 1; a data frame, or the path of a file, with the columns
            query, document and grade, or TREC's four.

    Returns:
        The mapping, its grades as they came: whether they are whole numbers, `RetrievalSet` checks.
        Anything else is returned as it is, for the same reason.

    Raises:
        ValueError: columns or a line that are not those, or a document that is judged twice, with
            two grades.
        FileNotFoundError: a path that is not that of a file.

    Example:
        >>> read_judgements({"q": ["d1", "d2"], "r": {"d3": 2}})
        {'q': {'d1': 1, 'd2': 1}, 'r': {'d3': 2}}
    """
    if isinstance(given, str | Path):
        return _of_rows(_lines(Path(given)))
    if isinstance(given, pd.DataFrame):
        if any(kind.kind == "f" for kind in given.dtypes.iloc[:-1] if hasattr(kind, "kind")):
            raise ValueError(
                "qrels: ids must be texts or whole numbers; a column of them is of floats"
            )
        columns = [given.iloc[:, place].tolist() for place in range(given.shape[1])]
        rows = zip(*[map(str, column) for column in columns[:-1]], columns[-1], strict=True)
        return _of_rows((f"qrels, row {number}", list(row)) for number, row in enumerate(rows))
    if not isinstance(given, Mapping) or all(isinstance(one, Mapping) for one in given.values()):
        return given
    return {query: _graded(judged) for query, judged in given.items()}


def _graded(judged: Any) -> Any:
    if isinstance(judged, str):
        return {judged: 1}
    if isinstance(judged, Set | Sequence) and all(isinstance(one, str) for one in judged):
        return dict.fromkeys(sorted(judged) if isinstance(judged, Set) else judged, 1)
    return judged


def _lines(path: Path) -> Iterable[tuple[str, list[Any]]]:
    if not os.path.isfile(path):  # nor a pipe, at which reading would wait
        raise FileNotFoundError(f"qrels: no file {shown(str(path))}")
    with path.open(encoding="utf-8-sig") as file:
        for number, line in enumerate(file, start=1):
            fields = line.rstrip("\r\n").split("\t" if "\t" in line else None)
            if fields and not (number == 1 and fields[0] in _HEADER):
                grade = fields[-1].strip()
                yield f"{path}, line {number}", [*fields[:-1], _number(grade)]


def _number(text: str) -> Any:
    return int(text.partition(".")[0]) if _GRADE.fullmatch(text) else text


def _of_rows(rows: Iterable[tuple[str, list[Any]]]) -> dict[str, dict[str, Any]]:
    judgements: dict[str, dict[str, Any]] = {}
    for where, row in rows:
        if len(row) not in (3, 4):
            raise ValueError(
                f"{where}: judgements are query, document and grade, or TREC's four columns; "
                f"got {shown(row)}"
            )
        query, document, grade = row[0], row[-2], row[-1]
        if judgements.setdefault(query, {}).setdefault(document, grade) != grade:
            raise ValueError(
                f"{where}: {shown(query)} → {shown(document)} is judged {shown(grade)} here and "
                f"{judgements[query][document]} before: keep one of the two"
            )
    return judgements

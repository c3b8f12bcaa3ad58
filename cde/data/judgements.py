"""Judgements as trec_eval can hold them: which document answers which query, and how well.

trec_eval is written in C. A grade that is too large for it scores nought without a word, or ends
the interpreter.

Cost: one pass over the judgements.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any

import numpy as np

from cde.validation import checked_whole, shown

__all__ = ["LARGEST_GRADE", "checked_grade", "checked_judgements"]

#: trec_eval keeps a place for every grade up to the largest: at this one 8 MB and a millisecond a
#: query. From 2³⁰ on it ends the interpreter, and 2⁴⁰ scores nought
LARGEST_GRADE = 1_000_000


def checked_grade(value: Any, what: str) -> int:
    """A grade of relevance as Python's whole number: of any library, and true is 1."""
    plain = int(value) if isinstance(value, bool | np.bool_) else value
    grade = checked_whole(plain, what, -LARGEST_GRADE)
    if grade > LARGEST_GRADE:
        raise ValueError(f"{what} must be {LARGEST_GRADE} or less; it is {shown(value)}")
    return grade


def checked_judgements(qrels: Any, excluded: Any, name: str) -> Mapping[str, Mapping[str, int]]:
    """Judgements whose grades are Python's whole numbers, as they came where they are that
    already.
    """
    for kind, given, inner, accepted in (
        ("qrels", qrels, Mapping, "document ids → grades"),
        ("excluded", excluded, Set, "sets of document ids"),
    ):
        if not isinstance(given, Mapping):
            raise TypeError(
                f"{name}: {kind} must be a mapping of query ids → {accepted}; it is {shown(given)}"
            )
        for query, judged in given.items():
            if not isinstance(judged, inner):
                raise TypeError(
                    f"{name}: {kind} of the query {query!r} must be {accepted}; it is "
                    f"{shown(judged)}"
                )
    grades = (grade for judged in qrels.values() for grade in judged.values())
    if all(type(grade) is int and abs(grade) <= LARGEST_GRADE for grade in grades):
        plain: Mapping[str, Mapping[str, int]] = qrels
        return plain
    return {
        query: {
            document: checked_grade(grade, f"{name}: the grade of {query!r} → {document!r}")
            for document, grade in judged.items()
        }
        for query, judged in qrels.items()
    }

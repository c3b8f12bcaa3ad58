"""Judgements are the same in every form that people keep them in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import cde
from cde.data.sets import read_judgements

EXPECTED = {"q": {"d1": 1, "d2": 1}, "7": {"d2": 1}}
ROWS = [("q", "d1", 1), ("q", "d2", 1), ("7", "d2", 1)]
FRAME = pd.DataFrame(ROWS, columns=["query", "document", "grade"])
TREC = "q 0 d1 1\nq 0 d2 1\n\n7 0 d2 1\n"
BEIR = "query-id\tcorpus-id\tscore\nq\td1\t1\nq\td2\t1.0\n7\td2\t1\n"
FORMS: dict[str, Any] = {
    "grades": EXPECTED,
    "sets": {"q": {"d2", "d1"}, "7": frozenset({"d2"})},
    "lists": {"q": ["d1", "d2"], "7": ("d2",)},
    "one id": {"q": ["d1", "d2"], "7": "d2"},
    "mixed": {"q": {"d1": np.bool_(True), "d2": True}, "7": ["d2"]},
    "other whole numbers": {"q": {"d1": 1.0, "d2": np.float32(1)}, "7": {"d2": np.int64(1)}},
    "a frame": FRAME,
    "a frame of floats": FRAME.astype({"grade": float}),
    "a frame as TREC's": FRAME.assign(iter=0)[["query", "iter", "document", "grade"]],
    "a file of TREC": TREC,
    "TREC by tabs": TREC.replace(" ", "\t"),
    "a file of BEIR": BEIR,
    "BEIR without a header": BEIR.partition("\n")[2],
    "a byte order mark": "\ufeff" + BEIR.partition("\n")[2],
    "lines of Windows": BEIR.replace("\n", "\r\n"),
}


def as_given(form: Any, folder: Path) -> Any:
    if not isinstance(form, str):
        return form
    (folder / "qrels.txt").write_text(form, encoding="utf-8", newline="")
    return folder / "qrels.txt"


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_judgements(form: str, tmp_path: Path) -> None:
    given = as_given(FORMS[form], tmp_path)
    made = cde.RetrievalSet(["d1", "d2"], ["red boats", "soup"], ["q", "7"], ["a", "b"], given)
    assert made.qrels == EXPECTED
    assert all(type(grade) is int for one in made.qrels.values() for grade in one.values())


@pytest.mark.parametrize(
    ("form", "message"),
    [
        ({"q": {"d1": 0.5}}, "must be a whole number"),
        ({"q": {"d1": float("nan")}}, "must be a whole number"),
        ("q 0 d1 0.5\nq 0 d2 1\n", "must be a whole number"),
        ("q d1\nq d2 1\n", "line 1: judgements are query, document and grade"),
        ("q 0 d1 1\nq 0 d1 2\n", "line 2: 'q' → 'd1' is judged 2 here and 1 before"),
        (FRAME.assign(document=1.5), "ids are strings, whole numbers"),
        (FRAME.assign(query=["q", None, "7"]), "row 1: an id is missing"),
        (FRAME.assign(document=pd.array([1, 2, None], "Int64")), "row 2: an id is missing"),
        (FRAME.assign(grade=[1, 1, None]), "row 2: a grade must be a whole number; it is nan"),
        (FRAME[["query"]], "row 0: judgements are query, document and grade"),
        ({"q": {"gone"}}, "q → gone"),
    ],
)
def test_what_is_no_judgement_is_refused(form: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        cde.RetrievalSet(["d1", "d2"], ["a", "b"], ["q"], ["a"], as_given(form, tmp_path))


def test_only_a_file_is_read(tmp_path: Path) -> None:
    """Reading a folder fails, and a pipe would wait for ever."""
    for path in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(FileNotFoundError, match="is not a regular file"):
            read_judgements(path)

"""Rows of the probes: places and segments in order, and the differences that claims test."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from cde.data import RetrievalSet
from cde.intervals import mean_interval
from cde_studies.dwell import tables
from cde_studies.dwell.passages import Passages
from cde_studies.dwell.substrings import Similarities

DRAWN = np.random.default_rng(0).uniform(size=(20, 4))
SCORES = pd.DataFrame(DRAWN, columns=["default", 1, 2, 3])
COSINES, OTHERS = np.random.default_rng(1).uniform(size=(2, 8, 10)).astype(np.float32)
OTHERS[0] = np.nan
SIMILAR = Similarities(COSINES, OTHERS, np.arange(8), {"too long": 2, "too short": 1})


def test_changes_are_of_each_query() -> None:
    assert list(tables.changes(SCORES)) == [1, 2, 3]
    assert tables.changes(SCORES)[2].tolist() == (SCORES[2] - SCORES["default"]).tolist()


def test_rows_by_segment_carry_the_decline_and_the_room() -> None:
    rows = tables.rows_by_segment(SIMILAR)
    assert [row["segment"] for row in rows] == list(range(1, 11))
    assert {row["decline"] for row in rows} == {mean_interval(tables.declines(SIMILAR)).estimate}
    assert rows[0]["cosine"] - rows[-1]["cosine"] == pytest.approx(rows[0]["decline"], abs=1e-6)
    assert all(row["q25"] <= row["q75"] for row in rows)
    assert {(row["documents"], row["left_out"]) for row in rows} == {(8, 3)}


def test_the_room_leaves_out_documents_without_another() -> None:
    expected = (SIMILAR.cosines[1:] - SIMILAR.others[1:]).mean()
    assert tables.room(SIMILAR) == pytest.approx(float(expected))


def test_the_interval_of_the_median_start_holds_it() -> None:
    names = [str(number) for number in range(40)]
    texts = ["x" * 90 + " passage"] * 40
    collection = RetrievalSet(names, texts, names, ["?"] * 40, {one: {one: 1} for one in names})
    spans = {one: (2 * int(one), 2 * int(one) + 8) for one in names}
    row = tables.starts_row(Passages(collection, spans, {"no passage": 1, "two": 2}), (0, 50, 100))
    assert (row["passages"], row["left_out"], row["characters"]) == (40, 3, 39)
    assert row["q0"] == 0 < row["low"] < row["q50"] < row["high"] < row["q100"] < 1
    assert row["q50"] == pytest.approx(39 / 90)

"""The place that a passage was written at is told from what is asked, and from chance."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from biased_encoders import ALL, FIRST, Bag, marked_passages

from cde.data import RetrievalSet
from cde.models.encoder import load_tokenizer
from cde_studies.dwell.fresh import Probed
from cde_studies.dwell.natural_places import (
    LENGTHS,
    by_length,
    by_written_place,
    tables_of_scores,
    written_place,
)
from cde_studies.dwell.passages import Passages
from cde_studies.dwell.sensitivity import index_difference, index_share, position_sensitivity


def harder_late(passages: Passages) -> Passages:
    """The same, where questions about late passages are asked in words that no document has."""
    collection = passages.collection
    late = {query for query, (start, _) in passages.spans.items() if start >= 100}
    assert 5 < len(late) < 35
    asked = [
        "zebra crossing" if query in late else text
        for query, text in zip(collection.query_ids, collection.queries, strict=True)
    ]
    return replace(passages, collection=replace(collection, queries=asked))


def indices(kind: Any, passages: Passages) -> dict[str, Any]:
    probed = Probed(passages)
    tables = tables_of_scores(probed, passages, Bag(load_tokenizer("minilm"), kind[0]), False)
    return {
        name: position_sensitivity(table, owners, draws=100)
        for name, (table, owners) in tables.items()
    }


def test_harder_questions_are_no_sensitivity_to_the_place() -> None:
    """An encoder that reads all alike, and late answers that are asked for in other words."""
    found = indices(ALL, harder_late(marked_passages()))
    assert found["natural"].index > 0.7 and found["natural"].p < 0.05
    assert found["question"].index == pytest.approx(found["natural"].index)
    assert (found["moved"].index, found["moved"].p) == (0, 1)


def test_an_encoder_that_reads_the_beginning_loses_late_answers_by_their_place() -> None:
    passages = marked_passages()
    found = indices(FIRST, passages)
    groups = found["moved"].groups
    assert max(groups, key=groups.__getitem__) == 1 and found["moved"].p < 0.05
    # all passages of the toy are as easy: with their mean over places nothing is left but chance
    assert found["question"].p > 0.05 and found["question"].index < found["moved"].index / 2
    assert found["natural, all"].groups == found["natural"].groups


#: eighty documents of two questions each, the second of which has its answer at the end
OWNERS, LATE = np.repeat(np.arange(80), 2).tolist(), np.tile([False, True], 80)


def placed(scores: np.ndarray) -> pd.DataFrame:
    return by_written_place(pd.Series(scores), np.where(LATE, "end", "beginning").tolist())


def test_a_share_of_the_index_is_told_with_its_interval() -> None:
    generator = np.random.default_rng(0)
    covered = 0
    for _ in range(60):
        question = generator.normal(0.8, 0.08, 160) - 0.2 * LATE
        whole = question - generator.normal(0.2, 0.02, 160) * LATE
        share = index_share(placed(question), placed(whole), OWNERS, draws=200)
        covered += share.low <= 0.5 <= share.high
    assert covered >= 52


def test_the_difference_of_two_indices_is_covered_by_its_interval() -> None:
    generator = np.random.default_rng(0)
    covered = 0
    for _ in range(60):
        tables = [placed(generator.normal(0.8, 0.15, 160) - lost * LATE) for lost in (0.4, 0.2)]
        found = index_difference(*tables, (OWNERS, OWNERS), draws=200)
        covered += found.low <= 0.25 <= found.high  # 1 − 0.4/0.8 less 1 − 0.6/0.8
        assert found.low > 0
    assert covered >= 52


def test_groups_are_those_of_squad_posq_and_thirds() -> None:
    collection = RetrievalSet(["d"], ["x" * 1000], ["q"], ["?"], {"q": {"d": 1}})

    def group(start: int, thirds: bool) -> str:
        return written_place(Passages(collection, {"q": (start, start + 100)}, {}), "q", thirds)

    hundreds = {0: "0 to 99", 99: "0 to 99", 100: "100 to 199", 499: "400 to 499", 500: "500 on"}
    assert {start: group(start, False) for start in hundreds} == hundreds
    thirds = {0: "beginning", 299: "beginning", 300: "middle", 600: "end", 900: "end"}
    assert {start: group(start, True) for start in thirds} == thirds
    table = by_written_place(pd.Series([0.1, 0.2, 0.3]), ["end", "beginning", "end"])
    assert table.columns.tolist() == ["beginning", "end"]
    assert table.notna().sum(axis=1).tolist() == [1, 1, 1]
    assert table["end"].dropna().tolist() == [0.1, 0.3]


def test_among_documents_of_one_length_late_answers_are_not_charged_with_its_cost() -> None:
    """Late answers stand in long documents; only where the place itself counts is anything left."""
    generator = np.random.default_rng(0)
    lengths = generator.integers(200, 2000, 300)
    documents = ["x" * length for length in lengths]
    names = [str(number) for number in range(len(documents))]
    starts = (generator.random(len(documents)) * (lengths - 20)).astype(int)
    spans = {name: (int(start), int(start) + 20) for name, start in zip(names, starts, strict=True)}
    qrels = {name: {name: 1} for name in names}
    passages = Passages(RetrievalSet(names, documents, names, names, qrels), spans, {})
    by_size = pd.Series(1 - lengths / 2500 + generator.normal(0, 0.02, len(names)), names)
    written = [written_place(passages, name, False) for name in names]
    whole = position_sensitivity(by_written_place(by_size, written), names, draws=100)
    assert whole.index > 0.3 and whole.p < 0.05
    of_one_length = by_length(passages, by_size, names)
    assert list(of_one_length) == list(LENGTHS)
    for table, owners in of_one_length.values():
        assert len(owners) == 100
        assert position_sensitivity(table, owners, draws=100).index < whole.index / 4
    third = np.array([written_place(passages, name, True) for name in names])
    for table, owners in by_length(
        passages, pd.Series(np.where(third == "end", 0.5, 1.0), names), names
    ).values():
        assert position_sensitivity(table, owners, draws=100).index == pytest.approx(0.5)

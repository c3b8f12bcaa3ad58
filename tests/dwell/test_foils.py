"""Foils: they never hold the answer, and each bias that an encoder was built with shows in its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from biased_encoders import ALL, FIRST, Bag

from cde.data import RetrievalSet
from cde.lexical import BM25
from cde.models.encoder import load_tokenizer
from cde_studies.dwell.cures import source_of
from cde_studies.dwell.foils import FOILS, foil_rows, foils
from cde_studies.dwell.passages import Passages


@pytest.fixture(scope="module")
def questions() -> Passages:
    """The answering sentence shares three of a question's five words; its neighbour two."""
    words = [f"{a}{b}" for a in "bdfgklmnpr" for b in ("ab", "ed", "in", "ox", "um", "ale")]
    ids, documents, queries, spans, qrels = [], [], [], {}, {}
    for number in range(20):
        own = words[3 * number : 3 * number + 3]
        answer = f"It says {own[0]} {own[1]} {own[2]} by answer{number}."
        other = f"Then {own[0]} {own[1]} went far away."
        text = f"{answer} {other}"
        name, query = f"s{number}_0", f"q{number}"
        ids.append(name)
        documents.append(text)
        queries.append(f"{own[0]} {own[1]} {own[2]} what?")
        spans[query] = (text.index(answer), text.index(answer) + len(answer))
        qrels[query] = {name: 1}
    return Passages(RetrievalSet(ids, documents, list(spans), queries, qrels), spans, {})


def test_only_the_answer_has_the_answer(questions: Passages) -> None:
    made, left_out = foils(questions, source_of("toy"))
    assert (len(made), left_out) == (20, 0)
    for query, texts in made.items():
        mark = f"answer{query[1:]}."
        assert [kind for kind, text in texts.items() if mark in text] == ["answer"]
        words = {kind: len(text.split()) for kind, text in texts.items()}
        assert words["short"] < words["early"] / 4
        assert words["control"] == words["early"]
        asked = dict(zip(questions.collection.query_ids, questions.collection.queries, strict=True))
        assert texts["combined"].count(asked[query].rstrip("?").strip()) == 2
        assert asked[query].rstrip("?").strip() in texts["literal"]


def shares(encoder: Any, questions: Passages) -> dict[str, float]:
    rows = foil_rows(encoder, questions, source_of("toy"), model="toy")
    assert [row["foil"] for row in rows] == list(FOILS)
    return {row["foil"]: row["share"] for row in rows}


def test_each_bias_shows_where_it_was_built_in(questions: Passages) -> None:
    tokenizer = load_tokenizer("minilm")
    every = shares(Bag(tokenizer, ALL[0]), questions)
    assert every["control"] < 0.2
    assert every["early"] == pytest.approx(every["control"], abs=0.1), "a bag has no places"
    assert every["combined"] > 0.9
    first = shares(Bag(tokenizer, FIRST[0]), questions)
    assert first["early"] > 0.9 > first["control"]
    counting = shares(BM25(), questions)
    assert counting["early"] == counting["control"] < 0.2


def test_one_without_preferences_is_at_a_half(questions: Passages) -> None:
    class Even:
        def encode_queries(self, texts: list[str]) -> Any:
            return np.ones((len(texts), 1), np.float32)

        encode_documents = encode_queries

    assert set(shares(Even(), questions).values()) == {0.5}

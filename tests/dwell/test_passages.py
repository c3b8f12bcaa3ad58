"""Passages stand where they are said to stand, and what cannot be placed is counted."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from biased_encoders import text_of

from cde.data import RetrievalSet
from cde_studies.dwell.passages import (
    Passages,
    load_passages,
    match_passages,
    split_sections,
    texts_of,
)

DOCSTRING = """Long words first.

Parameters
----------
axis : int
    Along which the sum is taken, from left to right.

Returns
=======
The sum of all numbers along the axis.

Args:
    other: something else.
"""


def test_a_section_reaches_from_below_its_heading_to_the_next() -> None:
    sections = [DOCSTRING[start:end] for start, end in split_sections(DOCSTRING)]
    assert [section.split()[0] for section in sections] == ["axis", "The", "other:"]
    assert all("---" not in section and "===" not in section for section in sections)
    assert split_sections("no headings at all") == []


@pytest.fixture(scope="module")
def pydocs() -> Passages:
    return load_passages("pydocs", words=(200, 230))


def test_a_query_of_pydocs_is_not_in_its_document_and_its_passage_is(pydocs: Passages) -> None:
    texts = texts_of(pydocs.collection)
    assert len(pydocs.spans) > 100
    for query, text in zip(pydocs.collection.query_ids, pydocs.collection.queries, strict=True):
        document = texts[pydocs.document_of(query)]
        passage = text_of(pydocs, query)
        assert passage == passage.strip()
        assert len(passage.split()) >= 5
        start, _ = pydocs.spans[query]
        # the sentence stood directly before or inside the rest of its section; it is gone from
        # there
        assert " ".join(document[start : start + len(text)].split()) != text


@pytest.mark.parametrize("length", [1, 40, 80])
def test_passages_that_stand_anywhere_start_half_way_however_long_they_are(length: int) -> None:
    places = range(100 - length + 1)
    names = [str(place) for place in places]
    collection = RetrievalSet(
        ["d"], ["x" * 100], names, ["?"] * len(names), {name: {"d": 1} for name in names}
    )
    spans = {str(place): (place, place + length) for place in places}
    characters, shares = Passages(collection, spans, {}).starts()
    assert characters.tolist() == list(places)
    assert [shares[0], np.median(shares), shares[-1]] == pytest.approx([0, 0.5, 1])
    whole = Passages(collection, dict.fromkeys(names, (0, 100)), {})
    assert len(whole.starts()[1]) == 0, "a passage that fills its document has no place"


def test_documents_that_do_not_fit_are_gone_and_their_queries_counted(pydocs: Passages) -> None:
    long = int(np.median([len(text) for text in pydocs.collection.documents]))
    fitting = pydocs.within(lambda text: len(text) <= long, "too long")
    assert max(len(text) for text in fitting.collection.documents) <= long
    assert len(fitting.spans) + fitting.left_out["too long"] == len(pydocs.spans)
    assert all(text_of(fitting, query) == text_of(pydocs, query) for query in fitting.spans)
    kept = pydocs.within(lambda text: len(text) <= long, "too long", corpus=False)
    assert (kept.spans, kept.left_out) == (fitting.spans, fitting.left_out)
    assert kept.collection.documents == pydocs.collection.documents


def test_a_sample_keeps_the_corpus_and_each_passage(pydocs: Passages) -> None:
    some = pydocs.sample(20, seed=1)
    assert some.collection.documents == pydocs.collection.documents
    assert len(some.spans) == 20
    assert all(text_of(some, query) == text_of(pydocs, query) for query in some.spans)


def test_every_query_is_placed_or_counted() -> None:
    one, two = {"d1": 1}, {"d2": 1}
    qrels = {"a": one, "b": one, "c": two, "d": two, "e": one | two}
    texts = ["one  two\nthree two", "four"]
    collection = RetrievalSet(["d1", "d2"], texts, list(qrels), ["?"] * 5, qrels)
    placed = match_passages(collection, {"a": "one two", "b": "two", "c": "five", "e": "four"})
    assert placed.spans == {"a": (0, 7)}
    assert text_of(placed, "a") == "one two"
    assert placed.left_out == {
        "passage more than once in its document": 1,
        "passage not in its document": 1,
        "no passage given": 1,
        "not one relevant document": 1,
    }
    assert len(placed.spans) + sum(placed.left_out.values()) == len(collection.query_ids)


def write_set(
    folder: Path, documents: dict[str, str], qrels: dict[str, str], title: str = ""
) -> None:
    (folder / "qrels").mkdir(parents=True)
    lines = [
        json.dumps({"_id": name, "title": title, "text": text}) for name, text in documents.items()
    ]
    (folder / "corpus.jsonl").write_text("\n".join(lines))
    (folder / "queries.jsonl").write_text(
        "\n".join(json.dumps({"_id": q, "text": f"what {q}?"}) for q in qrels)
    )
    rows = [f"{query}\t{document}\t1" for query, document in qrels.items()]
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "\n".join(rows))


def test_the_passage_of_an_answer_is_its_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CDE_DATA", str(tmp_path))
    text = "It rained. The boat was red in 1973. It sank in 1973."
    folder = tmp_path / "beir" / "squad-dev"
    write_set(folder, {"d": text}, {"a": "d", "b": "d"})
    answers = {"a": [[text.index("red"), "red", 1]], "b": [[text.index("1973"), "1973", 2]]}
    rows = [f"{query}\td\t{len(text)}\t{json.dumps(places)}" for query, places in answers.items()]
    (folder / "positions.tsv").write_text(
        "query-id\tcorpus-id\tdoc_chars\tanswers\n" + "\n".join(rows)
    )
    placed = load_passages("beir/squad-dev")
    assert text_of(placed, "a") == "The boat was red in 1973."
    assert placed.left_out == {"answer more than once, or not at its offset": 1}


def test_the_passage_of_an_answer_in_a_paragraph_is_its_sentence_without_the_title(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # as COVID-QA has them: offsets are those of the article's text, the documents are its
    # paragraphs under its title
    monkeypatch.setenv("CDE_DATA", str(tmp_path))
    paragraphs = {
        "d_1": "Boats rust. They were red in 1973.",
        "d_2": "All sank, two of them twice. All but two rose.",
    }
    article = "  ".join(paragraphs.values())
    write_set(
        tmp_path / "beir" / "covidqa-docs",
        {"d": article},
        dict.fromkeys("abc", "d"),
        title="On boats",
    )
    folder = tmp_path / "beir" / "covidqa-passages"
    write_set(folder, paragraphs, {"a": "d_1", "b": "d_2", "c": "d_2"}, title="On boats")
    places = {"a": ("d_1", "Boats rust"), "b": ("d_2", "two of them "), "c": ("d_2", "All")}
    rows = [
        f"{query}\td\t{len(article)}\t{(start := article.index(answer))}"
        f"\t{start + len(answer)}\t{name}"
        for query, (name, answer) in places.items()
    ]
    header = "query-id\tcorpus-id\tdoc_chars\tanswer_start\tanswer_end\tpassage-id\n"
    (tmp_path / "beir" / "covidqa-docs" / "positions.tsv").write_text(header + "\n".join(rows))
    placed = load_passages("beir/covidqa-passages")
    assert text_of(placed, "a") == "Boats rust."
    assert text_of(placed, "b") == "All sank, two of them twice."
    assert placed.left_out == {"answer more than once, or not at its offset": 1}


def test_passages_of_one_set_are_placed_in_the_documents_of_another(tmp_path: Path) -> None:
    # as MS MARCO has them: two sets that ask the same queries, one judged on documents, one on
    # passages
    text = "It rained.  The boat was\nred in 1973. Then it sank, which nobody saw."
    write_set(
        tmp_path / "documents",
        {"d": text, "e": "Nothing."},
        {"a": "d", "b": "d", "c": "e", "only": "e"},
    )
    passages = {"1": "The boat was red in 1973.", "2": "It sailed away."}
    write_set(tmp_path / "passages", passages, {"a": "1", "b": "2", "other": "1"})
    placed = load_passages(f"folder:{tmp_path}/documents", answers=f"folder:{tmp_path}/passages")
    assert list(placed.spans) == ["a"]
    assert text_of(placed, "a") == "The boat was red in 1973."
    assert placed.left_out == {"passage not in its document": 1, "no passage given": 2}
    write_set(tmp_path / "strangers", {"1": "text"}, {"x": "1"})
    with pytest.raises(ValueError, match=r"no query id in common"):
        load_passages(f"folder:{tmp_path}/documents", answers=f"folder:{tmp_path}/strangers")

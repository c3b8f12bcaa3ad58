"""Joined paragraphs: each once, none too long, and every passage is the sentence that it was."""

from __future__ import annotations

from typing import Any

from biased_encoders import text_of
from hypothesis import given
from hypothesis import strategies as st

from cde.data import RetrievalSet
from cde_studies.dwell.longer_documents import join_paragraphs
from cde_studies.dwell.passages import Passages, texts_of

WORDS = ("red", "boats", "sail", "well", "in", "wind", "and", "rain")


def article_of(name: str) -> str:
    return name.rpartition("_")[0]


@st.composite
def articles(draw: Any) -> Passages:
    """Some articles with titles, their paragraphs of marked sentences, and a query for each."""
    ids, documents, qrels, spans = [], [], {}, {}
    for article in range(draw(st.integers(1, 4))):
        title = f"Title {article} "
        for number in range(draw(st.integers(1, 9))):
            before, after = (
                " ".join(draw(st.lists(st.sampled_from(WORDS), max_size=12))) for _ in range(2)
            )
            sentence = f"mark {article} {number} here."
            text = f"{title}p{number} {before} {sentence} {after}"
            name, query = f"{article}_{number}", f"q{article}.{number}"
            ids.append(name)
            documents.append(text)
            qrels[query] = {name: 1}
            spans[query] = (text.index(sentence), text.index(sentence) + len(sentence))
    asked = list(spans)
    return Passages(RetrievalSet(ids, documents, asked, ["?"] * len(asked), qrels), spans, {})


@given(articles(), st.integers(60, 300), st.integers(2, 8))
def test_every_paragraph_occurs_once_and_no_document_is_too_long(
    passages: Passages, longest: int, most: int
) -> None:
    def fits(text: str) -> bool:
        return len(text) <= longest

    short = {text for text in passages.collection.documents if fits(text)}
    try:
        joined = join_paragraphs(passages, article_of, fits, most)
    except ValueError as error:
        assert "no query is left" in str(error)
        return
    texts = joined.collection.documents
    assert all(fits(text) for text in texts)
    whole = "\n\n".join(texts)
    for query in passages.spans:
        sentence = text_of(passages, query)
        assert whole.count(sentence) == (_document(passages, query) in short)
        if query in joined.spans:
            assert text_of(joined, query) == sentence
            own = _document(joined, query)
            assert 2 <= own.count("mark ") <= most
            assert own.count("Title") == 1, "the title stands once"
    assert len(joined.spans) + sum(joined.left_out.values()) == len(passages.spans)


def _document(passages: Passages, query: str) -> str:
    return texts_of(passages.collection)[passages.document_of(query)]


def test_neighbours_stay_in_order_and_articles_apart() -> None:
    ids = ["a_0", "a_1", "a_2", "b_0", "b_1"]
    texts = ["A one.", "A two.", "A six.", "B ten.", "B top."]
    qrels = {name: {name: 1} for name in ids}
    spans = dict.fromkeys(ids, (2, 6))
    passages = Passages(RetrievalSet(ids, texts, ids, ["?"] * 5, qrels), spans, {"before": 1})
    joined = join_paragraphs(passages, article_of, lambda text: True, most=2)
    assert joined.collection.documents == ["A one.\n\ntwo.", "A six.", "B ten.\n\ntop."]
    assert [text_of(joined, name) for name in joined.spans] == ["one.", "two.", "ten.", "top."]
    assert joined.left_out == {"before": 1, "paragraph beside no neighbour": 1}


def test_a_passage_in_the_title_is_left_out_where_the_title_goes() -> None:
    texts = ["Red boats sail.", "Red boats sink."]
    collection = RetrievalSet(
        ["a_0", "a_1"], texts, ["q", "r"], ["?", "?"], {"q": {"a_0": 1}, "r": {"a_1": 1}}
    )
    joined = join_paragraphs(
        Passages(collection, {"q": (0, 9), "r": (0, 9)}, {}), article_of, lambda text: True
    )
    assert joined.spans == {"q": (0, 9)}
    assert joined.left_out == {"passage in the title": 1}

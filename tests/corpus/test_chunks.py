"""Long documents in passages: nothing is lost, everything is read."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tiny_encoders import bi_encoder, contextual

import cde
from cde import Index
from cde.corpus.chunks import Limit, limit_of, passages
from cde.retrieval import Encoder

#: marks at both ends, and a token for each word and each sign that is none, as BERT has them
SENTENCES = [
    "The budget was discussed. ",
    "Red boats lie still!\n",
    "無料。",
    "\n\n",
    "# Part\n",
    "x" * 9,
]
TEXTS = st.lists(st.sampled_from(SENTENCES) | st.text(max_size=12), max_size=30).map("".join)


@cache
def minilm_limit(tokens: int) -> Limit:
    found = limit_of(cde.Surrogate(max_tokens=tokens))
    assert found is not None and found.tokens == tokens
    return found


@given(TEXTS, st.integers(6, 40))
@example(SENTENCES[0] * 6, 8)
@example(SENTENCES[1] * 20, 40)
def test_passages_are_slices_within_the_limit_and_make_the_text(text: str, tokens: int) -> None:
    limit = minilm_limit(tokens)
    (found,) = passages([text], limit)
    end = 0
    for place, one in enumerate(found):
        assert text[one.start : one.start + len(one.text)] == one.text
        assert one.start <= end and (place == 0 or one.text), "no gap, nothing empty"
        assert one.start + len(one.text) > end or not text, "each goes on"
        end = one.start + len(one.text)
        assert limit.count([one.text])[0] <= tokens or len(one.text) == 1
    assert end == len(text)
    assert found[0].start == 0
    if limit.count([text])[0] <= tokens:
        assert len(found) == 1


def test_a_text_is_cut_where_its_author_cut_it() -> None:
    """Before headings, else between sentences, of which the last is said again."""
    text = "Intro here.\n\n# Boats\nRed ones float. Yes. Old ones sink.\n\n# Soup\nHot."
    (found,) = passages([text], minilm_limit(12))
    assert [(one.heading, one.text) for one in found] == [
        ("", "Intro here.\n\n"),
        ("Boats", "# Boats\nRed ones float. Yes. "),
        ("Boats", "Yes. Old ones sink.\n\n"),
        ("Soup", "# Soup\nHot."),
    ]
    (found,) = passages(["## C# ##\nOld ones sink. " * 3], minilm_limit(12))
    assert {one.heading for one in found} == {"C#"}


def test_what_stands_at_the_end_of_a_long_document_is_found() -> None:
    """MiniLM reads 256 tokens: the key stands behind 2,800 others."""
    fill = "The committee met and discussed the budget of the next year in detail. " * 200
    key = "The spare key of the boiler room hangs behind the fuse box."
    docs = {"minutes": fill + key, "a": "Red boats.", "b": "The room is booked."}
    query = "where is the spare key of the boiler room?"
    found = Index(docs).search(query)
    assert found["id"][0] == "minutes" and key in found["text"][0]
    assert sorted(found["id"]) == sorted(docs), "each document once"
    with pytest.warns(UserWarning, match="1 of 3 documents are longer than the 256 tokens"):
        index = Index(docs, on_long="warn")
    assert index.search(query)["id"][0] != "minutes"
    with pytest.raises(ValueError, match="are longer than the 256 tokens"):
        Index(docs, on_long="error")
    with pytest.raises(ValueError, match="on_long must be one of"):
        Index(docs, on_long="cut")  # type: ignore[arg-type]
    assert len(Index(docs, encoder=cde.BM25()).vectors) == len(docs), "BM25 reads all words"


def test_the_limit_of_every_encoder_is_known() -> None:
    prefix = {"document_prefix": "search_document: "}
    plain, prefixed = bi_encoder(), bi_encoder(**prefix)
    bound = contextual().with_context(None)
    for encoder in (plain, bound, cde.adapted(bound, ["a text", "another"], ["queries"])):
        limit = limit_of(encoder)
        assert limit is not None and limit.count(["a text"])[0] > 2
    own, less = limit_of(plain), limit_of(prefixed)
    assert own is not None and less is not None and less.tokens < own.tokens
    words = cde.Surrogate(max_tokens=16)
    assert limit_of(words.sentence_model) is not None and limit_of(cde.BM25()) is None
    words.sentence_model.prompts = {"passage": "passage: "}
    assert limit_of(words).tokens < 16, "what stands before documents takes room"  # type: ignore[union-attr]
    assert limit_of(object()) is None


def test_a_document_scores_as_its_best_passage() -> None:
    """Also where the passages of one fill the first places."""
    sentence = "Red boats lie in the harbour and wait for wind. "
    docs = {"long": sentence * 12, "b": "Boats are red.", "c": "Leek soup.", "d": "Red wine."}
    encoder: Encoder = cde.Surrogate(max_tokens=16)
    index = Index(docs, encoder=encoder)
    assert len(index.vectors) > 8
    found = index.search("red boats", depth=3)
    assert len(set(found["id"])) == 3
    scores = index.vectors @ encoder.encode_queries(["red boats"])[0]
    rows = index._read_rows().passages
    expected = {
        name: max(scores[place] for place, row in enumerate(rows) if row.id == name)
        for name in docs
    }
    for name, score in zip(found["id"], found["score"], strict=True):
        assert score == pytest.approx(expected[name], abs=1e-6)
    assert (
        found["score"].is_monotonic_decreasing
        and found["score"][2] >= sorted(expected.values())[1] - 1e-6
    )
    both = index.search("red boats", depth=4, words=True)
    assert sorted(both["id"]) == sorted(docs)

"""Long documents in chunks: what is joined stays findable, and what each way reads is what it says."""

from __future__ import annotations

import numpy as np
import pytest
from tiny_encoders import bi_encoder, without_layers

from cde.data import RetrievalSet
from cde_studies.collections import manuals
from cde_studies.dwell.passages import Passages, texts_of
from cde_studies.package import chunked_search, long_documents
from cde_studies.package.late_chunks import encode_chunks

CHUNKS = ["red boats", "scarlet ships", "a green house", "soup with leeks", "the sea", "tides"]


@pytest.fixture(scope="module")
def joined() -> Passages:
    return long_documents._joined("aws/sqs")


def test_a_joined_manual_holds_each_description_where_its_query_says(joined: Passages) -> None:
    pairs = manuals.load_pairs(["aws/sqs"])
    described = dict(zip(pairs.ids, pairs.documents, strict=True))
    texts = texts_of(joined.collection)
    assert len(joined.spans) > 100
    for query, (start, end) in joined.spans.items():
        assert texts[joined.document_of(query)][start:end] == described[query]


def test_a_joined_document_is_as_long_as_it_is_said_to_be(joined: Passages) -> None:
    drawn = long_documents._long(joined, documents=5, queries=30, seed=0)
    counts = long_documents.tokens_of(drawn.collection.documents)
    assert len(counts) == 5
    assert min(counts) >= long_documents.SHORTEST and max(counts) <= long_documents.LONGEST
    assert {drawn.document_of(one) for one in drawn.collection.query_ids} <= set(
        drawn.collection.document_ids
    )


def test_tokens_of_what_is_joined_are_those_of_its_parts() -> None:
    texts = manuals.load_pairs(["aws/sqs"]).documents[:20]
    (whole,) = long_documents.tokens_of(["\n\n".join(texts)])
    assert whole == 2 + sum(map(long_documents._inner_tokens, texts))


@pytest.mark.parametrize("length", [1, 21, 22, 23, 40, 41, 42, 43, 200])
def test_the_tokens_of_windows_are_those_that_are_read(length: int) -> None:
    model = bi_encoder(max_tokens=24)
    text = " ".join("a" * length)
    read = model.tokenizer(
        [text], truncation=True, max_length=24, stride=22 // 8, return_overflowing_tokens=True
    )["input_ids"]
    assert chunked_search._in_windows([length + 2], model) == sum(map(len, read))


def test_elsewhere_a_chunk_is_the_same_text_among_others() -> None:
    """An encoder that reads no surroundings cannot tell; one that does, can."""
    blind, sizes, generator = without_layers(), [2, 4], np.random.default_rng(0)
    # between two others, so that no mark belongs to it
    plain = [
        encode_chunks(blind, [f"x {chunk} x"], [[(2, 2 + len(chunk))]])[0][0] for chunk in CHUNKS
    ]
    with_marks = blind.encode_documents(CHUNKS)
    found, _, _ = chunked_search._elsewhere(CHUNKS, sizes, blind, generator)
    nearest = (found @ np.stack([*plain, *with_marks]).T).argmax(axis=1) % len(CHUNKS)
    assert nearest.tolist() == list(range(len(CHUNKS)))
    seeing = bi_encoder()
    moved, _, _ = chunked_search._elsewhere(CHUNKS, sizes, seeing, np.random.default_rng(0))
    assert (moved * seeing.encode_documents(CHUNKS)).sum(axis=1).max() < 0.999


def test_what_stands_behind_the_cut_is_found_in_chunks_alone() -> None:
    """Documents that begin alike: their beginnings do not tell which of them answers."""
    ends = {"tea": "Green tea has leaves.", "sea": "The sea has tides.", "car": "A car has wheels."}
    beginning = "This is a page of the great book of things. " * 4
    documents = [beginning + end for end in ends.values()]
    queries = ["leaves of green tea", "tides of the sea", "wheels of a car"]
    qrels = {query: {name: 1} for query, name in zip(queries, ends, strict=True)}
    collection = RetrievalSet(list(ends), documents, queries, queries, qrels)
    places = [(len(beginning), len(document)) for document in documents]
    spans = dict(zip(queries, places, strict=True))
    rows = chunked_search.search_in_chunks([Passages(collection, spans, {})], cuts=(16, 32))
    assert set(rows["place"]) == {"anywhere", "end"}
    ndcg = rows[(rows["place"] == "end") & (rows["directions"] == "none")].set_index("way")["ndcg"]
    for way in ("chunks", "late chunks", "read whole"):
        assert ndcg[way] == 1, way
    for way in ("cut at 16", "cut at 32", "chunks of the beginning"):
        assert ndcg[way] < 1, way

"""Moved passages (Dwell §4.2), for anything that encodes texts, ours or a Hub's.

A document's tokens without the passage are R. The passage P is put before token
`round(k |R| / 9)` of them, k = 0 … 9. Where that token begins no word, the nearest one that does
takes its place, since a cut word would be other tokens. The whole collection is searched each time;
of the query's own document the moved version counts, all others are unchanged. (A ranker without
vectors needs whole corpora: there the documents of other queries are moved as well, as in the
paper.) A bag of words cannot tell the versions apart: BM25 is the control.

A moved document must have the document's tokens, with the passage's in one piece. Texts for which a
tokenizer does not give that are left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from cde.data import RetrievalSet
from cde.progress import progress
from cde.retrieval import Encoder, Ranker, score_queries, search
from cde.validation import encoded
from cde_studies.dwell.passages import Passages, Span, texts_of
from cde_studies.dwell.substrings import begins_word, leading_blank, token_spans, whole_words

#: places that a passage is moved to, from the first to the last
PLACES = 10


def move_passage(text: str, passage: Span, tokenizer: Any) -> list[str]:
    """The document with its passage at each place; an empty list if one of them does not have the
    document's tokens with the passage's in one piece: the tokenizer does not round-trip.
    """
    start, end = whole_words(text, *passage)
    moved = " ".join(text[start:end].split())
    rest = " ".join([*text[:start].split(), *text[end:].split()])
    lead = leading_blank(moved, tokenizer)
    moved, rest = lead + moved, lead + rest
    passage_ids, _ = token_spans(moved, tokenizer)
    rest_ids, places = token_spans(rest, tokenizer)
    whole, _ = token_spans(lead + " ".join(text.split()), tokenizer)
    if not len(places) or Counter(whole) != Counter(rest_ids + passage_ids):
        return []
    words = [number for number, (begin, _) in enumerate(places) if begins_word(rest, begin)]
    words.append(len(places))
    versions = []
    for place in range(PLACES):
        wanted = round(place * len(places) / (PLACES - 1))
        cut = min(words, key=lambda word: (abs(word - wanted), word))
        at = len(rest) if cut == len(places) else int(places[cut][0])
        parts = (rest[:at].strip(), moved.strip(), rest[at:].strip())
        version = lead + " ".join(part for part in parts if part)
        if token_spans(version, tokenizer)[0] != rest_ids[:cut] + passage_ids + rest_ids[cut:]:
            return []
        versions.append(version)
    return versions


def moved_versions(passages: Passages, tokenizer: Any) -> dict[str, list[str]]:
    """Each query's document as it is and with the passage at each place, with one blank for white
    space; without the queries whose documents would have other tokens.
    """
    collection = passages.collection
    texts = texts_of(collection)
    versions: dict[str, list[str]] = {}
    for query in progress(collection.query_ids, "moving passages", unit="queries"):
        text = texts[passages.document_of(query)]
        made = move_passage(text, passages.spans[query], tokenizer)
        if made:
            versions[query] = [" " * made[0].startswith(" ") + " ".join(text.split()), *made]
    if not versions:
        raise ValueError("no query is left: the tokens change wherever its passage is moved")
    return versions


def scores_by_place(
    encoder: Encoder | Ranker,
    passages: Passages,
    versions: Mapping[str, Sequence[str]],
    metrics: Sequence[str] = ("ndcg@10", "mrr@100"),
) -> dict[str, pd.DataFrame]:
    """Score each query with every version of its document; the other documents stay as they are.
    For each metric a table: a row for each query, `default`, and a column 1 … for the places.
    """
    asked = [query for query in passages.collection.query_ids if query in versions]
    collection = passages.collection.asking(asked)
    owners = {query: passages.document_of(query) for query in asked}
    places = len(next(iter(versions.values())))
    depth = max(int(metric.partition("@")[2]) for metric in metrics)
    score = _encoder_rankings if isinstance(encoder, Encoder) else _ranker_rankings
    tables: dict[str, dict[int | str, pd.Series[float]]] = {metric: {} for metric in metrics}
    every = score(encoder, collection, owners, versions, depth)  # type: ignore[arg-type]
    for place, rankings in enumerate(progress(every, "searching", unit="places", total=places)):
        scores = score_queries(rankings, collection, tuple(metrics), False)
        for metric in metrics:
            tables[metric]["default" if place == 0 else place] = scores[metric]
    return {metric: pd.DataFrame(table) for metric, table in tables.items()}


def _encoder_rankings(
    encoder: Encoder,
    collection: RetrievalSet,
    owners: Mapping[str, str],
    versions: Mapping[str, Sequence[str]],
    depth: int,
) -> Iterator[dict[str, dict[str, float]]]:
    """For each place, rankings with each query's own document in that version."""
    queries = encoded(encoder, collection.queries, "queries")
    documents = encoded(encoder, collection.documents, "documents", queries.shape[1])
    scores, places = search(queries, documents, depth + 1)
    names = np.asarray(collection.document_ids, dtype=object)
    found = {
        query: dict(zip(names[where], row.tolist(), strict=True))
        for query, row, where in zip(owners, scores, places, strict=True)
    }
    for place in range(len(next(iter(versions.values())))):
        own = encoded(encoder, [versions[query][place] for query in owners], "documents")
        values = np.einsum("qd,qd->q", queries, own)
        yield {
            query: {**found[query], owner: float(value)}
            for (query, owner), value in zip(owners.items(), values, strict=True)
        }


def _ranker_rankings(
    ranker: Ranker,
    collection: RetrievalSet,
    owners: Mapping[str, str],
    versions: Mapping[str, Sequence[str]],
    depth: int,
) -> Iterator[dict[str, dict[str, float]]]:
    """The same for a ranker, which needs whole corpora; queries of other documents share one."""
    rounds: list[dict[str, str]] = []  # document → query
    for query, owner in owners.items():
        free = next((one for one in rounds if owner not in one), None)
        if free is None:
            rounds.append(free := {})
        free[owner] = query
    for place in range(len(next(iter(versions.values())))):
        rankings: dict[str, dict[str, float]] = {}
        for asking in rounds:
            texts = [
                versions[asking[name]][place] if name in asking else text
                for name, text in zip(collection.document_ids, collection.documents, strict=True)
            ]
            some = replace(collection.asking(list(asking.values())), documents=texts)
            rankings |= {query: dict(one) for query, one in ranker.rank(some, depth).items()}
        yield rankings

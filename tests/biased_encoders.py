"""Encoders that read a part of a text alone, and documents to probe them with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cde.data import RetrievalSet
from cde_studies.dwell.passages import Passages, texts_of
from cde_studies.dwell.substrings import token_spans

SEEN = 8  # tokens that the biased encoders read


class Bag:
    """Bags of those tokens of a text that `chosen` keeps, as unit vectors."""

    def __init__(self, tokenizer: Any, chosen: Callable[[list[int]], list[int]]) -> None:
        self.tokenizer, self.chosen = tokenizer, chosen

    def encode_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return self._encode(texts, lambda ids: ids)

    def encode_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return self._encode(texts, self.chosen)

    def _encode(
        self, texts: Sequence[str], chosen: Callable[[list[int]], list[int]]
    ) -> NDArray[np.float32]:
        rows = np.zeros((len(texts), 30522), np.float32)
        for row, text in zip(rows, texts, strict=True):
            np.add.at(row, chosen(token_spans(text, self.tokenizer)[0]), 1)
        return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)


FIRST = (lambda ids: ids[:SEEN], "first")
ALL = (lambda ids: ids, "all")
LAST = (lambda ids: ids[-SEEN:], "last")


def text_of(passages: Passages, query: str) -> str:
    """The passage of a query."""
    start, end = passages.spans[query]
    return texts_of(passages.collection)[passages.document_of(query)][start:end]


def marked_passages() -> Passages:
    """40 documents of 100 common words, each with a passage of four that only it has."""
    generator = np.random.default_rng(0)
    stock = [f"{word} " for word in "abcdefghijklmnopqrst"]
    rare = [
        f"{a}{b}" for a in "bcdfghjklm" for b in ("at", "en", "ig", "op", "un", "ale", "ick", "ost")
    ]
    documents, spans, queries = [], {}, []
    for number in range(40):
        head, tail = (
            "".join(generator.choice(stock, size)) for size in generator.permutation([30, 70])
        )
        phrase = " ".join([rare[2 * number], rare[2 * number + 1]] * 2)
        spans[f"q{number}"] = (len(head), len(head) + len(phrase))
        documents.append(f"{head}{phrase} {tail}".strip())
        queries.append(phrase)
    ids = [f"d{number}" for number in range(40)]
    names = list(spans)
    qrels = {query: {document: 1} for query, document in zip(names, ids, strict=True)}
    return Passages(RetrievalSet(ids, documents, names, queries, qrels), spans, {"elsewhere": 3})

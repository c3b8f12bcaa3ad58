"""BM25: ranking by the words that a query and a document have in common.

Terms are words of two characters or more, whatever their case or form in Unicode (NFKC and case
folding), stop words dropped, stemmed (English Snowball). A query that has none, such as "C++" or
"to be or not to be", is searched by all its words. Chinese, Japanese, Thai, Lao, Khmer and Burmese
write no spaces between words, and Korean words end in particles: such runs are cut into pairs of
neighbouring characters, and single ideographs beside them.

Cost: one pass over the texts, about 20,000 short documents a second; a second index of all words at
the first query that asks for one.
"""

from __future__ import annotations

import itertools
import os
import re
import unicodedata
from collections.abc import Sequence
from typing import Any

# bm25s tries JAX where it is installed, which would take three quarters of a GPU's memory at once
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import bm25s
import Stemmer
from bm25s.stopwords import STOPWORDS_EN

from cde.data import RetrievalSet
from cde.progress import progress
from cde.validation import checked_number, checked_texts, checked_whole

__all__ = ["BM25", "split_into_terms"]

_PORTION = 256  # queries between two steps of the progress bar
_IDEOGRAPHS = "\u3005\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_KANA = "\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff\uff66-\uff9f"
_SOUTH_EAST = "\u0e01-\u0e4e\u0e81-\u0edf\u1000-\u103f\u1050-\u109f\u1780-\u17d3\uaa60-\uaa7f"
_RUN = re.compile(f"[{_IDEOGRAPHS}{_KANA}{_SOUTH_EAST}\uac00-\ud7a3]+")
_IDEOGRAPH = re.compile(f"[{_IDEOGRAPHS}]")
#: soft hyphens, joiners and marks of emoji, which are not seen
_UNSEEN = re.compile("[\u00ad\u200c\u200d\u2060\ufeff\ufe00-\ufe0f]+")


def _pairs_of(run: str) -> list[str]:
    """Pairs of neighbouring characters of a run, and its ideographs."""
    letters: list[str] = []
    for one in run:
        # vowel signs and tone marks are written upon the consonant before them, and stay with it
        if letters and unicodedata.category(one) in ("Mn", "Mc"):
            letters[-1] += one
        else:
            letters.append(one)
    pairs = [first + second for first, second in itertools.pairwise(letters)]
    return (pairs or letters) + (_IDEOGRAPH.findall(run) if pairs else [])


def _words_of(text: str, least: int) -> list[str]:
    if text.isascii():
        return re.findall(rf"\w{{{least},}}", text.lower())
    text = unicodedata.normalize("NFKC", _UNSEEN.sub("", text)).casefold()
    text = unicodedata.normalize("NFKC", text)
    runs, spaced = _RUN.findall(text), _RUN.sub(" ", text)
    # vowel signs and accents belong to words, and are not characters of words to `re`
    marks = "".join(sorted(one for one in set(spaced) if unicodedata.category(one)[0] == "M"))
    words = re.findall(rf"[\w{marks}]{{{least},}}", spaced)
    return words + [pair for run in runs for pair in _pairs_of(run)]


def split_into_terms(texts: Sequence[str], every: bool = False) -> bm25s.tokenization.Tokenized:
    """Each text as numbers of its terms, and the terms themselves: `ids` and `vocab`.

    Args:
        texts: to be split.
        every: keep stop words and words of one character too.

    Example:
        >>> split_into_terms(["The red boats", "Boat", "to be"]).ids
        [[0, 1], [1], []]
    """
    left_out = frozenset(() if every else STOPWORDS_EN)
    numbers: dict[str, int] = {}
    rows: list[list[int]] = []
    for text in progress(list(texts), f"splitting {len(texts):,} texts into words", unit="texts"):
        words = _words_of(text, 1 if every else 2)
        rows.append([numbers.setdefault(w, len(numbers)) for w in words if w not in left_out])
    vocabulary: dict[str, int] = {}
    stems = Stemmer.Stemmer("english").stemWords(list(numbers))
    term = [vocabulary.setdefault(stem, len(vocabulary)) for stem in stems]
    ids = [[term[number] for number in row] for row in rows]
    return bm25s.tokenization.Tokenized(ids=ids, vocab=vocabulary)


class BM25:
    """BM25 over a corpus, through bm25s, with the settings of Anserini's BEIR runs by default.

    `score(q, d) = Σ_{t ∈ q} IDF(t) · tf / (tf + k1 · (1 − b + b · |d| / mean |d|))`, with Lucene's
    IDF.

    Args:
        documents: the corpus.
        k1, b: saturation of term frequency, and strength of length normalisation.

    Raises:
        TypeError: documents that are not strings.
        ValueError: k1 below 0, or b that is not from 0 to 1.

    Example:
        >>> ranker = BM25(["red boats", "a green house"])
        >>> ranker
        BM25(k1=0.9, b=0.4; 2 documents)
        >>> ranker.search(["green"], depth=1)
        [{1: 0.36...}]
        >>> list(BM25(["赤い船が港にある", "ねぎとじゃがいも"]).search(["赤い船"])[0])
        [0]
    """

    name = "BM25"

    def __init__(self, documents: Sequence[str] = (), k1: float = 0.9, b: float = 0.4) -> None:
        documents = checked_texts(documents, "documents")
        k1, b = checked_number(k1, "k1"), checked_number(b, "b")
        if k1 < 0 or not 0 <= b <= 1:
            raise ValueError(f"k1 must be 0 or more, and b must be 0 to 1; they are {k1} and {b}")
        self.k1, self.b = k1, b
        self._documents = documents
        self._indexes: dict[bool, Any] = {}
        self._size = len(documents) if self._index(False) else 0

    def _index(self, every: bool) -> Any:
        """The index of ordinary terms, or of all words, made when it is asked for."""
        if every not in self._indexes:
            tokens = split_into_terms(self._documents, every)
            made = None  # bm25s cannot index a corpus without a single term
            if any(tokens.ids):
                made = bm25s.BM25(method="lucene", k1=self.k1, b=self.b)
                made.index(tokens, show_progress=False)
            self._indexes[every] = made
        return self._indexes[every]

    def __repr__(self) -> str:
        over = f"; {self._size:,} documents" if self._size else ""
        return f"BM25(k1={self.k1}, b={self.b}{over})"

    def search(self, queries: Sequence[str], depth: int = 1000) -> list[dict[int, float]]:
        """Per query, the positions of the best documents and their scores above 0."""
        queries, depth = checked_texts(queries, "queries"), checked_whole(depth, "depth")
        found: list[dict[int, float]] = [{} for _ in queries]
        rows = list(range(len(queries)))
        for every in (False, True):
            asked = split_into_terms([queries[row] for row in rows], every)
            known = [place for place, ids in enumerate(asked.ids) if ids]
            index: Any = self._index(every) if known else None
            starts = range(0, len(known) if index else 0, _PORTION)
            for start in progress(starts, f"BM25: {len(known):,} queries", unit="portions"):
                places = known[start : start + _PORTION]
                part = asked._replace(ids=[asked.ids[place] for place in places])
                best = index.retrieve(part, k=min(depth, len(self._documents)), show_progress=False)
                for place, documents, scores in zip(places, *best, strict=True):
                    pairs = zip(documents.tolist(), scores.tolist(), strict=True)
                    found[rows[place]] = {document: score for document, score in pairs if score > 0}
            rows = [row for row, ids in zip(rows, asked.ids, strict=True) if not ids]
        return found

    def rank(self, retrieval_set: RetrievalSet, depth: int = 1000) -> dict[str, dict[str, float]]:
        """Rank a retrieval set's own corpus: query id → document id → score. (Indexes it anew.)"""
        ranker = BM25(retrieval_set.documents, self.k1, self.b)
        found = ranker.search(retrieval_set.queries, depth)
        ids = retrieval_set.document_ids
        return {
            query: {ids[position]: score for position, score in scores.items()}
            for query, scores in zip(retrieval_set.query_ids, found, strict=True)
        }

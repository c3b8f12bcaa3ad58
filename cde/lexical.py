"""BM25: ranking by the words that a query and a document have in common.

Terms are lower-cased words, stop words dropped, stemmed (English Snowball), as BM25 sees them.

Chinese, Japanese, Thai, Lao, Khmer and Burmese write no spaces between words, so that a sentence
would be one word. Where a corpus is written so, `BM25` cuts such runs into pairs of neighbouring
characters, and single ideographs beside them, as search engines do that have no dictionary. The
rest of the text is split as ever.

Cost: one pass over the texts, about 20,000 short documents a second.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Literal, get_args

import bm25s
import Stemmer

from cde.data import RetrievalSet
from cde.progress import progress
from cde.validation import checked_number, checked_texts, checked_whole, shown

__all__ = ["BM25", "Unspaced", "split_into_terms"]

#: how BM25 splits runs of characters that have no spaces between words
Unspaced = Literal["auto", "pairs", "whole"]
_PORTION = 256  # queries between two steps of the progress bar
#: of the characters of a corpus, where "auto" takes pairs: names in English text stay far below
_UNSPACED_SHARE = 0.01
_IDEOGRAPHS = "\u3005\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_KANA = "\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff\uff66-\uff9f"
_SOUTH_EAST = "\u0e01-\u0e4e\u0e81-\u0edf\u1000-\u103f\u1050-\u109f\u1780-\u17d3\uaa60-\uaa7f"
_RUN = re.compile(f"[{_IDEOGRAPHS}{_KANA}{_SOUTH_EAST}]+")
_IDEOGRAPH = re.compile(f"[{_IDEOGRAPHS}]")


def _unspaced_share(texts: Sequence[str]) -> float:
    """Which part of the characters belongs to writing without spaces."""
    total = sum(map(len, texts))
    found = sum(len(run) for text in texts if not text.isascii() for run in _RUN.findall(text))
    return found / total if total else 0.0


def _pairs_of(run: str) -> list[str]:
    """Pairs of neighbouring characters of a run, and its ideographs.

    Vowel signs and tone marks are written upon the consonant before them, and stay with it.
    """
    letters: list[str] = []
    for one in run:
        if letters and unicodedata.category(one) in ("Mn", "Mc"):
            letters[-1] += one
        else:
            letters.append(one)
    pairs = [first + second for first, second in itertools.pairwise(letters)]
    return (pairs or letters) + (_IDEOGRAPH.findall(run) if pairs else [])


def _tokenize_unspaced(texts: Sequence[str]) -> bm25s.tokenization.Tokenized:
    """As `split_into_terms`, runs of writing without spaces cut into pairs of characters."""
    # letters of half and full width are other ways of writing the same
    texts = [text if text.isascii() else unicodedata.normalize("NFKC", text) for text in texts]
    cut = [[pair for run in _RUN.findall(text) for pair in _pairs_of(run)] for text in texts]
    spaced = split_into_terms([_RUN.sub(" ", text) for text in texts])
    vocabulary = dict(spaced.vocab)
    ids = [
        [*words, *(vocabulary.setdefault(pair, len(vocabulary)) for pair in pairs)]
        for words, pairs in zip(spaced.ids, cut, strict=True)
    ]
    return bm25s.tokenization.Tokenized(ids=ids, vocab=vocabulary)


def split_into_terms(texts: Sequence[str]) -> bm25s.tokenization.Tokenized:
    """Each text as numbers of its terms, and the terms themselves: `ids` and `vocab`."""
    stemmer = Stemmer.Stemmer("english")
    texts = list(texts)
    shown = progress(texts, f"splitting {len(texts):,} texts into words", unit="texts")
    return bm25s.tokenize(
        shown, stopwords="en", stemmer=stemmer, show_progress=False, allow_empty=True
    )


class BM25:
    """BM25 over a corpus, through bm25s, with the settings of Anserini's BEIR runs by default.

    `score(q, d) = Σ_{t ∈ q} IDF(t) · tf / (tf + k1 · (1 − b + b · |d| / mean |d|))`, with Lucene's
    IDF.

    Args:
        documents: the corpus.
        k1, b: saturation of term frequency, and strength of length normalisation.
        unspaced: "pairs" cuts runs of Chinese, Japanese, Thai and the like into pairs of
            characters; "whole" leaves them, as words; "auto" takes pairs where at least a hundredth
            of the corpus' characters are of such runs.

    Raises:
        TypeError: documents that are no strings.
        ValueError: another `unspaced`.

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

    def __init__(
        self,
        documents: Sequence[str] = (),
        k1: float = 0.9,
        b: float = 0.4,
        unspaced: Unspaced = "auto",
    ) -> None:
        documents = checked_texts(documents, "documents")
        if not isinstance(unspaced, str) or unspaced not in get_args(Unspaced):
            raise ValueError(
                f"unspaced must be one of {get_args(Unspaced)}; it is {shown(unspaced)}"
            )
        if checked_number(k1, "k1") < 0 or not 0 <= checked_number(b, "b") <= 1:
            raise ValueError(f"k1 must be 0 or more, and b must be 0 to 1; they are {k1} and {b}")
        self.k1, self.b, self.unspaced = k1, b, unspaced
        self._index = bm25s.BM25(method="lucene", k1=k1, b=b)
        pairs = unspaced == "pairs" or (
            unspaced == "auto" and _unspaced_share(documents) >= _UNSPACED_SHARE
        )
        self._split = _tokenize_unspaced if pairs else split_into_terms
        tokens = self._split(documents)
        # bm25s cannot index a corpus without a single term; nothing is found in one
        self._size = len(documents) if any(map(len, tokens.ids)) else 0
        if self._size:
            self._index.index(tokens, show_progress=False)

    def __repr__(self) -> str:
        over = f"; {self._size:,} documents" if self._size else ""
        return f"BM25(k1={self.k1}, b={self.b}{over})"

    def search(self, queries: Sequence[str], depth: int = 1000) -> list[dict[int, float]]:
        """Per query, the positions of the best documents and their scores; only documents with a
        score above 0.

        Raises:
            TypeError: one string in place of a list.
            ValueError: a depth below 1.
        """
        queries, depth = checked_texts(queries, "queries"), checked_whole(depth, "depth")
        if not self._size or not queries:
            return [{} for _ in queries]
        depth = min(depth, self._size)
        asked, found = self._split(queries), []
        starts = range(0, len(queries), _PORTION)
        for start in progress(starts, f"BM25: {len(queries):,} queries", unit="portions"):
            some = asked._replace(ids=asked.ids[start : start + _PORTION])
            positions, scores = self._index.retrieve(some, k=depth, show_progress=False)
            for row, values in zip(positions, scores, strict=True):
                pairs = zip(row.tolist(), values.tolist(), strict=True)
                found.append({document: score for document, score in pairs if score > 0})
        return found

    def rank(
        self, retrieval_set: RetrievalSet, depth: int = 1000
    ) -> Mapping[str, Mapping[str, float]]:
        """Rank a retrieval set's own corpus: query id → document id → score. (Indexes it anew.)"""
        ranker = BM25(retrieval_set.documents, self.k1, self.b, self.unspaced)
        ids = retrieval_set.document_ids
        return {
            query: {ids[position]: score for position, score in scores.items()}
            for query, scores in zip(
                retrieval_set.query_ids, ranker.search(retrieval_set.queries, depth), strict=True
            )
        }

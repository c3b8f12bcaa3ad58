"""What word counts say: IDF, the distance between two corpora in IDF, BM25, and tf-idf vectors.

Terms are lower-cased words, stop words dropped, stemmed (English Snowball), as BM25 sees them.

Chinese, Japanese, Thai, Lao, Khmer and Burmese write no spaces between words, so that a sentence
would be one word. Where a corpus is written so, `BM25` cuts such runs into pairs of neighbouring
characters, and single ideographs beside them, as search engines do that have no dictionary. The
rest of the text is split as ever.

The IDF of a term t in a corpus of N documents, df of which hold it, is ln((N + 1) / (df + 1)). So a
term that a corpus lacks has ln(N + 1), its largest value.

CDE §10.2 plots an "IDF distance" that reaches 1.2e7 and gives no formula. `idf_divergence` offers
three, and the chapter `idf_divergence` shows how far the paper's claim depends on the choice:

- `expected` (ours): the mean of `|IDF_test − IDF_train|` over the terms of the test corpus, each
  weighted by how many test documents hold it. It asks how wrong a term weight learned in training
  is, for a word met in the test corpus, and does not grow with the size of the vocabulary.
- `sum`: the sum of `|IDF_test − IDF_train|` over the union of both vocabularies. Only an
  unnormalised sum over millions of terms can reach the paper's axis; it mostly counts vocabulary.
- `shared`: the root mean square of the difference over terms that both corpora hold.

`sparse_vectors` is a surrogate without a pretrained model (CDE §4.1, "Cluster Embeddings"): the
paper tried a sparse representation and a dense one, and settled on the latter. A sparse one is
reduced to dense vectors here, so that everything that takes a surrogate's vectors takes these.

Cost: one pass over the texts, about 20,000 short documents a second; for vectors also a randomised
SVD of about 10 · (non-zeros) · dim multiply-adds.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Literal, get_args

import bm25s
import numpy as np
import pandas as pd
import Stemmer
from numpy.typing import NDArray

from cde.data import RetrievalSet
from cde.progress import progress
from cde.validation import checked_number, checked_texts, checked_whole, shown

__all__ = [
    "BM25",
    "Divergence",
    "Unspaced",
    "document_frequencies",
    "idf_divergence",
    "sparse_vectors",
]

Vectors = NDArray[np.float32]
#: formulas of `idf_divergence`
Divergence = Literal["expected", "sum", "shared"]
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
    """As `_tokenize`, runs of writing without spaces cut into pairs of characters."""
    # letters of half and full width are other ways of writing the same
    texts = [text if text.isascii() else unicodedata.normalize("NFKC", text) for text in texts]
    cut = [[pair for run in _RUN.findall(text) for pair in _pairs_of(run)] for text in texts]
    spaced = _tokenize([_RUN.sub(" ", text) for text in texts])
    vocabulary = dict(spaced.vocab)
    ids = [
        [*words, *(vocabulary.setdefault(pair, len(vocabulary)) for pair in pairs)]
        for words, pairs in zip(spaced.ids, cut, strict=True)
    ]
    return bm25s.tokenization.Tokenized(ids=ids, vocab=vocabulary)


def _tokenize(texts: Sequence[str]) -> bm25s.tokenization.Tokenized:
    stemmer = Stemmer.Stemmer("english")
    texts = list(texts)
    shown = progress(texts, f"splitting {len(texts):,} texts into words", unit="texts")
    return bm25s.tokenize(
        shown, stopwords="en", stemmer=stemmer, show_progress=False, allow_empty=True
    )


def document_frequencies(texts: Sequence[str]) -> pd.Series[int]:
    """How many of the texts hold each term.

    Returns:
        A series of counts (int64), indexed by term, in alphabetical order.

    Example:
        >>> document_frequencies(["red boats", "a red house"])["red"].item()
        2
    """
    tokens = _tokenize(texts)
    counts = np.zeros(len(tokens.vocab), np.int64)
    for ids in tokens.ids:
        counts[np.unique(np.asarray(ids, dtype=np.int64))] += 1
    terms = sorted(tokens.vocab, key=tokens.vocab.__getitem__)
    return pd.Series(counts, index=terms, dtype="int64").loc[lambda count: count > 0].sort_index()


def idf_divergence(
    test: Sequence[str], training: Sequence[str], measure: Divergence = "expected"
) -> float:
    """How far the IDF of a test corpus is from that of a training corpus (CDE §10.2 i, Fig. 8).

    Args:
        test, training: the documents of the two corpora.
        measure: "expected", "sum" or "shared"; see the module's docstring.

    Returns:
        A distance, 0 or more; 0 for a corpus against itself. In nats, for "sum" in nats times
        terms.

    Raises:
        ValueError: an unknown measure, or a corpus without terms.

    Example:
        >>> idf_divergence(["red boats"], ["red boats"])
        0.0
    """
    if measure not in get_args(Divergence):
        raise ValueError(f"measure must be one of {get_args(Divergence)}; it is {measure!r}")
    return idf_divergence_of_counts(
        document_frequencies(test),
        len(test),
        document_frequencies(training),
        len(training),
        measure,
    )


def idf_divergence_of_counts(
    test: pd.Series[int],
    test_size: int,
    training: pd.Series[int],
    training_size: int,
    measure: Divergence = "expected",
) -> float:
    """`idf_divergence`, from document frequencies that are at hand: one training corpus, many test
    corpora.
    """
    if test.empty or training.empty:
        raise ValueError("a corpus without a single term has no IDF")
    table = pd.DataFrame({"test": test, "training": training}).fillna(0)
    difference = np.log((test_size + 1) / (table["test"] + 1)) - np.log(
        (training_size + 1) / (table["training"] + 1)
    )
    if measure == "expected":
        return float(np.average(difference.abs(), weights=table["test"]))
    if measure == "sum":
        return float(difference.abs().sum())
    shared = difference[(table["test"] > 0) & (table["training"] > 0)]
    return float(np.sqrt((shared**2).mean())) if len(shared) else float("inf")


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
        self._split = _tokenize_unspaced if pairs else _tokenize
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


def sparse_vectors(
    queries: Sequence[str], documents: Sequence[str], dim: int = 128, seed: int = 0
) -> tuple[Vectors, Vectors]:
    """tf-idf vectors of queries and documents, reduced to dense unit vectors.

    Terms are those of BM25 (stemmed, without stop words), weighted by (1 + ln tf) · idf over
    queries and documents together, in rows of length 1, which scikit-learn's truncated SVD reduces.
    The authors' sparse option keeps BM25's sparse vectors and has a k-means of its own for them:
    farthest-first starts, 25 iterations, only the query assigned. Here both kinds of surrogate go
    through the same `cluster_pairs`.

    Args:
        queries, documents: texts of the pairs.
        dim: dimensions to keep.
        seed: seed of the randomised SVD.

    Returns:
        Query vectors, `(len(queries), dim)`, and document vectors, `(len(documents), dim)`, both
        float32 of length 1 (zeros for a text that keeps no term). They lie in one space: dot
        products compare a query with a document.

    Raises:
        ValueError: fewer texts or terms than `dim`, or a `dim` below 1.

    Example:
        >>> vectors = sparse_vectors(["red boats", "a house"], ["a red boat", "houses and gardens"],
        ...     dim=2)
        >>> (vectors[0] @ vectors[1].T > 0.5).tolist()
        [[True, False], [False, True]]
    """
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.preprocessing import normalize

    texts = [*queries, *documents]
    words = bm25s.tokenize(
        texts,
        stopwords="en",
        stemmer=Stemmer.Stemmer("english"),
        return_ids=False,
        show_progress=False,
    )
    terms = len(set().union(*words))
    if not 1 <= dim <= min(terms, len(texts)):
        raise ValueError(
            f"{len(texts)} texts of {terms} terms allow dim 1 to {min(terms, len(texts))}; it is "
            f"{dim}"
        )
    weights = TfidfVectorizer(analyzer=list, sublinear_tf=True, dtype=np.float32).fit_transform(
        words
    )
    vectors = normalize(TruncatedSVD(dim, random_state=seed).fit_transform(weights)).astype(
        np.float32
    )
    return vectors[: len(queries)], vectors[len(queries) :]

"""What word counts say of corpora: document frequencies, the distance of two corpora in IDF, and
tf-idf vectors.

Terms are those of `cde.BM25`: lower-cased words, stop words dropped, stemmed (English Snowball).

The IDF of a term t in a corpus of N documents, df of which hold it, is ln((N + 1) / (df + 1)). So a
term that a corpus lacks has ln(N + 1), its largest value.

CDE §10.2 plots an "IDF distance" that reaches 1.2e7 and gives no formula. There are three here, and
the chapter `headroom` shows how far the paper's claim depends on the choice:

- `expected` (ours): the mean of `|IDF_test − IDF_train|` over the terms of the test corpus, each
  weighted by how many test documents hold it. It asks how wrong a term weight learned in training
  is, for a word met in the test corpus, and does not grow with the size of the vocabulary.
- `sum`: the sum of `|IDF_test − IDF_train|` over the union of both vocabularies. Only an
  unnormalised sum over millions of terms can reach the paper's axis; it mostly counts vocabulary.
- `shared`: the root mean square of the difference over terms that both corpora hold.

`sparse_vectors` is a surrogate without a pretrained model (CDE §4.1, "Cluster Embeddings"): the
paper tried a sparse representation and a dense one, and settled on the latter. A sparse one is
reduced to dense vectors here, so that everything that takes a surrogate's vectors takes these.

Cost: 20,000 short documents a second; vectors take 10 · (non-zeros) · dim multiply-adds more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import bm25s
import numpy as np
import pandas as pd
import Stemmer
from numpy.typing import NDArray

from cde.lexical import split_into_terms

Vectors = NDArray[np.float32]
#: formulas of a distance
Divergence = Literal["expected", "sum", "shared"]


def document_frequencies(texts: Sequence[str]) -> pd.Series[int]:
    """How many of the texts hold each term (int64), indexed by term, in alphabetical order."""
    tokens = split_into_terms(texts)
    counts = np.zeros(len(tokens.vocab), np.int64)
    for ids in tokens.ids:
        counts[np.unique(np.asarray(ids, dtype=np.int64))] += 1
    terms = sorted(tokens.vocab, key=tokens.vocab.__getitem__)
    return pd.Series(counts, index=terms, dtype="int64").loc[lambda count: count > 0].sort_index()


def idf_divergence_of_counts(
    test: pd.Series[int],
    test_size: int,
    training: pd.Series[int],
    training_size: int,
    measure: Divergence = "expected",
) -> float:
    """How far the IDF of a test corpus is from that of a training corpus (CDE §10.2 i, Fig. 8), by
    the document frequencies of both and their sizes: in nats, for "sum" in nats times terms.
    """
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


def sparse_vectors(
    queries: Sequence[str], documents: Sequence[str], dim: int = 128, seed: int = 0
) -> tuple[Vectors, Vectors]:
    """tf-idf vectors of queries and documents in one space, reduced to dense unit vectors, `(n,
    dim)` float32 each (zeros for a text that keeps no term).

    Terms are weighted by (1 + ln tf) · idf over queries and documents together. The authors' sparse
    option keeps BM25's sparse vectors and has a k-means of its own for them: farthest-first starts,
    25 iterations, only the query assigned. Here both kinds of surrogate go through the same
    `cluster_pairs`.
    """
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.preprocessing import normalize

    texts = [*queries, *documents]
    stemmer, quiet = Stemmer.Stemmer("english"), {"return_ids": False, "show_progress": False}
    words = bm25s.tokenize(texts, stopwords="en", stemmer=stemmer, **quiet)
    vectorizer = TfidfVectorizer(analyzer=list, sublinear_tf=True, dtype=np.float32)
    reduced = TruncatedSVD(dim, random_state=seed).fit_transform(vectorizer.fit_transform(words))
    vectors = normalize(reduced).astype(np.float32)
    return vectors[: len(queries)], vectors[len(queries) :]

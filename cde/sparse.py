"""Vectors from words alone, a surrogate without a pretrained model (CDE §4.1, "Cluster Embeddings").

The paper tried a sparse representation and a pretrained dense one, and settled on the latter. Here a
sparse one is reduced to dense vectors, so that everything that takes a surrogate's vectors takes these.

Cost: one pass over the texts, and a randomised SVD of about 10 · (non-zeros) · dim multiply-adds.
"""

from __future__ import annotations

from collections.abc import Sequence

import bm25s
import numpy as np
import Stemmer
from numpy.typing import NDArray

__all__ = ["sparse_vectors"]

Vectors = NDArray[np.float32]


def sparse_vectors(
    queries: Sequence[str], documents: Sequence[str], dim: int = 128, seed: int = 0
) -> tuple[Vectors, Vectors]:
    """tf-idf vectors of queries and documents, reduced to dense unit vectors.

    Terms are those of `cde.lexical` (stemmed, without stop words), weighted by (1 + ln tf) · idf over queries
    and documents together, in rows of length 1, which scikit-learn's truncated SVD reduces. The authors' sparse
    option keeps BM25's sparse vectors and has a k-means of its own for them: farthest-first starts, 25
    iterations, only the query assigned. Here both kinds of surrogate go through the same `cluster_pairs`.

    Args:
        queries, documents: texts of the pairs.
        dim: dimensions to keep.
        seed: of the randomised SVD.

    Returns:
        Query vectors and document vectors, `(len(queries), dim)` and `(len(documents), dim)` float32 of length 1
        (zeros for a text that keeps no term), in one space: dot products compare a query with a document.

    Raises:
        ValueError: fewer texts or terms than `dim`, or a `dim` below 1.

    Used by the chapter `clusters`.

    Example:
        >>> found = sparse_vectors(["red boats", "a house"], ["a red boat", "houses and gardens"], dim=2)
        >>> (found[0] @ found[1].T > 0.5).tolist()
        [[True, False], [False, True]]
    """
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.preprocessing import normalize

    texts = [*queries, *documents]
    words = bm25s.tokenize(
        texts, stopwords="en", stemmer=Stemmer.Stemmer("english"), return_ids=False, show_progress=False
    )
    terms = len(set().union(*words))
    if not 1 <= dim <= min(terms, len(texts)):
        raise ValueError(f"{len(texts)} texts of {terms} terms allow dim 1 to {min(terms, len(texts))}; it is {dim}")
    weights = TfidfVectorizer(analyzer=list, sublinear_tf=True, dtype=np.float32).fit_transform(words)
    vectors = normalize(TruncatedSVD(dim, random_state=seed).fit_transform(weights)).astype(np.float32)
    return vectors[: len(queries)], vectors[len(queries) :]

"""Negatives by a surrogate: false ones to leave out of a batch (CDE §4.1, Eq. 4), hard ones to add.

S(q, d) = {d' : f(q, d') ≥ f(q, d) + ε} are the documents of the batch that the surrogate finds as
good for q as the labelled one, up to a margin ε, which is relative to the pair's own score, as in
the paper. (The authors' code has ε = 0 or an *absolute* threshold.) They are left out of the loss's
denominator. Hard negatives of a query are the documents nearest to it that are not in S(q, d).

Cost: n² · dim multiply-adds for a batch (hard negatives: a domain) of n, in blocks of rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from cde.batching.clustering import check_pairs, require_distances, rows_by_domain
from cde.validation import Positions, Vectors, array_of_numbers, checked_number, checked_whole

__all__ = ["false_negatives", "mine_hard_negatives"]

_ROWS = 1024  # of scores, computed at once


def false_negatives(
    query_vectors: Vectors,
    document_vectors: Vectors,
    epsilon: float = 0.0,
    threshold: float | None = None,
) -> NDArray[np.bool_]:
    """Which documents of a batch may answer a query that they are not labelled for.

    Args:
        query_vectors: `(n, dim)` float32 surrogate vectors of the queries; f is the dot product,
            the cosine for unit vectors.
        document_vectors: `(n, dim)`, document i labelled for query i; or `(n + n·h, dim)`, followed
            by h hard negatives a query, those of query 0 first.
        epsilon: ε, in units of f. 0 filters what scores at least as high as the labelled document;
            above 0 filters less, below 0 more.
        threshold: an absolute score instead: filter what scores at least this, whatever the
            labelled document scores (`epsilon` is then not used).

    Returns:
        `(n, n)` or `(n, n + n·h)` bool, true where a document is left out of the denominator; false
        for a query's own document and its own hard negatives.

    Raises:
        ValueError: shapes that do not fit, or what is not a finite number.

    Example:
        >>> queries = np.array([[1.0, 0.0], [0.0, 1.0]], np.float32)
        >>> documents = np.array([[0.6, 0.8], [0.8, 0.6]], np.float32)
        >>> false_negatives(queries, documents).tolist()
        [[False, True], [True, False]]
        >>> false_negatives(queries, documents, epsilon=0.3).any()
        np.False_
    """
    query_vectors = _floats(query_vectors, "query_vectors")
    document_vectors = _floats(document_vectors, "document_vectors")
    tables = query_vectors.ndim == document_vectors.ndim == 2
    if not tables or query_vectors.shape[1] != document_vectors.shape[1]:
        raise ValueError(
            f"query_vectors {query_vectors.shape} and document_vectors {document_vectors.shape} "
            "must be (n, dim) and (n + n·h, dim)"
        )
    # a comparison with what is not a number is false: the filter would be off
    epsilon = checked_number(epsilon, "epsilon")
    threshold = None if threshold is None else checked_number(threshold, "threshold")
    n, m = len(query_vectors), len(document_vectors)
    if m < n or (m % n if n else m):
        raise ValueError(
            f"{m} documents for {n} queries: one each is needed, or one and as many hard "
            "negatives for each"
        )
    left_out = np.zeros((n, m), np.bool_)
    hard = m // n - 1 if n else 0
    alike = None  # number of each document's vector
    if threshold is None and epsilon <= 0 and n:
        # the last bit of a product depends on where in the matrix it stands, also of equal vectors
        alike = np.unique(document_vectors, axis=0, return_inverse=True)[1].reshape(-1)
    for start in range(0, n, _ROWS):
        rows = np.arange(start, min(start + _ROWS, n))
        scores = query_vectors[rows] @ document_vectors.T
        own = scores[np.arange(len(rows)), rows]
        left_out[rows] = scores >= (
            own[:, None] + np.float32(epsilon) if threshold is None else np.float32(threshold)
        )
        if alike is not None:
            left_out[rows] |= alike[rows, None] == alike
        left_out[rows, rows] = False
        for place in range(hard):
            left_out[rows, n + rows * hard + place] = False
    return left_out


def _floats(vectors: object, name: str) -> Vectors:
    array = array_of_numbers(vectors, name)
    require_distances(array, name)
    # products of small whole numbers (int8) overflow, and those of float16 tie
    return array if array.dtype in (np.float32, np.float64) else array.astype(np.float32)


def mine_hard_negatives(
    query_vectors: Vectors,
    document_vectors: Vectors,
    count: int,
    domains: Sequence[str] | None = None,
    epsilon: float = 0.0,
) -> Positions:
    """The documents nearest to each query that are not in S(q, d): `(n, count)` int64 positions.

    An answer of the query, in this pair or in another with the same query, is never among them, nor
    a copy of one: what has equal vectors is the same. Where there are too few other documents,
    those of S(q, d) come last. Of a document that stands in several pairs, each copy counts.

    Args:
        query_vectors, document_vectors: `(n, dim)` float32 unit vectors of the pairs.
        count: hard negatives a query.
        domains: of each pair; negatives come from the query's own.
        epsilon: documents that score at least the labelled one's score plus ε are false negatives.

    Raises:
        ValueError: a pair whose domain has too few documents that are not answers of its query;
            shapes that do not fit, or what is not a finite number.

    Example:
        >>> vectors = np.array([[1, 0], [0.8, 0.6], [0, 1]], np.float32)
        >>> mine_hard_negatives(vectors, vectors, 1).ravel().tolist()
        [1, 0, 1]
    """
    query_vectors = _floats(query_vectors, "query_vectors")
    document_vectors = _floats(document_vectors, "document_vectors")
    check_pairs(query_vectors, document_vectors)
    count, epsilon = checked_whole(count, "count", 0), checked_number(epsilon, "epsilon")
    asked, held = (
        np.unique(one, axis=0, return_inverse=True)[1].reshape(-1)
        for one in (query_vectors, document_vectors)
    )
    answers = csr_array((np.ones(len(asked), np.bool_), (asked, held)))
    mined = np.empty((len(query_vectors), count), np.int64)
    for rows in rows_by_domain(domains, len(query_vectors)):
        for start in range(0, len(rows), _ROWS):
            some = rows[start : start + _ROWS]
            scores = query_vectors[some] @ document_vectors[rows].T
            own = np.searchsorted(rows, some)
            limit = scores[np.arange(len(some)), own][:, None] + np.float32(epsilon)
            # false negatives go behind all others, answers nowhere
            far = max(10.0, 4 * float(max(scores.max(), -scores.min())))
            ranked = np.where(scores >= limit, scores - far, scores)
            ranked[answers[asked[some]][:, held[rows]].toarray()] = -np.inf
            left = np.isfinite(ranked).sum(axis=1)
            if (left < count).any():
                raise ValueError(
                    f"the domain of pair {some[left.argmin()]} has too few documents for {count} "
                    f"hard negatives a query: {left.min()} of {len(rows)} do not answer it"
                )
            best = np.argpartition(-ranked, count - 1, axis=1)[:, :count]
            order = np.take_along_axis(-ranked, best, axis=1).argsort(axis=1, kind="stable")
            mined[some] = rows[np.take_along_axis(best, order, axis=1)]
    return mined

"""How far embeddings of the same documents move from one context to another, and whether together.

Cost: a few milliseconds a pair of contexts, for some hundred documents.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cde.models import ContextualEncoder
from cde_studies.recipes import EvaluationSet

__all__ = ["TIE", "moved_between_corpora", "movement", "nearest"]

Vectors = NDArray[np.float64]
#: difference of cosines that is none: documents that are cut to the same tokens have one vector
TIE = 1e-6


def nearest(vectors: Vectors, neighbours: int) -> NDArray[np.bool_]:
    """Which other documents are nearest to each: `(n, dim)` unit vectors to `(n, n)` bool."""
    cosine = vectors @ vectors.T
    np.fill_diagonal(cosine, -np.inf)
    order = np.argsort(-cosine, axis=1, kind="stable")[:, :neighbours]
    marks = np.zeros(cosine.shape, dtype=bool)
    np.put_along_axis(marks, order, True, axis=1)
    return marks


def movement(embedded: Vectors, neighbours: int) -> pd.DataFrame:
    """What each pair of contexts does to documents that are embedded in both.

    Returns:
        A row for each pair of contexts, second before first. `first` and `second` are their places.
        `moved` is the mean cosine distance of a document from itself, `between` that of two
        documents in one context. `itself` is the share of documents whose nearest point in the
        other context is themselves; a tie counts. `kept` is the share of neighbours that stay.
        `common` is the squared length of the mean movement, times the number of documents. `total`
        is the summed squared movement.
    """
    if embedded.ndim != 3 or min(embedded.shape[:2]) < 2:
        raise ValueError(
            f"embedded must be (contexts, documents, dim), two or more of both; it is "
            f"{embedded.shape}"
        )
    count = embedded.shape[1]
    apart = ~np.eye(count, dtype=bool)
    between = [float((1 - vectors @ vectors.T)[apart].mean()) for vectors in embedded]
    near = [nearest(vectors, neighbours) for vectors in embedded]
    rows = []
    for i, one in enumerate(embedded):
        for j, other in enumerate(embedded[:i]):
            cosine, step = one @ other.T, one - other
            itself = np.diag(cosine) + TIE
            hits = [itself >= cosine.max(axis=axis) for axis in (0, 1)]
            rows.append(
                {
                    "first": i,
                    "second": j,
                    "moved": float(np.mean(1 - np.diag(cosine))),
                    "between": (between[i] + between[j]) / 2,
                    "itself": float(np.mean(hits)),
                    "kept": int((near[i] & near[j]).sum()) / (count * neighbours),
                    "common": count * float((step.mean(axis=0) ** 2).sum()),
                    "total": float((step**2).sum()),
                }
            )
    return pd.DataFrame(rows)


def moved_between_corpora(
    model: ContextualEncoder, tests: Sequence[EvaluationSet], documents: int = 50
) -> float:
    """How far documents move from their own to the next set's context, in distances between
    documents: the mean over sets.
    """
    if len(tests) < 2:
        raise ValueError(f"documents move between two corpora or more; {len(tests)} was given")
    shares = []
    for test, other in zip(tests, [*tests[1:], tests[0]], strict=True):
        some = test.collection.documents[:documents]
        corpora = (test.collection.documents, other.collection.documents)
        embedded = [model.with_context(one).encode_documents(some) for one in corpora]
        distance = movement(np.stack(embedded).astype(np.float64), 5).iloc[0]
        shares.append(distance["moved"] / distance["between"])
    return float(np.mean(shares))

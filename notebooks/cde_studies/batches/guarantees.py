"""What the triangle inequality promises about in-batch negatives (clustering paper §4.3 and §4.4).

A query q lies at an angle a from its own document d, and d at an angle b from another document d'.
The angle of q and d' is then at least the difference of a and b, and at most their sum. So a
cluster in which documents lie close together promises that its members are near the query, whatever
the query is. `negative_guarantees` counts how often that is of use.

A negative counts as useful if its cosine with the query is above the query's mean cosine with all
documents: it is then harder than one that is drawn at random. It is *guaranteed* so if its lowest
possible cosine already is.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from cde.validation import Positions, Vectors

Cosines = NDArray[np.float64]


def cosine_bounds(first: ArrayLike, second: ArrayLike) -> tuple[Cosines, Cosines]:
    """The lowest and the highest cosine of two vectors, given their cosines with a third one:
    cos(a + b), with the sum of angles at most π, and cos(a − b) (clustering paper Fig. 3).
    """
    a, b = (np.arccos(np.clip(np.asarray(one, np.float64), -1, 1)) for one in (first, second))
    return np.cos(np.minimum(a + b, np.pi)), np.cos(a - b)


def negative_guarantees(
    query_vectors: Vectors,
    document_vectors: Vectors,
    labels: Positions,
    drawn: Positions | None = None,
    hardest: int = 10,
) -> pd.DataFrame:
    """How hard the negatives inside a query's cluster are, and how hard they must be (clustering
    paper §4.4 and §5.2).

    Negatives are the documents of other pairs. Copies of the own document (cosine above 0.9999) are
    left out: they are right answers.

    Returns:
        A row for each query whose cluster has a negative and whose own cluster is not all there is:

        - guaranteed: share of in-cluster negatives whose lowest possible cosine is above the
          query's mean with all documents;
        - harder: share of them whose cosine is above it in fact;
        - ruled_out: share of the negatives of other clusters whose highest possible cosine is below
          that mean;
        - inside, outside: mean cosine with negatives of the cluster, and of other ones;
        - hardest_inside: share of its hardest negatives that lie in its cluster;
        - by_chance: share of all negatives that do.
    """
    rows = []
    for query in range(len(labels)) if drawn is None else drawn:
        scores = document_vectors @ query_vectors[query]
        of_own = document_vectors @ document_vectors[query]
        negative = of_own <= 0.9999
        negative[query] = False
        inside = negative & (labels == labels[query])
        outside = negative & ~inside
        if not inside.any() or not outside.any():
            continue
        low, high = cosine_bounds(scores[query], of_own)
        mean, found = scores.mean(), np.where(negative, scores, -np.inf)
        most = min(hardest, int(negative.sum()))
        nearest = np.argpartition(-found, most - 1)[:most]
        rows.append(
            {
                "guaranteed": (low[inside] > mean).mean(),
                "harder": (scores[inside] > mean).mean(),
                "ruled_out": (high[outside] < mean).mean(),
                "inside": scores[inside].mean(),
                "outside": scores[outside].mean(),
                "hardest_inside": inside[nearest].mean(),
                "by_chance": inside.sum() / negative.sum(),
            }
        )
    return pd.DataFrame(rows, dtype=float)

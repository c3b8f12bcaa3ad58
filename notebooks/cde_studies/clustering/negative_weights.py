"""How much of a batch's gradient its negatives carry, by how they score beside the query's own
document.

The derivative of Eq. 1 with respect to a negative's logit is its softmax probability; so that is
the weight with which the negative trains the encoder.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cde.validation import Positions, Vectors


def weights_of_negatives(
    queries: Vectors,
    documents: Vectors,
    batches: Iterable[Positions],
    temperatures: Sequence[float],
) -> pd.DataFrame:
    """A row for each batch and temperature: `easy`, the share of negatives that score below their
    query's own document; `of_easy`, the share that these have of the batch's weight of negatives;
    `of_easy_by_query`, the mean over queries of the same share; `all`, the mean over queries of the
    weight of negatives, of which the own document has the rest.
    """
    rows = []
    for number, batch in enumerate(batches):
        cosines = (queries[batch] @ documents[batch].T).astype(np.float64)
        own = np.diagonal(cosines)[:, None]
        negatives = ~np.eye(len(batch), dtype=bool)
        below = negatives & (cosines < own)
        for temperature in temperatures:
            logits = cosines / temperature
            odds = np.exp(logits - logits.max(axis=1, keepdims=True))
            weights = odds / odds.sum(axis=1, keepdims=True)
            others, of_easy = (weights * negatives).sum(axis=1), (weights * below).sum(axis=1)
            rows.append(
                {
                    "batch": number,
                    "temperature": temperature,
                    "easy": below.sum() / negatives.sum(),
                    "of_easy": float(of_easy.sum() / others.sum()),
                    "of_easy_by_query": float((of_easy / others).mean()),
                    "all": float(others.mean()),
                }
            )
    return pd.DataFrame(rows)


def stated_loss(scores: Vectors) -> NDArray[np.float64]:
    """Eq. 1 of the clustering paper, for each query; its own document is on the diagonal."""
    odds: NDArray[np.float64] = np.exp(np.asarray(scores, np.float64))
    found: NDArray[np.float64] = -np.log(np.diagonal(odds) / odds.sum(axis=1))
    return found


def printed_loss(scores: Vectors) -> NDArray[np.float64]:
    """Eq. 2 as it is printed: the score of the own document is within the logarithm."""
    every = np.asarray(scores, np.float64)
    found: NDArray[np.float64] = np.log(np.exp(every).sum(axis=1) - np.diagonal(every))
    return found

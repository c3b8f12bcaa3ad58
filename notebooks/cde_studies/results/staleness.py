"""Whether the context that an encoder was bound with is stale: three numbers without judgements.

A corpus lives: documents come and go, and a contextual encoder goes on reading the context that it
was bound with. Three numbers say, without a query or a judgement, whether that context is stale:

- `vocabulary_drift`: texts against texts. The Jensen-Shannon divergence of the words' document
  frequencies, less what two samples of one corpus show by chance;
- `vector_drift`: documents' vectors against documents' vectors. How far the mean has moved, in
  standard deviations, less what chance moves it;
- `moved`: the same documents' vectors in the old context and in a new one. How far they lie apart,
  in distances between documents. It alone asks the encoder, and costs the embedding of a sample
  in both contexts.

The first two say how much the corpus has changed; only the third knows whether the encoder minds.
The chapter `drift` measures how well each foretells what a stale context loses.
(`cde.corpus.table` is what an index reports by itself: how many documents are new, and how far
their mean has moved.)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.stats import entropy

from cde_studies.motivation.word_counts import document_frequencies

_DRAWS = 5


def vocabulary_drift(before: Sequence[str], now: Sequence[str]) -> float:
    """How far the words of a corpus have moved from those of earlier texts: from 0 (no more than
    chance, or less) to 1 (no word in common).

    The divergence is that between document frequencies, each divided by their sum. Two samples of
    one corpus differ too, the more so the smaller they are. So what samples of `now` of the same
    sizes show among themselves is taken off.
    """
    size = min(len(before), len(now) // 2)
    generator = np.random.default_rng(0)
    apart, chance = [], []
    for _ in range(_DRAWS):
        order = generator.permutation(len(now))
        sample = [now[row] for row in order[:size]]
        rest = document_frequencies([now[row] for row in order[size:]])
        drawn = [before[row] for row in generator.permutation(len(before))[:size]]
        apart.append(_divergence(document_frequencies(drawn), rest))
        chance.append(_divergence(document_frequencies(sample), rest))
    expected = float(np.mean(chance))
    if expected >= 1.0:  # no two samples of today's texts share a word: nothing can be told
        return 0.0
    return max(0.0, (float(np.mean(apart)) - expected) / (1.0 - expected))


def _divergence(first: pd.Series[int], second: pd.Series[int]) -> float:
    """Jensen-Shannon divergence in bits of two tables of counts: 0 to 1."""
    if first.empty or second.empty:
        raise ValueError("texts without a single word say nothing of the words of a corpus")
    table = pd.DataFrame({"first": first, "second": second}).fillna(0).to_numpy(np.float64)
    shares = table / table.sum(axis=0)
    return float(entropy(shares.mean(axis=1), base=2) - entropy(shares, base=2).mean())


def vector_drift(before: ArrayLike, now: ArrayLike) -> float:
    """How far the mean of vectors has moved, in standard deviations: 0 for no more than chance
    moves the mean of so few vectors by, about 1 for as far as vectors lie from it.
    """
    first, second = np.asarray(before, np.float64), np.asarray(now, np.float64)
    parts = [vectors.var(axis=0, ddof=1).sum() for vectors in (first, second)]
    spread = float(np.mean(parts))
    if spread == 0:
        raise ValueError("the vectors of either side are all the same: there is no scale")
    distance = float(((first.mean(axis=0) - second.mean(axis=0)) ** 2).sum())
    chance = float(parts[0] / len(first) + parts[1] / len(second))
    return float(np.sqrt(max(0.0, distance - chance) / spread))


def moved(before: ArrayLike, now: ArrayLike) -> float:
    """How far the same documents lie apart in two contexts: their mean distance over the mean
    distance between two documents in the old context; 0 if the context changes nothing.
    """
    first, second = np.asarray(before, np.float64), np.asarray(now, np.float64)
    # the mean over pairs, without the pairs of a vector and itself
    lengths = (first**2).sum(axis=1)
    squares = lengths[:, None] + lengths[None] - 2 * first @ first.T
    between = np.sqrt(squares.clip(min=0))[~np.eye(len(first), dtype=bool)].mean()
    if between <= 0:
        raise ValueError("the documents all have one vector: there is no distance between them")
    return float(np.linalg.norm(first - second, axis=1).mean() / between)

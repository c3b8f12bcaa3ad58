"""The numbers of a model card: an encoder that reads, beside itself without context, on each
collection.

Cost: a forward pass of each collection, and one more for each model and context.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cde.intervals import mean_interval
from cde.models import ContextualEncoder
from cde.progress import progress
from cde.retrieval import Encoder, rank, score_queries
from cde_studies.recipes import EvaluationSet

__all__ = ["score_in_contexts"]


def score_in_contexts(
    models: Mapping[str, ContextualEncoder],
    sets: Sequence[EvaluationSet],
    contexts: Sequence[str] = ("own", "other"),
    seed: int = 0,
) -> pd.DataFrame:
    """What each encoder gains over itself without context, on each collection.

    Returns:
        A row for each collection, model and context: `set`, `where`, `documents`,
        `queries`, `model`, `context`; `without`, NDCG@10 in points without context; `gain`, points
        more with it, and `low` and `high`, the ends of its bootstrap interval over queries.
    """
    if "other" in contexts and len(sets) < 2:
        raise ValueError("another collection's context needs a second collection")
    rows = []
    for place, one in enumerate(progress(list(sets), "searching", unit="collections")):
        following = sets[(place + 1) % len(sets)].collection.documents
        plain = _ndcg(next(iter(models.values())).with_context(None), one)
        for name, model in models.items():
            for context in contexts:
                texts = one.collection.documents if context == "own" else following
                found = _ndcg(model.with_context(texts, seed=seed), one)
                gain = mean_interval(100 * (found - plain))
                rows.append(
                    {
                        "set": one.name,
                        "where": one.where,
                        "documents": len(one.collection.documents),
                        "queries": len(one.collection.queries),
                        "model": name,
                        "context": context,
                        "without": 100 * float(plain.mean()),
                        "gain": gain.estimate,
                        "low": gain.low,
                        "high": gain.high,
                    }
                )
    return pd.DataFrame(rows)


def _ndcg(encoder: Encoder, one: EvaluationSet) -> NDArray[np.float64]:
    ranked = rank(encoder, one.collection, depth=100)
    return score_queries(ranked, one.collection, ("ndcg@10",))["ndcg@10"].to_numpy(np.float64)

"""Do clusters gain more on more data? Batches of passage clusters beside shuffled ones, on few and
on many pairs, with as many updates.

Clusters are of one size whatever the amount, so that more pairs are more clusters (clustering paper
§3.3, which speaks of hundreds).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from cde.batching.clustering import cluster_vectors
from cde_studies.clustering.clustering_recipe import ClusteringRecipe
from cde_studies.sweeps import evaluate_in_contexts

SHUFFLED, PASSAGES = "shuffled", "passage clusters"


def train_on_amounts(
    of: ClusteringRecipe, amounts: Sequence[int | None], cluster_size: int, seeds: Sequence[int]
) -> pd.DataFrame:
    """Rows of a sweep out of domain, with `pairs`, the amount that was trained on; None is all."""
    tests = of.out_of_domain()
    cluster = {"batches": "stratum", "cluster_by": "documents", "cluster_size": cluster_size}
    arms: dict[str, dict[str, Any]] = {SHUFFLED: {"batches": "random"}, PASSAGES: cluster}
    rows = []
    for amount in dict.fromkeys(amounts):
        some = replace(of, base=replace(of.base, pairs=amount))
        work = some.as_one_source, arms, seeds
        scores = some.train_all(*work, lambda run: evaluate_in_contexts(run.model(), tests))
        rows.append(scores.assign(pairs=len(some.pairs)))
    return pd.concat(rows, ignore_index=True)


def nearness(of: ClusteringRecipe, cluster_size: int, seed: int) -> pd.DataFrame:
    """How much nearer a collection is to its nearest cluster of training passages than to all of
    them: a row for each set out of domain, `set` and `nearer`, a difference of cosines of means.
    """
    surrogate, passages = of.surrogate, of.vectors[1]
    labels = cluster_vectors(passages, cluster_size, seed=seed)
    means = np.stack([passages[labels == one].mean(axis=0) for one in np.unique(labels)])
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    whole = passages.mean(axis=0) / np.linalg.norm(passages.mean(axis=0))
    rows = []
    for test in of.out_of_domain():
        own = surrogate.encode_documents(test.collection.documents).mean(axis=0)
        own /= np.linalg.norm(own)
        rows.append({"set": test.name, "nearer": float((means @ own).max() - whole @ own)})
    return pd.DataFrame(rows)

"""The sweep of batch and cluster sizes that two chapters read: both encoders, with the filter and without.

Every run sees the same number of pairs, so that larger batches make fewer steps; a tenth of them is warm-up.

Cost: that of 4 runs a batch size, cluster size and seed.
"""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from cde.experiments.recipes import Recipe
from cde.experiments.sweeps import sweep

__all__ = ["sweep_sizes"]


def sweep_sizes(
    recipe: Recipe,
    batch_sizes: Sequence[int],
    cluster_sizes: Sequence[int],
    pairs_seen: int,
    contextual_attention: str,
    seed: int,
    seeds: int,
) -> pd.DataFrame:
    """Both encoders at every batch and cluster size, with the filter for false negatives and without it.

    Every run sees the same number of pairs: larger batches make fewer steps, a tenth of them warm-up.

    Args:
        recipe: of the page; its steps, batch and cluster size are not used.
        batch_sizes, cluster_sizes: in pairs.
        pairs_seen: by a run, over all its steps.
        contextual_attention: of the contextual encoder.
        seed, seeds: the first seed, and how many.

    Returns:
        Rows of `sweep` on the sets out of domain, each contextual encoder in its own context, and encoder
        ("bi-encoder", "contextual"), batch_size, cluster_size, filtered.

    Raises:
        ValueError: fewer than two batch or cluster sizes, fewer pairs than two of the largest batches, a batch smaller
            than the context that is drawn from it, or larger than every domain.

    Used by the chapters `batch_and_cluster_size` and `filtering`.
    """
    batch_sizes, cluster_sizes = sorted(set(batch_sizes)), sorted(set(cluster_sizes))
    if min(len(batch_sizes), len(cluster_sizes)) < 2:
        raise ValueError(
            f"two batch and two cluster sizes are needed; they are {batch_sizes} and {cluster_sizes}"
        )
    if pairs_seen < 2 * batch_sizes[-1]:
        raise ValueError(
            f"pairs_seen must be two of the largest batches ({batch_sizes[-1]}) or more; it is {pairs_seen}"
        )
    if recipe.base.context_size > batch_sizes[0]:
        raise ValueError(
            f"the context is drawn from the batch: context_size {recipe.base.context_size} is more than the smallest "
            f"of batch_sizes, {batch_sizes[0]}"
        )
    largest = pd.Series(recipe.pairs.domains).value_counts().max()
    if batch_sizes[-1] > largest:
        raise ValueError(
            f"the largest domain has {largest} pairs: no batch of {batch_sizes[-1]} can be filled; name smaller "
            "batch_sizes"
        )
    encoders = {
        "bi-encoder": {"architecture": "bi-encoder"},
        "contextual": {"architecture": "contextual", "attention": contextual_attention},
    }
    factors, arms = [], {}
    for encoder, of_encoder in encoders.items():
        for batch in batch_sizes:
            for cluster in cluster_sizes:
                for filtered in (True, False):
                    arm = f"{encoder}; {batch}; {cluster}; {'filter' if filtered else 'no filter'}"
                    factors.append(
                        {
                            "arm": arm,
                            "encoder": encoder,
                            "batch_size": batch,
                            "cluster_size": cluster,
                            "filtered": filtered,
                        }
                    )
                    steps, epsilon = pairs_seen // batch, 0.0 if filtered else None
                    arms[arm] = {
                        **of_encoder, "batches": "cluster", "batch_size": batch, "cluster_size": cluster,
                        "filter_epsilon": epsilon, "steps": steps, "warmup_steps": max(1, steps // 10),
                    }  # fmt: skip

    tests = [test for test in recipe.tests() if test.where == "out"]
    rows = sweep(arms, range(seed, seed + seeds), recipe, contexts=("own",), tests=tests)
    return rows.merge(pd.DataFrame(factors), on="arm")

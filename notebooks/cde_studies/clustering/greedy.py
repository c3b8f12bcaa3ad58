"""Batches that are put together pair by pair, each the one that raises the batch's loss most.

The idea is that of HOBIT (Dutta et al., ICML 2026), whose abstract alone was at hand: batches are
made anew for each epoch by a greedy algorithm for an objective that comes from InfoNCE, so that
each query meets negatives that are hard but do not contradict its answer. What is greedily raised
here is Eq. 1 of a batch B by a surrogate's cosines f, at a temperature τ,

    F(B) = Σ_i log(1 + Σ_j exp((f(q_i, d_j) − f(q_i, d_i)) / τ))     for i, j in B, j ≠ i,

where a document that is as near to the query as its own answer, or nearer, counts for nothing: by
Eq. 4 it is taken for a false negative.

Cost for batches of b from m candidates: b² m / 2 logarithms a batch.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cde.validation import Positions, Vectors


def greedy_plan(
    query_vectors: Vectors,
    document_vectors: Vectors,
    domains: NDArray[np.str_],
    batch_size: int,
    steps: int,
    temperature: float = 0.05,
    seed: int = 0,
) -> Positions:
    """A plan of batches of one domain each, `(steps, batch_size)`, epoch after epoch in an order
    drawn by chance.

    A batch begins with a pair drawn by chance, and its others come from the next of its domain,
    four times as many as a batch has. What fills no batch waits for the next epoch.
    """
    generator = np.random.default_rng(seed)
    plan: list[Positions] = []
    while len(plan) < steps:
        epoch = []
        for domain in np.unique(domains):
            left = generator.permutation(np.flatnonzero(domains == domain))
            while len(left) >= batch_size:
                some = left[: 4 * batch_size]
                harm = _harm(query_vectors[some], document_vectors[some], temperature)
                chosen = _chosen(harm, batch_size)
                epoch.append(some[chosen])
                left = np.delete(left, chosen)
        if not epoch:
            raise ValueError(f"no domain fills a batch of {batch_size}")
        plan += [epoch[place] for place in generator.permutation(len(epoch))]
    return np.stack(plan[:steps])


def _harm(queries: Vectors, documents: Vectors, temperature: float) -> NDArray[np.float32]:
    """`(n, n)`: what document j adds to the sum in query i's loss."""
    scores = queries @ documents.T
    behind = scores - scores.diagonal()[:, None]
    return np.where(behind < 0, np.exp(np.minimum(behind, 0) / temperature), 0).astype(np.float32)


def _chosen(harm: NDArray[np.float32], size: int) -> Positions:
    """So many rows, the first and then each that adds most to F."""
    inside, free = [0], np.ones(len(harm), bool)
    free[0] = False
    sums, own = np.zeros(1, np.float32), harm[:, 0].copy()  # of those inside; of each, with these
    while len(inside) < size:
        gains = np.log1p(harm[inside] / (1 + sums)[:, None]).sum(0) + np.log1p(own)
        best = int(np.where(free, gains, -np.inf).argmax())
        sums = np.append(sums + harm[inside, best], own[best])
        own += harm[:, best]
        inside.append(best)
        free[best] = False
    return np.array(inside)

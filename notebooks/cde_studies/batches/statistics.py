"""What clusters and batches are like: the objectives of CDE Eqs. 2 and 3, size, tightness, purity,
difficulty, what the filter removes, and what packing does to clusters.

**Eq. 2**, which clustering is to maximise, is the sum of f(d, q') + f(d', q) over the pairs of a
batch. `batch_objective` gives its mean over batch-mates, halved: the mean cosine of a query with
another pair's document. It is exact, in O(b · dim) a batch of b, as Σ φ(d)·ψ(q') over *all* pairs
is the product of two sums.

**Eq. 3**, which k-means minimises, is the sum over pairs of m to the centre of their batch, with
m((d, q), (d', q')) = ‖φ(d) − ψ(q')‖ + ‖φ(d') − ψ(q)‖. The paper says that it bounds Eq. 2 by the
triangle inequality. In general m obeys none. Take three pairs with φ(d) = ψ(q'') = φ(d') = a and
ψ(q) = φ(d'') = ψ(q') = b. The outer two are at distance 0 from the middle one, and at 2·‖a − b‖
from each other. The bound holds for a *symmetric* centre, whose two halves are one vector s. It is
the kind that k-means finds where both points of a pair are near one centroid. The bound is m((d,
q), (d', q')) ≤ (‖φ(d) − s‖ + ‖s − ψ(q)‖) + (‖φ(d') − s‖ + ‖s − ψ(q')‖). `paired_distance` takes
that centre, s the mean of all vectors of the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cde.batching.negatives import false_negatives
from cde.progress import progress
from cde.validation import Positions, Vectors


def batch_objective(
    query_vectors: Vectors, document_vectors: Vectors, batches: Sequence[Positions]
) -> float:
    """The objective of CDE Eq. 2: the mean of (f(d, q') + f(d', q)) / 2 over all pairs of
    batch-mates of all batches, a cosine. A large batch has more of them and weighs more.
    """
    total, mates = 0.0, 0
    for batch in batches:
        queries = query_vectors[batch].astype(np.float64)
        documents = document_vectors[batch].astype(np.float64)
        total += float(
            queries.sum(axis=0) @ documents.sum(axis=0) - np.einsum("ij,ij->", queries, documents)
        )
        mates += len(batch) * (len(batch) - 1)
    return total / mates


def paired_distance(
    query_vectors: Vectors, document_vectors: Vectors, batches: Sequence[Positions]
) -> float:
    """The objective of CDE Eq. 3: the mean of ‖φ(d) − s‖ + ‖s − ψ(q)‖ over all pairs of all
    batches, s the centre of their batch.

    Within one batch the mean of m over all pairs of batch-mates is at most twice this.
    """
    total = 0.0
    for batch in batches:
        both = np.stack([query_vectors[batch], document_vectors[batch]]).astype(np.float64)
        if len(batch):
            total += float(np.linalg.norm(both - both.mean(axis=(0, 1)), axis=2).sum())
    return total / sum(map(len, batches))


def mean_pair_distance(
    query_vectors: Vectors, document_vectors: Vectors, batches: Sequence[Positions]
) -> float:
    """The mean of m over batch-mates: at most twice `paired_distance`, for batches of one size."""
    means = []
    for batch in progress(batches, "measuring", unit="batches"):
        queries = query_vectors[batch].astype(np.float64)
        documents = document_vectors[batch].astype(np.float64)
        distances = np.sqrt(np.maximum(2 - 2 * documents @ queries.T, 0))
        np.fill_diagonal(distances, 0)
        means.append(2 * distances.sum() / (len(batch) * (len(batch) - 1)))
    return float(np.mean(means))


def cluster_members(labels: Positions) -> list[Positions]:
    """The positions of the pairs of each cluster, ascending; none for a number that no pair has."""
    order = np.argsort(labels, kind="stable").astype(np.int64)
    return np.split(order, np.cumsum(np.bincount(labels))[:-1])


def mean_pairwise_cosine(vectors: Vectors) -> float:
    """The mean cosine of two different vectors, over all pairs of them (clustering paper, Table 1);
    not a number for fewer than two.

    Exact, where the paper draws 3,000 points: with unit vectors the sum over all pairs is the
    squared length of their sum.
    """
    if len(vectors) < 2:
        return float("nan")
    lengths = np.linalg.norm(vectors.astype(np.float64), axis=1)
    total = np.divide(1.0, lengths, out=np.zeros_like(lengths), where=lengths > 0) @ vectors
    return float((total @ total - np.count_nonzero(lengths)) / (len(vectors) * (len(vectors) - 1)))


def cluster_statistics(
    vectors: Vectors, labels: Positions, sources: Sequence[str] | None = None
) -> pd.DataFrame:
    """Size, similarity and purity of each cluster (clustering paper, Table 1).

    A row for each cluster that has a pair, indexed by its number: `size`; `similarity`, the mean
    cosine of two members, NaN for a single one; with `sources` also `source`, its most frequent one
    (the first by name of several), and `source_share`. The table's last row, the overall set, is
    `mean_pairwise_cosine(vectors)`; the purity of a whole clustering is the mean of `source_share`
    weighted by `size`.
    """
    members = {cluster: rows for cluster, rows in enumerate(cluster_members(labels)) if len(rows)}
    table = pd.DataFrame(
        {
            "size": [len(rows) for rows in members.values()],
            "similarity": [mean_pairwise_cosine(vectors[rows]) for rows in members.values()],
        },
        index=pd.Index(list(members), name="cluster", dtype=np.int64),
    )
    if sources is not None:
        names, source = np.unique(np.asarray(sources), return_inverse=True)
        counts = [np.bincount(source[rows]) for rows in members.values()]
        table["source"] = [str(names[count.argmax()]) for count in counts]
        table["source_share"] = [count.max() / count.sum() for count in counts]
    return table


def batch_difficulty(
    query_vectors: Vectors,
    document_vectors: Vectors,
    batch: Positions,
    queries: int | None = None,
    temperature: float = 0.02,
) -> dict[str, float]:
    """How hard the negatives of a batch are, by the surrogate (CDE Fig. 6).

    Returns:
        mean: mean cosine of a query with the other documents of the batch.
        hardest: mean over queries of the largest such cosine.
        loss: the contrastive loss, in nats, that the surrogate itself has on the batch.
    """
    rows = batch[:queries]
    scores = query_vectors[rows] @ document_vectors[batch].T
    positive = np.diagonal(scores).copy()
    logits = scores / temperature
    largest = logits.max(axis=1)
    loss = np.log(np.exp(logits - largest[:, None]).sum(axis=1)) + largest - positive / temperature
    np.fill_diagonal(scores, -np.inf)
    hardest = scores.max(axis=1)
    np.fill_diagonal(scores, 0)
    return {
        "mean": float(scores.sum() / (len(rows) * (len(batch) - 1))),
        "hardest": float(hardest.mean()),
        "loss": float(loss.mean()),
    }


def removed_share(
    query_vectors: Vectors, document_vectors: Vectors, batches: Sequence[Positions], **rule: Any
) -> NDArray[np.float64]:
    """For each pair, the share of its negatives in its batch that the filter removes, by the rule
    (`epsilon` or `threshold`) of `false_negatives`; not a number for a pair that no batch has, or
    that is alone in one.
    """
    share = np.full(len(query_vectors), np.nan)
    for batch in progress(batches, "filtering", unit="batches"):
        if len(batch) > 1:
            removed = false_negatives(query_vectors[batch], document_vectors[batch], **rule)
            share[batch] = removed.sum(axis=1) / (len(batch) - 1)
    return share


def cut_clusters(labels: Positions, batches: Sequence[Positions]) -> dict[str, float]:
    """What the batches of one epoch did to the clusters that they were packed from.

    Returns:
        clusters split: the share of clusters whose pairs are in more than one batch.
        clusters in a batch: how many clusters a batch holds, on average.
        pairs dropped: the share of pairs that no batch has.
    """
    batch_of = _numbers(batches, len(labels))
    there = batch_of >= 0
    together = pd.DataFrame({"cluster": labels[there], "batch": batch_of[there]}).drop_duplicates()
    return {
        "clusters split": float((together["cluster"].value_counts() > 1).mean()),
        "clusters in a batch": len(together) / len(batches),
        "pairs dropped": float(1 - there.mean()),
    }


def mates_met_again(epochs: Sequence[Sequence[Positions]]) -> NDArray[np.float64]:
    """The share of its batch-mates of one epoch that a pair meets again in the next, the mean over
    pairs that have a batch in both: `(len(epochs) // 2,)`, for epochs 0 and 1, 2 and 3, and so on.
    """
    shares = []
    both_of = list(zip(epochs[::2], epochs[1::2], strict=False))
    for first, second in progress(both_of, "comparing", unit="pairs of epochs"):
        n = 1 + max(int(batch.max()) for batch in (*first, *second))
        batch_of = np.stack([_numbers(first, n), _numbers(second, n)])
        both = batch_of[:, (batch_of >= 0).all(axis=0)]
        _, cell, size = np.unique(both, axis=1, return_inverse=True, return_counts=True)
        shares.append(((size[cell.ravel()] - 1) / (len(first[0]) - 1)).mean())
    return np.array(shares, dtype=np.float64)


def _numbers(batches: Sequence[Positions], n: int) -> Positions:
    """The number of each pair's batch; -1 for a pair that has none."""
    batch_of = np.full(n, -1, np.int64)
    for number, batch in enumerate(batches):
        batch_of[batch] = number
    return batch_of

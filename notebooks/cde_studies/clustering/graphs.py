"""Clusters from a graph of neighbouring pairs: two rivals of k-means (CDE Eq. 2; Cho et al. 2024;
B3, arXiv 2505.11293).

Both begin with the same graph. Its nodes are pairs, and each is linked with those that it is most
easily confused with: large f(d, q') + f(d', q) (Eq. 2), by the surrogate f.

*Spectral* (`spectral_clusters`, Cho et al.): an edge weighs the contrastive loss that a batch of
just these two pairs has, and a normalised cut leaves as little of it as possible between clusters.
scikit-learn makes the cut.

*Communities* (`communities`, B3): the authors leave out the very top ranks, which may be right
answers too, and cut the graph with METIS into parts of one size. Here no rank is left out, NetworkX
finds communities (Louvain), and those larger than `cluster_size` are cut again, as long as they
come apart.

Cost for a domain of n pairs: n² · 2 · dim multiply-adds for the graph, and the cut.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array

from cde.batching.clustering import domain_shards
from cde.progress import progress
from cde.validation import Positions, Vectors

_BLOCK = 1024
_TEMPERATURE = 0.1  # of the loss that a spectral cut keeps inside


def neighbour_graph(
    query_vectors: Vectors, document_vectors: Vectors, neighbours: int
) -> csr_array:
    """Which pairs are most easily confused: `(n, n)` symmetric sparse matrix of
    (f(d, q') + f(d', q)) / 2, where one of the two is among the other's neighbours.
    """
    n = len(query_vectors)
    most = min(neighbours, n - 1)
    rows = np.repeat(np.arange(n), most)
    columns = np.empty((n, most), np.int64)
    for start in range(0, n, _BLOCK):
        block = np.arange(start, min(start + _BLOCK, n))
        scores = query_vectors[block] @ document_vectors.T
        scores += document_vectors[block] @ query_vectors.T
        scores[np.arange(len(block)), block] = -np.inf
        columns[block] = np.argpartition(-scores, most - 1, axis=1)[:, :most]
    ends = np.stack([rows, columns.ravel()])
    first, second = np.unique(np.hstack([ends, ends[::-1]]), axis=1)  # each link once
    cosines = np.einsum("ij,ij->i", query_vectors[first], document_vectors[second])
    cosines += np.einsum("ij,ij->i", query_vectors[second], document_vectors[first])
    return csr_array(coo_array((cosines.astype(np.float64) / 2, (first, second)), (n, n)))


def spectral_clusters(
    queries: Vectors, documents: Vectors, cluster_size: int, seed: int = 0, neighbours: int = 20
) -> Positions:
    """Clusters with much contrastive loss inside, by a normalised cut (Cho et al. 2024): `(n,)`."""
    from sklearn.cluster import SpectralClustering

    count = math.ceil(len(queries) / cluster_size)
    if count == 1:
        return np.zeros(len(queries), np.int64)
    graph = neighbour_graph(queries, documents, neighbours).tocoo()
    own = (queries * documents).sum(axis=1)
    rows, columns = graph.row, graph.col
    there = (queries[rows] * documents[columns]).sum(axis=1)
    back = (queries[columns] * documents[rows]).sum(axis=1)
    # −log softmax of two: each of the two queries against each other's document, and of the
    # two documents against each other's query
    losses = [
        np.logaddexp(0, (other - own[side]) / _TEMPERATURE)
        for side, other in ((rows, there), (columns, back), (rows, back), (columns, there))
    ]
    weights = csr_array((np.mean(losses, axis=0), (rows, columns)), graph.shape)
    # links so weak that they decide nothing, which make one graph of parts that have none
    n, places = len(queries), np.arange(len(queries))
    ring = coo_array((np.full(n, 1e-6), (places, np.roll(places, 1))), (n, n)).tocsr()
    affinity = csr_array((weights + weights.T) / 2 + csr_array(ring + ring.T))
    for indices in ("indices", "indptr"):  # scikit-learn takes no others
        setattr(affinity, indices, getattr(affinity, indices).astype(np.int32))
    found = SpectralClustering(
        count, affinity="precomputed", assign_labels="cluster_qr", random_state=seed
    ).fit_predict(affinity)
    return np.unique(found, return_inverse=True)[1].astype(np.int64)


def communities(
    queries: Vectors, documents: Vectors, cluster_size: int, seed: int = 0, neighbours: int = 20
) -> Positions:
    """Communities of a graph of ranks (B3): `(n,)`; what Louvain cannot cut stays large."""
    import networkx

    graph = neighbour_graph(queries, documents, neighbours)
    labels, count = np.zeros(len(queries), np.int64), 0
    waiting = [networkx.from_scipy_sparse_array(graph.maximum(0))]
    while waiting:
        part = waiting.pop()
        found = [set(part)]
        if len(part) > cluster_size:
            found = networkx.community.louvain_communities(part, seed=seed)
        if len(found) > 1:
            waiting += [part.subgraph(members).copy() for members in found]
        else:
            labels[list(part)] = count
            count += 1
    return labels


def outliers(
    query_vectors: Vectors,
    document_vectors: Vectors,
    share: float = 0.2,
    domains: Sequence[str] | None = None,
) -> NDArray[np.bool_]:
    """Pairs that have no near neighbour in their domain (clustering paper §7.3), `(n,)` bool."""
    far = np.zeros(len(query_vectors), bool)
    for rows in domain_shards(len(far), 1, domains):
        graph = neighbour_graph(query_vectors[rows], document_vectors[rows], 1)
        nearest = graph.max(axis=1).toarray().ravel()
        far[rows[np.argsort(nearest, kind="stable")[: int(share * len(rows))]]] = True
    return far


def by_domain(
    cut: Callable[..., Positions],
    queries: Vectors,
    documents: Vectors,
    cluster_size: int,
    domains: Sequence[str] | None,
    **options: int,
) -> Positions:
    """The labels that a cut gives the pairs of each domain, numbered domain after domain."""
    shards = domain_shards(len(queries), cluster_size, domains)
    labels, offset = np.zeros(len(queries), np.int64), 0
    for rows in progress(shards, f"cutting {len(queries):,} pairs", unit="domains"):
        labels[rows] = cut(queries[rows], documents[rows], cluster_size, **options) + offset
        offset = int(labels[rows].max()) + 1
    return labels

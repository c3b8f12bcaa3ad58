"""Graphs of neighbouring pairs, their cuts and communities, and outliers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from pairs_in_groups import unit

from cde_studies.clustering import graphs

Vectors = NDArray[np.float32]
CUTS: list[Callable[..., NDArray[np.int64]]] = [graphs.spectral_clusters, graphs.communities]


def planted(groups: int, size: int, seed: int = 0) -> tuple[Vectors, Vectors, NDArray[np.int64]]:
    """Pairs around well separated centres, in shuffled order."""
    generator = np.random.default_rng(seed)
    group = generator.permutation(np.repeat(np.arange(groups), size))
    centres = 4 * np.eye(groups, 12)[group]
    sides = [unit(centres + generator.normal(size=centres.shape) / 2) for _ in range(2)]
    return sides[0], sides[1], group


def partition(labels: NDArray[np.int64]) -> set[frozenset[int]]:
    return {frozenset(np.flatnonzero(labels == label).tolist()) for label in set(labels.tolist())}


@pytest.mark.parametrize("neighbours", [1, 3, 50])
def test_links_are_those_of_a_full_sort(neighbours: int) -> None:
    queries, documents, _ = planted(3, 7)
    scores = (queries @ documents.T + documents @ queries.T) / 2
    np.fill_diagonal(scores, -np.inf)
    ranks = np.argsort(np.argsort(-scores, axis=1), axis=1)
    named = (ranks < neighbours) & ~np.eye(len(queries), dtype=bool)
    expected = np.where(named | named.T, scores, 0)
    graph = graphs.neighbour_graph(queries, documents, neighbours)
    np.testing.assert_allclose(graph.toarray(), expected, atol=1e-6)


@pytest.mark.parametrize("cut", CUTS)
def test_planted_groups_are_found(cut: Callable[..., NDArray[np.int64]]) -> None:
    queries, documents, group = planted(4, 16)
    labels = cut(queries, documents, cluster_size=16, neighbours=8)
    assert partition(labels) == partition(group)


@pytest.mark.parametrize("cut", CUTS)
def test_clusters_stay_within_domains_and_are_numbered_domain_after_domain(
    cut: Callable[..., NDArray[np.int64]],
) -> None:
    queries, documents, _ = planted(2, 20)
    domains = np.where(np.arange(40) % 2, "b", "a")
    labels = graphs.by_domain(cut, queries, documents, 10, domains.tolist(), neighbours=5)
    assert set(labels[domains == "a"].tolist()).isdisjoint(labels[domains == "b"].tolist())
    assert set(labels.tolist()) == set(range(labels.max() + 1))
    assert labels[domains == "a"].max() < labels[domains == "b"].min()
    # a domain's clusters do not depend on the other domain
    alone = cut(queries[::2], documents[::2], cluster_size=10, neighbours=5)
    assert partition(alone) == partition(labels[::2])


@pytest.mark.parametrize("cut", CUTS)
def test_the_same_seed_gives_the_same_clusters(cut: Callable[..., NDArray[np.int64]]) -> None:
    queries, documents, _ = planted(3, 20)
    first, second = (cut(queries, documents, cluster_size=9, seed=5) for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_large_communities_are_cut_again() -> None:
    queries, documents, _ = planted(2, 60)
    sizes = np.bincount(graphs.communities(queries, documents, cluster_size=25, neighbours=5))
    assert sizes.max() <= 25
    assert np.bincount(graphs.communities(queries, documents, 60, neighbours=5)).max() > 25


def test_what_lies_apart_is_an_outlier_in_each_domain() -> None:
    queries, documents, _ = planted(3, 10)
    apart = [4, 17]
    for place, row in enumerate(apart):
        queries[row] = documents[row] = np.eye(12, dtype=np.float32)[8 + place]
    found = graphs.outliers(queries, documents, share=0.07, domains=["a"] * 15 + ["b"] * 15)
    assert np.flatnonzero(found).tolist() == apart
    assert not graphs.outliers(queries, documents, share=0).any()
    assert graphs.outliers(queries, documents, share=1).all()

"""The recipe of the clustering paper, and the ways of making batches that compete."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import cde
from cde_studies.clustering.clustering_recipe import ClusteringRecipe, clustering_recipe
from cde_studies.clustering.groupings import Material, near_copies, train_way, ways


@pytest.fixture(scope="module")
def recipe() -> ClusteringRecipe:
    of = clustering_recipe("smoke")
    return replace(of, base=replace(of.base, data="pydocs"))


@pytest.fixture(scope="module")
def material(recipe: ClusteringRecipe) -> Material:
    pairs = recipe.of_large_sources
    return Material(pairs, recipe.vectors_of(pairs), batch_size=8, steps=30, seed=1)


@pytest.mark.parametrize("name", ways())
def test_every_way_makes_a_plan_of_whole_batches_without_repeats(
    name: str, material: Material
) -> None:
    way = ways()[name]
    plan, _ = way.made(material)
    again, _ = way.made(material)
    assert plan.shape == (round(30 * way.times), 8)
    assert plan.min() >= 0
    assert plan.max() < len(material.pairs)
    for batch in plan:
        assert len(set(batch.tolist())) == 8
    np.testing.assert_array_equal(plan, again)


MIX = {
    name
    for name in ways()
    if "random" in name
    or "negatives" in name
    or name in ("hardness-weighted loss", "paired, outliers apart")
} | {"hardest pairs in the batch", "paired, ever smaller"}


@pytest.mark.parametrize("name", sorted(set(ways()) - MIX))
def test_clusters_and_sources_never_mix_sources(name: str, material: Material) -> None:
    plan, _ = ways()[name].made(material)
    for batch in plan:
        assert len(set(material.domains[batch].tolist())) == 1


@pytest.mark.parametrize("name", ["clusters of both sides", "paired clusters", "communities"])
def test_batches_of_clusters_are_harder_than_batches_of_a_source(
    name: str, material: Material
) -> None:
    """By the surrogate that made them: the mean cosine of a query with the other documents."""
    queries, documents = material.vectors

    def hardness(way: str) -> float:
        plan, _ = ways()[way].made(material)
        scores = [queries[batch] @ documents[batch].T for batch in plan]
        return float(np.mean([(one.sum() - np.trace(one)) / (8 * 7) for one in scores]))

    assert hardness(name) > hardness("by source") > hardness("random")


def test_ever_smaller_goes_from_chance_to_small_clusters(material: Material) -> None:
    plan, _ = ways()["paired, ever smaller"].made(material)
    sources = [len(set(material.domains[batch].tolist())) for batch in plan]
    assert np.mean(sources[:8]) > 3
    assert sources[8:] == [1] * 22


def test_near_copies_have_a_kept_original_before_them_and_the_kept_are_apart() -> None:
    generator = np.random.default_rng(0)
    vectors = generator.normal(size=(60, 3)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    domains = ["a"] * 30 + ["b"] * 25 + ["c"] * 5
    copies, cosines = near_copies(vectors, domains, 4), vectors @ vectors.T
    assert 0 < copies[:30].sum() < 26
    for row in range(60):
        before = [one for one in range(row) if domains[one] == domains[row] and not copies[one]]
        alike = bool((cosines[row, before] > 0.9).any())
        assert alike == copies[row] or domains[row] == "c"
    few = np.repeat(vectors[:1], 5, axis=0)
    assert not near_copies(few, None, 2).any()
    np.testing.assert_array_equal(near_copies(few, None, 1), [False, *[True] * 4])


def test_pairs_held_out_are_not_trained_on(recipe: ClusteringRecipe) -> None:
    held = next(test for test in recipe.tests() if test.where == "in").collection
    assert not set(held.queries) & set(recipe.pairs.queries)
    assert len(recipe.pairs) == 360
    assert set(recipe.as_one_source.domains) == {"one source"}
    _, counts = np.unique(recipe.of_large_sources.domains, return_counts=True)
    assert counts.min() >= recipe.base.batch_size


def test_a_way_made_anew_goes_on_with_the_rate_where_it_was(recipe: ClusteringRecipe) -> None:
    base = replace(recipe.base, steps=10, warmup_steps=2)
    of = replace(recipe, base=base)
    runs, _ = train_way(of, ways()["paired, clustered anew"], seed=3)
    (one,), _ = train_way(of, replace(ways()["paired clusters, tour"]), seed=3)
    whole = cde.train(replace(one.config, warmup_steps=2), of.of_large_sources)
    rates = np.concatenate([run.metrics["learning_rate"] for run in runs])
    np.testing.assert_allclose(rates, whole.metrics["learning_rate"], rtol=1e-9)
    assert not np.array_equal(
        runs[0].model().encode_documents(["red boats"]),
        runs[1].model().encode_documents(["red boats"]),
    )

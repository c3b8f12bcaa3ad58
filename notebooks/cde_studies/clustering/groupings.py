"""Ways of putting pairs into batches, under one budget (clustering paper §7, CDE §4.1).

Each way makes a plan of as many batches as training takes (`cde_studies.clustering.plans`), from
pairs and what a surrogate says of them. So all ways can be trained with the same encoder, optimiser
and number of steps, and the seconds that a way itself takes can be told apart from those of
training.

Ways that need a surrogate need its vectors first. Embedding is the dearest part, and is the same
for all of them; `surrogate_seconds` estimates it.

Cost: that of the way, seconds for some thousands of pairs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cde.batching.clustering import cluster_pairs, cluster_vectors
from cde.batching.negatives import mine_hard_negatives
from cde.batching.packing import BatchSampler
from cde.data import Pairs
from cde.models import BiEncoder
from cde.training.runs import Run
from cde_studies.clustering.clustering_recipe import ClusteringRecipe
from cde_studies.clustering.graphs import communities, outliers, spectral_clusters
from cde_studies.clustering.plans import join_plans, plan_batches, plan_with_hardest

__all__ = ["Material", "Way", "surrogate_seconds", "train_way", "ways"]

Vectors = NDArray[np.float32]
Positions = NDArray[np.int64]
#: batches of hard negatives have so many texts for each pair of others (a query, two documents)
_TEXTS_WITH_NEGATIVE = 1.5


@dataclass(frozen=True)
class Material:
    """What batches are made of."""

    pairs: Pairs
    vectors: tuple[Vectors, Vectors]
    batch_size: int
    steps: int
    seed: int = 0

    @cached_property
    def domains(self) -> NDArray[np.str_]:
        """The source of each pair."""
        return np.asarray(self.pairs.domains)

    def packed(
        self,
        labels: Positions | None = None,
        domains: NDArray[np.str_] | None = None,
        tour: bool = False,
    ) -> Positions:
        """A plan of clusters laid end to end within each source and cut (CDE §4.1)."""
        own = np.zeros(len(self.pairs), np.int64) if labels is None else labels
        sampler = BatchSampler(
            own,
            self.batch_size,
            order="tsp" if tour else "random",
            vectors=self.vectors[1] if tour else None,
            domains=self.domains if domains is None else domains,
            seed=self.seed,
        )
        return plan_batches(sampler, self.steps)

    def paired(self, size: int | None = None) -> Positions:
        """Clusters of CDE's Eq. 3; by default of as many pairs as a batch."""
        return cluster_pairs(*self.vectors, **self._options(size))

    def _options(self, size: int | None = None) -> dict[str, Any]:
        wanted = self.batch_size if size is None else size
        return {"cluster_size": wanted, "domains": self.pairs.domains, "seed": self.seed}

    def one_side(self, vectors: Vectors) -> Positions:
        """Clusters of spherical k-means on these vectors (clustering paper §2)."""
        return cluster_vectors(vectors, **self._options())

    def by_graph(self, cut: Callable[..., Positions]) -> Positions:
        """Clusters of `cde_studies.clustering.graphs`."""
        return cut(*self.vectors, **self._options())

    def hardest(self, count: int) -> Positions:
        """Each query's hardest negatives within its source."""
        return mine_hard_negatives(*self.vectors, count, self.pairs.domains)


@dataclass(frozen=True)
class Way:
    """A way of making batches."""

    plan: Callable[[Material], Positions]
    needs_surrogate: bool = True
    change: Mapping[str, Any] = field(default_factory=dict)
    times: float = 1.0
    anew: bool = False
    idea: str = ""

    def made(self, material: Material) -> tuple[Positions, float]:
        """The plan, and the seconds that it took; `times` is counted in."""
        longer = replace(material, steps=max(1, round(self.times * material.steps)))
        begun = time.perf_counter()
        plan = self.plan(longer)
        return plan, time.perf_counter() - begun


def ways() -> dict[str, Way]:
    """Every way of making batches, by name."""
    negative = {"hard_negatives": 1, "filter_epsilon": 0.0}
    return {
        "random": Way(_random, needs_surrogate=False, idea="the baseline"),
        "random, twice as long": Way(_random, needs_surrogate=False, times=2),
        "random, four times as long": Way(_random, needs_surrogate=False, times=4),
        "by source": Way(lambda of: of.packed(), needs_surrogate=False, idea="Arctic Embed, Nomic"),
        "by source, twice as long": Way(lambda of: of.packed(), needs_surrogate=False, times=2),
        "hardness-weighted loss": Way(
            _random, needs_surrogate=False, change={"hardness": 9.0}, idea="Lan et al. 2025"
        ),
        "hard negatives": Way(
            _random, change=negative, times=1 / _TEXTS_WITH_NEGATIVE, idea="ANCE, mined once"
        ),
        "hardest pairs in the batch": Way(_with_hardest, idea="clustering paper §5.2"),
        "clusters of passages": Way(
            lambda of: of.packed(of.one_side(of.vectors[1])), idea="clustering paper §2"
        ),
        "clusters of queries": Way(
            lambda of: of.packed(of.one_side(of.vectors[0])), idea="clustering paper §2, TAS-B"
        ),
        "clusters of both sides": Way(
            lambda of: of.packed(of.one_side(np.hstack(of.vectors))),
            idea="clustering paper, footnote 2",
        ),
        "paired clusters": Way(lambda of: of.packed(of.paired()), idea="CDE Eq. 3"),
        "paired clusters, tour": Way(
            lambda of: of.packed(of.paired(), tour=True), idea="CDE §4.1, Packing"
        ),
        "paired, small clusters": Way(
            lambda of: of.packed(of.paired(max(2, of.batch_size // 8)), tour=True),
            idea="many clusters a batch, CDE §6",
        ),
        "spectral clusters": Way(
            lambda of: of.packed(of.by_graph(spectral_clusters)), idea="Cho et al. 2024"
        ),
        "communities": Way(lambda of: of.packed(of.by_graph(communities)), idea="B3, 2025"),
        "paired, outliers apart": Way(_outliers_apart, idea="clustering paper §7.3"),
        "paired, ever smaller": Way(_shrinking, idea="clustering paper §5.1 and §7.5"),
        "paired, clustered anew": Way(
            lambda of: of.packed(of.paired(), tour=True), anew=True, idea="clustering paper §7.5"
        ),
    }


def _random(of: Material) -> Positions:
    return of.packed(domains=np.zeros(len(of.pairs), np.str_))


def _with_hardest(of: Material) -> Positions:
    return plan_with_hardest(of.hardest(4), of.batch_size, of.steps, of.seed)


def _outliers_apart(of: Material) -> Positions:
    far = outliers(*of.vectors, domains=of.pairs.domains)
    domains = np.where(far, "outliers of every source", of.domains)
    labels = cluster_pairs(*of.vectors, of.batch_size, domains=domains.tolist(), seed=of.seed)
    return of.packed(labels, domains, tour=True)


def _shrinking(of: Material) -> Positions:
    """By chance, then by source, then clusters of four batches, then of one."""
    large, small = of.paired(4 * of.batch_size), of.paired()
    parts = [_random(of), of.packed(), of.packed(large), of.packed(small, tour=True)]
    return join_plans(parts, of.steps)


def train_way(recipe: ClusteringRecipe, way: Way, seed: int) -> tuple[list[Run], float]:
    """Train on the batches of a way.

    A way whose second half is made anew is trained in two runs. The rate goes on where it was; the
    optimiser's moments begin again.

    Returns:
        The runs, the last of which has the encoder; and the seconds that the batches took,
        embedding with the encoder in training included, with the surrogate not.
    """
    pairs, base = recipe.of_large_sources, recipe.base
    vectors = recipe.vectors_of(pairs)
    material = Material(pairs, vectors, base.batch_size, base.steps, seed)
    if not way.anew:
        plan, seconds = way.made(material)
        length = {"steps": len(plan), "warmup_steps": len(plan) // 8}
        return [recipe.train_on(pairs, {**way.change, **length}, seed, plan)], seconds
    half, rest = base.steps // 2, base.steps - base.steps // 2
    share = (rest + base.final_rate * (half - base.warmup)) / (base.steps - base.warmup)
    plan, seconds = way.made(replace(material, steps=half))
    change = {**way.change, "steps": half, "final_rate": share}
    first = recipe.train_on(pairs, change, seed, plan)
    begun, model = time.perf_counter(), first.model()
    vectors = model.encode_queries(pairs.queries), model.encode_documents(pairs.documents)
    embedding = time.perf_counter() - begun
    again, more = way.made(replace(material, vectors=vectors, steps=rest, seed=seed + 1))
    change = {**way.change, "steps": rest, "start": str(first.folder / "model")}
    change |= {"learning_rate": share * base.learning_rate, "warmup_steps": 0}
    second = recipe.train_on(pairs, {**change, "final_rate": base.final_rate / share}, seed, again)
    return [first, second], seconds + embedding + more


def surrogate_seconds(pairs: Pairs, tokens: int, sample: int = 128) -> float:
    """Seconds that MiniLM takes here to embed all pairs, from a sample that it embeds anew."""
    encoder = BiEncoder.from_backbone("minilm", max_tokens=tokens)
    some = pairs.sample(sample, 0)
    encoder.encode_documents(some.documents[:8])  # the first call is slower
    begun = time.perf_counter()
    encoder.encode_queries(some.queries)
    encoder.encode_documents(some.documents)
    return (time.perf_counter() - begun) * len(pairs) / len(some)

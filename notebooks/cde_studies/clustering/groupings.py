"""Ways of putting pairs into batches, under one budget (clustering paper §7, CDE §4.1).

Each way makes a plan of as many batches as training takes, one row a step (`cde.train(plan=…)`),
from pairs and what a surrogate says of them. So all ways can be trained alike, and the seconds that
a way itself takes can be told apart from those of training. The dearest part of those that need a
surrogate is embedding, which is the same for all of them; `surrogate_seconds` estimates it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cde.batching.clustering import cluster_pairs, cluster_vectors, rows_by_domain
from cde.batching.negatives import mine_hard_negatives
from cde.batching.packing import BatchSampler
from cde.data import Pairs
from cde.models import BiEncoder
from cde.training.runs import Run
from cde.validation import Positions, Vectors
from cde_studies.clustering.clustering_recipe import ClusteringRecipe
from cde_studies.clustering.graphs import by_domain, communities, outliers, spectral_clusters
from cde_studies.clustering.greedy import greedy_plan

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
        return np.stack([next(sampler) for _ in range(self.steps)])

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
        return by_domain(cut, *self.vectors, **self._options())


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
        "hard negatives, batch unfiltered": Way(
            _random,
            change=negative | {"filter_epsilon": None},
            times=1 / _TEXTS_WITH_NEGATIVE,
            idea="Eq. 4 for what is mined alone",
        ),
        "hard negatives without a limit": Way(
            _random,
            change=negative | {"filter_epsilon": 2.0},  # nothing scores so far above the answer
            times=1 / _TEXTS_WITH_NEGATIVE,
            idea="the same without Eq. 4",
        ),
        "hardest pairs in the batch": Way(_with_hardest, idea="clustering paper §5.2"),
        "clusters of passages": Way(
            lambda of: of.packed(of.one_side(of.vectors[1])), idea="clustering paper §2"
        ),
        "clusters of passages, thinned": Way(_thinned, idea="clustering paper §7.3"),
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
        "paired clusters, tour, filter": Way(
            lambda of: of.packed(of.paired(), tour=True),
            change={"filter_epsilon": 0.0},
            idea="CDE's recipe: §4.1 with Eq. 4",
        ),
        "paired, small clusters": Way(
            lambda of: of.packed(of.paired(max(2, of.batch_size // 8)), tour=True),
            idea="many clusters a batch, CDE §6",
        ),
        "spectral clusters": Way(
            lambda of: of.packed(of.by_graph(spectral_clusters)), idea="Cho et al. 2024"
        ),
        "communities": Way(lambda of: of.packed(of.by_graph(communities)), idea="B3, 2025"),
        "greedy, by loss": Way(_greedy, idea="HOBIT, 2026"),
        "paired, outliers apart": Way(_outliers_apart, idea="clustering paper §7.3"),
        "paired, ever smaller": Way(_shrinking, idea="clustering paper §5.1 and §7.5"),
        "paired, clustered anew": Way(
            lambda of: of.packed(of.paired(), tour=True), anew=True, idea="clustering paper §7.5"
        ),
    }


def _random(of: Material) -> Positions:
    return of.packed(domains=np.zeros(len(of.pairs), np.str_))


def _with_hardest(of: Material) -> Positions:
    hardest = mine_hard_negatives(*of.vectors, 4, of.pairs.domains)
    return plan_with_hardest(hardest, of.batch_size, of.steps, of.seed)


def _thinned(of: Material) -> Positions:
    kept = np.flatnonzero(~near_copies(of.vectors[1], of.pairs.domains, of.batch_size))
    queries, passages = of.vectors
    fewer = replace(of, pairs=of.pairs.select(kept), vectors=(queries[kept], passages[kept]))
    return kept[fewer.packed(fewer.one_side(fewer.vectors[1]))]


def near_copies(
    vectors: Vectors, domains: Sequence[str] | None, least: int, cosine: float = 0.9
) -> NDArray[np.bool_]:
    """Passages that say the same as an earlier one of their domain which is kept, `(n,)` bool. A
    domain that would have fewer than `least` without them keeps them all.
    """
    copies = np.zeros(len(vectors), bool)
    for rows in rows_by_domain(domains, len(vectors)):
        own, found = vectors[rows], np.zeros(len(rows), bool)
        for place in range(len(rows)):
            if not found[place]:
                found[place + 1 :] |= own[place + 1 :] @ own[place] > cosine
        copies[rows] = found & ((~found).sum() >= least)
    return copies


def _greedy(of: Material) -> Positions:
    return greedy_plan(*of.vectors, of.domains, of.batch_size, of.steps, seed=of.seed)


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
        The runs, the last of which has the encoder; and the seconds that the batches took, with
        embedding by the encoder in training, without embedding by the surrogate.
    """
    pairs, base = recipe.of_large_sources, recipe.base
    material = Material(pairs, recipe.vectors_of(pairs), base.batch_size, base.steps, seed)
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


def join_plans(plans: Sequence[Positions], steps: int) -> Positions:
    """A curriculum: equal parts of several plans, one after the other, `(steps, batch_size)`. Each
    gives its first rows, as many as its part has.
    """
    parts = np.array_split(np.arange(steps), len(plans))
    return np.concatenate([plan[: len(part)] for plan, part in zip(plans, parts, strict=True)])


def plan_with_hardest(hardest: Positions, batch_size: int, steps: int, seed: int = 0) -> Positions:
    """Batches in which pairs stand beside the pair of their hardest negative (clustering paper
    §5.2), `(steps, batch_size)`; no pair stands twice in a batch.

    Half of a batch is drawn by chance, epoch after epoch. Each pair brings the first of its hardest
    negatives that is not in the batch yet, with that document's own query; a pair all of whose
    negatives are there brings one by chance.
    """
    n = len(hardest)
    if batch_size < 2 or batch_size % 2 or batch_size > n:
        raise ValueError(f"batch_size must be even and at most {n} pairs; it is {batch_size}")
    generator = np.random.default_rng(seed)
    half, waiting, plan = batch_size // 2, np.zeros(0, np.int64), []
    for _ in range(steps):
        if len(waiting) < half:
            waiting = generator.permutation(n)
        drawn, waiting = waiting[:half], waiting[half:]
        batch = dict.fromkeys(drawn.tolist())
        for row in drawn:
            free = (one for one in hardest[row].tolist() if one not in batch)
            brought = next(free, None)
            while brought is None or brought in batch:
                brought = int(generator.integers(n))
            batch[brought] = None
        plan.append(list(batch))
    return np.array(plan, dtype=np.int64).reshape(steps, batch_size)

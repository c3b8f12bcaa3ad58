"""How the chapters on *Embedding and clustering your data* train (its appendix A).

The optimiser is the paper's: AdamW with PyTorch's defaults, a warm-up over an eighth of the steps
(50 of some 370 there), linear decay to a tenth of the rate, gradients cut to length 1, τ = 0.02, no
filter, three epochs. Data and encoder are the profile's. At `laptop` and `hours` the encoder is a
mean of word embeddings, without any layer: it trains in a minute, so that many arms can have many
seeds. At `day` it has two layers of MiniLM and the mean of their states; from `gpu` on, six and
[CLS], as in the paper.

The learning rate on a CPU was chosen on shuffled batches alone: of 4e-4, 1e-3, 3e-3 and 1e-2, the
least that came within a tenth of a point of the best on nine collections.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cde.data import Pairs, RetrievalSet
from cde.surrogate import Surrogate
from cde.training.runs import Run, train
from cde_studies.recipes import (
    EvaluationSet,
    Recipe,
    chosen,
    profile_values,
    recipe,
    training_pairs,
)
from cde_studies.workers import in_workers

#: settings that a chapter's parameters of the same name replace
PARAMETERS = ("data", "pairs", "epochs", "batch_size", "layers", "learning_rate")
_APPENDIX_A: dict[str, Any] = {
    "architecture": "bi-encoder",
    "layers": 0,
    "first_stage_layers": None,
    "batches": "random",
    "filter_epsilon": None,
    "temperature": 0.02,
    "weight_decay": 0.01,
    "final_rate": 0.1,
    "clip_gradients": 1.0,
    "warmup_steps": None,
    "checkpoint_every": 0,
    "chunk_tokens": None,
    "uncached_tokens": None,
    "context_size": 1,
}


@dataclass(frozen=True)
class ClusteringRecipe(Recipe):
    """A recipe with pairs that are kept for a test in domain."""

    epochs: float
    kept: int

    @cached_property
    def _split(self) -> tuple[Pairs, Pairs]:
        every = training_pairs(self.base.data)
        wanted = len(every) if self.base.pairs is None else self.base.pairs + self.kept
        drawn = every.sample(wanted, 0)
        order = np.random.default_rng(0).permutation(len(drawn))
        held, rest = np.sort(order[: self.kept]), np.sort(order[self.kept :])
        return drawn.select(rest), drawn.select(held)

    @property
    def pairs(self) -> Pairs:
        """The pairs that every run trains on, whatever its seed."""
        return self._split[0]

    @property
    def as_one_source(self) -> Pairs:
        """The same, as if all came from one source: the paper's data do (MS MARCO)."""
        return replace(self.pairs, domains=["one source"] * len(self.pairs))

    @cached_property
    def of_large_sources(self) -> Pairs:
        """Those of sources that fill a batch: no way of making batches leaves any of them out."""
        pairs = self.pairs
        _, places, counts = np.unique(pairs.domains, return_inverse=True, return_counts=True)
        return pairs.select(counts[places] >= self.base.batch_size)

    @cached_property
    def vectors(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """The surrogate's vectors of the pairs' queries and documents, `(n, dim)` each."""
        return self.vectors_of(self.pairs)

    @property
    def surrogate(self) -> Surrogate:
        return Surrogate(self.base.surrogate, max_tokens=self.base.surrogate_tokens)

    def vectors_of(self, pairs: Pairs) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        model = self.surrogate
        return model.encode_queries(pairs.queries), model.encode_documents(pairs.documents)

    def train_on(
        self, pairs: Pairs, arm: Mapping[str, Any], seed: int, plan: Any = None, tests: Any = ()
    ) -> Run:
        """The run of an arm on these pairs, for the recipe's epochs of its own batches."""
        config = replace(self.base, **{**arm, "pairs": None, "seed": seed})
        return train(config, pairs, plan=plan, tests=tests)

    def train_all(
        self,
        pairs: Pairs,
        arms: Mapping[str, Mapping[str, Any]],
        seeds: Sequence[int],
        look: Callable[[Run], pd.DataFrame],
        tests: Any = (),
    ) -> pd.DataFrame:
        """What is seen of the runs of arms with every seed, in so many processes as $CDE_JOBS."""
        every = [(arm, seed) for arm in arms for seed in seeds]
        runs = in_workers(
            lambda which: self.train_on(pairs, arms[which[0]], which[1], tests=tests),
            every,
            "training",
        )
        seen = [
            look(run).assign(arm=arm, seed=seed)
            for (arm, seed), run in zip(every, runs, strict=True)
        ]
        return pd.concat(seen, ignore_index=True)

    def record_key(self, **chapter: Any) -> dict[str, Any]:
        return super().record_key(**chapter, epochs=self.epochs, held_out=self.kept)

    def tests(self) -> list[EvaluationSet]:
        """The recipe's sets out of domain, and one in domain: the pairs that were held out."""
        documents, queries = self.sizes
        held = self._split[1].sample(documents, 0)
        own = EvaluationSet("held-out pairs", RetrievalSet.from_pairs(held, queries), "in")
        return [*(test for test in super().tests() if test.where == "out"), own]


def clustering_recipe(profile: str, settings: Any = None) -> ClusteringRecipe:
    """The recipe of a profile, after the clustering paper's appendix A."""
    values = profile_values(Path(__file__).with_suffix(".yml"), profile)
    given = chosen(settings, PARAMETERS)
    epochs = float(given.pop("epochs", values["epochs"]))
    of = recipe(profile, data=given.get("data"))
    first = {**_APPENDIX_A, **values["first"], **given, "data": of.base.data}
    config = replace(of.base, **first)
    kept = int(values["held_out"])
    pairs = config.pairs or len(training_pairs(config.data)) - kept
    steps = max(1, int(epochs * pairs / config.batch_size))
    base = replace(config, steps=steps, warmup_steps=steps // 8)
    return ClusteringRecipe(
        profile, base, tuple(values["sizes"]), of.second, epochs=epochs, kept=kept
    )


def long_recipe() -> ClusteringRecipe:
    """Two layers and a thousand updates of 128 pairs, a quarter of an hour of one core."""
    return clustering_recipe("day", SimpleNamespace(batch_size=128, epochs=1.28))

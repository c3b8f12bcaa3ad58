"""What the result chapters train and test on, at each profile: one recipe, so that chapters share runs.

A chapter states how its arms differ from the recipe; `sweep` trains what the store lacks, tests every
model on every set in every context asked for, and gives one row for each. Two chapters with an arm in
common train it once.

Contexts of a contextual encoder when it is tested:

- `own`: documents of the corpus that is searched, as the paper does;
- `other`: documents of the next corpus in the list, so that the context is real and wrong;
- `null`: null tokens, so that the encoder has its parameters and no context.

The last two are the control that the papers lack: a gain that they show as well is not the context's.

Cost: that of the runs, and of 2 to 30 seconds a set, model and context on two cores.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pandas as pd

from cde.data import Pairs, RetrievalSet, is_available, load_pairs, load_retrieval
from cde.models import BiEncoder, ContextualEncoder
from cde.progress import progress
from cde.retrieval import evaluate
from cde.runs import Run, train
from cde.training import TrainConfig

__all__ = ["Context", "Recipe", "Test", "evaluate_in_contexts", "recipe", "sweep"]

Context = Literal["own", "other", "null"]
_COLLECTIONS = (
    "scifact",
    "med",
    "cranfield",
    "cacm",
    "cisi",
    "csfcube",
    "covidqa-docs",
    "cosqa",
    "climate-fever-evidence",
)
_HELD_OUT = ("sympy", "networkx", "polars", "sqlalchemy")
_SEEN = ("pandas", "scipy", "torch")

_SMOKE: dict[str, Any] = {
    "layers": 1, "first_stage_layers": 1, "pairs": 400, "batch_size": 16, "cluster_size": 16, "context_size": 8,
    "steps": 2, "warmup_steps": 1, "learning_rate": 3e-4, "query_tokens": 8, "document_tokens": 12,
    "context_tokens": 12, "surrogate_tokens": 12, "checkpoint_every": 0,
}  # fmt: skip
_LAPTOP: dict[str, Any] = {
    "layers": 2, "first_stage_layers": 2, "pairs": 6000, "batch_size": 128, "cluster_size": 128, "context_size": 32,
    "steps": 50, "warmup_steps": 5, "learning_rate": 3e-4, "query_tokens": 20, "document_tokens": 48,
    "context_tokens": 48, "surrogate_tokens": 48, "checkpoint_every": 0, "uncached_tokens": 65_536,
}  # fmt: skip
_GPU: dict[str, Any] = {
    "data": "pairs/*", "layers": 6, "batch_size": 512, "cluster_size": 512, "context_size": 64, "steps": 2000,
    "warmup_steps": 200, "learning_rate": 1e-4, "checkpoint_every": 500,
}  # fmt: skip
_PAPER: dict[str, Any] = {
    "data": "pairs/*", "start": "nomic-ai/nomic-bert-2048", "batch_size": 512, "cluster_size": 512,
    "context_size": 512, "steps": 460_000, "query_tokens": 512, "document_tokens": 512, "context_tokens": 512,
    "checkpoint_every": 1000,
}  # fmt: skip


@dataclass(frozen=True)
class Test:
    """A set to be tested on.

    Attributes:
        name: short, for tables.
        sets: corpus, queries and judgements.
        where: "out" of the domains that training saw, or "in" them.
    """

    name: str
    sets: RetrievalSet
    where: Literal["in", "out"]


@dataclass(frozen=True)
class Recipe:
    """What a profile trains and tests with.

    Attributes:
        base: the config that arms depart from.
        sizes: the most documents and queries of a test set.
    """

    profile: str
    base: TrainConfig
    sizes: tuple[int, int]

    def pairs(self) -> Pairs:
        """The pairs that every run of this recipe trains on, whatever its seed."""
        pairs = load_pairs(self.base.data)
        return pairs if self.base.pairs is None else pairs.sample(self.base.pairs, 0)

    def kept(self, **chapter: Any) -> dict[str, Any]:
        """What a record of this recipe depends on: the config, the test sets' sizes, and the chapter's own settings.

        Example:
            >>> recipe("smoke").kept(seeds=2)["seeds"]
            2
        """
        kept = {**self.base.to_dict(), "sizes": list(self.sizes), **chapter}
        # with pydocs the test sets are always the same; elsewhere they are what lies in $CDE_DATA
        return kept if self.base.data == "pydocs" else {**kept, "tests": [name for name, _ in self._names()]}

    def tests(self) -> list[Test]:
        """Sets out of domain and in domain: packages that training never saw, and unseen docstrings of those it did.

        For other data than `pydocs`, nine collections of `$CDE_DATA`, as far as they are there. Nobody has checked
        that your own pairs hold none of their texts.

        Raises:
            ValueError: fewer than two sets.
        """
        names = self._names()
        if len(names) < 2:
            raise ValueError(
                f"with data {self.base.data!r} the tests are collections of $CDE_DATA/beir, of which {len(names)} are "
                f"here and two are needed: {', '.join(_COLLECTIONS)}"
            )
        documents, queries = self.sizes
        found = []
        for name, where in names:
            one = load_retrieval(name)
            if len(one.documents) > documents or len(one.queries) > queries:
                one = one.shrink(documents, queries, 0)
            found.append(Test(name.split("/")[1], one, where))
        return found

    def _names(self) -> list[tuple[str, Literal["in", "out"]]]:
        """Names of the test sets, and what they are to the training data."""
        if self.base.data != "pydocs":
            return [(f"beir/{name}", "out") for name in _COLLECTIONS if is_available(f"beir/{name}")]
        out, within = (_HELD_OUT, _SEEN) if self.profile != "smoke" else (_HELD_OUT[1:3], _SEEN[:1])
        return [*((f"pydocs/{name}", "out") for name in out), *((f"pydocs/{name}", "in") for name in within)]


def recipe(profile: str, **changes: Any) -> Recipe:
    """The recipe of a profile.

    Args:
        profile: "smoke", "laptop", "gpu" or "paper".
        changes: settings of `TrainConfig` in place of the recipe's; None leaves the recipe's. `layers` is
            the depth of both stages, unless `first_stage_layers` is given too.

    Raises:
        ValueError: an unknown profile or setting, or a value that does not fit.

    Used by every chapter of results.

    Example:
        >>> recipe("laptop", steps=10).base.steps
        10
    """
    profiles = {
        "smoke": (_SMOKE, (40, 20)), "laptop": (_LAPTOP, (300, 150)), "gpu": (_GPU, (50_000, 1000)),
        "paper": (_PAPER, (10**7, 10**5)),
    }  # fmt: skip
    if profile not in profiles:
        raise ValueError(f"profile must be one of {', '.join(profiles)}; it is {profile!r}")
    settings, sizes = profiles[profile]
    given = {name: value for name, value in changes.items() if value is not None}
    if "layers" in given:
        given.setdefault("first_stage_layers", given["layers"])
    if profile in ("gpu", "paper") and "data" not in given and not is_available("pairs/*"):
        given["data"] = "pydocs"
    return Recipe(profile, TrainConfig.from_dict({**settings, **given}), sizes)


def evaluate_in_contexts(
    model: BiEncoder | ContextualEncoder, tests: Sequence[Test], contexts: Iterable[Context] = ("own",), seed: int = 0
) -> pd.DataFrame:
    """NDCG@10 of an encoder on each set, in each context.

    Args:
        model: either encoder; a bi-encoder is tested once, its context is "none".
        tests: the sets; `other` takes the documents of the next one.
        contexts: see the module.
        seed: of the draw of the context.

    Returns:
        Columns set, where, context, ndcg (0 to 1).

    Raises:
        ValueError: the context `other` with a single set.
    """
    rows = []
    for place, test in enumerate(tests):
        for context in ("none",) if isinstance(model, BiEncoder) else tuple(contexts):
            if context == "other" and len(tests) < 2:
                raise ValueError("context 'other' needs a second test set to take documents from")
            source = tests[(place + 1) % len(tests)] if context == "other" else test
            documents = None if context == "null" else source.sets.documents
            encoder: Any = model if isinstance(model, BiEncoder) else model.with_context(documents, seed=seed)
            found = evaluate(encoder, test.sets)["ndcg@10"]
            rows.append({"set": test.name, "where": test.where, "context": context, "ndcg": found})
    return pd.DataFrame(rows)


def sweep(
    arms: Mapping[str, Mapping[str, Any]],
    seeds: Sequence[int],
    using: Recipe,
    contexts: Iterable[Context] = ("own",),
    tests: Sequence[Test] | None = None,
) -> pd.DataFrame:
    """Train and test every arm with every seed; runs that the store has are read back.

    Args:
        arms: name → settings in which the arm departs from the recipe.
        seeds: of training; the data and the test sets are the same for all.
        using: the recipe.
        contexts: in which contextual encoders are tested.
        tests: by default the recipe's.

    Returns:
        A row for each arm, seed, set and context: arm, seed, set, where, context, ndcg; and of the run: loss and
        accuracy (means of the last tenth of its steps), step_seconds (median).

    Raises:
        ValueError: settings that do not fit each other or the data.

    Used by every chapter of results.
    """
    pairs, tests = using.pairs(), using.tests() if tests is None else tests
    rows = []
    jobs = [(arm, seed) for arm in arms for seed in seeds]
    for arm, seed in progress(jobs, "training and testing", unit="runs"):
        # the recipe has drawn the pairs: seeds differ in weights and batches alone
        run = train(replace(using.base, **arms[arm], pairs=None, seed=seed), pairs)
        scores = evaluate_in_contexts(run.model(), tests, contexts)
        rows.append(scores.assign(arm=arm, seed=seed, **_ending(run)))
    return pd.concat(rows, ignore_index=True)


def _ending(run: Run) -> dict[str, float]:
    metrics = run.metrics
    last = metrics.tail(max(1, len(metrics) // 10))
    return {
        "loss": float(last["loss"].mean()),
        "accuracy": float(last["accuracy"].mean()),
        "step_seconds": float(np.median(metrics["seconds"])),
    }

"""Sweeps: many arms trained with every seed, and each model tested on every set, in every context
asked for.

Contexts of a contextual encoder when it is tested:

- `own`: documents of the corpus that is searched, as the paper does;
- `other`: documents of the next corpus in the list, so that the context is real and wrong;
- `null`: null tokens, so that the encoder has its parameters and no context;
- `strings`: documents of random letters, as many as the encoder was made for;
- `apart`: documents of the corpus that answer none of the queries;
- `fixed`: the documents that stood in every batch of a run whose context was fixed.

`other`, `null` and `strings` are the control that the papers lack: a gain that they show as well is
not the context's.

Cost: that of the runs, and of 2 to 30 seconds a set, model and context on two cores.
"""

from __future__ import annotations

import string
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cde.data import RetrievalSet
from cde.intervals import Interval, crossed_interval
from cde.retrieval import System, evaluate, rank, score_queries
from cde.training.preparation import fixed_context
from cde_studies.intervals import mean_and_spread
from cde_studies.recipes import EvaluationSet, Recipe
from cde_studies.workers import in_workers

#: which context a contextual encoder reads in a test, as described above
Context = Literal["own", "other", "apart", "null", "strings", "fixed"]


@dataclass(frozen=True)
class Sweep:
    """The rows of a sweep, and ways to read them.

    Rows are picked by `wanted`: columns and the value that each must have (arm, where, set, or a
    factor of the chapter's own, such as batch_size); None takes every value. A contextual encoder
    is read in its own context, a bi-encoder in none, unless `context` says otherwise.
    """

    rows: pd.DataFrame

    def of(self, context: str | None = None, **wanted: Any) -> pd.DataFrame:
        """The rows that are wanted, in one context."""
        rows = self._where(wanted)
        kinds = ("none", "own") if context is None else (context,)
        return rows[rows["context"].isin(kinds)]

    def _where(self, wanted: Mapping[str, Any]) -> pd.DataFrame:
        rows = self.rows
        for column, value in wanted.items():
            if value is not None:
                rows = rows[rows[column] == value]
        return rows

    def score(
        self,
        context: str | None = None,
        where: str | None = "out",
        by: str | list[str] = "seed",
        **wanted: Any,
    ) -> pd.Series[float]:
        """NDCG@10 in points of each seed: the mean over sets, and whatever else is not wanted."""
        return 100 * self.of(context, where=where, **wanted).groupby(by)["ndcg"].mean()

    def shown(self, digits: int = 2, **wanted: Any) -> str:
        """`score` as text: mean ± standard deviation over the seeds."""
        return mean_and_spread(self.score(**wanted), digits)

    def gain(
        self,
        arm: Mapping[str, Any],
        over: Mapping[str, Any],
        /,
        by: str | list[str] = "seed",
        **common: Any,
    ) -> pd.Series[float]:
        """Points that one selection has more than another, seed by seed."""
        return self.score(by=by, **{**common, **arm}) - self.score(by=by, **{**common, **over})

    def crossed_gain(
        self, arm: Mapping[str, Any], over: Mapping[str, Any], /, **common: Any
    ) -> Interval | None:
        """The mean `gain` with an interval over other seeds and sets; None with one of either."""
        gains = self.gain(arm, over, by=["seed", "set"], **common).dropna().to_frame("gain")
        table = gains.pivot_table("gain", "seed", "set")
        return crossed_interval(table) if min(table.shape) > 1 else None

    def of_run(self, column: str, **wanted: Any) -> pd.Series[float]:
        """A number of each run, such as loss or accuracy, by seed."""
        return self._where(wanted).groupby("seed")[column].first()

    def sets(self, where: str = "out") -> int:
        return int(self.rows.loc[self.rows["where"] == where, "set"].nunique())

    def mean_by_run(self) -> pd.DataFrame:
        """The mean over sets of each arm, seed, kind of set and context: a figure's numbers."""
        keys = ["arm", "seed", "where", "context"]
        return self.rows.groupby(keys, sort=False)["ndcg"].mean().reset_index()


def evaluate_in_contexts(
    model: Any,
    tests: Sequence[EvaluationSet],
    contexts: Iterable[Context] = ("own",),
    fixed: Sequence[str] | None = None,
) -> pd.DataFrame:
    """NDCG@10 (0 to 1) of an encoder on each set, in each context: set, where, context, ndcg."""
    rows, reads = [], getattr(model, "reads_context", False)
    for place, test in enumerate(tests):
        for context in tuple(contexts) if reads else ("none",):
            if context == "other" and len(tests) < 2:
                raise ValueError("context 'other' needs a second test set to take documents from")
            source = tests[(place + 1) % len(tests)] if context == "other" else test
            documents = source.beside if context == "apart" else source.collection.documents
            encoder: Any = model
            if reads:
                texts = context_texts(context, documents, model, fixed)
                encoder = model.with_context(texts, seed=0)
            ndcg = evaluate(encoder, test.collection)["ndcg@10"]
            rows.append({"set": test.name, "where": test.where, "context": context, "ndcg": ndcg})
    return pd.DataFrame(rows)


def ndcg_by_query(
    system: System, collection: RetrievalSet, depth: int = 1000
) -> NDArray[np.float64]:
    """NDCG@10 of each query, 0 to 1."""
    scored = score_queries(rank(system, collection, depth), collection)
    return scored["ndcg@10"].to_numpy(np.float64)


def context_texts(
    context: str, documents: Sequence[str], model: Any, fixed: Sequence[str] | None = None
) -> Sequence[str] | None:
    """The texts that a context is drawn from."""
    if context == "null":
        return None
    if context == "fixed":
        if fixed is None:
            raise ValueError("context 'fixed' is that of a run whose context_from is 'fixed'")
        return fixed
    if context == "strings":
        return random_texts(model.config.context_size)
    return documents


def random_texts(count: int, seed: int | np.random.Generator = 0) -> list[str]:
    """Texts of twelve words of two to eight random letters: a context that says nothing."""
    generator, letters = np.random.default_rng(seed), np.array(list(string.ascii_lowercase))
    lengths = generator.integers(2, 9, (count, 12))
    return [" ".join("".join(generator.choice(letters, size)) for size in row) for row in lengths]


def sweep(
    arms: Mapping[str, Mapping[str, Any]],
    seeds: Sequence[int],
    recipe: Recipe,
    contexts: Sequence[Context] = ("own",),
    tests: Sequence[EvaluationSet] | None = None,
    after: Mapping[str, Any] | None = None,
) -> pd.DataFrame:
    """Train and test every arm with every seed; runs that the store has are read back.

    A row for each arm, seed, set and context: arm, seed, set, where, context, ndcg; and of the run:
    loss and accuracy (means of the last tenth of its steps), step_seconds (median).
    """
    tests = recipe.tests() if tests is None else tests

    def one(which: tuple[str, int]) -> pd.DataFrame:
        arm, seed = which
        run = recipe.train(arms[arm] if after is None else after, seed)
        if after is not None:
            run = recipe.fine_tune(run, arms[arm], seed)
        fixed, read = None, tuple(contexts)
        if run.config.context_from == "fixed":
            rows_of = fixed_context(run.config, len(recipe.pairs))
            fixed, read = [recipe.pairs.documents[row] for row in rows_of], ("fixed", *read)
        scores = evaluate_in_contexts(run.model(), tests, read, fixed=fixed)
        last = run.metrics.tail(max(1, len(run.metrics) // 10))
        return scores.assign(
            arm=arm,
            seed=seed,
            loss=float(last["loss"].mean()),
            accuracy=float(last["accuracy"].mean()),
            step_seconds=float(np.median(run.metrics["seconds"])),
        )

    jobs = [(arm, seed) for arm in arms for seed in seeds]
    return pd.concat(in_workers(one, jobs, "training and testing"), ignore_index=True)


def score_references(
    encoders: Mapping[str, Any], tests: Sequence[EvaluationSet], seeds: Sequence[int]
) -> pd.DataFrame:
    """What a sweep's arms stand beside, encoders that no seed changes, in no context: rows with
    arm, seed, set, where, context ("none"), ndcg (0 to 1).
    """
    scores = [
        evaluate_in_contexts(encoder, tests, ("null",)).assign(arm=name, context="none")
        for name, encoder in encoders.items()
    ]
    return pd.concat(scores).merge(pd.DataFrame({"seed": list(seeds)}), how="cross")

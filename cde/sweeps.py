"""Sweeps: many arms trained with every seed, and each model tested on every set, in every context asked for.

Contexts of a contextual encoder when it is tested:

- `own`: documents of the corpus that is searched, as the paper does;
- `other`: documents of the next corpus in the list, so that the context is real and wrong;
- `null`: null tokens, so that the encoder has its parameters and no context.

The last two are the control that the papers lack: a gain that they show as well is not the context's.

Cost: that of the runs, and of 2 to 30 seconds a set, model and context on two cores.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd

from cde.models import BiEncoder, ContextualEncoder
from cde.progress import progress
from cde.recipes import EvaluationSet, Recipe
from cde.retrieval import evaluate
from cde.runs import Run

__all__ = ["Context", "evaluate_in_contexts", "sweep"]

Context = Literal["own", "other", "null"]


def evaluate_in_contexts(
    model: BiEncoder | ContextualEncoder,
    tests: Sequence[EvaluationSet],
    contexts: Iterable[Context] = ("own",),
    seed: int = 0,
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

    Example:
        >>> from cde.data import RetrievalSet
        >>> toy = RetrievalSet(["d"], ["a red boat"], ["q"], ["boat"], {"q": {"d": 1}})
        >>> model = BiEncoder.from_backbone("minilm", 1)
        >>> evaluate_in_contexts(model, [EvaluationSet("toy", toy, "out")])
           set where context  ndcg
        0  toy   out    none   1.0
    """
    rows = []
    for place, test in enumerate(tests):
        for context in ("none",) if isinstance(model, BiEncoder) else tuple(contexts):
            if context == "other" and len(tests) < 2:
                raise ValueError("context 'other' needs a second test set to take documents from")
            source = tests[(place + 1) % len(tests)] if context == "other" else test
            documents = None if context == "null" else source.collection.documents
            encoder: Any = model if isinstance(model, BiEncoder) else model.with_context(documents, seed=seed)
            found = evaluate(encoder, test.collection)["ndcg@10"]
            rows.append({"set": test.name, "where": test.where, "context": context, "ndcg": found})
    return pd.DataFrame(rows)


def sweep(
    arms: Mapping[str, Mapping[str, Any]],
    seeds: Sequence[int],
    using: Recipe,
    contexts: Iterable[Context] = ("own",),
    tests: Sequence[EvaluationSet] | None = None,
    after: Mapping[str, Any] | None = None,
) -> pd.DataFrame:
    """Train and test every arm with every seed; runs that the store has are read back.

    Args:
        arms: name → settings in which the arm departs from the recipe.
        seeds: of training; the data and the test sets are the same for all.
        using: the recipe.
        contexts: in which contextual encoders are tested.
        tests: by default the recipe's.
        after: an arm of the first phase; the arms are then second phases (`Recipe.fine_tune`) that go on from it,
            each from the run of its own seed. By default the arms are first phases.

    Returns:
        A row for each arm, seed, set and context: arm, seed, set, where, context, ndcg; and of the run: loss and
        accuracy (means of the last tenth of its steps), step_seconds (median).

    Raises:
        ValueError: settings that do not fit each other or the data.

    Used by every chapter of results.
    """
    tests = using.tests() if tests is None else tests
    rows = []
    jobs = [(arm, seed) for arm in arms for seed in seeds]
    for arm, seed in progress(jobs, "training and testing", unit="runs"):
        run = using.train(arms[arm] if after is None else after, seed)
        if after is not None:
            run = using.fine_tune(run, arms[arm], seed)
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

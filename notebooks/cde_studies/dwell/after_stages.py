"""How well the encoder–decoder's language model restores spans at each place of a text.

Cost: at `laptop` an hour for five seeds of the language models in eight draws, on one core.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from cde.intervals import mean_interval
from cde.models.encoder import load_tokenizer
from cde.progress import progress
from cde_studies.dwell.chain import Phase, shuffle_segments, train_phase
from cde_studies.dwell.encoder_decoder import EncoderDecoder
from cde_studies.dwell.recipe import DwellRecipe
from cde_studies.dwell.span_corruption import span_accuracy
from cde_studies.intervals import numbers_of

#: language models whose spans are probed, by their positions; and one before its first step
ROTARY, RELATIVE, UNTRAINED = "rotary", "relative", "untrained"
#: orders of a document's segments
WRITTEN, SHUFFLED = "as written", "shuffled"


def rows_of_spans(
    recipe: DwellRecipe, seeds: Sequence[int], windows: int, draws: int, t5: str = ""
) -> pd.DataFrame:
    """Accuracy on spans in each window of a document, as written and with its segments shuffled in
    several draws: model, seed, order, window; accuracy; guessed, that of always naming the
    commonest token; and the same in each row: apart, low, high, the first window minus the last
    with the bootstrap over documents; documents; left_out.
    """
    start = Phase("start", recipe.start)
    relative = Phase("start", {**recipe.start, "positions": "relative"})
    phases = {
        ROTARY: recipe.phases["language model"],
        RELATIVE: Phase("restore", recipe.restore, relative),
        UNTRAINED: start,
    }
    jobs = [(name, seed) for name in phases for seed in seeds]
    jobs += [(t5, seeds[0])] if t5 else []
    tokenizer = load_tokenizer(recipe.start.get("model", "minilm"))
    rows: list[dict[str, Any]] = []
    tokens = recipe.restore["tokens"]
    for name, seed in progress(jobs, "probing", unit="models"):
        if name in phases:
            folder = train_phase(phases[name], recipe.pairs.documents, recipe.pairs, seed)
            model = EncoderDecoder.from_pretrained(folder / "model")
        else:
            model = EncoderDecoder.from_backbone(name, positions="relative")
        shuffled = shuffle_segments(recipe.probed * draws, tokenizer, seed=seed)
        for order, texts in ((WRITTEN, recipe.probed), (SHUFFLED, shuffled)):
            accuracy, guessed, left_out = span_accuracy(model, texts, windows, tokens, seed=seed)
            apart = mean_interval(accuracy[:, 0] - accuracy[:, -1])
            of_all: dict[str, Any] = {"model": name, "seed": seed, "order": order}
            of_all |= {**numbers_of(apart, "apart"), "documents": len(accuracy)}
            of_all |= {"left_out": sum(left_out.values())}
            means = zip(accuracy.mean(axis=0), guessed.mean(axis=0), strict=True)
            rows += [
                {**of_all, "window": window, "accuracy": float(share), "guessed": float(one)}
                for window, (share, one) in enumerate(means, start=1)
            ]
    return pd.DataFrame(rows)


def by_window(rows: pd.DataFrame, column: str, model: str, order: str = SHUFFLED) -> pd.DataFrame:
    """A number of `rows_of_spans` for each seed (rows) and window (columns)."""
    some = rows[(rows["model"] == model) & (rows["order"] == order)]
    return some.pivot_table(index="seed", columns="window", values=column)


def first_minus_last(rows: pd.DataFrame, model: str, order: str = SHUFFLED) -> pd.Series[float]:
    """Accuracy in the first window minus that in the last, of each seed."""
    accuracy = by_window(rows, "accuracy", model, order)
    return accuracy[accuracy.columns.min()] - accuracy[accuracy.columns.max()]

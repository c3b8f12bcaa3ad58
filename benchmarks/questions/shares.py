"""Where the seconds go: tokenising, products, attention, norms, and all that stands between them.

The texts and encoders are those of `questions.embedding` and `questions.training`. One pass of each
is profiled after a pass that warms up. A part's seconds are those that torch spent in its
operations; what no operation accounts for is tokenising (timed by itself) and Python.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from measuring.comparing import Job
from torch.profiler import ProfilerActivity, profile

from cde.hardware import half_precision
from cde.models.encoder import load_tokenizer, tokenise
from questions import embedding, training

#: what the name of an operation holds → the part that it belongs to; the first that fits
PARTS = {
    "scaled_dot_product": "attention",
    "mm": "products",
    "linear_pointwise": "products",
    "gelu": "norms and activations",
    "layer_norm": "norms and activations",
}
BETWEEN, TOKENS, PYTHON = "sums, copies, rounding", "tokenising", "Python"


def part_of(operation: str) -> str:
    """The part of the work that an operation of torch belongs to."""
    return next((part for word, part in PARTS.items() if word in operation), BETWEEN)


def shares_of(job: Job, tokenising: Callable[[], object] | None) -> dict[str, float]:
    """The share of each part in the seconds of a job; they are 1 together."""
    job()
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        begun = time.perf_counter()
        job()
        whole = time.perf_counter() - begun
    seconds = dict.fromkeys([*PARTS.values(), BETWEEN, TOKENS], 0.0)
    for one in profiled.key_averages():
        seconds[part_of(one.key)] += one.self_cpu_time_total / 1e6
    if tokenising is not None:
        begun = time.perf_counter()
        tokenising()
        seconds[TOKENS] = time.perf_counter() - begun
    whole = max(whole, sum(seconds.values()))
    seconds[PYTHON] = whole - sum(seconds.values())
    return {part: spent / whole for part, spent in seconds.items()}


def jobs(quick: bool) -> Iterator[tuple[str, str, str, Job, Callable[[], object] | None]]:
    """Question, case and arm, with what is profiled and its share of tokenising."""
    tokenizer = load_tokenizer("minilm")
    for case, texts in embedding.inputs(quick).items():
        cut = partial(tokenise, tokenizer, texts, embedding.MOST)
        for precision in embedding.precisions():
            yield "embedding", case, precision, embedding.bi_encoder(texts, precision), cut
    both = training.both_sides(quick)
    for precision in ["float32", *(["bfloat16"] if half_precision("auto") else [])]:
        job = training.ours(both, precision == "bfloat16", False)
        yield "training", "a step, not cached", precision, job, None


def shares(quick: bool) -> list[dict[str, Any]]:
    return [
        {"question": question, "case": case, "arm": arm, "shares": shares_of(job, tokenising)}
        for question, case, arm, job, tokenising in jobs(quick)
    ]

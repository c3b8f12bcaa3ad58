"""The proof that a record still stands: what the same function gave in miniature when the record
was made.

The miniature is the experiment at the profile `smoke`, in float32, with the page's own seed. It
runs whenever the chapter runs at `smoke`, and is compared with what was stored. Code that gives the
same small numbers as it gave then would give the same large ones; code that does not has moved, and
the record is stale until it is made anew. An edit that changes no number changes no proof.

A proof holds if in each column the mean difference is at most `TOLERANCE` of the column's mean
size. A processor, a number of threads or the order of a sum moves losses and cosines a thousand
times less; a changed learning rate, another batch or another pooling moves them more. Columns of
time and of memory are left out.

Cost: milliseconds; the miniature is what the smoke run computes in any case.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from cde.storage import content_hash

__all__ = ["TIMES", "TOLERANCE", "ProofState", "differences", "experiment_digest", "stored_rows"]

#: columns of time, which no proof can hold
TIMES = ("seconds", "step_seconds")
#: the mean difference that a column of a proof may show, as a share of the column's mean size
TOLERANCE = 0.01


@dataclass(frozen=True)
class ProofState:
    """What is known here of a record's proof."""

    record: str
    state: str
    reason: str = ""


def stored_rows(rows: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows as a record stores them."""
    return json.loads(rows.to_json(orient="records", double_precision=6))  # type: ignore[no-any-return]


def differences(
    proof: Sequence[dict[str, Any]] | pd.DataFrame, rows: pd.DataFrame, tolerance: float = TOLERANCE
) -> str:
    """What differs between a proof and the rows of today's miniature; "" if the proof holds."""
    then, today = pd.DataFrame(proof), pd.DataFrame(stored_rows(rows))
    gone = [column for column in then if column not in today]
    if gone:
        return "without the column " + ", ".join(map(str, gone))
    if len(then) != len(today):
        return f"{len(today)} rows in place of {len(then)}"
    today = today[list(then)]
    names = [column for column in then if not pd.api.types.is_float_dtype(then[column])]
    if names:
        order = {"key": lambda column: column.astype(str), "kind": "stable", "ignore_index": True}
        then, today = then.sort_values(names, **order), today.sort_values(names, **order)  # type: ignore[call-overload]
    reasons = []
    for column in then:
        was, now_ = then[column], today[column]
        if not pd.api.types.is_numeric_dtype(was):
            if was.astype(str).tolist() != now_.astype(str).tolist():
                reasons.append(f"{column} names other things")
            continue
        old, new = np.asarray(was, dtype=float), np.asarray(now_, dtype=float)
        if (np.isnan(old) != np.isnan(new)).any():
            reasons.append(f"{column} is missing elsewhere")
            continue
        size, apart = float(np.nanmean(np.abs(old))) if len(old) else 0.0, np.abs(old - new)
        mean = float(np.nanmean(apart)) if len(old) and not np.isnan(apart).all() else 0.0
        if mean > tolerance * size + 1e-6:
            share = f"{mean:.2g}" if size == 0 else f"{100 * mean / size:.2g} %"
            reasons.append(
                f"{column} moved by {share} ({int((apart > tolerance * size).sum())} of {len(old)})"
            )
    return "; ".join(reasons)


def experiment_digest(function: Callable[..., Any]) -> str:
    """A hash of an experiment's text in its notebook: the function, and every function there that
    it calls.

    It says whether the text is the same, and nothing of what it computes; that is the proof's part.
    """
    seen: dict[str, str] = {}
    waiting = [function]
    while waiting:
        one = waiting.pop()
        one = inspect.unwrap(one.func if isinstance(one, partial) else one)
        code = getattr(one, "__code__", None)
        if code is None:
            continue
        try:
            text = inspect.getsource(one)
        except (OSError, TypeError):
            continue
        if text in seen.values():
            continue
        seen[f"{one.__qualname__} {len(seen)}"] = text
        names = getattr(one, "__globals__", {})
        for name in code.co_names:
            called = names.get(name)
            if inspect.isfunction(called) and called.__module__ == getattr(one, "__module__", None):
                waiting.append(called)
    return content_hash(seen.values()) if seen else "unknown"

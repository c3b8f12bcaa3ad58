"""The page *Scale*: what a run of the paper's size would take, from curves that were measured here.

`benchmarks/scale.py` measures trainings beside their estimates, and each stage at four sizes on one
thread; `book/scale/measured.json` holds what it found. A stage's time is a power of the number of
pairs, fitted with an interval (ordinary least squares of the logarithms), and read off at the
paper's number: an extrapolation over four orders of magnitude, whose interval knows of the noise of
the measurement and of no other way of growing. What is matrix products is carried over to a GPU at
the share of its peak that was reached here.

Cost: reading a small file.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from cde_book.markup import render
from cde_book.plots import table
from cde_studies.estimate import estimate
from cde_studies.recipes import recipe

__all__ = ["PAIRS", "Curve", "fit", "scale_page"]

#: of the paper's unsupervised phase (CDE §5)
PAIRS = 235_000_000
SHARD = 2**20  #: pairs that are clustered together
_H100 = 989e12  # as in `cde_studies.estimate`; an H200 has the same processor
_FULL = 300  # 100 iterations, the best of 3 starts: the default of `cluster_pairs`


@dataclass(frozen=True)
class Curve:
    """A cost that grows as a power of the number of pairs."""

    exponent: float
    low: float
    high: float
    intercept: float
    mean: float
    spread: float
    noise: float
    freedom: int

    def at(self, pairs: float) -> tuple[float, float, float]:
        """The cost at so many pairs, and its 95 % interval."""
        x = np.log(pairs)
        middle = self.intercept + self.exponent * x
        away = (x - self.mean) ** 2 / self.spread
        doubt = self.noise * np.sqrt(1 / (self.freedom + 2) + away)
        half = stats.t.ppf(0.975, self.freedom) * doubt
        low, high = np.exp(middle - half), np.exp(middle + half)
        return float(np.exp(middle)), float(low), float(high)


def fit(pairs: Any, costs: Any) -> Curve:
    """The power of the number of pairs that costs follow."""
    x, y = np.log(np.asarray(pairs, float)), np.log(np.asarray(costs, float))
    found = stats.linregress(x, y)
    freedom = len(x) - 2
    half = stats.t.ppf(0.975, freedom) * found.stderr
    residuals = y - found.intercept - found.slope * x
    noise = float(np.sqrt((residuals**2).sum() / freedom))
    spread = float(((x - x.mean()) ** 2).sum())
    slope, half = float(found.slope), float(half)
    return Curve(
        slope,
        slope - half,
        slope + half,
        float(found.intercept),
        float(x.mean()),
        spread,
        noise,
        freedom,
    )


def _short(value: float) -> str:
    """Three digits that count, without powers of ten."""
    return "< 0.01" if value < 0.01 else f"{float(f'{value:.3g}'):,.10g}"


def _spread(values: tuple[float, ...] | Any, digits: str = "") -> str:
    """A value with its interval, or the middle of several with the least and the greatest."""
    middle, low, high = (f"{one:{digits}}" if digits else _short(float(one)) for one in values)
    return f"{middle} [{low}, {high}]"


def _runs(told: dict[str, Any]) -> pd.DataFrame:
    """Measured over predicted, of each training: the median of the rounds, least and greatest."""
    frame, rows = pd.DataFrame(told["runs"]), []
    for name, some in frame.groupby("run", sort=False):
        row: dict[str, Any] = {"run": name}
        for what in ("seconds", "memory", "storage"):
            ratios = some[what] / some[f"predicted_{what}"]
            row |= {
                f"{what}, predicted": _short(some[f"predicted_{what}"].median()),
                f"{what}, measured": _short(some[what].median()),
                f"{what}, ratio": _spread((ratios.median(), ratios.min(), ratios.max()), ".2f"),
            }
        rows.append(row)
    return pd.DataFrame(rows)


def _plan(told: dict[str, Any]) -> tuple[pd.DataFrame, dict[tuple[str, int], float]]:
    """Each stage at the paper's size: on one thread of this machine, on 8 H100 and on one H200."""
    frame, rows = pd.DataFrame(told["curves"]), []
    hours: dict[tuple[str, int], float] = {}
    for stage in frame["stage"].unique():
        some = frame[frame["stage"] == stage]
        curve = fit(some["pairs"], some["cost"])
        row = {"stage": stage, "exponent": _spread((curve.exponent, curve.low, curve.high), ".2f")}
        cost = np.array(curve.at(SHARD if stage == "clustering" else PAIRS))
        if stage == "storing vectors":
            rows.append(row | {"at 235 million pairs": f"{_spread(cost / 2**40)} TiB"})
            continue
        if stage == "clustering":
            cost = cost * _FULL / told["iterations"] * PAIRS / SHARD
        row["at 235 million pairs"] = f"{_spread(cost / 86400)} days of one thread"
        if stage != "tokenising":
            for name, count in (("8 H100, hours", 8), ("one H200, hours", 1)):
                on_gpu = cost * some["peak"].median() / _H100 / 3600 / count
                row[name] = _spread(on_gpu)
                hours[stage, count] = float(on_gpu[0])
        rows.append(row)
    ratios = [one["seconds"] / one["predicted_seconds"] for one in told["runs"]]
    apart = np.array([np.median(ratios), min(ratios), max(ratios)])
    base = recipe("paper", data="pairs/*").base
    for architecture in ("bi-encoder", "contextual"):
        config = replace(base, architecture=architecture, steps=PAIRS // base.batch_size)
        row = {"stage": f"one epoch, {architecture}", "exponent": "1, by the estimate"}
        for name, count in (("8 H100, hours", 8), ("one H200, hours", 1)):
            # each GPU has its own batches: as many as there are GPUs are under way
            time = estimate(config).gpu_hours / count * apart
            row[name] = _spread(time)
            hours[architecture, count] = float(time[0])
        rows.append(row)
    return pd.DataFrame(rows).fillna(""), hours


def scale_page(root: Path) -> str:
    """The page *Scale*."""
    path = root / "book" / "scale" / "measured.json"
    if not path.exists():
        return render("scale.md.j2", told=None)
    told = json.loads(path.read_text(encoding="utf-8"))
    plan, hours = _plan(told)
    on_eight = {stage: time for (stage, count), time in hours.items() if count == 8}
    return render(
        "scale.md.j2",
        told=told,
        runs=table(_runs(told)).markup,
        plan=table(plan).markup,
        largest=max(on_eight, key=lambda stage: on_eight[stage]),
        hours=hours,
        shards=round(PAIRS / SHARD),
    )

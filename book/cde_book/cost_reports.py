"""What `benchmarks/cost.py` measured, one report for each class of processor, as it is stored.

A report lies in `book/cost/<class>.json`. It holds seconds of rounds in which what is compared took
turns; ratios are made within a round, here, and are not stored. A report that lacks a field, or has
one too many, is refused by its name.

Cost: reading a few small files.
"""

from __future__ import annotations

import math
import statistics
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from scipy import stats

from cde.intervals import Interval

__all__ = [
    "CLASSES",
    "Bound",
    "Comparison",
    "CostReport",
    "Ratio",
    "Size",
    "exponents",
    "growth_exponent",
    "read_cost_reports",
    "series_of",
]

#: the classes of processors, slowest matrix products first, and what they are
CLASSES = {
    "avx2": "AVX2",
    "avx512": "AVX-512 without fast bfloat16",
    "bfloat16": "AMX or AMD's AVX512-BF16",
    "cuda": "a GPU",
    "other": "another processor",
}

#: what a comparison's ratio means, and whether it is the peer's seconds that are divided
Meaning = Literal["times as fast", "share of the limit", "limit", "times the cost"]


class Ratio(NamedTuple):
    """The ratios of all rounds: their median, the least and the greatest."""

    median: float
    least: float
    greatest: float


class _Stored(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Comparison(_Stored):
    """An arm and its peer, or the limit that it stands against, in rounds that took turns."""

    question: str
    case: str
    arm: str = Field(min_length=1)
    peer: str = Field(min_length=1)
    meaning: Meaning
    size: int = Field(gt=0)
    unit: str
    seconds: tuple[float, ...] = Field(min_length=1)
    peer_seconds: tuple[float, ...] = Field(min_length=1)
    peak: float | None
    peer_peak: float | None
    agreement: float | None
    agrees: str
    note: str

    @model_validator(mode="after")
    def _same_rounds(self) -> Comparison:
        if len(self.seconds) != len(self.peer_seconds):
            raise ValueError(
                f"{len(self.seconds)} rounds of the arm and {len(self.peer_seconds)} of its peer"
            )
        if min(*self.seconds, *self.peer_seconds, math.inf) <= 0:
            raise ValueError("seconds must be above 0")
        return self

    @property
    def ratio(self) -> Ratio:
        """How many times as fast as the peer the arm is; or how many times its cost."""
        rounds = [
            one / other if self.meaning == "times the cost" else other / one
            for one, other in zip(self.seconds, self.peer_seconds, strict=True)
        ]
        return Ratio(statistics.median(rounds), min(rounds), max(rounds))


class Size(_Stored):
    """What one size of a series took, of which the growth is fitted."""

    question: str
    arm: str
    size: int = Field(gt=0)
    unit: str
    seconds: tuple[float, ...] = Field(min_length=1)
    peak: float | None
    expected: float
    fitted_from: int


class Bound(_Stored):
    """A most that was allowed, and what was used of it."""

    question: str
    size: int
    unit: str
    used: float = Field(gt=0)
    allowed: float
    seconds: float
    note: str


class CostReport(_Stored):
    """All that was measured on one class of processor."""

    time: str
    commit: str
    clean: bool
    device: str
    cpu_class: Literal["avx2", "avx512", "bfloat16", "cuda", "other"]
    threads: int
    imitated: bool
    variables: dict[str, str]
    load: tuple[float, float]
    libraries: dict[str, str]
    seconds: float
    comparisons: tuple[Comparison, ...]
    sizes: tuple[Size, ...]
    bounds: tuple[Bound, ...]

    @property
    def named(self) -> str:
        """The class in words, and whether it is imitated."""
        return f"{CLASSES[self.cpu_class]}{' (imitated)' if self.imitated else ''}"


def read_cost_reports(root: Path) -> dict[str, CostReport]:
    """The reports by class, in the order of `CLASSES`."""
    found: dict[str, CostReport] = {}
    for name in CLASSES:
        path = root / "book" / "cost" / f"{name}.json"
        if not path.exists():
            continue
        try:
            report = CostReport.model_validate_json(path.read_text(encoding="utf-8"))
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"])) or "the file"
            raise ValueError(
                f"{path} is no report of benchmarks/cost.py: {place}: {first['msg']} "
                f"({error.error_count()} such). Make it anew: python benchmarks/cost.py"
            ) from error
        if report.cpu_class != name:
            raise ValueError(
                f"{path} is a report of the class {report.cpu_class}: rename it, or make it anew"
            )
        found[name] = report
    return found


def growth_exponent(sizes: list[int], seconds: list[float]) -> Interval:
    """The exponent of a power law: the slope of log seconds over log size, with Student's
    interval.
    """
    if len(sizes) != len(seconds) or len(set(sizes)) < 3 or min(*sizes, *seconds) <= 0:
        raise ValueError(
            f"an exponent needs seconds above 0 of three or more sizes; sizes are {sizes} and "
            f"seconds {seconds}"
        )
    fit = stats.linregress(np.log(sizes), np.log(seconds))
    reach = float(stats.t.ppf(0.975, len(sizes) - 2) * fit.stderr)
    slope = float(fit.slope)
    return Interval(slope, slope - reach, slope + reach, len(sizes), "least squares over sizes")


def exponents(report: CostReport) -> dict[tuple[str, str], Interval]:
    """The exponent of each series' growth, from the size on at which fixed costs no longer
    weigh.
    """
    found = {}
    for key, rows in series_of(report).items():
        rows = [row for row in rows if row.size >= row.fitted_from]
        if len(rows) > 2:
            medians = [statistics.median(row.seconds) for row in rows]
            found[key] = growth_exponent([row.size for row in rows], medians)
    return found


def series_of(report: CostReport) -> dict[tuple[str, str], list[Size]]:
    """The sizes of each (question, arm)."""
    found: dict[tuple[str, str], list[Size]] = {}
    for row in report.sizes:
        found.setdefault((row.question, row.arm), []).append(row)
    return found

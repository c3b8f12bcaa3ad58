"""What `benchmarks/cost.py` measured, one report for each class of processor, as it is stored."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt

BOOK = Path(__file__).resolve().parents[2] / "book"
#: the classes of processors, slowest matrix products first
CLASSES = {
    "avx2": "AVX2",
    "avx512": "AVX-512 without fast bfloat16",
    "bfloat16": "AVX512-BF16",
    "amx": "AMX",
    "cuda": "a GPU",
    "other": "another processor",
}
Rounds = tuple[PositiveFloat, ...]


class Ratio(NamedTuple):
    """The median of the rounds' ratios, the least and the greatest."""

    median: float
    least: float
    greatest: float

    @classmethod
    def of(cls, ratios: list[float]) -> Ratio:
        """Of the ratios of some rounds."""
        return cls(statistics.median(ratios), min(ratios), max(ratios))

    def __str__(self) -> str:
        return f"{self.median:.2f} [{self.least:.2f}, {self.greatest:.2f}]"


class Stored(BaseModel):
    """A part of a report, which has no other fields than these."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Comparison(Stored):
    """An arm and the peer or limit that it stands against, in rounds that took turns."""

    question: str
    case: str
    arm: str = Field(min_length=1)
    peer: str = Field(min_length=1)
    meaning: Literal["times as fast", "share of the limit", "limit", "times the cost"]
    size: PositiveInt
    unit: str
    seconds: Rounds = Field(min_length=1)
    peer_seconds: Rounds = Field(min_length=1)
    peak: float | None
    peer_peak: float | None
    agreement: float | None
    agrees: str
    note: str

    @property
    def ratio(self) -> Ratio:
        """How many times as fast as the peer the arm is, or how many times its cost."""
        rounds = zip(self.seconds, self.peer_seconds, strict=True)
        cost = self.meaning == "times the cost"
        return Ratio.of([one / peer if cost else peer / one for one, peer in rounds])


class Size(Stored):
    """What one size of a series took."""

    question: str
    arm: str
    size: PositiveInt
    unit: str
    seconds: Rounds = Field(min_length=1)
    peak: float | None
    expected: float
    fitted_from: int


class Bound(Stored):
    """The most that was allowed, and what was used of it."""

    question: str
    size: int
    unit: str
    used: PositiveFloat
    allowed: float
    seconds: float
    note: str


class Shares(Stored):
    """The share of each part in the seconds of one pass, 1 together."""

    question: str
    case: str
    arm: str
    shares: dict[str, float]


class CostReport(Stored):
    """All that was measured on one class of processor."""

    time: str
    commit: str
    clean: bool
    device: str
    cpu_class: Literal["avx2", "avx512", "bfloat16", "amx", "cuda", "other"]
    threads: int
    imitated: bool
    variables: dict[str, str]
    load: tuple[float, float]
    libraries: dict[str, str]
    seconds: float
    comparisons: tuple[Comparison, ...]
    sizes: tuple[Size, ...]
    bounds: tuple[Bound, ...]
    shares: tuple[Shares, ...] = ()

    @property
    def named(self) -> str:
        """The class in words, and whether it is imitated."""
        return f"{CLASSES[self.cpu_class]}{' (imitated)' if self.imitated else ''}"


def read_cost_reports() -> list[CostReport]:
    """The committed reports, in the order of `CLASSES`, but for products in int8, which the library
    no longer has.
    """
    paths = [BOOK / "cost" / f"{name}.json" for name in CLASSES]
    return [
        report.model_copy(
            update={
                "comparisons": tuple(
                    one for one in report.comparisons if "int8" not in one.arm + one.peer
                ),
                "shares": tuple(one for one in report.shares if "int8" not in one.arm),
            }
        )
        for path in paths
        if path.exists()
        for report in [CostReport.model_validate_json(path.read_text(encoding="utf-8"))]
    ]

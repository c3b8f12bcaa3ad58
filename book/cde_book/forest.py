"""Small drawings of intervals: where the claim says, the paper's value, and ours, on one scale.

An `Axis` says where a value stands, in per cent of the drawing's width. All lines of a claim share
one, so that equal values stand at equal places. The axis spans what decides: the measurements that
test the claim, the bounds of its rule and the paper's value. An exploratory interval that reaches
further is cut off, and marked so. The template `interval.html.j2` draws.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from cde.intervals import Interval
from cde_book.ledger import Claim
from cde_book.verdicts import Measurement

__all__ = ["Axis", "Line", "axis", "line"]

_ROOM = 0.12  # of the span, on either side


@dataclass(frozen=True)
class Axis:
    """The scale of a drawing: the values at its two ends."""

    low: float
    high: float

    def place(self, value: float) -> float:
        """Where a value stands, in per cent from the left; beyond the ends, at the end."""
        kept = min(max(value, self.low), self.high)
        return round(100 * (kept - self.low) / (self.high - self.low), 2)

    @property
    def ticks(self) -> list[tuple[float, str]]:
        """Round values with their places."""
        from matplotlib.ticker import MaxNLocator

        room = (self.high - self.low) * 0.06  # a label at the very end would stand outside
        values = MaxNLocator(3, steps=[1, 2, 5, 10]).tick_values(self.low, self.high)
        inside = [x for x in values if self.low + room <= x <= self.high - room]
        return [(self.place(x), f"{x:g}") for x in map(float, inside)]


@dataclass(frozen=True)
class Line:
    """One interval, drawn: places in per cent."""

    inside: tuple[float, float]
    low: float
    high: float
    estimate: float
    paper: float | None
    cut: tuple[str, ...] = ()


def axis(claim: Claim, measurements: Sequence[Measurement]) -> Axis:
    """The scale for all of a claim's measurements."""
    tests = [one for one in measurements if one.role == "test"] or list(measurements)
    marks = [end for one in tests for end in (one.interval.low, one.interval.high)]
    marks += [bound for bound in claim.bounds if math.isfinite(bound)]
    if claim.paper_effect is not None:
        marks.append(claim.paper_effect)
    low, high = min(marks), max(marks)
    room = (high - low or 1.0) * _ROOM
    return Axis(low - room, high + room)


def line(claim: Claim, interval: Interval, on: Axis) -> Line:
    """An interval of a claim, placed on an axis."""
    lower, upper = claim.bounds
    reaches = {"low": interval.low < on.low, "high": interval.high > on.high}
    return Line(
        inside=(on.place(lower), on.place(upper)),
        low=on.place(interval.low),
        high=on.place(interval.high),
        estimate=on.place(interval.estimate),
        paper=None if claim.paper_effect is None else on.place(claim.paper_effect),
        cut=tuple(end for end, beyond in reaches.items() if beyond),
    )

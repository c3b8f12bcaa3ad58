"""From measurements to a verdict, by rule alone: a chapter measures and cannot overrule it.

The rules stand on the page *How verdicts are decided* (`templates/rules.md.j2`). Exploratory
measurements are shown and do not count.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import TypeAdapter

from cde.intervals import Interval, p_value, smallest_effect
from cde_book.ledger import Claim, gates
from cde_studies.intervals import smallest_tolerance

Outcome = Literal["supports", "contradicts", "undecided"]
Role = Literal["test", "exploratory", "rehearsal"]
VERDICTS = (
    "holds",
    "holds in part",
    "mixed",
    "contradicted",
    "inconclusive",
    "not testable here",
    "not tested",
)
#: from the largest down; a scale that is not named here comes last
SCALES = ("paper", "gpu", "day", "hours", "laptop", "smoke")


@dataclass(frozen=True)
class Reading:
    """What a gate showed: its id, the value (None: not measured) and on what."""

    gate: str
    value: float | None
    what: str = ""

    @property
    def passed(self) -> bool:
        """Whether the value exceeds the gate's bound."""
        known = gates().get(self.gate)  # an older log may name one that is gone
        return known is not None and self.value is not None and self.value > known.above

    @property
    def reason(self) -> str:
        """Why the gate is not passed, in words; what it showed, if it is."""
        gate = gates().get(self.gate)
        if gate is None:
            return f"there is no gate {self.gate} any more"
        if self.value is None:
            return f"it was not measured whether {gate.wording}"
        said = gate.wording if self.passed else gate.otherwise
        return f"{said} ({gate.amount(self.value)}; needed: more than {gate.above:,g})"


@dataclass(frozen=True)
class Measurement:
    """What a chapter measured for a claim."""

    claim: str
    what: str
    interval: Interval
    role: Role = "test"
    scale: str = "laptop"
    gates: tuple[Reading, ...] = ()

    @property
    def closed(self) -> tuple[Reading, ...]:
        """The gates that are not passed."""
        return tuple(reading for reading in self.gates if not reading.passed)


@dataclass(frozen=True)
class Verdict:
    """A verdict and what stands behind it."""

    verdict: str
    reason: str
    scale: str = ""
    leading: Measurement | None = None
    smallest: float | None = None
    p: float | None = None

    def __str__(self) -> str:
        return f"{self.verdict} at {self.scale}" if self.scale else self.verdict


def outcome(claim: Claim, interval: Interval) -> Outcome:
    """Whether an interval supports a claim, contradicts it, or leaves it undecided."""
    lower, upper = claim.bounds
    # a bound that the rule states is not itself where the claim says: "above 0" is not 0
    inside = lower < interval.low and interval.high < upper
    if "near" in claim.expect:
        inside = lower <= interval.low and interval.high <= upper
    if inside:
        return "supports"
    outside = interval.high <= lower or interval.low >= upper
    return "contradicts" if outside else "undecided"


def of_outcomes(outcomes: Sequence[Outcome]) -> str:
    """The verdict of one scale's measurements."""
    kinds = set(outcomes)
    if kinds == {"supports"}:
        return "holds"
    if "supports" in kinds:
        against = outcomes.count("contradicts")
        return "mixed" if against >= outcomes.count("supports") else "holds in part"
    return "contradicted" if kinds == {"contradicts"} else "inconclusive"


def decide(claim: Claim, measurements: Iterable[Measurement]) -> Verdict:
    """The verdict on a claim, from the measurements that test it."""
    made = [one for one in measurements if one.claim == claim.id]
    tests = [one for one in made if one.role == "test"]
    if not tests:
        return Verdict("not tested", _untested(claim, {one.role for one in made}))
    scales = sorted({one.scale for one in tests}, key=order)
    by_scale = [_at(claim, [one for one in tests if one.scale == scale]) for scale in scales]
    meaningful = [one for one in by_scale if one.smallest is not None]
    return (meaningful or by_scale)[0]


def order(scale: str) -> int:
    """The place of a scale among all, the largest being the first."""
    return SCALES.index(scale) if scale in SCALES else len(SCALES)


def _untested(claim: Claim, roles: set[Role]) -> str:
    if "rehearsal" in roles:
        return "measured at the smoke profile only"
    if roles:
        return "exploratory measurements only"
    return "its chapter did not measure it" if claim.chapter else "no chapter measures it yet"


def _at(claim: Claim, tests: Sequence[Measurement]) -> Verdict:
    """The verdict at one scale."""
    closed = [one for one in tests if one.closed]
    meaningful = [one for one in tests if one not in closed]
    scale = tests[0].scale
    if not meaningful:
        failed = dict.fromkeys(gate.reason for one in closed for gate in one.closed)
        return Verdict("not testable here", "; ".join(failed), scale, tests[0])
    outcomes = [outcome(claim, one.interval) for one in meaningful]
    verdict = of_outcomes(outcomes)
    spread = all(one.interval.standard_error > 0 for one in meaningful)
    at_odds = {"supports", "contradicts"} <= set(outcomes)
    p = max(_p(claim, one.interval) for one in meaningful) if spread and not at_odds else None
    smallest = max(_smallest(claim, one.interval) for one in meaningful)
    reason = _reason(outcomes)
    if closed:
        reason += f"; {len(closed)} more behind a gate"
    return Verdict(verdict, reason, scale, meaningful[0], smallest, p)


def _reason(outcomes: Sequence[Outcome]) -> str:
    if len(outcomes) == 1:
        return {
            "supports": "the interval lies where the claim says",
            "contradicts": "the interval lies on the other side of the bound",
            "undecided": "the interval holds the bound",
        }[outcomes[0]]
    words = {"supports": "support it", "contradicts": "contradict it", "undecided": "cannot tell"}
    parts = [f"{outcomes.count(kind)} {words[kind]}" for kind in words if kind in outcomes]
    return f"of {len(outcomes)} measurements, {', '.join(parts)}"


def _p(claim: Claim, interval: Interval) -> float:
    """Of "the truth is the bound": of two bounds the nearer one."""
    return max(p_value(interval, bound) for bound in claim.bounds if math.isfinite(bound))


def _smallest(claim: Claim, interval: Interval) -> float:
    if "near" in claim.expect:
        return smallest_tolerance(interval)
    bound = next(one for one in claim.bounds if math.isfinite(one))
    return smallest_effect(interval, bound)


_MEASUREMENTS = TypeAdapter(list[Measurement])


def from_rows(rows: Iterable[Mapping[str, Any]]) -> list[Measurement]:
    """Measurements of a log, where each is a mapping of its fields."""
    return _MEASUREMENTS.validate_python(list(rows))

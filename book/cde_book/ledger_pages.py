"""The pages made from the ledger: *Claims*, *How verdicts are decided*, *Map*.

This module gathers what a page says; the folder `templates` holds how it is marked up.

Cost: seconds, for the rule simulator; the rest is reading the chapters' logs.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from cde.intervals import STUDENT, Interval, smallest_effect
from cde_book.chapters import Chapter, chapters
from cde_book.claims import power_in_words
from cde_book.execution import load_execution
from cde_book.ledger import PAPERS, SHORT, Claim, gates, ledger
from cde_book.markup import render
from cde_book.simulation import TRUTHS, attainable, chances
from cde_book.thumbnails import Figure
from cde_book.verdicts import SCALES, VERDICTS, Measurement, Verdict, decide, from_rows, order

#: of the span of a drawing of intervals, on either side
_ROOM = 0.12
#: stands in a verdict's place where no experiment could have come out otherwise
BY_CONSTRUCTION = "by construction"


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


@dataclass(frozen=True)
class Judged:
    """A claim with its verdict, its measurements, and the chapters that made them (or will)."""

    claim: Claim
    verdict: Verdict
    measurements: list[Measurement]
    chapters: list[Chapter]
    discovery: float | None = None

    @property
    def place(self) -> str:
        """Where the paper says it: its short name and the place."""
        return f"{SHORT[self.claim.paper]}, {self.claim.place}"

    @property
    def group(self) -> str:
        """What the page can be filtered by: the verdict, but for facts of construction."""
        return BY_CONSTRUCTION if self.claim.by_construction else self.verdict.verdict

    @property
    def is_tested(self) -> bool:
        """Whether a measurement behind open gates tests it, and could have come out otherwise."""
        return bool(self.tests) and not self.claim.by_construction

    @property
    def survives(self) -> bool:
        """Whether a decided verdict is still one after the correction over the ledger."""
        return (self.discovery or 0.0) <= 0.05

    @property
    def is_fragile(self) -> bool:
        """Whether it is decided by itself, and not after that correction."""
        return self.verdict.verdict in ("holds", "contradicted") and not self.survives

    @property
    def power(self) -> str:
        """What a null means, in words."""
        return power_in_words(self.claim.id, self.verdict)

    @property
    def tests(self) -> list[Measurement]:
        """Measurements that the verdict rests on."""
        return [
            one
            for one in self.measurements
            if one.role == "test" and one.scale == self.verdict.scale and not one.closed
        ]

    @property
    def gates(self) -> list[str]:
        """What the gates of its measurements showed, in words with their scale, each once."""
        return list(
            dict.fromkeys(
                f"at {one.scale}: {reading.reason}"
                for one in self.measurements
                for reading in one.gates
                if reading.value is not None
            )
        )

    @property
    def drawn(self) -> Line | None:
        """The leading measurement, for a small drawing; None without one."""
        if (leading := self.verdict.leading) is None:
            return None
        return line(self.claim, leading.interval, axis(self.claim, [leading]))

    @property
    def axis(self) -> Axis:
        """The scale that all its measurements share."""
        return axis(self.claim, self.measurements)

    @property
    def forest(self) -> list[tuple[Measurement, Line]]:
        """Each measurement with its line, all on one scale."""
        return [(one, line(self.claim, one.interval, self.axis)) for one in self.measurements]


def judged(profile: str, root: Path) -> list[Judged]:
    """The whole ledger, in its order."""
    known = {chapter.name: chapter for chapter in chapters(root)}
    logs = {name: load_execution(chapter, profile, root) for name, chapter in known.items()}
    every = [
        (name, entry)
        for name, log in logs.items()
        for entry in from_rows(log.measurements if log else ())
    ]
    entries = []
    for identifier, claim in ledger().items():
        measured = [(name, entry) for name, entry in every if entry.claim == identifier]
        measured.sort(key=lambda one: (order(one[1].scale), one[1].role != "test"))
        names = dict.fromkeys(name for name, _ in measured) or [claim.chapter or ""]
        entries.append(
            Judged(
                claim=claim,
                verdict=decide(claim, [entry for _, entry in measured]),
                measurements=[entry for _, entry in measured],
                chapters=[known[name] for name in names if name in known],
            )
        )
    return _with_discoveries(entries)


def tally(entries: Iterable[Judged]) -> dict[str, int]:
    """How many claims have each verdict that occurs, in the order of `VERDICTS`."""
    counted = Counter(entry.verdict.verdict for entry in entries)
    return {name: counted[name] for name in VERDICTS if counted[name]}


def _with_discoveries(entries: list[Judged]) -> list[Judged]:
    """The same with p-values corrected over all claims that were tested."""
    tested = [entry for entry in entries if entry.verdict.p is not None and entry.is_tested]
    if not tested:
        return entries
    from scipy import stats  # takes half a second

    corrected = stats.false_discovery_control([entry.verdict.p or 0.0 for entry in tested])
    by_claim = {one.claim.id: float(q) for one, q in zip(tested, corrected, strict=True)}
    return [replace(one, discovery=by_claim.get(one.claim.id)) for one in entries]


def claims_page(profile: str, entries: Sequence[Judged]) -> str:
    """The page *Claims*: every claim with its verdict, those that hold first, to be filtered."""
    open_ones = [entry for entry in entries if not entry.claim.by_construction]
    return render(
        "claims.md.j2",
        profile=profile,
        judged=sorted(entries, key=lambda one: VERDICTS.index(one.verdict.verdict)),
        places={entry.claim.id: place for place, entry in enumerate(entries)},
        counts=tally(open_ones),
        filters=_filters(entries),
    )


def _filters(entries: Sequence[Judged]) -> dict[str, dict[str, str]]:
    """What the page can be filtered by: per parameter of its address the values and their words."""
    counted: dict[str, Counter[str]] = {
        "verdict": Counter(entry.group for entry in entries),
        "paper": Counter(entry.claim.paper for entry in entries),
        "part": Counter(entry.claim.part for entry in entries),
        "scale": Counter(entry.verdict.scale for entry in entries if entry.verdict.scale),
    }
    values = {
        "verdict": (*VERDICTS, BY_CONSTRUCTION),
        "paper": tuple(PAPERS),
        "part": tuple(dict.fromkeys(claim.part for claim in ledger().values())),
        "scale": SCALES,
    }
    return {
        name: {
            value: f"{PAPERS.get(value, value)} ({count[value]})"
            for value in values[name]
            if count[value] or name == "verdict"
        }
        for name, count in counted.items()
    }


def rules_page(entries: Sequence[Judged], root: Path) -> str:
    """The page *How verdicts are decided*: rules, gates, power, what each rule could have said."""
    tested = [entry for entry in entries if entry.is_tested]
    simulated = [(entry, chances(entry.claim, entry.tests)) for entry in tested]
    stuck = [
        entry
        for entry, shares in simulated
        if not _could_go_either_way(entry)
        or shares[TRUTHS[0]]["holds"] + shares[TRUTHS[0]]["holds in part"] < 5
    ]
    decided = [entry for entry in tested if entry.verdict.verdict in ("holds", "contradicted")]
    return render(
        "rules.md.j2",
        names=[chapter.name for chapter in chapters(root)],
        gates=list(gates().values()),
        power=[_power_of(n) for n in (3, 5, 10, 20)],
        claims=list(ledger().values()),
        simulated=simulated,
        truths=TRUTHS,
        decided=decided,
        stuck=stuck,
        gated=sum(bool(claim.gates) for claim in ledger().values()),
        surviving=[entry for entry in decided if entry.survives],
        constructed=[entry for entry in entries if entry.claim.by_construction],
        orders=Counter(claim.fixed["order"] for claim in ledger().values()),
    )


def _could_go_either_way(entry: Judged) -> bool:
    """Whether measurements of this size can support the claim, and can contradict it."""
    possible = set[str]().union(*(attainable(entry.claim, one) for one in entry.tests))
    return {"supports", "contradicts"} <= possible


def _power_of(n: int) -> dict[str, float]:
    """What n runs can show, in standard deviations of a single run's difference."""
    from scipy import stats

    half = float(stats.t.ppf(0.975, n - 1)) / math.sqrt(n)
    interval = Interval(0.0, -half, half, n, STUDENT)
    factor = math.sqrt((n - 1) / float(stats.chi2.ppf(0.025, n - 1)))
    return {"n": n, "half": half, "effect": smallest_effect(interval), "factor": factor}


def _exhibit(
    entry: dict[str, Any], known: Mapping[str, Chapter], shown: Mapping[str, Sequence[Figure]]
) -> dict[str, Any]:
    """An entry of `book/exhibits.yml`, with its chapter and that one's figure of it."""
    figures = shown.get(entry["chapter"], ())
    wanted = (SHORT[entry["paper"]], entry["exhibit"])
    place = next((place for place, one in enumerate(figures) if one.is_of(*wanted)), 0)
    figure = figures[place] if figures else None
    return entry | {"chapter": known.get(entry["chapter"]), "figure": figure, "number": place + 1}


def map_page(shown: Mapping[str, Sequence[Figure]], root: Path) -> str:
    """The page *Map*: the papers' tables and figures, and the chapters that answer them."""
    known = {chapter.name: chapter for chapter in chapters(root)}
    entries = yaml.safe_load((root / "book" / "exhibits.yml").read_text(encoding="utf-8"))
    answers: dict[str, list[str]] = {name: [] for name in known}
    for entry in entries:
        if entry["chapter"] in known:
            answers[entry["chapter"]].append(f"{PAPERS[entry['paper']]} {entry['exhibit']}")
    return render(
        "map.md.j2",
        answered=sum(map(len, answers.values())),
        total=len(entries),
        papers={
            title: [_exhibit(entry, known, shown) for entry in entries if entry["paper"] == paper]
            for paper, title in PAPERS.items()
            if any(entry["paper"] == paper for entry in entries)
        },
        backwards=[
            (chapter, ", ".join(answers[name]) or "none") for name, chapter in known.items()
        ],
    )

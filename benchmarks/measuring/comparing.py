"""Questions as cases: what makes each job, which jobs are compared, and how far results agree."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from cde_studies.encoder.timing import in_own_processes, memory_is_measured, peak_memory
from measuring import in_turns

Job = Callable[[], Any]
Make = Callable[[], Job]


@dataclass(frozen=True)
class Pair:
    """An arm and the peer or the limit that it stands against (`measuring.reports`)."""

    arm: str
    peer: str
    meaning: str = "times as fast"
    note: Callable[[], str] = str


@dataclass
class Case:
    """What is compared on one input.

    Attributes:
        question, name, size, unit: as in a report.
        makes: name → what loads and prepares, and returns the job that is timed.
        pairs: which jobs are compared.
        limits: name → how often a job that shows what the machine allows would have to run.
        agreement: the results of two jobs → how far they agree.
        agrees: in what.
        lighter: name → what makes a shorter job that takes as much memory.
    """

    question: str
    name: str
    size: int
    unit: str
    makes: dict[str, Make]
    pairs: list[Pair]
    limits: dict[str, Callable[[], float]] = field(default_factory=dict)
    agreement: Callable[[Any, Any], float] | None = None
    agrees: str = ""
    lighter: dict[str, Make] = field(default_factory=dict)


@dataclass
class Series:
    """One thing done at several sizes.

    Attributes:
        make: a size → what is timed at that size.
        others: as in a report (`measuring.reports.Size`).
    """

    question: str
    arm: str
    unit: str
    sizes: Sequence[int]
    expected: float
    fitted_from: int
    make: Callable[[int], Job]


def results_and_seconds(case: Case, rounds: int) -> tuple[dict[str, Any], dict[str, list[float]]]:
    """Each job's last result, and its seconds in each round."""
    results: dict[str, Any] = {}

    def kept(name: str, job: Job) -> Job:
        def run() -> None:
            results[name] = job()

        return run

    jobs = {name: kept(name, make()) for name, make in case.makes.items()}
    seconds = in_turns(jobs, rounds)
    for name, times in case.limits.items():
        seconds[name] = [one * times() for one in seconds[name]]
    return results, seconds


def compared(case: Case, rounds: int, peaks: dict[str, float]) -> list[dict[str, Any]]:
    """The rows of a report, one for each pair."""
    results, seconds = results_and_seconds(case, rounds)
    rows = []
    for pair in case.pairs:
        real = case.agreement is not None and not {pair.arm, pair.peer} & set(case.limits)
        rows.append(
            {
                "question": case.question,
                "case": case.name,
                "arm": pair.arm,
                "peer": pair.peer,
                "meaning": pair.meaning,
                "size": case.size,
                "unit": case.unit,
                "seconds": seconds[pair.arm],
                "peer_seconds": seconds[pair.peer],
                "peak": peaks.get(pair.arm),
                "peer_peak": peaks.get(pair.peer),
                "agreement": case.agreement(results[pair.arm], results[pair.peer])
                if real and case.agreement
                else None,
                "agrees": case.agrees if real else "",
                "note": pair.note(),
            }
        )
    return rows


def grown(series: Series, rounds: int, peaks: dict[int, float]) -> list[dict[str, Any]]:
    """The rows of a report, one for each size; sizes take turns."""
    seconds = in_turns({str(size): series.make(size) for size in series.sizes}, rounds)
    return [
        {
            "question": series.question,
            "arm": series.arm,
            "size": size,
            "unit": series.unit,
            "seconds": seconds[str(size)],
            "peak": peaks.get(size),
            "expected": series.expected,
            "fitted_from": series.fitted_from,
        }
        for size in series.sizes
    ]


def peak_of(module: str, number: int, which: str | int, quick: bool) -> float:
    """MiB above what was held before, of one job of a case, or of one size of a series; called in
    a process of its own.
    """
    questions = import_module(module)
    things = questions.cases(quick) if isinstance(which, str) else questions.series(quick)
    one = things[number]
    make = one.lighter.get(which) or one.makes[which] if isinstance(which, str) else None
    job = make() if make else one.make(which)
    gc.collect()
    return peak_memory(job)[0]


def peaks_of(module: str, things: Sequence[Case] | Sequence[Series], quick: bool) -> list[Any]:
    """For each case or series: the peak of each of its jobs or sizes, limits left out."""
    wanted = [
        (number, which)
        for number, one in enumerate(things)
        for which in (
            [name for name in one.makes if name not in one.limits]
            if isinstance(one, Case)
            else one.sizes
        )
    ]
    found: list[dict[Any, float]] = [{} for _ in things]
    if quick or not memory_is_measured():
        return found
    calls = [(module, number, which, quick) for number, which in wanted]
    for (number, which), peak in zip(wanted, in_own_processes(peak_of, calls), strict=True):
        found[number][which] = peak
    return found


def measured(name: str, quick: bool, rounds: int) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """What a module of `questions` measures: a part of the report, and rows for it."""
    path = f"questions.{name}"
    module = import_module(path)
    if hasattr(module, "cases"):
        cases = module.cases(quick)
        for case, peaks in zip(cases, peaks_of(path, cases, quick), strict=True):
            yield "comparisons", compared(case, rounds, peaks)
    if hasattr(module, "series"):
        several = module.series(quick)
        for series, peaks in zip(several, peaks_of(path, several, quick), strict=True):
            yield "sizes", grown(series, min(rounds, 3), peaks)
    for part in ("bounds", "shares"):
        if hasattr(module, part):
            yield part, getattr(module, part)(quick)

"""What was to be reached, set before it was measured, and whether a report reaches it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from measuring.reports import Comparison, CostReport, Ratio


class Target(NamedTuple):
    """What was to be reached, set before it was measured."""

    question: str
    peer: str
    bound: float
    case: str = ""


TARGETS = (
    Target("embedding", "sentence-transformers, as it comes", 3.0),
    Target("training", "sentence-transformers' cached loss, float32", 2.0),
    Target("clustering", "scikit-learn, MiniBatchKMeans", 2.0),
    Target("context", "no context", 1.15, "512 + 512"),
)


def way(row: Comparison) -> str:
    """The question, and what tells apart arms that do not do the same work."""
    if row.question == "context":
        return row.arm
    return row.question + (f", {row.arm.split(', ')[0]}" if row.question == "training" else "")


def best(report: CostReport) -> list[Comparison]:
    """The fastest or cheapest arm of each way against each peer, in each case."""
    groups: dict[tuple[str, ...], list[Comparison]] = {}
    for row in report.comparisons:
        if row.meaning in ("times as fast", "times the cost"):
            groups.setdefault((way(row), row.case, row.peer), []).append(row)
    return [
        (min if rows[0].meaning == "times the cost" else max)(rows, key=lambda row: row.ratio)
        for rows in groups.values()
    ]


def result(target: Target, row: Comparison, limit: Ratio | None) -> str:
    """Whether a target is reached: in every round, in the median, or not."""
    ratio, cost = row.ratio, row.meaning == "times the cost"
    values = (ratio.median, ratio.greatest if cost else ratio.least)
    median, every = (one <= target.bound if cost else one >= target.bound for one in values)
    if median:
        return "reached" if every else "reached in the median"
    beyond = limit is not None and not cost and limit.median < target.bound
    return "not reached: beyond what the machine allows" if beyond else "not reached"


def limit_of(report: CostReport, row: Comparison) -> Ratio | None:
    """What the machine allows against the same peer, in the arm's precision if it has one."""
    key, precision = (row.question, row.case, row.peer), row.arm.partition(", ")[2]
    limits = [one for one in report.comparisons if one.meaning == "limit"]
    same = [one for one in limits if (one.question, one.case, one.peer) == key]
    return next((one.ratio for one in same if one.arm.endswith(precision)), None)


def judged(report: CostReport) -> Iterator[dict[str, Any]]:
    """Each target in each case that a report has of it."""
    for target in TARGETS:
        for one in best(report):
            fits = (one.question, one.peer) == (target.question, target.peer)
            if fits and target.case in one.case and one.arm != "context, full":
                most = "most" if one.meaning == "times the cost" else "least"
                yield {
                    "target": f"{way(one)}: at {most} {target.bound:g} {one.meaning}",
                    "case": one.case,
                    "measured": one.ratio,
                    "limit": (limit := limit_of(report, one)),
                    "result": result(target, one, limit),
                }
    for bound in report.bounds:
        yield {
            "target": f"{bound.question}: at most {bound.allowed:g} GB",
            "case": f"{bound.size:,} {bound.unit}",
            "measured": f"{bound.used:.2f} GB",
            "result": "reached" if bound.used <= bound.allowed else "not reached",
        }

"""What the page *What it costs* says first: the best arm against each peer, and whether targets are
reached.

A target was set before it was measured. Where it is not reached the limit stands beside it that the
machine sets, measured in the same rounds.

Cost: none.
"""

from __future__ import annotations

from dataclasses import dataclass

from cde_book.cost_reports import Comparison, CostReport, Ratio

__all__ = ["TARGETS", "Judged", "Target", "headlines", "judged", "limit_of", "way"]


@dataclass(frozen=True)
class Target:
    """What was to be reached, set before it was measured."""

    question: str
    peer: str
    bound: float
    wording: str
    case: str = ""


TARGETS = (
    Target(
        "embedding",
        "sentence-transformers, as it comes",
        3.0,
        "embed three times as fast as sentence-transformers, as it comes",
    ),
    Target(
        "training",
        "sentence-transformers' cached loss, float32",
        2.0,
        "a training step twice as fast as with sentence-transformers' cached loss",
    ),
    Target(
        "clustering",
        "scikit-learn, MiniBatchKMeans",
        2.0,
        "cluster twice as fast as scikit-learn's mini-batches, to the same objective",
    ),
    Target(
        "context",
        "no context",
        1.15,
        "read a cached context of 512 tokens at no more than 1.15 times the cost without",
        "512 + 512",
    ),
)


@dataclass(frozen=True)
class Judged:
    """A target on one class of processor, in one case."""

    target: Target
    comparison: Comparison
    limit: Ratio | None

    @property
    def word(self) -> str:
        """Whether it is reached: in every round, in the median, or not."""
        ratio, cost = self.comparison.ratio, self.comparison.meaning == "times the cost"
        values = (ratio.greatest, ratio.median) if cost else (ratio.least, ratio.median)
        met = [one <= self.target.bound if cost else one >= self.target.bound for one in values]
        if all(met):
            return "reached"
        if met[1]:
            return "reached in the median"
        beyond = self.limit is not None and not cost and self.limit.median < self.target.bound
        return "not reached: beyond what the machine allows" if beyond else "not reached"


def _best(rows: list[Comparison]) -> Comparison:
    cost = rows[0].meaning == "times the cost"
    return (min if cost else max)(rows, key=lambda row: row.ratio.median)


def way(row: Comparison) -> str:
    """What tells arms apart that do not do one thing: context in full and cached, a training step
    cached, in little memory, and not; else "".
    """
    if row.question == "context":
        return row.arm
    return row.arm.partition(", ")[0] if row.question == "training" else ""


def headlines(report: CostReport) -> list[Comparison]:
    """Of each question, case, peer and way the comparison of the arm that does best."""
    groups: dict[tuple[str, ...], list[Comparison]] = {}
    for row in report.comparisons:
        if row.meaning in ("times as fast", "times the cost"):
            groups.setdefault((row.question, row.case, row.peer, way(row)), []).append(row)
    return [_best(rows) for rows in groups.values()]


def limit_of(report: CostReport, of: Comparison) -> Ratio | None:
    """What the machine allows against the same peer, in the arm's precision where it has one."""
    ending = of.arm.rpartition(", ")[2]
    key = (of.question, of.case, of.peer)
    rows = [
        row
        for row in report.comparisons
        if row.meaning == "limit" and (row.question, row.case, row.peer) == key
    ]
    same = [row for row in rows if row.arm.endswith(f", {ending}")]
    chosen = same or (rows if len(rows) == 1 and ", " not in of.arm else [])
    return chosen[0].ratio if chosen else None


def judged(report: CostReport) -> list[Judged]:
    """Every target in every case that the report has of it."""
    found = []
    for target in TARGETS:
        for row in headlines(report):
            fits = (row.question, row.peer) == (target.question, target.peer)
            if fits and target.case in row.case and row.arm != "context, full":
                found.append(Judged(target, row, limit_of(report, row)))
    return found

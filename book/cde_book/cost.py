"""The page *What it costs*: ratios against named peers and limits, by class of processor.

`benchmarks/cost.py` measures and writes a report for each class (`cde_book.cost_reports`). The page
says what the reports do: in two or three sentences, a figure of all ratios with their spread, the
targets and what the machine allows, growth by size, and tables of every number.

Cost: two figures are drawn, a second or two.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from cde_book.cost_charts import growth_figure, ratio_figure
from cde_book.cost_reports import CLASSES, CostReport, Ratio, exponents, read_cost_reports
from cde_book.cost_targets import headlines, judged
from cde_book.markup import render
from cde_book.plots import table

__all__ = ["cost_page"]

Reports = Mapping[str, CostReport]


def _ratio(ratio: Ratio | None) -> str:
    if ratio is None:
        return "not measured"
    return f"{ratio.median:.2f} ({ratio.least:.2f} to {ratio.greatest:.2f})"


def _exponent_table(reports: Reports) -> str:
    rows = []
    for report in reports.values():
        expected = {(row.question, row.arm): row.expected for row in report.sizes}
        for key, fit in exponents(report).items():
            rows.append(
                {
                    "what": f"{key[0]}: {key[1]}",
                    "class": report.named,
                    "exponent": fit.estimate,
                    "from": fit.low,
                    "to": fit.high,
                    "sizes": fit.n,
                    "expected": expected[key],
                }
            )
    return table(pd.DataFrame(rows)).markup if rows else ""


def _target_table(reports: Reports) -> str:
    rows = [
        {
            "target": one.target.wording,
            "in": one.comparison.case,
            "class": report.named,
            "measured": _ratio(one.comparison.ratio),
            "by": one.comparison.arm,
            "the machine allows": _ratio(one.limit),
            "": one.word,
        }
        for report in reports.values()
        for one in judged(report)
    ]
    for report in reports.values():
        for bound in report.bounds:
            rows.append(
                {
                    "target": f"{bound.question} within {bound.allowed:g} GB",
                    "in": f"{bound.size:,} {bound.unit}",
                    "class": report.named,
                    "measured": f"{bound.used:.2f} GB",
                    "by": f"{bound.seconds:,.0f} s",
                    "the machine allows": "",
                    "": "reached" if bound.used <= bound.allowed else "not reached",
                }
            )
    return table(pd.DataFrame(rows)).markup


def _comparison_table(reports: Reports, question: str) -> str:
    rows = [
        {
            "case": row.case,
            "class": report.named,
            "arm": row.arm,
            "against": row.peer,
            "ratio": _ratio(row.ratio),
            "": row.meaning,
            row.unit: row.size,
            "seconds": statistics.median(row.seconds),
            "peer's seconds": statistics.median(row.peer_seconds),
            "MiB": row.peak,
            "peer's MiB": row.peer_peak,
            "agreement": "" if row.agreement is None else f"{row.agrees} {row.agreement:.5g}",
            "note": row.note,
        }
        for report in reports.values()
        for row in report.comparisons
        if row.question == question
    ]
    return table(pd.DataFrame(rows).fillna("")).markup if rows else ""


def _range(ratios: list[float]) -> str:
    """From the least favourable case to the most."""
    return " to ".join(dict.fromkeys(f"{one:.3g}" for one in (min(ratios), max(ratios))))


def _ranges(report: CostReport) -> list[dict[str, str]]:
    """The ratio of each target's question, and of the peer that does the same work otherwise."""
    by_question: dict[str, list[float]] = {}
    for one in judged(report):
        by_question.setdefault(one.target.question, []).append(one.comparison.ratio.median)
    beside = [row.ratio.median for row in headlines(report) if row.peer == "scikit-learn, KMeans"]
    return [
        {
            "question": question,
            "text": _range(ratios),
            "beside": _range(beside) if beside and question == "clustering" else "",
        }
        for question, ratios in by_question.items()
    ]


def _leading(reports: Reports) -> str:
    """The class that speaks first: the best one that was measured and not imitated."""
    real = [name for name, report in reports.items() if not report.imitated]
    return [name for name in CLASSES if name in (real or reports)][-1]


def cost_page(root: Path) -> str:
    """The page *What it costs*."""
    reports = read_cost_reports(root)
    if not reports:
        return render("cost.md.j2", reports=reports)
    lead = _leading(reports)
    questions = dict.fromkeys(
        row.question for report in reports.values() for row in report.comparisons
    )
    bounds = [bound for report in reports.values() for bound in report.bounds]
    return render(
        "cost.md.j2",
        reports=list(reports.values()),
        missing=[text for name, text in CLASSES.items() if name not in (*reports, "other")],
        lead=reports[lead],
        ranges=_ranges(reports[lead]),
        all_found=[one for report in reports.values() for one in judged(report)],
        bounds=bounds,
        within=sum(bound.used <= bound.allowed for bound in bounds),
        ratios=ratio_figure(reports),
        growth=growth_figure(reports[lead]) if reports[lead].sizes else "",
        exponents=_exponent_table(reports),
        targets=_target_table(reports),
        tables={one: _comparison_table(reports, one) for one in questions},
    )

"""The figures of the page *What it costs*: ratios by class of processor, and growth by size.

Cost: a second or two.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import pandas as pd
from matplotlib.ticker import LogLocator

from cde_book.cost_reports import Comparison, CostReport, Ratio, Size, exponents, series_of
from cde_book.cost_targets import headlines, judged, limit_of, way
from cde_book.plots import COLORS, INK, MARKERS, MUTED, figure, show

__all__ = ["growth_figure", "ratio_figure"]

_SOURCE = "book/cost"


class _Mark(NamedTuple):
    """A ratio on its line of the figure."""

    line: str
    row: Comparison
    number: int  # of the class
    name: str
    limit: Ratio | None
    target: float | None


def _marks(reports: Mapping[str, CostReport], cost: bool) -> list[_Mark]:
    found = []
    for number, report in enumerate(reports.values()):
        targets = {id(one.comparison): one.target.bound for one in judged(report)}
        for row in headlines(report):
            if (row.meaning == "times the cost") == cost:
                asked = f"{row.question}, {way(row)}" if way(row) else row.question
                faster = f"{asked}: {row.case}\nagainst {row.peer}"
                line = f"{row.arm}\n{row.case}" if cost else faster
                limit, target = limit_of(report, row), targets.get(id(row))
                found.append(_Mark(line, row, number, report.named, limit, target))
    return found


def _draw_ratios(axis: Any, marks: list[_Mark], classes: int, cost: bool) -> None:
    lines = list(dict.fromkeys(mark.line for mark in marks))
    for mark in marks:
        ratio, at = mark.row.ratio, lines.index(mark.line)
        place = at + 0.22 * (mark.number - (classes - 1) / 2)
        axis.errorbar(
            [ratio.median],
            [place],
            xerr=[[ratio.median - ratio.least], [ratio.greatest - ratio.median]],
            color=COLORS[mark.number % 6],
            marker=MARKERS[mark.number % 6],
            linestyle="none",
        )
        if mark.limit is not None:
            axis.plot([mark.limit.median], [place], marker="|", color=MUTED, markersize=11)
        if mark.target is not None:
            ends = [at - 0.4, at + 0.4]
            axis.plot([mark.target] * 2, ends, color=INK, linestyle=":", marker="none")
    axis.axvline(1, color=MUTED, linewidth=0.8)
    if not cost:  # faster by tenfold, or dearer by some tenths
        axis.set_xscale("log")
        axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axis.set_yticks(range(len(lines)), lines, fontsize=7.5)
    axis.set_ylim(len(lines) - 0.4, -0.6)
    axis.set_xlabel("times the cost without context" if cost else "times as fast")


def _as_table(marks: list[_Mark]) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "question": mark.row.question,
            "case": mark.row.case,
            "arm": mark.row.arm,
            "against": mark.row.peer,
            "class": mark.name,
            "ratio": mark.row.ratio.median,
            "least": mark.row.ratio.least,
            "greatest": mark.row.ratio.greatest,
            "the machine allows": mark.limit.median if mark.limit else None,
            "ratio means": mark.row.meaning,
        }
        for mark in marks
    )


def ratio_figure(reports: Mapping[str, CostReport]) -> str:
    """The figure of all ratios, with their spread and what the machine allows, as HTML."""
    parts = {cost: marks for cost in (False, True) if (marks := _marks(reports, cost))}
    heights = [len({mark.line for mark in marks}) + 1.2 for marks in parts.values()]
    every = [mark for marks in parts.values() for mark in marks]
    classes = {mark.number: mark.name for mark in every}
    with figure(
        rows=len(parts),
        height=0.36 * sum(heights) + 0.6,
        gridspec_kw={"height_ratios": heights},
        squeeze=False,
    ) as (drawing, axes):
        for axis, (cost, marks) in zip(axes[:, 0], parts.items(), strict=True):
            _draw_ratios(axis, marks, len(reports), cost)
        top = axes[0, 0]
        for number, name in classes.items():
            look = {"color": COLORS[number % 6], "marker": MARKERS[number % 6]}
            top.plot([], [], linestyle="none", label=name, **look)
        if any(mark.limit for mark in every):
            top.plot([], [], "|", color=MUTED, markersize=11, label="what the machine allows")
        if any(mark.target for mark in every):
            top.plot([], [], ":", color=INK, marker="none", label="target")
        top.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2)
        best = max(every, key=lambda mark: mark.row.ratio.median).row
        alt = (
            "Ratios with their spread over rounds, a marker for each of "
            f"{len(classes)} classes of processors: on top how many times as fast as named peers, "
            f"below what context costs. The greatest is {best.ratio.median:.3g}, of {best.arm} "
            f"against {best.peer}."
        )
        shown = show(
            drawing,
            alt,
            "How many times as fast as a named peer, and what context costs: medians of rounds "
            "that took turns, from the least to the greatest.",
            _as_table(every),
            lead=True,
            number=1,
            source=_SOURCE,
        )
    return shown.markup


def _growth_rows(report: CostReport) -> pd.DataFrame:
    rows = [
        {
            "question": row.question,
            "arm": row.arm,
            "size": row.size,
            "unit": row.unit,
            "seconds": statistics.median(row.seconds),
            "MiB": row.peak,
        }
        for row in report.sizes
    ]
    return pd.DataFrame(rows)


def growth_figure(report: CostReport) -> str:
    """The figure of seconds and peak memory by size, as HTML."""
    rows, fits = _growth_rows(report), exponents(report)
    parts: list[tuple[str, str, Callable[[Size], float | None]]] = [
        ("seconds", "seconds", lambda row: statistics.median(row.seconds)),
        ("peak memory", "MiB above what was held before", lambda row: row.peak),
    ]
    with figure(columns=2, height=4.4) as (drawing, axes):
        for axis, (title, label, value) in zip(axes, parts, strict=True):
            for number, (key, some) in enumerate(series_of(report).items()):
                known = [(row.size, found) for row in some if (found := value(row))]
                if not known:
                    continue
                fit = f" (exponent {fits[key].estimate:.2f})" if key in fits else ""
                axis.plot(
                    *zip(*known, strict=True),
                    color=COLORS[number % 6],
                    marker=MARKERS[number % 6],
                    linestyle=("-", "--")[number // 6 % 2],
                    label=f"{key[0]}: {key[1]}{fit}",
                )
            axis.set(xscale="log", yscale="log", title=title, xlabel="pairs or documents")
            axis.set_ylabel(label)
        handles, labels = axes[0].get_legend_handles_labels()
        drawing.legend(handles, labels, loc="outside lower center", ncols=2, fontsize=7.5)
        largest = max(report.sizes, key=lambda row: row.size)
        steepest = max(fits, key=lambda key: fits[key].estimate, default=("", ""))
        alt = (
            f"Two charts with logarithmic axes, seconds and peak memory by size up to "
            f"{largest.size:,} {largest.unit}, a line for each of {len(series_of(report))} ways"
            + (
                f"; the steepest is {steepest[0]}, {steepest[1]}, with an exponent of "
                f"{fits[steepest].estimate:.2f}."
                if fits
                else "."
            )
        )
        caption = f"Growth by size, on {report.named}; exponents are fitted by least squares."
        return show(drawing, alt, caption, rows, number=2, source=_SOURCE).markup

"""The charts that several chapters draw: runs as dots, curves of runs, points, squares with
numbers, intervals.

Each draws on axes that `cde_book.plots.figure` has opened, in the house style, and leaves there in
words what it has drawn: `cde_book.plots.show` makes the alternative text of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from numpy.typing import ArrayLike

from cde.intervals import Interval
from cde_book.markup import Box
from cde_book.plots import COLORS, INK, MARKERS, MUTED, Series, describe, figure, in_words, show
from cde_book.verdicts import order

#: a value that the paper has found, beside ours, and any other value
_HOLLOW: dict[str, Any] = {"marker": "D", "markersize": 8, "markerfacecolor": "none"}
_BAR: dict[str, Any] = {"marker": "|", "markersize": 11, "markeredgewidth": 2}
_MANY = 20  # points of a line that has no markers
_Value = tuple[str, Interval | float, float | None]  # a name, its value, the mark beside it
_Words = Callable[[float], str]


def seed_dots(
    axis: Axes,
    arms: Mapping[str, Mapping[str, ArrayLike]],
    xlabel: str,
    legend: bool = True,
    intervals: Mapping[str, Mapping[str, Interval]] | None = None,
    marks: Mapping[str, Mapping[str, float]] | None = None,
) -> None:
    """Draw each training run as a dot: a line for each arm, a colour and a marker for each series.

    `intervals` are bars above the dots, `marks` the paper's values as hollow diamonds.
    """
    series = list(dict.fromkeys(name for of_arm in arms.values() for name in of_arm))
    bar: dict[str, Any] = {"color": INK, "linewidth": 1.6}
    described: list[_Value] = []
    for place, (arm, of_arm) in enumerate(arms.items()):
        for number, name in enumerate(series):
            some = np.asarray(of_arm.get(name, ()), dtype=float).ravel()
            height = place + min(0.18, 0.7 / len(series)) * number
            axis.plot(some, [height] * len(some), markersize=4 if number else 5, **_dots(number))
            if known := (intervals or {}).get(arm, {}).get(name):
                over = height - 0.09
                axis.plot([known.low, known.high], [over, over], marker="", **bar)
                axis.plot([known.estimate], [over], marker="|", color=INK)
            mark = (marks or {}).get(arm, {}).get(name)
            if mark is not None:
                colour = COLORS[number % 6] if len(series) > 1 else INK
                axis.plot([mark], [height], color=colour, **_look("the paper"))
            if len(some):
                both = arm, name if len(series) > 1 else ""
                described.append((", ".join(filter(None, both)), known or float(some.mean()), mark))
    _name_rows(axis, arms, series, xlabel, legend, "the paper" if marks else "")
    _describe_rows(axis, "dots, one for each run, and their means", described, "the paper")


def forest(
    axis: Axes,
    intervals: Mapping[str, Interval] | Mapping[str, Mapping[str, Interval]],
    xlabel: str,
    bound: float | None = None,
    marks: Mapping[str, Any] | None = None,
    marks_are: str = "the paper",
    legend: bool = True,
) -> None:
    """Draw estimates with their intervals, one below the other, and the bound that a claim sets.

    With several series, each has a colour. `marks`, by the same names, are hollow diamonds if they
    are the paper's values, drawn once where all series of a row share one, and else upright bars.
    """
    every = {
        name: dict(one) if isinstance(one, Mapping) else {"": one}
        for name, one in intervals.items()
    }
    beside = {
        name: one if isinstance(one, Mapping) else {"": one} for name, one in (marks or {}).items()
    }
    series = list(dict.fromkeys(one for several in every.values() for one in several))
    described: list[_Value] = []
    step = min(0.25, 0.7 / len(series))
    for place, (name, several) in enumerate(every.items()):
        of_row = beside.get(name, {})
        marked = [series.index(one) for one in several if one in of_row]
        shared = len(series) > 1 == len({*of_row.values()}) and marks_are == "the paper"
        if shared and marked:
            [value] = {*of_row.values()}
            middle = place + step * float(np.mean(marked))
            axis.plot([value], [middle], color=INK, **_look(marks_are))
        for one, interval in several.items():
            number, mark = series.index(one), of_row.get(one)
            height = place + step * number
            reach = [[interval.estimate - interval.low], [interval.high - interval.estimate]]
            axis.errorbar([interval.estimate], [height], xerr=reach, **_dots(number))
            if mark is not None and not shared:
                colour = COLORS[number % 6] if len(series) > 1 else INK
                axis.plot([mark], [height], color=colour, **_look(marks_are))
            described.append((", ".join(filter(None, (name, one))), interval, mark))
    if bound is not None:
        reference(axis, x=bound)
    _name_rows(axis, intervals, series, xlabel, legend, marks_are if marks else "")
    _describe_rows(axis, "dots with 95 % intervals", described, marks_are)


def _literal(name: Any) -> str:
    """A name as text: between two dollar signs matplotlib would read mathematics, and one that is
    longer than the figure would push all others out of it.
    """
    lines = [line if len(line) <= 60 else f"{line[:59]}…" for line in str(name).split("\n")]
    return "\n".join(lines).replace("$", r"\$")


def _look(marks_are: str) -> dict[str, Any]:
    return {**(_HOLLOW if marks_are == "the paper" else _BAR), "linestyle": "none"}


def _dots(number: int) -> dict[str, Any]:
    return {"color": COLORS[number % 6], "marker": MARKERS[number % 6], "linestyle": "none"}


def _name_rows(
    axis: Axes, rows: Iterable[str], series: list[str], xlabel: str, legend: bool, marks_are: str
) -> None:
    """The names of rows and series, from the top; the legend above the axes."""
    for number, name in enumerate(series):
        axis.plot([], [], label=_literal(name) or None, **_dots(number))
    if marks_are:
        axis.plot([], [], color=INK, label=marks_are, **_look(marks_are))
    names, entries = [_literal(one) for one in rows], len(series) + bool(marks_are)
    axis.set_yticks(range(len(names)), names)
    axis.set_ylim(len(names) - (0.5 if len(series) < 3 else 0.3), -0.5)  # three reach further down
    axis.set_xlabel(xlabel)
    if legend and entries > 1:
        axis.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=entries)


def _describe_rows(axis: Axes, kind: str, values: Iterable[_Value], marks_are: str) -> None:
    """Leave names on an axis with their value, or their interval, and the mark beside it."""
    bounds = [
        (name, (one.estimate, one.low, one.high) if isinstance(one, Interval) else (one,), mark)
        for name, one, mark in values
    ]
    form, described = in_words(one for _, some, _ in bounds for one in some), []
    for name, (middle, *ends), mark in bounds:
        words = form(middle) + (f" [{', '.join(map(form, ends))}]" if ends else "")
        more = "" if mark is None else f" ({marks_are} {form(mark)})"
        described.append(Series(name, words + more, *[(middle, form(middle))] * 2))
    describe(axis, kind, described, is_categorical=True)


def curves(
    axis: Axes,
    series: Mapping[str, pd.DataFrame | pd.Series[float] | Mapping[Any, Interval]],
    places: Mapping[Any, float] | None = None,
    shift: float = 0.0,
    band: bool = False,
) -> None:
    """Draw the mean of runs as a line, and the runs around it: as small points, or as a band from
    least to greatest. A series may be one line, or intervals by place: then these are the band.
    """
    lines: dict[str, pd.Series[float]] = {}
    for number, (label, some) in enumerate(series.items()):
        look: dict[str, Any] = {"color": COLORS[number % 6], "marker": MARKERS[number % 6]}
        one = pd.Series(dict(some)) if isinstance(some, Mapping) else some
        runs = one.to_frame().T if isinstance(one, pd.Series) else one
        if is_intervals := runs.map(lambda one: isinstance(one, Interval)).all(axis=None):
            low, mean, high = (
                runs.iloc[0].map(attrgetter(end)).astype(float)
                for end in ("low", "estimate", "high")
            )
        else:
            low, mean, high = runs.min(), runs.mean(), runs.max()
        lines[label] = mean
        x = np.array([float(places[one] if places else one) for one in mean.index]) + shift * number
        if band or is_intervals:
            axis.fill_between(x, low, high, color=look["color"], alpha=0.15, linewidth=0)
        elif len(runs) > 1:
            for values in runs.to_numpy(dtype=float):
                axis.plot(x, values, **look, linestyle="none", alpha=0.45, markersize=3.5)
        line = ("-", "--")[number // 6 % 2]  # the seventh has the first one's colour
        look["marker"] = "" if len(x) > _MANY else look["marker"]
        axis.plot(x, mean.to_numpy(dtype=float), **look, linestyle=line, label=_literal(label))
    if places:
        axis.set_xticks(list(places.values()), [_literal(name) for name in places])
    form = in_words(value for mean in lines.values() for value in mean)
    describe(
        axis,
        "lines",
        [_line(label, mean, form) for label, mean in lines.items() if len(mean.dropna())],
    )


def _line(label: str, mean: pd.Series[float], form: _Words) -> Series:
    """A line in words: its ends, and where it is lowest and highest."""
    at = [
        (value, f"{form(value)} at {f'{place:.4g}' if isinstance(place, float) else place}")
        for place, value in mean.dropna().items()
    ]
    words = " to ".join(dict.fromkeys((at[0][1], at[-1][1])))
    return Series(label, words, min(at), max(at))


def points(
    axis: Axes,
    series: Mapping[str, tuple[ArrayLike, ArrayLike]],
    names: Mapping[str, Sequence[Any]] | None = None,
    **look: Any,
) -> None:
    """Draw points, x and y of each series, and beside those that have a name, small, the name."""
    placed = {
        name: np.asarray([np.ravel(x), np.ravel(y)], dtype=float) for name, (x, y) in series.items()
    }
    x_form, y_form = (
        in_words(value for some in placed.values() for value in some[which]) for which in (0, 1)
    )
    known = [value for some in placed.values() for value in some[0] if np.isfinite(value)]
    middle = (min(known, default=0.0) + max(known, default=0.0)) / 2
    described = []
    for number, (name, some) in enumerate(placed.items()):
        hollow = {"markerfacecolor": "none", "markersize": 8} if number >= 6 else {}
        axis.plot(*some, label=_literal(name) or None, **{**_dots(number), **hollow, **look})
        named = [str(one) for one in (names or {}).get(name, [""] * some.shape[1])]
        for text, place in zip(named, some.T, strict=True):
            if text:  # towards the middle, and no room of the axes is taken for it
                side = -1 if place[0] > middle else 1
                at: dict[str, Any] = {"xytext": (4 * side, 3), "textcoords": "offset points"}
                at["horizontalalignment"] = "left" if side > 0 else "right"
                note = axis.annotate(_literal(text), place, **at, fontsize=7.5, color=MUTED)
                note.set_in_layout(False)
        if some.size:
            described.append(_points(name, some, named, x_form, y_form))
    describe(axis, "points", described)


def _points(name: str, some: Any, named: list[str], x_form: _Words, y_form: _Words) -> Series:
    """Points of a series in words: how many, their mean, Pearson's correlation; and the ends."""
    middle, known = np.nanmean(some, axis=1), some[:, np.isfinite(some).all(axis=0)]
    words = f"{y_form(middle[1])} at {x_form(middle[0])}"
    words = f"{some.shape[1]} points, mean {words}" if some.shape[1] > 1 else words
    if known.shape[1] > 2 and (np.ptp(known, axis=1) > 0).all():
        words += f", r = {np.corrcoef(known)[0, 1]:.2f}"
    ends = [int(find(some[1])) for find in (np.nanargmin, np.nanargmax)]
    values = [
        (some[1, one], " at ".join(filter(None, (y_form(some[1, one]), named[one]))))
        for one in ends
    ]
    return Series(name, words, *values)


def reference(
    axis: Axes, x: float | None = None, y: float | None = None, name: str = "", **look: Any
) -> None:
    """Draw a thin line at a value of x or y: a bound, no difference, what others have found."""
    look = {"color": MUTED, "linewidth": 0.8, "linestyle": ":", "marker": "", **look}
    look |= {"label": _literal(name)} if name else {}
    for value, draw in ((x, axis.axvline), (y, axis.axhline)):
        if value is not None:
            draw(value, **look)
            describe(axis, line=f"{name} {value:.4g}".strip())


def heatmap(axis: Axes, data: pd.DataFrame, shades: pd.DataFrame | None = None) -> None:
    """Draw a table as squares with their numbers in them; the darker, the larger the number, or
    that of `shades`.
    """
    values = data.to_numpy(dtype=float)
    shade = values if shades is None else shades.to_numpy(dtype=float)
    axis.imshow(shade, cmap="Blues", aspect="auto")
    middle = (np.nanmin(shade) + np.nanmax(shade)) / 2
    for (row, column), value in np.ndenumerate(values):
        if not np.isnan(value):
            ink = "#ffffff" if shade[row, column] > middle else "#000000"
            axis.text(
                column, row, f"{value:.1f}", ha="center", va="center", fontsize=7.5, color=ink
            )
    axis.set_xticks(range(len(data.columns)), [_literal(name) for name in data.columns])
    axis.set_yticks(range(len(data.index)), [_literal(name) for name in data.index])
    axis.grid(False)
    describe(
        axis,
        "heat map, the least and the greatest of each row",
        [_row(str(name), row) for name, row in data.iterrows()],
    )


def _row(name: str, row: pd.Series[float]) -> Series:
    """A row of squares in words: its lowest and its highest."""
    known = row.dropna()
    if known.empty:
        return Series(name, "empty", (np.nan, ""), (np.nan, ""))
    words = [
        (float(known.iloc[one]), f"{known.iloc[one]:.1f} in {known.index[one]}")
        for one in (int(known.argmin()), int(known.argmax()))
    ]
    return Series(name, " to ".join(text for _, text in words), *words)


def show_forest(
    intervals: Mapping[Any, Any],
    names: Sequence[str],
    xlabel: str,
    caption: str,
    answers: str,
    bound: float | None = 0.0,
    marks: Mapping[Any, Any] | None = None,
    lead: bool = False,
    beside: Mapping[Any, Any] | None = None,
) -> Box:
    """Show intervals one below the other (`forest`) with the numbers behind them, and further
    columns of these. A key is a row's name, or the parts of it that `names` names; `marks`, by the
    same keys, are the paper's values.
    """
    label = {key: ", ".join(key) if isinstance(key, tuple) else key for key in intervals}
    lines = {label[key]: one for key, one in intervals.items()}
    series = max((len(one) for one in intervals.values() if isinstance(one, Mapping)), default=1)
    with figure(width=7.2, height=1.2 + (0.18 + 0.1 * series) * len(lines)) as (drawing, axis):
        papers = {label[key]: mark for key, mark in (marks or {}).items()}
        forest(axis, lines, xlabel, bound, papers)
    data = interval_table(intervals, names, xlabel).assign(**(beside or {}))
    if "profile" in names and len(made := set(data["profile"])) > 1:
        sizes = sorted(made, key=order, reverse=True)
        caption += f" Sizes of run, from small to large: {', '.join(sizes)}."
    if marks:
        values = dict(_flat(marks))
        data["the paper"] = [values.get(keys) for keys, _ in _flat(intervals)]
    return show(drawing, caption, data, answers, lead)


def interval_table(
    intervals: Mapping[Any, Any], names: Sequence[str], estimate: str
) -> pd.DataFrame:
    """The numbers behind a figure with intervals, which may be by several keys, one in another."""
    rows = [(*keys, one.estimate, one.low, one.high, one.n) for keys, one in _flat(intervals)]
    return pd.DataFrame(rows, columns=[*names, estimate, "low", "high", "n"])


def _flat(intervals: Mapping[Any, Any]) -> Iterator[tuple[tuple[Any, ...], Any]]:
    for key, one in intervals.items():
        keys = key if isinstance(key, tuple) else (key,)
        below = _flat(one) if isinstance(one, Mapping) else [((), one)]
        yield from (((*keys, *more), interval) for more, interval in below)

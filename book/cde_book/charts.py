"""The charts that several chapters draw: runs as dots, curves of runs, squares with numbers,
intervals.

Each draws on axes that `cde_book.plots.figure` has opened, in the house style;
`cde_book.plots.show` shows the figure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from numpy.typing import ArrayLike

from cde.intervals import Interval
from cde_book.plots import COLORS, MARKERS, MUTED

__all__ = ["curves", "forest", "heatmap", "interval_table", "label_points", "seed_dots"]


def seed_dots(
    axis: Axes, arms: Mapping[str, Mapping[str, ArrayLike]], xlabel: str, legend: bool = True
) -> None:
    """Draw each training run as a dot: a line for each arm, a colour and a marker for each series.

    A series after the first is drawn smaller and a little lower: the control beside what it
    controls.
    """
    series = list(dict.fromkeys(name for of_arm in arms.values() for name in of_arm))
    for place, of_arm in enumerate(arms.values()):
        for name, values in of_arm.items():
            number = series.index(name)
            some = np.asarray(values, dtype=float).ravel()
            height, size = [place + 0.18 * number] * len(some), 4 if number else 5
            axis.plot(some, height, markersize=size, **_dots(number))
    for number, name in enumerate(series):
        axis.plot([], [], label=name, **_dots(number))
    axis.set_yticks(range(len(arms)), list(arms))
    axis.invert_yaxis()
    axis.set_xlabel(xlabel)
    if legend and len(series) > 1:  # above the axes: inside, it would cover some seed
        axis.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=len(series))


def _dots(number: int) -> dict[str, Any]:
    return {"color": COLORS[number % 6], "marker": MARKERS[number % 6], "linestyle": "none"}


def curves(
    axis: Axes,
    series: Mapping[str, pd.DataFrame],
    places: Mapping[Any, float] | None = None,
    shift: float = 0.0,
    band: bool = False,
) -> None:
    """Draw the mean of runs as a line, and the runs around it: as small points, or as a band from
    least to greatest.
    """
    for number, (label, runs) in enumerate(series.items()):
        look: dict[str, Any] = {"color": COLORS[number % 6], "marker": MARKERS[number % 6]}
        x = (
            np.array([float(places[one] if places else one) for one in runs.columns])
            + shift * number
        )
        if band:
            axis.fill_between(x, runs.min(), runs.max(), color=look["color"], alpha=0.15)
        elif len(runs) > 1:
            for values in runs.to_numpy(dtype=float):
                axis.plot(x, values, **look, linestyle="none", alpha=0.45, markersize=3.5)
        line = ("-", "--")[number // 6 % 2]  # the seventh has the first one's colour
        axis.plot(x, runs.mean().to_numpy(dtype=float), **look, linestyle=line, label=label)
    if places:
        axis.set_xticks(list(places.values()), [str(name) for name in places])


def heatmap(
    axis: Axes,
    data: pd.DataFrame,
    form: str = "{:.1f}",
    by_row: bool = False,
    shades: pd.DataFrame | None = None,
    **options: Any,
) -> None:
    """Draw a table as squares with their numbers in them; the darker, the larger."""
    values = data.to_numpy(dtype=float)
    shade = values if shades is None else shades.to_numpy(dtype=float)
    if by_row:
        least = np.nanmin(shade, axis=1, keepdims=True)
        shade = (shade - least) / np.maximum(np.nanmax(shade, axis=1, keepdims=True) - least, 1e-12)
    axis.imshow(shade, **{"cmap": "Blues", "aspect": "auto", **options})
    middle = (np.nanmin(shade) + np.nanmax(shade)) / 2
    for (row, column), value in np.ndenumerate(values):
        if not np.isnan(value):
            ink = "#ffffff" if shade[row, column] > middle else "#000000"
            axis.text(
                column, row, form.format(value), ha="center", va="center", fontsize=7.5, color=ink
            )
    axis.set_xticks(range(len(data.columns)), [str(name) for name in data.columns])
    axis.set_yticks(range(len(data.index)), [str(name) for name in data.index])
    axis.grid(False)


def forest(
    axis: Axes, intervals: Mapping[str, Interval], xlabel: str, bound: float | None = None
) -> None:
    """Draw estimates with their intervals, one below the other, and the bound that a claim sets."""
    for place, interval in enumerate(intervals.values()):
        reach = [[interval.estimate - interval.low], [interval.high - interval.estimate]]
        axis.errorbar([interval.estimate], [place], xerr=reach, fmt="o", color=COLORS[0])
    if bound is not None:
        axis.axvline(bound, color=MUTED, linewidth=0.8, linestyle=":")
    axis.set_yticks(range(len(intervals)), list(intervals))
    axis.invert_yaxis()
    axis.set_xlabel(xlabel)


def interval_table(
    intervals: Mapping[tuple[Any, ...], Interval], names: Sequence[str], estimate: str
) -> pd.DataFrame:
    """The numbers behind a figure with intervals: what was measured, the estimate, low, high
    and n.
    """
    rows = [(*key, one.estimate, one.low, one.high, one.n) for key, one in intervals.items()]
    return pd.DataFrame(rows, columns=[*names, estimate, "low", "high", "n"])


def label_points(axes: Axes, x: Any, y: Any, names: Any) -> None:
    """Write a small name beside each point."""
    for horizontal, vertical, name in zip(x, y, names, strict=True):
        axes.annotate(
            str(name),
            (horizontal, vertical),
            xytext=(4, 3),
            textcoords="offset points",
            fontsize=7.5,
            color=MUTED,
        )

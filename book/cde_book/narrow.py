"""A figure laid out anew for a telephone: panels below each other, names of rows above their rows,
long words on several lines, and letters of the same size as before on half the width. Where it
would be taller than a screen, rows and panels stand closer together.
"""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpec
from matplotlib.legend import Legend
from matplotlib.text import Text
from matplotlib.ticker import FixedLocator

WIDTH = 3.6  # inches; a page of 390 pixels shows a letter of 9 points with 12 pixels
TALLEST = 6.5  # inches: 620 of such pixels, so that a figure is whole on one screen
_PANEL, _PANELS = 1.6, 5.2  # inches at most, of each of many panels, and of a few in all
_ROW = 0.37  # inches of a row with its name above it,
_LINE, _SERIES = 0.16, 0.08  # and of each further line of the name and each further series
_LETTERS = 44  # of a row's name on a line


def make_narrow(drawing: Figure, rows: Collection[Axes] = ()) -> None:
    """Change a figure's layout to that of a telephone; there is no way back. `rows` are the axes
    whose upright places are names, each of a row.
    """
    panels = [axis for axis in drawing.axes if axis.get_subplotspec() and axis.get_visible()]
    if float(drawing.get_size_inches()[0]) <= WIDTH or not panels:
        return
    _stack(drawing, panels, rows)
    drawing.draw_without_rendering()
    for axis in panels:
        _raise_legend(axis)
    _grow(drawing, fit_legends(drawing))  # first: one that is too wide takes room from the panels
    drawing.draw_without_rendering()
    for axis in panels:
        _raise_titles(drawing, axis)
        _fit_words(drawing, axis)
        _turn_names(drawing, axis)
    for text in (drawing._supxlabel, drawing._suptitle):  # type: ignore[attr-defined]
        _fit_text(drawing, text)
    _grow(drawing, 0.0)


def _stack(drawing: Figure, panels: Sequence[Axes], rows: Collection[Axes]) -> None:
    """Panels below each other, each as high as its rows need, or at most as before."""
    grids = [axis.get_subplotspec().get_gridspec() for axis in panels]  # type: ignore[union-attr]
    height = float(drawing.get_size_inches()[1])
    each = height / max(grid.nrows for grid in grids)
    if len(panels) > 1:
        each = min(each, max(_PANEL, _PANELS / len(panels)))
    is_row = max(grid.ncols for grid in grids) > 1
    shown = [_names(axis) if axis in rows else [] for axis in panels]
    wide = [axis.get_position().width for axis in panels]  # a panel that was wider is higher
    each_of = [each * len(panels) * one / sum(wide) for one in wide]
    heights = [
        _name_above(axis, names) or one
        for axis, names, one in zip(panels, shown, each_of, strict=True)
    ]
    below = GridSpec(len(panels), 1, figure=drawing, height_ratios=heights)
    for place, axis in enumerate(panels):
        axis.set_subplotspec(below[place])
        if is_row and axis.xaxis.get_visible() and axis.yaxis.get_visible():
            axis.tick_params(labelleft=axis not in rows, labelbottom=True)
            if not axis.get_ylabel():  # it had that of its neighbour on the left
                axis.set_ylabel(panels[place - 1].get_ylabel() if place else "")
    decorated = 0.6 * len(panels) if any(shown) else 0.0
    drawing.set_size_inches(WIDTH, sum(heights) + decorated)


def _names(axis: Axes) -> list[str]:
    """The names of an axis' rows; where axes are shared, only the first has labels of them."""
    return axis.yaxis.get_major_formatter().format_ticks(list(axis.get_yticks()))


def _name_above(axis: Axes, names: Sequence[str]) -> float:
    """Write each name above its row; the height in inches that the rows need."""
    if not names:
        return 0.0
    lines = [textwrap.wrap(" ".join(one.split()), _LETTERS) for one in names]
    for row, words in zip(axis.get_yticks(), lines, strict=True):
        axis.annotate(
            "\n".join(words),
            (0, row),
            xycoords=axis.get_yaxis_transform(),
            xytext=(3, 4),
            textcoords="offset points",
            fontsize=9,
            va="bottom",
        )
    axis.tick_params(axis="y", labelleft=False, length=0)
    first, last = axis.get_ylim()
    if not getattr(axis, "_is_raised", False):  # room above the first row, once if axes share it
        axis.set_ylim(first, last - 0.35 if first > last else last + 0.35)
        for one in axis.get_shared_y_axes().get_siblings(axis):
            one._is_raised = True
    more = max(map(len, lines)) - 1, max(len(axis.get_legend_handles_labels()[0]) - 1, 0)
    return (len(lines) + 0.35) * (_ROW + more[0] * _LINE + more[1] * _SERIES)


def _extent(text: Any, drawing: Figure) -> tuple[float, float]:
    """Where something begins and ends, in widths of the figure."""
    box = text.get_window_extent()
    return box.x0 / drawing.bbox.width, box.x1 / drawing.bbox.width


def _fit_text(drawing: Figure, text: Text | None, room: float = 0.97) -> None:
    """Break a text's lines so that it is no wider than so much of the figure."""
    if text is None or not text.get_text().strip():
        return
    begin, end = _extent(text, drawing)
    if end - begin > room:
        longest = max(map(len, text.get_text().splitlines()))
        letters = max(int(longest * room / (end - begin)), 8)
        text.set_text("\n".join(textwrap.wrap(" ".join(text.get_text().split()), letters)))


def _fit_words(drawing: Figure, axis: Axes) -> None:
    left, right = (edge / drawing.bbox.width for edge in (axis.bbox.x0, axis.bbox.x1))
    for title in (axis.title, axis._left_title, axis._right_title):  # type: ignore[attr-defined]
        _fit_text(drawing, title, 0.96 - left)
    middle = (left + right) / 2
    _fit_text(drawing, axis.xaxis.label, 1.94 * min(middle, 1 - middle))
    upright, high = axis.yaxis.label, axis.yaxis.label.get_window_extent().height
    if high > axis.bbox.height:
        letters = int(len(upright.get_text()) * axis.bbox.height / high)
        upright.set_text("\n".join(textwrap.wrap(upright.get_text(), max(letters, 8))))


def _turn_names(drawing: Figure, axis: Axes) -> None:
    """Slant the names below an axis where they would touch."""
    shown = [one for one in axis.get_xticklabels() if one.get_text() and one.get_visible()]
    extents = [_extent(one, drawing) for one in shown]
    touching = any(before[1] + 0.01 > after[0] for before, after in pairwise(extents))
    if touching and isinstance(axis.xaxis.get_major_locator(), FixedLocator):
        for one in shown:
            one.set(rotation=40, horizontalalignment="right", rotation_mode="anchor")


def _raise_legend(axis: Axes) -> None:
    """A legend that lies in the axes, and on half the width on the data, stands above them."""
    legend = axis.get_legend()
    if legend is None or legend._bbox_to_anchor is not None:  # type: ignore[attr-defined]
        return
    title, names = legend.get_title().get_text(), [text.get_text() for text in legend.get_texts()]
    columns = max(1, _LETTERS // (5 + max(map(len, names), default=0)))
    above: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (0, 1), "ncols": columns}
    handles: list[Any] = legend.legend_handles
    axis.legend(handles, names, title=title or None, alignment="left", **above)


def _raise_titles(drawing: Figure, axis: Axes) -> None:
    """A title stands above a legend that stands above the axes."""
    legend = axis.get_legend()
    if legend is not None and legend.get_window_extent().y0 >= axis.bbox.y1 - 1:
        points = 72 * legend.get_window_extent().height / drawing.dpi
        axis._set_title_offset_trans(6 + points)  # type: ignore[attr-defined]


def fit_legends(drawing: Figure) -> float:
    """Legends in fewer columns where their entries need more than the figure's width; by how many
    inches they are higher for it.
    """
    within = [axis.get_legend() for axis in drawing.axes if axis.get_visible()]
    several = [one for one in [*drawing.legends, *within] if one is not None and one._ncols > 1]  # type: ignore[attr-defined]
    if several:
        drawing.draw_without_rendering()
    return sum(_fit_legend(drawing, one) for one in several)


def _fit_legend(drawing: Figure, legend: Legend) -> float:
    title, names = legend.get_title(), [text.get_text() for text in legend.get_texts()]
    height = legend.get_window_extent().height
    while legend._ncols > 1:  # type: ignore[attr-defined]
        begin, end = _extent(legend, drawing)
        if begin >= 0 and end <= 1:
            break
        # a legend's columns are laid out when it is made: `set_ncols` alone changes nothing
        legend.set_ncols(legend._ncols - 1)  # type: ignore[attr-defined]
        legend._init_legend_box(legend.legend_handles, names)  # type: ignore[attr-defined]
        legend.set_title(title.get_text(), title.get_fontproperties())
        legend._set_loc(legend._loc)  # type: ignore[attr-defined]
        drawing.draw_without_rendering()
    return float(legend.get_window_extent().height - height) / drawing.dpi


def _grow(drawing: Figure, more: float) -> None:
    """Add to the height, in inches, as far as a screen allows."""
    drawing.set_size_inches(WIDTH, min(float(drawing.get_size_inches()[1]) + more, TALLEST))

"""The house style of figures: one look, readable by colour-blind readers, in light and in dark.

A figure is drawn once; `show` turns it into two SVG images, the second with every colour exchanged
for its counterpart on a dark page, and the page's theme decides which one is seen. Colours are
Okabe and Ito's, and differ in lightness as well; markers differ too.

Each chart of `cde_book.charts` leaves on its axes what it has drawn, and `description` makes the
alternative text of it: series by series, or how many there are and which are highest and lowest.
"""

from __future__ import annotations

import base64
import html
import io
import math
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Literal, NamedTuple
from weakref import WeakKeyDictionary

import matplotlib as mpl
import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cde_book.markup import Box, with_minus
from cde_book.narrow import fit_legends, make_narrow
from cde_book.run_mode import this_run
from cde_book.small_svg import as_address, small_svg

INK, MUTED, GRID = "#1f2328", "#59636e", "#d1d9e0"
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8a6d00", "#3f9fd8")
MARKERS = ("o", "s", "^", "D", "v", "P")
_DARK = {
    INK: "#e6edf3",
    MUTED: "#9198a1",
    GRID: "#3d444d",
    "#0072b2": "#4ea8e0",
    "#d55e00": "#ff8a3d",
    "#009e73": "#2fc79a",
    "#cc79a7": "#e39bc4",
    "#8a6d00": "#e0bc3c",
    "#3f9fd8": "#8fd0f7",
}
_STYLE = str(Path(__file__).with_name("house.mplstyle"))
_number = count(1)


@contextmanager
def figure(
    rows: int = 1, columns: int = 1, width: float = 7.0, height: float = 3.6, **options: Any
) -> Iterator[Any]:
    """Open a figure in the house style; yields it and its axes (one, or an array of them)."""
    with mpl.rc_context(fname=_STYLE):
        drawing, axes = plt.subplots(
            rows, columns, figsize=(width, height), layout="constrained", **options
        )
        try:
            yield drawing, axes
        finally:
            plt.close(drawing)


def _svg(drawing: Figure, words: Literal["path", "none"] = "path") -> str:
    """The figure; its words are outlines, or text, which is half the bytes."""
    buffer = io.StringIO()
    with mpl.rc_context(fname=_STYLE), mpl.rc_context({"svg.fonttype": words}):
        drawing.savefig(buffer, format="svg", metadata={"Date": None})
    return small_svg(buffer.getvalue())


def _themes(svg: str) -> dict[str, str]:
    """An image in the colours of each theme, as an address."""
    dark = svg
    for colour, counterpart in _DARK.items():
        dark = dark.replace(colour, counterpart)
    return {theme: as_address(one) for theme, one in (("light", svg), ("dark", dark))}


def _image(address: str, alt: str, theme: str, narrow: str = "") -> str:
    """The image of a theme; `narrow` is the address of that for a telephone."""
    image = (
        f'<img class="cde-{theme} dark-light" alt="{html.escape(alt, quote=True)}" src="{address}">'
    )
    if not narrow:
        return image
    return f'<picture><source media="(max-width: 720px)" srcset="{narrow}">{image}</picture>'


def show(
    drawing: Figure,
    caption: str,
    data: pd.DataFrame,
    answers: str = "",
    lead: bool = False,
    alt: str = "",
) -> Box:
    """Show a figure with its caption and the numbers behind it; `alt` tells what no chart tells.

    One that leads its page is drawn a second time for a telephone (`cde_book.narrow`), and keeps
    that layout.
    """
    alt, caption = alt or description(drawing), with_minus(caption).replace(" %", "\u00a0%")
    if len(alt) < 40:
        raise ValueError(f"alt must describe the figure in 40 characters or more; it is {alt!r}")
    if data.empty:
        raise ValueError("a figure needs the table of its numbers; the data frame is empty")
    with mpl.rc_context(fname=_STYLE):
        width, height = drawing.get_size_inches()
        drawing.set_size_inches(width, height + fit_legends(drawing))
    wide, narrow = _themes(_svg(drawing)), dict[str, str]()
    if lead:
        with mpl.rc_context(fname=_STYLE):
            rows = [axis for axis, one in _PANELS.items() if one.is_categorical]
            make_narrow(drawing, rows)
        # a telephone may have another font for text; hardly any is as wide as this one
        narrow = _themes(_svg(drawing, "none").replace("'DejaVu Sans'", "DejaVu Sans,sans-serif"))
    images = (_image(wide[theme], alt, theme, narrow.get(theme, "")) for theme in wide)
    number = next(_number)
    chapter = this_run().chapter or "this notebook"
    answer = f" Answers {html.escape(answers)}." if answers else ""
    markup = (
        f"{_THEME_RULES}<figure class='cde-figure{' cde-lead' if lead else ''}' "
        f"id='figure-{number}'>"
        "<div class='cde-scroll' tabindex='0' role='group' aria-label='figure'>"
        f"{''.join(images)}</div>"
        f"<figcaption><b>Figure {number}.</b> {html.escape(caption)}{answer}</figcaption>"
        f"<details><summary>The numbers of figure {number}</summary>{_markup(data)}"
        f"{_download(data, f'{chapter}-figure-{number}')} "
        f"<small>Drawn by {html.escape(chapter)}.</small></details></figure>"
    )
    return Box(markup, f"Figure {number}. {caption}{answer}\n{alt}")


# The rules travel with the figure: in JupyterLab there is no stylesheet of the book.
_THEME_RULES = (
    "<style>.cde-figure img.cde-dark{display:none}"
    "html[data-theme=dark] .cde-figure img.cde-dark,body[data-jp-theme-light=false] .cde-figure "
    "img.cde-dark"
    "{display:block}html[data-theme=dark] .cde-figure img.cde-light,"
    "body[data-jp-theme-light=false] .cde-figure img.cde-light{display:none}"
    ".cde-figure img{width:100%;min-width:34rem;height:auto}.cde-scroll{overflow-x:auto}"
    "@media(max-width:720px){.cde-figure picture img{min-width:0;max-width:30rem}}</style>"
)


def _markup(data: pd.DataFrame) -> str:
    shown = data.to_html(
        border=0,
        index=not isinstance(data.index, pd.RangeIndex),
        float_format=lambda value: f"{value:.4g}",
        classes="cde-numbers",
        justify="left",
        na_rep="",
    )
    # a part that scrolls can be reached by the keyboard
    shown = with_minus(shown)
    return f'<div class="cde-scroll" tabindex="0" role="region" aria-label="table">{shown}</div>'


#: a text that begins so is a formula to a spreadsheet, and could do what a formula can
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def _download(data: pd.DataFrame, name: str) -> str:
    """A link that saves the numbers as a file of comma-separated values, with all their digits."""
    index = not isinstance(data.index, pd.RangeIndex)
    safe = data.apply(lambda of: of if pd.api.types.is_numeric_dtype(of) else of.map(_inert))
    safe = safe.rename(index=_inert, columns=_inert).rename_axis(index=_inert, columns=_inert)
    text = safe.to_csv(index=index, lineterminator="\r\n")
    encoded = base64.b64encode(text.encode()).decode()
    file = html.escape(name.replace(" ", "-"), quote=True)
    return (
        f'<a class="cde-csv" download="{file}.csv" href="data:text/csv;base64,{encoded}">'
        "Save these numbers as CSV</a>"
    )


def _inert(cell: Any) -> Any:
    """A cell of a table; an apostrophe keeps a text that is not a number from being run."""
    with suppress(ValueError, TypeError):
        float(cell)
        return cell
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(_FORMULA) else cell


def table(data: pd.DataFrame) -> Box:
    """Show a data frame as a table that scrolls sideways on a narrow screen."""
    return Box(_markup(data), data.to_string())


LONGEST = 400  # characters of a description


class Series(NamedTuple):
    """What a chart draws under one name: numbers in words, and the ends, each a value and words."""

    name: str
    numbers: str
    lowest: tuple[float, str]
    highest: tuple[float, str]


@dataclass
class _Panel:
    kind: str = ""
    is_categorical: bool = False  # x has the values, y the names
    series: list[Series] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)


_PANELS: WeakKeyDictionary[Axes, _Panel] = WeakKeyDictionary()


def in_words(values: Iterable[float]) -> Callable[[float], str]:
    """How to write numbers of one chart: with the decimals that the largest one bears."""
    largest = max((abs(one) for one in values if math.isfinite(one)), default=0.0)
    digits = min(max(2 - math.floor(math.log10(largest)), 0), 6) if largest else 0
    return lambda value: f"{round(value, digits) + 0.0:,.{digits}f}"  # no "-0.0"


def describe(
    axis: Axes,
    kind: str = "",
    series: Iterable[Series] = (),
    is_categorical: bool = False,
    line: str = "",
) -> None:
    """Add series, or a line of reference, to what an axis is known to show."""
    known = _PANELS.setdefault(axis, _Panel())
    known.kind, known.is_categorical = kind or known.kind, is_categorical or known.is_categorical
    known.series += [one._replace(name=" ".join(one.name.split())) for one in series]
    known.lines += [line] if line else []


def description(drawing: Figure) -> str:
    """What the charts of a figure show, in at most 400 characters; empty without such a chart."""
    known = {axis: _PANELS[axis] for axis in drawing.axes if axis in _PANELS}
    shown = {axis: one for axis, one in known.items() if one.series and axis.get_visible()}
    if not shown:
        return ""
    kinds = [" and ".join(dict.fromkeys(one.kind for one in shown.values()))]
    legends = [axis.get_legend() for axis in shown]
    kinds += [one.get_title().get_text() for one in legends if one and one.get_title().get_text()]
    start = [f"{len(shown)} panels"] if len(shown) > 1 else []
    begun, common = ", ".join([*start, " by ".join(kinds[:2])]), []
    heads, alike = [[_title(axis, one)] for axis, one in shown.items()], True
    for which in ("y", "x"):
        labels = [_label(axis, shown, which) for axis in shown]
        if len(set(labels)) == 1:
            common += labels[:1]
            continue
        heads = [[*head, label] for head, label in zip(heads, labels, strict=True)]
        alike &= which == "x" and not any(one.is_categorical for one in shown.values())
    begun = "; ".join(filter(None, (begun, " ".join(filter(None, common)))))
    begun = textwrap.shorten(begun[0].upper() + begun[1:], 150, placeholder="…")
    lines = dict.fromkeys(line for one in known.values() for line in one.lines)
    rest = f" Lines: {', '.join(lines)}." if lines else ""
    named = [", ".join(filter(None, head)) for head in heads]
    panels = list(zip(named, [one.series for one in shown.values()], strict=True))
    every = [
        one._replace(name=", ".join(filter(None, (one.name, head))))
        for head, of in panels
        for one in of
    ]
    levels = [(_each, panels), (_extremes, panels)]
    if alike:  # where panels measure different things, none is higher than another
        levels.append((_extremes, [("", every)]))
    for worded, parts in levels:
        words = ". ".join(f"{head}: {worded(of)}" if head else worded(of) for head, of in parts)
        text = f"{begun}{'. ' if parts[0][0] else ': '}{words}."
        for whole in (text + rest, text):
            if len(whole) <= LONGEST:
                return whole
    return textwrap.shorten(text, LONGEST, placeholder=" …")


def _title(axis: Axes, panel: _Panel) -> str:
    title = axis.get_title() or axis.get_title("left")
    return " ".join((title or (axis.get_ylabel() if panel.is_categorical else "")).split())


def _label(axis: Axes, shown: dict[Axes, _Panel], which: str) -> str:
    """What an axis of a panel says, or that of the panels that share its row or column."""
    if which == "y" and shown[axis].is_categorical:
        return ""
    place, span = axis.get_subplotspec(), "rowspan" if which == "y" else "colspan"
    near = [
        one for one in shown if getattr(one.get_subplotspec(), span, 0) == getattr(place, span, 0)
    ]
    labels = (getattr(one, f"get_{which}label")() for one in (axis, *near, *shown))
    label = " ".join(next(filter(None, labels), "").split())
    return f"over {label}" if label and which == "x" and not shown[axis].is_categorical else label


def _each(series: Sequence[Series]) -> str:
    worded = "; ".join(f"{one.name} {one.numbers}".strip() for one in series)
    hidden = any(one.highest[1] not in one.numbers for one in series)
    return f"{worded}; {_ends(series)}" if hidden or len(series) > 2 else worded


def _extremes(series: Sequence[Series]) -> str:
    return f"{len(series)} series, {_ends(series)}" if len(series) > 1 else _each(series)


def _ends(series: Sequence[Series]) -> str:
    known = [one for one in series if math.isfinite(one.highest[0])]
    if not known:
        return "without a number"
    top, least = max(known, key=lambda one: one.highest), min(known, key=lambda one: one.lowest)
    names = [textwrap.shorten(one.name, 60, placeholder="…") for one in (top, least)]
    high, low = (f" ({name})" if name else "" for name in names)
    return f"highest {top.highest[1]}{high}, lowest {least.lowest[1]}{low}"

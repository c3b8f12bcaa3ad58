"""The house style of figures: one look, readable by colour-blind readers, in light and in dark.

A figure is drawn once, with the colours below. `show` turns it into two SVG images, the second with
every colour of the style exchanged for its counterpart on a dark page, and the page's theme decides
which one is seen. With each go an alternative text, a caption that names the paper's exhibit, and
a table of the numbers behind it. Colours are Okabe and Ito's, and differ in lightness as well;
markers differ too, so that colour is never the only distinction.
"""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure

from cde_book.descriptions import description
from cde_book.markup import Box
from cde_book.run_mode import this_run

__all__ = ["COLORS", "GRID", "INK", "MARKERS", "MUTED", "figure", "show", "table"]

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


def _svg(drawing: Figure) -> str:
    buffer = io.StringIO()
    with mpl.rc_context(fname=_STYLE):
        drawing.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue()


def _image(svg: str, alt: str, theme: str) -> str:
    encoded = base64.b64encode(svg.encode()).decode()
    return (
        f'<img class="cde-{theme} dark-light" alt="{html.escape(alt, quote=True)}" '
        f'src="data:image/svg+xml;base64,{encoded}">'
    )


def show(
    drawing: Figure,
    caption: str,
    data: pd.DataFrame,
    answers: str = "",
    lead: bool = False,
    alt: str = "",
) -> Box:
    """Show a figure with its alternative text, its caption and the numbers behind it.

    The charts of `cde_book.charts` describe themselves; `alt` describes what is drawn by hand.
    """
    alt = alt or description(drawing)
    if len(alt) < 40:
        raise ValueError(
            f"the alternative text must describe the figure (40 characters or more); it is {alt!r}"
        )
    if data.empty:
        raise ValueError("a figure needs the table of its numbers; the data frame is empty")
    light = _svg(drawing)
    dark = light
    for colour, counterpart in _DARK.items():
        dark = dark.replace(colour, counterpart)
    number = next(_number)
    chapter = this_run().chapter or "this notebook"
    answer = f" Answers {html.escape(answers)}." if answers else ""
    markup = (
        f"{_THEME_RULES}<figure class='cde-figure{' cde-lead' if lead else ''}' "
        f"id='figure-{number}'>"
        "<div class='cde-scroll' tabindex='0' role='group' aria-label='figure'>"
        f"{_image(light, alt, 'light')}{_image(dark, alt, 'dark')}</div>"
        f"<figcaption><b>Figure {number}.</b> {html.escape(caption)}{answer} "
        f"<small>Drawn by {html.escape(chapter)}.</small></figcaption>"
        "<details><summary>The numbers of figure "
        f"{number}</summary>{_markup(data)}{_download(data, f'{chapter}-figure-{number}')}"
        "</details></figure>"
    )
    return Box(markup, f"Figure {number}. {caption}{answer}\n{alt}")


# The rules travel with the figure: in JupyterLab there is no stylesheet of the book.
_THEME_RULES = (
    "<style>.cde-figure img.cde-dark{display:none}"
    "html[data-theme=dark] .cde-figure img.cde-dark,body[data-jp-theme-light=false] .cde-figure "
    "img.cde-dark"
    "{display:block}html[data-theme=dark] .cde-figure img.cde-light,"
    "body[data-jp-theme-light=false] .cde-figure img.cde-light{display:none}"
    ".cde-figure img{width:100%;min-width:34rem;height:auto}.cde-scroll{overflow-x:auto}</style>"
)


def _markup(data: pd.DataFrame) -> str:
    shown = data.to_html(
        border=0,
        index=not isinstance(data.index, pd.RangeIndex),
        float_format=lambda value: f"{value:.4g}",
        classes="cde-numbers",
        justify="left",
    )
    # a part that scrolls can be reached by the keyboard
    return f'<div class="cde-scroll" tabindex="0" role="region" aria-label="table">{shown}</div>'


def _download(data: pd.DataFrame, name: str) -> str:
    """A link that saves the numbers as a file of comma-separated values, with all their digits."""
    text = data.to_csv(index=not isinstance(data.index, pd.RangeIndex))
    encoded = base64.b64encode(text.encode()).decode()
    file = html.escape(name.replace(" ", "-"), quote=True)
    return (
        f'<a class="cde-csv" download="{file}.csv" href="data:text/csv;base64,{encoded}">'
        "Save these numbers as CSV</a>"
    )


def table(data: pd.DataFrame) -> Box:
    """Show a data frame as a table that scrolls sideways on a narrow screen."""
    return Box(_markup(data), data.to_string())

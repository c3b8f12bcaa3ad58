"""A figure comes with both themes, an alternative text and its numbers."""

from __future__ import annotations

import base64
import csv
import io
import re

import matplotlib as mpl
import pandas as pd
import pytest

from cde_book import plots
from cde_book.small_svg import of_address

ALT = "Line chart of one rising line from 3 to 4, with its axes named."
DATA = pd.DataFrame({"x": [1.0, 2.0], "y": [3.0, 4.123456]})


def shown() -> str:
    with plots.figure() as (drawing, axes):
        axes.plot(DATA["x"], DATA["y"], label="line")
        axes.set_xlabel("x")
    return plots.show(
        drawing, "A caption with <signs>.", DATA, answers="CDE Fig. 0", alt=ALT
    ).markup


def images(markup: str) -> dict[str, str]:
    tags = re.findall(
        r'<img class="cde-(light|dark)[^"]*" alt="([^"]+)" '
        r'src="([^"]+)"',
        markup,
    )
    assert all(alt == ALT for _, alt, _ in tags)
    return {theme: of_address(address) for theme, _, address in tags}


def test_two_images_that_differ_in_their_colours_only() -> None:
    by_theme = images(shown())
    assert set(by_theme) == {"light", "dark"}
    without_colours = {re.sub(r"#[0-9a-f]{6}", "#", svg) for svg in by_theme.values()}
    assert len(without_colours) == 1
    assert plots.INK in by_theme["light"] and plots.INK not in by_theme["dark"]


def test_the_same_figure_is_the_same_bytes() -> None:
    assert images(shown()) == images(shown())


def test_a_figure_without_description_or_numbers_is_refused() -> None:
    with plots.figure() as (drawing, _):
        pass
    with pytest.raises(ValueError, match="40 characters"):
        plots.show(drawing, "caption", DATA, alt="a plot")
    with pytest.raises(ValueError, match="table of its numbers"):
        plots.show(drawing, "caption", pd.DataFrame(), alt=ALT)


def luminance(colour: str) -> float:
    parts = [
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4
        for c in mpl.colors.to_rgb(colour)
    ]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


def contrast(first: str, second: str) -> float:
    bright, dim = sorted((luminance(first), luminance(second)), reverse=True)
    return (bright + 0.05) / (dim + 0.05)


@pytest.mark.parametrize(("background", "mapped"), [("#ffffff", False), ("#14181e", True)])
def test_lines_and_text_stand_out_from_the_page(background: str, mapped: bool) -> None:
    """WCAG: 3 to 1 for graphics (lines differ in marker too), 4.5 to 1 for text."""
    for colour in plots.COLORS:
        assert contrast(plots._DARK[colour] if mapped else colour, background) > 2.8
    for colour in (plots.INK, plots.MUTED):
        assert contrast(plots._DARK[colour] if mapped else colour, background) > 4.5


def saved(data: pd.DataFrame) -> bytes:
    """What a reader of a figure saves."""
    with plots.figure() as (drawing, axes):
        axes.plot([0, 1])
    markup = plots.show(drawing, "A caption.", data, alt=ALT).markup
    link = re.search(r'download="([^"]+\.csv)" href="data:text/csv;base64,([^"]+)"', markup)
    assert link is not None
    return base64.b64decode(link[2])


def test_the_numbers_can_be_saved_with_all_their_digits() -> None:
    exact = pd.DataFrame({"name": ['a "b", c', "d"], "value": [1 / 3, -2e-17]})
    read = pd.read_csv(io.BytesIO(saved(exact)))
    pd.testing.assert_frame_equal(read, exact, check_exact=True)


@pytest.mark.parametrize(
    "text", ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1", '=HYPERLINK("a,b")']
)
def test_no_text_of_a_saved_table_is_a_formula_to_a_spreadsheet(text: str) -> None:
    """Wherever it stands: in a cell, in the name of a column or of a row."""
    frame = pd.DataFrame({"name": [text, "plain", "-0.5"], text: [-0.5, 1.0, 2.0]})
    lines = list(csv.reader(io.StringIO(saved(frame).decode(), newline="")))
    assert lines == [
        ["name", f"'{text}"], [f"'{text}", "-0.5"], ["plain", "1.0"], ["-0.5", "2.0"]
    ]  # fmt: skip
    named = pd.Series([1.0, 2.0], index=pd.Index([text, "b"], name=text), name="n").to_frame()
    lines = list(csv.reader(io.StringIO(saved(named).decode(), newline="")))
    assert lines == [[f"'{text}", "n"], [f"'{text}", "1.0"], ["b", "2.0"]]

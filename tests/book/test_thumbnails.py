"""A chapter's thumbnail is the chapter's own figure: the same drawing, as a file."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

import nbformat
import pandas as pd

from cde_book.plots import figure, show
from cde_book.small_svg import of_address
from cde_book.thumbnails import figures_of


def drawn(title: str, alt: str, lead: bool = False) -> str:
    """The markup of a figure, as a chapter shows it."""
    with figure() as (drawing, axes):
        axes.plot([1, 2], [3, 4])
        axes.set_title(title)
        return show(drawing, f"On {title}.", pd.DataFrame({"x": [1]}), lead=lead, alt=alt).markup


def notebook(*markups: str) -> Any:
    cells = []
    for markup in markups:
        cell = nbformat.v4.new_code_cell()
        cell.outputs = [nbformat.v4.new_output("display_data", {"text/html": markup})]
        cells.append(cell)
    return nbformat.v4.new_notebook(cells=cells)


FIRST = 'The first figure: a line from three to four & "so on".'
SECOND = "The second figure: once more a line from three to four."


def test_the_figure_is_the_notebook_s_own_in_both_themes_and_a_marked_one_goes_first() -> None:
    markup = drawn("one", FIRST, lead=True)
    found, other = figures_of(notebook("<p>a table</p>", drawn("two", SECOND), markup))
    assert (found.alt, other.alt) == (FIRST, SECOND)
    for svg in (found.light, found.dark):
        assert svg in [of_address(one) for one in re.findall(r' src="([^"]*)"', markup)]
        assert ElementTree.fromstring(svg).tag == "{http://www.w3.org/2000/svg}svg"
    assert found.light != found.dark
    assert found.size == (504, 259)

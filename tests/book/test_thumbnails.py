"""A chapter's thumbnail is the chapter's own figure: the same drawing, as a file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import nbformat
import pandas as pd

from cde_book.plots import figure, show
from cde_book.small_svg import of_address
from cde_book.thumbnails import FOLDER, Figure, figures_of, write_figures


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


def test_files_hold_what_the_figure_holds_and_no_other_stays(tmp_path: Path) -> None:
    one, other = (Figure(light, "<svg b=''/>", FIRST) for light in ("<svg a='ä'/>", "<svg c=''/>"))
    for chapters in ({"gone": [one], "kept": [one]}, {"kept": [other]}):
        write_figures(chapters, tmp_path)
        names = sorted(path.name for path in (tmp_path / FOLDER).iterdir())
        assert names == [f"{name}-{theme}.svg" for name in chapters for theme in ("dark", "light")]
        light = (tmp_path / FOLDER / "kept-light.svg").read_text(encoding="utf-8")
        assert light == chapters["kept"][0].light

"""A figure in a smaller file is the same drawing."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree

import matplotlib as mpl
import pytest
from matplotlib.figure import Figure

from cde.intervals import Interval
from cde_book import charts, plots
from cde_book.small_svg import as_address, of_address, small_svg


def forest() -> Figure:
    ways = {f"a way {place}": Interval(place, place - 1, place + 1, 5, "") for place in range(5)}
    with plots.figure(width=6.4, height=3) as (drawing, axis):
        charts.forest(axis, ways, "points of NDCG@10 over MiniLM, on manuals never seen", 0)
    return drawing


def panels() -> Figure:
    with plots.figure(1, 3, width=7.4, height=3, sharex=True, sharey=True) as (drawing, axes):
        for axis in axes:
            runs = {"MiniLM, IDF pooling": {"ours": [1.0, 2.0]}, "BM25": {"ours": [2.0, 2.5]}}
            charts.seed_dots(axis, runs, "points", legend=False)
            axis.set_title("own − another")
        lines = axes[0].get_lines()[:3]
        names = ["of all packages", "of judged collections", "of web manuals"]
        drawing.legend(lines, names, loc="outside lower right", ncols=3)
    return drawing


def drawn_parts(svg: str) -> list[tuple[Any, ...]]:
    """What a browser draws: every shape with its place, its outline and its style."""
    found: list[tuple[Any, ...]] = []

    def visit(element: ElementTree.Element, style: str) -> None:
        kind = element.tag.rpartition("}")[2]
        own = (element.get("style") or style).replace(" ", "")
        if kind in ("path", "use"):
            link = element.get("{http://www.w3.org/1999/xlink}href", "")
            names = ("d", "x", "y", "transform")
            numbers = [
                [float(one) for one in re.findall(r"-?\d+\.?\d*", element.get(name, ""))]
                for name in names
            ]
            letters = re.findall("[A-Za-z]", element.get("d", ""))
            found.append((kind, link, own, letters, numbers))
        for child in element:
            visit(child, own if kind == "g" else style)

    visit(ElementTree.fromstring(svg), "")
    return found


@pytest.mark.parametrize("draw", [forest, panels])
def test_the_smaller_file_draws_the_same_to_a_hundredth_of_a_point(
    draw: Callable[[], Figure],
) -> None:
    buffer = io.StringIO()
    with mpl.rc_context(fname=plots._STYLE):
        draw().savefig(buffer, format="svg")
    whole, small = buffer.getvalue(), small_svg(buffer.getvalue())
    address = as_address(small)
    assert len(address) < len(base64.b64encode(whole.encode()))
    assert not re.search(r'["\s]', address)  # it stands within quotes, alone among several
    assert drawn_parts(of_address(address)) == drawn_parts(small)
    parts = drawn_parts(whole), drawn_parts(small)
    assert len(parts[0]) == len(parts[1])
    for before, after in zip(*parts, strict=True):
        assert before[:4] == after[:4]
        for some, others in zip(before[4], after[4], strict=True):
            assert others == pytest.approx(some, abs=0.006)


def test_words_keep_their_digits() -> None:
    """A label is text in a narrow picture: rounded, it would name another place on the axis."""
    assert small_svg('<svg><text x="1.23456">0.025</text></svg>') == (
        '<svg><text x="1.23">0.025</text></svg>'
    )

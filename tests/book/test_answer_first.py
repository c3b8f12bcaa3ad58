"""The order of a chapter's page: answer, leading figure, the rest; parameters at the end."""

from __future__ import annotations

import re
from types import SimpleNamespace

import answer_first
import pytest
from docutils import nodes

PLACE = "<!-- the figure that shows the answer -->"


def output(markup: str) -> nodes.container:
    """A cell's output as MyST-NB makes it: a bundle with the HTML in it."""
    bundle = nodes.container(nb_element="mime_bundle")
    bundle += nodes.container("", nodes.raw("", markup, format="html"), mime_type="text/html")
    return nodes.container("", bundle, classes=["cell"])


def figure(number: int, lead: bool = False) -> str:
    """A figure as `cde_book.plots.show` writes it."""
    return (
        f"<figure class='cde-figure{' cde-lead' if lead else ''}' id='figure-{number}'>"
        f"<b>Figure {number}.</b> drawn as {number}</figure>"
    )


def section(name: str, *children: nodes.Node) -> nodes.section:
    return nodes.section("", nodes.title("", name), *children, ids=[name])


def page(*figures: str) -> nodes.section:
    return section(
        "title",
        nodes.paragraph("", "the answer"),
        nodes.raw("", PLACE, format="html"),
        nodes.paragraph("", "the introduction"),
        section("parameters", nodes.paragraph("", "seed = 0")),
        section("experiment", *(output(one) for one in figures)),
        section("run-it-again"),
    )


def ordered(doctree: nodes.section, docname: str = "book/executed/part/chapter") -> str:
    """The text of a page in order, with its HTML."""
    app = SimpleNamespace(env=SimpleNamespace(docname=docname))
    answer_first._put_in_order(app, doctree)
    return doctree.astext()


@pytest.mark.parametrize(
    ("figures", "leading"),
    [
        ([figure(1), figure(2)], 1),
        ([figure(1), figure(2, lead=True)], 2),
        ([figure(1, lead=True), figure(2)], 1),
    ],
)
def test_the_leading_figure_stands_between_answer_and_introduction_and_nothing_is_lost(
    figures: list[str], leading: int
) -> None:
    text = ordered(page(*figures))
    order = [text.index(part) for part in ("the answer", f"drawn as {leading}", "the introduction")]
    assert order == sorted(order)
    assert all(text.count(f"drawn as {number}") == 1 for number in (1, 2))
    assert text.count('href="#figure-1"') == 1  # where it was drawn
    assert PLACE not in text


def test_figures_have_numbers_in_the_order_of_the_page() -> None:
    doctree = page(figure(1), figure(2), figure(3, lead=True))
    text = ordered(doctree)
    assert all(one.parent is not None for one in doctree.findall(nodes.Text))
    assert re.findall(r"id='figure-(\d)'><b>Figure (\d)\.</b> drawn as (\d)", text) == [
        ("1", "1", "3"),
        ("2", "2", "1"),
        ("3", "3", "2"),
    ]

"""The chapters' figures, in light and in dark, as files that other pages show small.

A chapter's executed notebook holds each figure as two SVG images within the page. A page that shows
many, such as the map, would grow by megabytes: so each is a file, which a browser fetches when it
comes into sight (`thumbnail.html.j2`). Cost: a second for the whole book.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cde.storage import atomic_path
from cde_book.chapters import chapters
from cde_book.execution import raw_notebook
from cde_book.small_svg import of_address

#: where the files are, below the checkout; Sphinx copies what is in it to `_static`
FOLDER = Path("book") / "generated" / "figures"
THEMES = ("light", "dark")
#: a figure as `cde_book.plots.show` writes it: its number, the caption, and whose it is
_WRITTEN = re.compile(
    r"<figure class='(?P<classes>[^']*)'.*?"
    r'alt="(?P<alt>[^"]*)" src="(?P<light>[^"]*)".*?'
    r' src="(?P<dark>[^"]*)".*?</b>(?P<caption>.*?)</figcaption>',
    re.DOTALL,
)


@dataclass(frozen=True)
class Figure:
    """A figure of a chapter."""

    light: str
    dark: str
    alt: str
    answers: str = ""

    def is_of(self, paper: str, exhibit: str) -> bool:
        """Whether it answers an exhibit."""
        kind, number = (*exhibit.split(), "")[:2]
        named = re.findall(rf"{kind.rstrip('.')}s?\.? ((?:\d+|, | and )+)", self.answers)
        numbers = {one for group in named for one in re.findall(r"\d+", group)}
        return self.answers.startswith(f"{paper} ") and number in numbers

    @property
    def size(self) -> tuple[int, int]:
        """Width and height, in the drawing's own unit."""
        found = re.search(r"viewBox=[\"']([^\"']*)[\"']", self.light)
        _, _, width, height = map(float, found[1].split()) if found else (0, 0, 7, 4)
        return round(width), round(height)


def figures_of(notebook: Mapping[str, Any]) -> list[Figure]:
    """A chapter's figures; at first that of the class `cde-lead`, which stands for the chapter."""
    outputs = [output for cell in notebook["cells"] for output in cell.get("outputs", [])]
    markups = ["".join(output.get("data", {}).get("text/html", "")) for output in outputs]
    found = [one for markup in markups for one in _WRITTEN.finditer(markup)]
    found.sort(key=lambda one: "cde-lead" not in one["classes"].split())
    return [
        Figure(
            light=of_address(one["light"]),
            dark=of_address(one["dark"]),
            alt=html.unescape(one["alt"]),
            answers=" ".join(html.unescape(one["caption"]).split()).partition(" Answers ")[2],
        )
        for one in found
    ]


def chapter_figures(profile: str, root: Path) -> dict[str, list[Figure]]:
    """The figures of the executed chapters, by chapter, each as `figures_of` orders them."""
    figures = {}
    for chapter in chapters(root):
        path = raw_notebook(chapter, profile, root)
        if path.exists():
            figures[chapter.name] = figures_of(json.loads(path.read_text(encoding="utf-8")))
    return figures


def write_figures(figures: Mapping[str, Sequence[Figure]], root: Path) -> None:
    """Write each chapter's figures to `FOLDER`, as `<chapter>-light.svg`, `<chapter>-2-light.svg`
    and so on, and `dark`; what was there of others is removed.
    """
    folder = root / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    texts = {
        f"{name}{'' if number == 1 else f'-{number}'}-{theme}.svg": getattr(figure, theme)
        for name, shown in figures.items()
        for number, figure in enumerate(shown, start=1)
        for theme in THEMES
    }
    for path in folder.glob("*.svg"):
        if path.name not in texts:
            path.unlink()
    for name, text in texts.items():
        write_changed(folder / name, text)


def write_changed(path: Path, text: str) -> None:
    """Write a file unless it holds that text already: Sphinx reads again what has a new date."""
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        with atomic_path(path) as temporary:
            temporary.write_text(text, encoding="utf-8")

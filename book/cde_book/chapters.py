"""Chapters: jupytext notebooks in `notebooks/<part>/<chapter>.py`, and their parameters.

A chapter's parameters, the annotated assignments of its cell tagged `parameters`, are read without
running anything: a misspelt name or a wrong value is an error before the first cell.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cde.validation import unknown
from cde_book.checkout import project_root
from cde_book.parameters import Parameter, declared_parameters

if TYPE_CHECKING:
    from nbformat import NotebookNode


@dataclass(frozen=True)
class Chapter:
    """A notebook of the book."""

    path: Path

    @property
    def name(self) -> str:
        """The file's stem, which is the chapter's name everywhere."""
        return self.path.stem

    @property
    def part(self) -> str:
        """The part of the book: the folder that the notebook is in."""
        return self.path.parent.name

    @cached_property
    def source(self) -> str:
        """The notebook's text."""
        return self.path.read_text(encoding="utf-8")

    def notebook(self) -> NotebookNode:
        """The notebook, parsed by jupytext; a new object on each call."""
        import jupytext

        return jupytext.reads(self.source, fmt="py:percent")

    @cached_property
    def title(self) -> str:
        """The text of the page's one H1."""
        found = re.search("^# # (.*)", self.source, re.MULTILINE)
        if found is None:
            raise ValueError(f"{self.path} has no title: its first cell must begin with '# # …'")
        return found[1].strip()

    @cached_property
    def parameters(self) -> dict[str, Parameter]:
        """The chapter's parameters, by name."""
        # read as text: jupytext takes a second to import, and a misspelt name is refused at once
        for cell in re.split(r"^(?=# %%)", self.source, flags=re.MULTILINE):
            head, _, body = cell.partition("\n")
            if re.search(r'tags=\[[^]]*"parameters"', head):
                return declared_parameters(body.strip("\n"), str(self.path))
        raise ValueError(f"{self.path} has no cell tagged 'parameters'")

    def check_parameters(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Check given values against the chapter's parameters, by name and type."""
        if strange := values.keys() - self.parameters.keys():
            said = unknown(strange, self.parameters, "parameter")
            raise ValueError(f"chapter {self.name}: {said}")
        checked = {name: self.parameters[name].check(value) for name, value in values.items()}
        for name, value in checked.items():
            if name.endswith("collections"):
                _check_collections(name, value or [])
        return checked

    def settings(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Every setting of a run: the page's own cell of settings runs as far as its last check."""
        from cde_book import page

        given = {name: parameter.default for name, parameter in self.parameters.items()}
        for cell in self.notebook().cells:
            if cell.cell_type != "code" or "\nsettings = page.settings(" not in f"\n{cell.source}":
                continue
            parts = ast.parse(cell.source).body
            shown = [place for place, part in enumerate(parts) if isinstance(part, ast.Expr)]
            program = ast.Module(parts[: shown[0]] if shown else parts, [])
            names = {"page": page, **given, **values}
            exec(compile(program, str(self.path), "exec"), names)
            return dict(vars(names["settings"]))
        return {}


def _check_collections(parameter: str, names: Sequence[str]) -> None:
    """Refuse collections that are not in `$CDE_DATA/beir`, which a page would leave out."""
    from cde.data import list_sources

    if not names:
        return
    below = [one.name for one in list_sources() if one.name.startswith("beir/")]
    known = [name.removeprefix("beir/") for name in below]
    if not known:
        given = os.environ.get("CDE_DATA")
        state = f"it is {given}, which has none" if given else "it is not set"
        raise ValueError(
            f"parameter {parameter}: CDE_DATA must name a folder with beir/ in it; {state}"
        )
    if strange := set(names) - set(known):
        raise ValueError(
            f"parameter {parameter}: {unknown(strange, known, 'collection of $CDE_DATA')}"
        )


def chapters(root: Path | None = None) -> list[Chapter]:
    """Every chapter, part by part, in the order of the table of contents."""
    root = root or project_root()
    found = sorted((root / "notebooks").glob("*/*.py"))
    by_name = {path.stem: Chapter(path) for path in found if path.parent.name != "cde_studies"}
    toc = root / "_toc.yml"
    lines = toc.read_text(encoding="utf-8").splitlines() if toc.exists() else []
    order = [Path(line.partition("file:")[2].strip()).name for line in lines if "file:" in line]
    return sorted(
        by_name.values(),
        key=lambda c: (order.index(c.name) if c.name in order else len(order), c.name),
    )


def find_chapter(name: str, root: Path | None = None) -> Chapter:
    """The chapter of that name."""
    by_name = {chapter.name: chapter for chapter in chapters(root)}
    if name not in by_name:
        raise ValueError(unknown([name], by_name, "chapter"))
    return by_name[name]

"""The reference: every public name of the package, once, on the page of its room, with links from
the chapters that call it and back to them.

The names come from `cde_book.public_names`. Sphinx imports the package when it renders (autodoc for
signatures and docstrings, napoleon for their sections, viewcode for the sources). The extension
`book/_ext/code_names.py` tells it which name or chapter a word in a docstring leads to.

Cost: fifteen to twenty seconds of the first rendering, four of them the import of torch and
transformers; later ones read again only the rooms that changed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from cde_book.chapters import Chapter, chapters
from cde_book.markup import render
from cde_book.public_names import Entry, read_reference

__all__ = ["chapters_named", "link_chapters", "names_used", "reference_pages"]

_CHAPTERS = re.compile(r"\bchapters?\s+(?:`\w+`(?:,\s+and\s+|,\s+|\s+and\s+|\s+or\s+)?)+")


@cache
def names_used(chapter: Chapter) -> list[Entry]:
    """The public names that a chapter's own code calls, by path."""
    paths = read_reference().paths
    tree = ast.parse(chapter.source)
    bound: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "cde":
            bound |= {one.asname or one.name: f"{node.module}.{one.name}" for one in node.names}
        elif isinstance(node, ast.Import):
            for one in node.names:
                if one.name.split(".")[0] == "cde":
                    bound[one.asname or "cde"] = one.name if one.asname else "cde"
    used = {paths[path].path: paths[path] for path in bound.values() if path in paths}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            first, _, rest = ast.unparse(node).partition(".")
            entry = paths.get(f"{bound.get(first)}.{rest}")
            if entry is not None:
                used[entry.path] = entry
    return [used[path] for path in sorted(used)]


def chapters_named(docstring: str) -> list[str]:
    """The chapters that a docstring names, as in "used by the chapters `table1` and `packing`"."""
    sentences = _CHAPTERS.findall(docstring)
    return [name for sentence in sentences for name in re.findall(r"`(\w+)`", sentence)]


def link_chapters(docstring: str, known: Sequence[Chapter]) -> str:
    """Make the chapters that a docstring names links to their pages, in reStructuredText."""
    pages = {chapter.name: f"/book/executed/{chapter.part}/{chapter.name}" for chapter in known}

    def linked(match: re.Match[str]) -> str:
        name = match[1]
        return f":doc:`{name} <{pages[name]}>`" if name in pages else match[0]

    return _CHAPTERS.sub(lambda match: re.sub(r"`(\w+)`", linked, match[0]), docstring)


def reference_pages(root: Path) -> dict[str, str]:
    """The pages of the reference: path below `book/generated` → Markdown."""
    reference, known = read_reference(), chapters(root)
    callers: dict[str, list[Chapter]] = {}
    for chapter in known:
        for entry in names_used(chapter):
            if chapter.name not in chapters_named(entry.docstring):
                callers.setdefault(entry.target, []).append(chapter)
    pages = {"package.md": render("package.md.j2", reference=reference)}
    for room, modules in reference.rooms.items():
        text = render(
            "room.md.j2", room=room, modules=modules, reference=reference, callers=callers
        )
        pages[f"reference/{room}.md"] = text
    return pages

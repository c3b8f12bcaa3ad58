"""Docstrings from source files, by `ast` alone: nothing is imported, nothing is executed.

Kept apart from the collection that is made of them, and free of heavy imports, because worker
processes load this module: a syntax tree costs a second per 5 MB of source.
"""

from __future__ import annotations

import ast
import gc
import importlib.util
import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

__all__ = ["Docstring", "SourceFile", "read_docstrings", "source_files", "split_docstring"]

# Tests are no documentation; the others repeat one template hundreds of times over.
_SKIPPED_FOLDERS = frozenset({"tests", "test", "testing", "_tests"})
_SKIPPED_PARTS = {"transformers": {"models"}, "torch": {"_inductor", "_dynamo"}}
_DEFINITIONS = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


class SourceFile(NamedTuple):
    """A source file: the package it belongs to, its path, and its dotted module name."""

    package: str
    path: Path
    module: str


class Docstring(NamedTuple):
    """A docstring in two parts, summary (query) and rest (document); package; qualified name."""

    query: str
    document: str
    domain: str
    id: str


def _package_folder(package: str) -> Path:
    # find_spec of a top-level name looks the package up without running any of it
    specification = importlib.util.find_spec(package)
    if specification is None or not specification.submodule_search_locations:
        raise ModuleNotFoundError(f"{package!r} is not installed as a package with sources")
    return Path(next(iter(specification.submodule_search_locations)))


def source_files(package: str) -> list[SourceFile]:
    """The source files of an installed package, in a stable order, tests left out."""
    root = _package_folder(package)
    files = []
    for folder, folders, names in os.walk(root):
        # cut branches before they are walked: a lookup in half of torch's folders is not free
        skipped = _SKIPPED_FOLDERS | _SKIPPED_PARTS.get(package, set())
        folders[:] = sorted(set(folders) - skipped)
        dotted = ".".join((package, *Path(folder).relative_to(root).parts))
        for name in sorted(names):
            if name.endswith(".py"):
                stem = name.removesuffix(".py")
                module = dotted if stem == "__init__" else f"{dotted}.{stem}"
                files.append(SourceFile(package, Path(folder) / name, module))
    return files


def _docstrings(file: SourceFile) -> list[Docstring]:
    package, path, module = file
    source = path.read_text(encoding="utf-8", errors="replace")
    if '"""' not in source and "'''" not in source:
        return []
    try:
        with warnings.catch_warnings():
            # an invalid escape in somebody's string is not ours to report, let alone to stop at
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return []  # templates and Python 2 leftovers that some packages ship
    docstrings = []
    # definitions inside functions are nobody's documentation, and most of the tree's nodes
    waiting: list[tuple[ast.AST, str]] = [(tree, module)]
    while waiting:
        node, name = waiting.pop()
        if isinstance(node, (*_DEFINITIONS, ast.Module)):
            pair = split_docstring(ast.get_docstring(node) or "")
            if pair is not None:
                docstrings.append(Docstring(*pair, package, name))
        if isinstance(node, (ast.Module, ast.ClassDef, ast.If, ast.Try)):
            children = [*node.body, *getattr(node, "orelse", ()), *getattr(node, "finalbody", ())]
            children += [
                child for handler in getattr(node, "handlers", ()) for child in handler.body
            ]
            for child in reversed(children):
                inner = f"{name}.{child.name}" if isinstance(child, _DEFINITIONS) else name
                waiting.append((child, inner))
    return docstrings


def split_docstring(docstring: str) -> tuple[str, str] | None:
    """Split a docstring into its summary and the rest, or return None if either is too thin.

    The summary is the first line, or the whole first paragraph where the first line breaks off
    in mid-sentence; at least three words, and no heading of a section. The rest needs twelve words.
    """
    first, _, rest = docstring.strip().partition("\n")
    underline = rest.partition("\n")[0].strip()
    if underline and not set(underline) - set("-=~"):
        return None  # it begins with a section ("Parameters", underlined): there is no summary
    if first and first.rstrip()[-1] not in ".:?!" and rest and not rest.startswith("\n"):
        paragraph, _, remainder = docstring.strip().partition("\n\n")
        if paragraph.count("\n") <= 2:
            first, rest = paragraph, remainder
    query, document = " ".join(first.split()), rest.strip()
    if len(query.split()) < 3 or len(query) > 300 or len(document.split()) < 12:
        return None
    return query, document


def read_docstrings(files: Sequence[SourceFile]) -> list[Docstring]:
    """The usable docstrings of some files, in the order of the files and of their definitions."""
    was_on = gc.isenabled()
    # a syntax tree is many small objects and no cycle: collecting costs a third of the time
    gc.disable()
    try:
        return [row for file in files for row in _docstrings(file)]
    finally:
        if was_on:
            gc.enable()

"""`pydocs`: the docstrings of installed Python packages as a retrieval collection.

Real text that every machine with the lock has, offline. A docstring's summary line is the query,
the rest is the document, the package is the domain. Sources are parsed with `ast`: nothing is
imported. Exact and near duplicates are dropped (Jaccard 0.8), and the table is cached by the
versions and file hashes of the packages. The standard library is left out, since it moves with the
interpreter.
"""

from __future__ import annotations

import ast
import contextlib
import gc
import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from cde.data.sets import Pairs, RetrievalSet, Split, is_held_out
from cde.storage import cache_folder, content_hash
from cde.validation import shown
from cde_studies.collections.duplicates import first_occurrences
from cde_studies.collections.installed import (
    carried_table,
    digest_of_table,
    distribution_key,
    kept_table,
    package_folder,
    read_in_processes,
)

# Tests are not documentation; the others repeat one template hundreds of times over.
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


def source_files(package: str) -> list[SourceFile]:
    """The source files of an installed package, in a stable order, tests left out."""
    root = package_folder(package)
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
            children += [child for one in getattr(node, "handlers", ()) for child in one.body]
            for child in reversed(children):
                inner = f"{name}.{child.name}" if isinstance(child, _DEFINITIONS) else name
                waiting.append((child, inner))
    return docstrings


def split_docstring(docstring: str) -> tuple[str, str] | None:
    """Split a docstring into its summary and the rest, or return None if either is too thin."""
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


#: import name → distribution that carries it; the order is that of the collection.
PACKAGES = {
    "sympy": "sympy",
    "torch": "torch",
    "scipy": "scipy",
    "pandas": "pandas",
    "sklearn": "scikit-learn",
    "sqlalchemy": "SQLAlchemy",
    "transformers": "transformers",
    "polars": "polars",
    "matplotlib": "matplotlib",
    "networkx": "networkx",
    "numpy": "numpy",
    "huggingface_hub": "huggingface-hub",
    "fontTools": "fonttools",
    "mteb": "mteb",
    "IPython": "ipython",
    "narwhals": "narwhals",
    "datasets": "datasets",
    "sentence_transformers": "sentence-transformers",
    "pydantic": "pydantic",
    "tornado": "tornado",
    "accelerate": "accelerate",
    "sphinx": "Sphinx",
    "rich": "rich",
    "mpmath": "mpmath",
    "PIL": "pillow",
}
#: whole packages that no training ever sees: the out-of-domain corpora.
HELD_OUT = ("sympy", "networkx", "polars", "sqlalchemy")
#: the other packages, whose documents training may see
TRAINING = tuple(package for package in PACKAGES if package not in HELD_OUT)

_FORMAT = "5"  # raise it when what is extracted from a docstring changes


def _installed() -> list[str]:
    found = []
    for package in PACKAGES:
        with contextlib.suppress(ModuleNotFoundError):
            distribution_key(package, PACKAGES[package])
            found.append(package)
    return found


def source_key(packages: Sequence[str] | None = None) -> str:
    """A hash that changes when a package's RECORD does, by default of all that are installed."""
    if table := carried_table("pydocs"):
        return content_hash([_FORMAT, digest_of_table(table)])
    names = packages or _installed()
    return content_hash([_FORMAT, *(distribution_key(name, PACKAGES[name]) for name in names)])


def _extract() -> pd.DataFrame:
    files = [file for package in _installed() for file in source_files(package)]
    portions = [(files[start : start + 64],) for start in range(0, len(files), 64)]
    title = f"pydocs: reading {len(files):,} source files"
    rows = read_in_processes(read_docstrings, portions, title)
    frame = pd.DataFrame(rows, columns=Docstring._fields)
    repeated = frame.groupby("id").cumcount()
    frame["id"] = frame["id"].where(repeated == 0, frame["id"] + "#" + (repeated + 1).astype(str))
    texts = (frame["query"] + " " + frame["document"]).tolist()
    frame["first"] = first_occurrences(texts)
    return frame


def table() -> pd.DataFrame:
    """All docstrings of what is installed, duplicates too; `first` is the row that one repeats."""
    return kept_table(table_path(), _extract, (*Docstring._fields, "first"))


def table_path() -> Path:
    kept = cache_folder("pydocs") / f"{source_key()}.parquet.sealed"
    return carried_table("pydocs") or kept


def _select(packages: Sequence[str], deduplicate: bool) -> pd.DataFrame:
    for package in packages:
        if package not in PACKAGES:
            raise ValueError(
                f"pydocs has no package {shown(package)}; it has {', '.join(PACKAGES)}"
            )
        if carried_table("pydocs") is None:
            distribution_key(package, PACKAGES[package])  # refuses what is not installed
    frame = table()
    if deduplicate:
        frame = frame[frame["first"] == np.arange(len(frame))]
    return frame[frame["domain"].isin(packages)]


def load_pairs(
    packages: Sequence[str] = TRAINING,
    split: Split = "train",
    deduplicate: bool = True,
    name: str = "pydocs",
) -> Pairs:
    """Docstring pairs of the given packages, by default of those that training may see."""
    frame = _select(packages, deduplicate)
    queries, documents, domains, ids = (frame[column].tolist() for column in Docstring._fields)
    return Pairs(queries, documents, domains, ids, name=name).split(split)


def load_retrieval(packages: Sequence[str] = tuple(PACKAGES), name: str = "pydocs") -> RetrievalSet:
    """Docstring search: find the body that belongs to a summary, among all bodies of the packages;
    queries are those that no training sees, all of a held-out package and the test split of others.
    """
    frame = _select(packages, deduplicate=True)
    asked = frame[frame["domain"].isin(HELD_OUT) | frame["document"].map(is_held_out)]
    return RetrievalSet(
        document_ids=frame["id"].tolist(),
        documents=frame["document"].tolist(),
        query_ids=asked["id"].tolist(),
        queries=asked["query"].tolist(),
        qrels={identifier: {identifier: 1} for identifier in asked["id"]},
        name=name,
    )

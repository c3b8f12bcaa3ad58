"""Pages: executed notebooks with their answer and provenance, and what is written of all of them.

This module gathers what a page says; the folder `templates` holds how it is marked up. Everything
here is cheap and is redone on each build; nothing here runs a chapter again.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from cde.book.chapters import Chapter, chapters
from cde.book.execution import Execution, load_execution, raw_notebook
from cde.book.ledger import ledger
from cde.book.ledger_pages import claims_page, collect_measurements, map_page, rules_page
from cde.book.markup import render
from cde.book.verdicts import VERDICTS, decide
from cde.storage import atomic_path, content_hash

__all__ = ["chapter_notebook", "status_table", "write_pages"]

#: what a chapter's page says until it has run
PLACEHOLDER = "*The answer stands here once the chapter has run.*"


def provenance(log: Execution, chapter: Chapter) -> str:
    """The provenance box of a page, in MyST Markdown."""
    parameters = ", ".join(f"{name} = {value!r}" for name, value in log.parameters.items())
    return render(
        "provenance.md.j2",
        chapter=chapter,
        log=log,
        parameters=parameters or "defaults",
        data=_data_line(log.data),
        libraries=", ".join(f"{name} {number}" for name, number in log.libraries.items()),
    )


def _data_line(data: dict[str, str]) -> str:
    """The collections of a page with their fingerprints; many packages of pydocs as one, with the
    hash of all.
    """
    packages = {name: digest for name, digest in data.items() if name.startswith("pydocs/")}
    shown = {
        name: digest for name, digest in data.items() if name not in packages or len(packages) <= 4
    }
    parts = [f"{name} (fingerprint {digest})" for name, digest in sorted(shown.items())]
    if len(packages) > 4:
        combined = content_hash(part for item in sorted(packages.items()) for part in item)
        parts.insert(0, f"{len(packages)} packages of pydocs (combined fingerprint {combined})")
    return ", ".join(parts) or "none"


def rerun(log: Execution, chapter: Chapter) -> str:
    """How to run the chapter again, in Markdown; time and hardware are those of this execution."""
    return render("rerun.md.j2", log=log, chapter=chapter)


def failure(log: Execution) -> str:
    """A box that says that the chapter failed, and where."""
    return render("failure.md.j2", log=log)


def chapter_notebook(chapter: Chapter, raw: NotebookNode, log: Execution) -> NotebookNode:
    """The page of an executed chapter: the answer below its title, how to rerun it, and its
    provenance.
    """
    notebook = nbformat.from_dict(raw)
    answer = log.answer or (failure(log) if log.error else PLACEHOLDER)
    marked = False
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            marked = marked or PLACEHOLDER in cell.source
            cell.source = cell.source.replace(PLACEHOLDER, answer).replace(
                "{rerun}", rerun(log, chapter)
            )
        else:
            cell.metadata["tags"] = [*cell.metadata.get("tags", []), *_hidden(cell)]
    if log.error and not log.answer and not marked:
        notebook.cells.insert(0, nbformat.v4.new_markdown_cell(failure(log), id="failure"))
    # cells made here have fixed names: with random ones the page would be new on each build
    notebook.cells.append(nbformat.v4.new_markdown_cell(provenance(log, chapter), id="provenance"))
    return notebook


def _hidden(cell: NotebookNode) -> list[str]:
    """papermill's own cells are of no interest to a reader, but for the parameters it injected."""
    tags = cell.metadata.get("tags", [])
    return ["remove-cell"] if "papermill-error-cell-tag" in tags else []


def _missing_page(chapter: Chapter, profile: str) -> NotebookNode:
    text = render("missing.md.j2", chapter=chapter, profile=profile)
    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(text, id="missing")])


@dataclass(frozen=True)
class _Status:
    """A chapter, its last execution (None: none yet) and, in words, what came of it."""

    chapter: Chapter
    log: Execution | None
    verdicts: str


def _statuses(profile: str, root: Path) -> list[_Status]:
    by_chapter = collect_measurements(profile, root)
    statuses = []
    for chapter in chapters(root):
        log = load_execution(chapter, profile, root)
        measurements = by_chapter.get(chapter.name, [])
        names = dict.fromkeys(entry.claim for entry in measurements)
        tally = Counter(decide(ledger()[name], measurements).verdict for name in names)
        verdicts = ", ".join(f"{tally[name]} {name}" for name in VERDICTS if tally[name])
        statuses.append(_Status(chapter, log, "failed" if log and log.error else verdicts))
    return statuses


def status_table(profile: str, root: Path) -> str:
    """A Markdown table of the chapters: verdicts, time, hardware, commit.

    Example:
        >>> from cde.storage import project_root
        >>> status_table("a profile of nobody", project_root()).splitlines()[0]
        '| chapter | verdicts | seconds | device | commit |'
    """
    return render("status_table.md.j2", rows=_statuses(profile, root))


def write_pages(profile: str, root: Path) -> None:
    """Write every generated page: one per chapter, *Claims*, *Map*, and the table of chapters."""
    for chapter in chapters(root):
        path = raw_notebook(chapter, profile, root)
        log = load_execution(chapter, profile, root)
        target = root / "book" / "executed" / chapter.part / f"{chapter.name}.ipynb"
        page: Any = _missing_page(chapter, profile)
        if log is not None and path.exists():
            page = chapter_notebook(chapter, nbformat.read(path, as_version=4), log)
        _write(target, nbformat.writes(page))
    generated = root / "book" / "generated"
    _write(generated / "claims.md", claims_page(profile, root))
    _write(generated / "map.md", map_page(profile, root))
    _write(generated / "rules.md", rules_page(profile, root))
    status = render("status.md.j2", profile=profile, rows=_statuses(profile, root))
    _write(generated / "status.md", status)


def _write(path: Path, text: str) -> None:
    """Write a file unless it holds that text already: Sphinx reads again what has a new date."""
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        with atomic_path(path) as temporary:
            temporary.write_text(text, encoding="utf-8")

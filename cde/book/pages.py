"""Pages: executed notebooks with their answer and provenance, and the pages made from the ledger.

This module gathers what a page says; the folder `templates` holds how it is marked up. Everything
here is cheap and is redone on each build; nothing here runs a chapter again.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
import yaml
from nbformat import NotebookNode

from cde.book import claims
from cde.book.chapters import Chapter, chapters
from cde.book.claims import PAPERS, VERDICTS, Claim, Measurement, Verdict, decide, from_json, ledger
from cde.book.execution import Execution, load_execution, raw_notebook
from cde.book.markup import render
from cde.storage import atomic_path, content_hash

__all__ = [
    "chapter_notebook",
    "claims_page",
    "collect_measurements",
    "map_page",
    "status_table",
    "write_pages",
]

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


def collect_measurements(profile: str, root: Path) -> dict[str, list[Measurement]]:
    """The measurements of every executed chapter, by chapter."""
    measurements = {}
    for chapter in chapters(root):
        log = load_execution(chapter, profile, root)
        if log is not None:
            measurements[chapter.name] = from_json(json.dumps(log.measurements))
    return measurements


@dataclass(frozen=True)
class _JudgedClaim:
    """A claim with its verdict, its measurements, and the chapters that made them (or will)."""

    claim: Claim
    verdict: Verdict
    measurements: list[Measurement]
    chapters: list[Chapter]

    @property
    def paper(self) -> str:
        return PAPERS[self.claim.paper]

    @property
    def style(self) -> str:
        return claims.css(self.verdict.verdict)


def _judged_claims(profile: str, root: Path) -> list[_JudgedClaim]:
    """The whole ledger: what has been tested comes first, otherwise in the ledger's order."""
    known = {chapter.name: chapter for chapter in chapters(root)}
    by_chapter = collect_measurements(profile, root)
    every = [(name, entry) for name, entries in by_chapter.items() for entry in entries]
    judged = []
    for identifier, claim in ledger().items():
        measured = [(name, entry) for name, entry in every if entry.claim == identifier]
        names = list(dict.fromkeys(name for name, _ in measured)) or [claim.chapter or ""]
        judged.append(
            _JudgedClaim(
                claim=claim,
                verdict=decide(claim, [entry for _, entry in every]),
                measurements=[entry for _, entry in measured],
                chapters=[known[name] for name in names if name in known],
            )
        )
    return sorted(judged, key=lambda entry: entry.verdict.verdict == "not tested")


def claims_page(profile: str, root: Path) -> str:
    """The page *Claims*: every claim of the ledger with its verdict, to be filtered by paper, part
    and verdict.
    """
    judged = _judged_claims(profile, root)
    tally = Counter(entry.verdict.verdict for entry in judged)
    return render(
        "claims.md.j2",
        profile=profile,
        judged=judged,
        counts=", ".join(f"{tally[name]} {name}" for name in VERDICTS),
        filters={
            "paper": list(PAPERS.values()),
            "part": list(dict.fromkeys(claim.part for claim in ledger().values())),
            "verdict": list(VERDICTS),
        },
    )


@dataclass(frozen=True)
class _Exhibit:
    """A table or figure of a paper, and its chapter, or what is said in the chapter's place."""

    exhibit: str
    title: str
    chapter: Chapter | None
    without_chapter: str
    note: str


def _exhibit(entry: dict[str, Any], known: dict[str, Chapter]) -> _Exhibit:
    """An entry of `book/exhibits.yml`."""
    name, note = entry["chapter"] or "", entry.get("note") or ""
    without_chapter = f"not yet (planned: {name})" if name else "not yet"
    if "nothing to reproduce" in note:
        without_chapter = "—"
    return _Exhibit(entry["exhibit"], entry["title"], known.get(name), without_chapter, note)


def map_page(profile: str, root: Path) -> str:
    """The page *Map*: each table and figure of the three papers, and the chapter that answers it.

    Example:
        >>> from cde.storage import project_root
        >>> "## From chapter to paper" in map_page("smoke", project_root())
        True
    """
    known = {chapter.name: chapter for chapter in chapters(root)}
    entries = yaml.safe_load((root / "book" / "exhibits.yml").read_text(encoding="utf-8"))
    answers: dict[str, list[str]] = {name: [] for name in known}
    for entry in entries:
        if entry["chapter"] in known:
            answers[entry["chapter"]].append(f"{PAPERS[entry['paper']]} {entry['exhibit']}")
    return render(
        "map.md.j2",
        answered=sum(map(len, answers.values())),
        total=len(entries),
        papers={
            title: [_exhibit(entry, known) for entry in entries if entry["paper"] == paper]
            for paper, title in PAPERS.items()
        },
        backwards=[
            (chapter, ", ".join(answers[name]) or "none") for name, chapter in known.items()
        ],
    )


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
    """A Markdown table of the chapters: verdicts, time, hardware, commit."""
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
    status = render("status.md.j2", profile=profile, rows=_statuses(profile, root))
    _write(generated / "status.md", status)


def _write(path: Path, text: str) -> None:
    """Write a file unless it holds that text already: Sphinx reads again what has a new date."""
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        with atomic_path(path) as temporary:
            temporary.write_text(text, encoding="utf-8")

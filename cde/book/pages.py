"""Pages: executed notebooks with their answer and provenance, and the pages made from the ledger.

Everything here is cheap and is redone on each build; nothing here runs a chapter again.
"""

from __future__ import annotations

import html
import json
from collections import Counter
from pathlib import Path
from typing import Any

import nbformat
import yaml
from nbformat import NotebookNode

from cde.book import claims
from cde.book.chapters import Chapter, chapters
from cde.book.claims import PAPERS, VERDICTS, Measurement, decide, from_json, ledger
from cde.book.execution import Execution, load_execution, raw_notebook
from cde.storage import atomic_path, content_hash

__all__ = [
    "chapter_notebook",
    "claims_page",
    "collect_measurements",
    "map_page",
    "status_table",
    "write_pages",
]

# a page that is one wide table needs no table of contents beside it
_WIDE = "---\nhtml_theme.sidebar_secondary.remove: true\n---\n\n"
#: what a chapter's page says until it has run
PLACEHOLDER = "*The answer stands here once the chapter has run.*"


def provenance(log: Execution, chapter: Chapter) -> str:
    """The provenance box of a page, in MyST Markdown."""
    parameters = (
        ", ".join(f"{name} = {value!r}" for name, value in log.parameters.items()) or "defaults"
    )
    data = _data_line(log.data)
    libraries = ", ".join(f"{name} {number}" for name, number in log.libraries.items())
    commit = f"{log.commit[:12]}{', with uncommitted changes' if log.dirty else ''}"
    rows = {
        "source": f"notebooks/{chapter.part}/{chapter.path.name}",
        "parameters": parameters,
        "data": data,
        "commit": commit,
        "device": f"{log.device}; {log.platform}",
        "time": f"{log.started}, {log.seconds:.0f} s",
        "libraries": f"Python {log.python}, {libraries}",
    }
    lines = "\n".join(f"{name}\n: {value}\n" for name, value in rows.items())
    return f"`````{{admonition}} Provenance\n:class: cde-provenance\n\n{lines}\n`````\n"


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
    return (
        f"```text\ncde run {chapter.name} --profile {log.profile}\n```\n\n"
        f"took {log.seconds:.0f} s on {log.device}. Any parameter of the page can be set "
        "with "
        f"`-p name value`: {', '.join(f'`{name}`' for name in chapter.parameters)}."
    )


def failure(log: Execution) -> str:
    """A box that says that the chapter failed, and where."""
    return (
        f"`````{{danger}}\nThis chapter failed at {log.started}, in "
        f"{log.error.splitlines()[0]}\n\n"
        f"````text\n{log.error}\n````\n`````\n"
    )


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
    text = (
        f"# {chapter.title}\n\n```{{warning}}\nThis chapter has not run yet. Run it with "
        f"`cde book --profile {profile} --only {chapter.name}`.\n```\n"
    )
    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(text, id="missing")])


def collect_measurements(profile: str, root: Path) -> dict[str, list[Measurement]]:
    """The measurements of every executed chapter, by chapter."""
    found = {}
    for chapter in chapters(root):
        log = load_execution(chapter, profile, root)
        if log is not None:
            found[chapter.name] = from_json(json.dumps(log.measurements))
    return found


def _verdicts(
    profile: str, root: Path
) -> dict[str, tuple[claims.Verdict, list[tuple[str, Measurement]]]]:
    by_chapter = collect_measurements(profile, root)
    every = [(name, entry) for name, entries in by_chapter.items() for entry in entries]
    return {
        identifier: (
            decide(claim, [entry for _, entry in every]),
            [(name, entry) for name, entry in every if entry.claim == identifier],
        )
        for identifier, claim in ledger().items()
    }


def _link(chapter: Chapter | None) -> str:
    if chapter is None:
        return ""
    return (
        f'<a href="../executed/{chapter.part}/{chapter.name}.html">{html.escape(chapter.name)}</a>'
    )


def _choices(label: str, values: list[str]) -> str:
    options = "".join(
        f'<option value="{html.escape(value)}">{html.escape(value)}</option>' for value in values
    )
    select = f'<select data-filter="{label}"><option value="">all</option>{options}</select>'
    return f"<label>{label} {select}</label> "


def claims_page(profile: str, root: Path) -> str:
    """The page *Claims*: every claim of the ledger with its verdict, to be filtered by paper, part
    and verdict.
    """
    known = {chapter.name: chapter for chapter in chapters(root)}
    rows, tally = [], Counter[str]()
    found = _verdicts(profile, root)
    # what has been tested comes first, otherwise in the ledger's order
    for identifier, (verdict, entries) in sorted(
        found.items(), key=lambda item: item[1][0].verdict == "not tested"
    ):
        claim = ledger()[identifier]
        tally[verdict.verdict] += 1
        ours = "<br>".join(
            f"{html.escape(m.what)}: <b>{m.interval}</b> (n = {m.interval.n:,})" for _, m in entries
        )
        links = ", ".join(dict.fromkeys(_link(known[name]) for name, _ in entries)) or _link(
            known.get(claim.chapter or "")
        )
        rows.append(
            f'<tr data-paper="{html.escape(PAPERS[claim.paper])}" data-part="{claim.part}" '
            f'data-verdict="{verdict.verdict}" id="{identifier}">'
            f"<td><b>{html.escape(claim.wording)}</b><br>"
            f"<small>{html.escape(PAPERS[claim.paper])}, "
            f"{html.escape(claim.place)} · {html.escape(claim.paper_value)} · "
            f"<code>{identifier}</code></small></td>"
            f'<td><span class="verdict {claims.css(verdict.verdict)}">{verdict.verdict}</span><br>'
            f"<small>{html.escape(verdict.reason)}</small></td>"
            f"<td>{ours or '<small>decided by: ' + html.escape(claim.test) + '</small>'}</td>"
            f"<td>{links or 'not yet'}</td></tr>"
        )
    parts = list(dict.fromkeys(claim.part for claim in ledger().values()))
    filters = (
        _choices("paper", list(PAPERS.values()))
        + _choices("part", parts)
        + _choices("verdict", list(VERDICTS))
    )
    counts = ", ".join(f"{tally[name]} {name}" for name in VERDICTS)
    return (
        f"{_WIDE}# Claims\n\n"
        f"Each empirical claim of the three papers, once, in our words: {sum(tally.values())} "
        f"claims, {counts}. "
        "A claim *holds* if every measurement that tests it lies, with its whole 95 % interval, "
        "where the claim says; "
        "*holds in part* if some do; *does not hold* (at this scale) if none does. "
        f"Measured at the profile `{profile}`; `cde claims --json` prints the same.\n\n"
        f'```{{raw}} html\n<div class="cde-filters">{filters}<output></output></div>\n'
        '<div class="cde-scroll"><table class="cde-ledger"><thead><tr>'
        "<th>claim</th><th>verdict</th>"
        "<th>we "
        f"measured</th><th>chapter</th></tr></thead><tbody>{''.join(rows)}</tbody></table></div>\n```\n"
    )


def map_page(profile: str, root: Path) -> str:
    """The page *Map*: each table and figure of the three papers, and the chapter that answers it.

    Example:
        >>> from cde.storage import project_root
        >>> "## From chapter to paper" in map_page("smoke", project_root())
        True
    """
    known = {chapter.name: chapter for chapter in chapters(root)}
    exhibits = yaml.safe_load((root / "book" / "exhibits.yml").read_text(encoding="utf-8"))
    sections = []
    answered = 0
    for paper, title in PAPERS.items():
        rows = []
        for entry in (entry for entry in exhibits if entry["paper"] == paper):
            chapter = known.get(entry["chapter"] or "")
            answered += chapter is not None
            planned = (
                f"not yet (planned: {html.escape(entry['chapter'])})"
                if entry["chapter"]
                else "not yet"
            )
            if "nothing to reproduce" in (entry.get("note") or ""):
                planned = "—"
            note = html.escape(entry.get("note") or "")
            rows.append(
                f"<tr><td>{html.escape(entry['exhibit'])}</td><td>{html.escape(entry['title'])}</td>"
                f"<td>{_link(chapter) or planned}</td><td><small>{note}</small></td></tr>"
            )
        sections.append(
            f'## {title}\n\n```{{raw}} html\n<div class="cde-scroll">'
            '<table class="cde-map"><thead><tr><th>exhibit</th>'
            "<th>what it "
            f"shows</th><th>chapter</th><th>note</th></tr></thead><tbody>{''.join(rows)}</tbody>"
            "</table></div>\n```\n"
        )
    backwards = []
    for chapter in known.values():
        names = [
            f"{PAPERS[entry['paper']]} {entry['exhibit']}"
            for entry in exhibits
            if entry["chapter"] == chapter.name
        ]
        backwards.append(
            f"- [{chapter.title}](../executed/{chapter.part}/{chapter.name}): "
            f"{', '.join(names) or 'none'}"
        )
    return (
        f"{_WIDE}# Map\n\n"
        f"From each table and figure of the papers to the chapter that answers it, {answered} of "
        f"{len(exhibits)} "
        "so far, and back.\n\n"
        + "\n".join(sections)
        + "\n## From chapter to paper\n\n"
        + "\n".join(backwards)
        + "\n"
    )


def status_table(profile: str, root: Path) -> str:
    """A Markdown table of the chapters: verdicts, time, hardware, commit."""
    by_chapter = collect_measurements(profile, root)
    lines = ["| chapter | verdicts | seconds | device | commit |", "|---|---|---|---|---|"]
    for chapter in chapters(root):
        log = load_execution(chapter, profile, root)
        if log is None:
            lines.append(f"| {chapter.title} | not run | | | |")
            continue
        names = dict.fromkeys(entry.claim for entry in by_chapter[chapter.name])
        found = Counter(decide(ledger()[name], by_chapter[chapter.name]).verdict for name in names)
        verdicts = (
            "failed" if log.error else ", ".join(f"{found[v]} {v}" for v in VERDICTS if found[v])
        )
        lines.append(
            f"| [{chapter.title}](../executed/{chapter.part}/{chapter.name}) | {verdicts} | "
            f"{log.seconds:.0f} | "
            f"{log.device} | {log.commit[:8]} |"
        )
    return "\n".join(lines) + "\n"


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
    _write(
        generated / "status.md",
        f"# Status\n\nProfile `{profile}`.\n\n{status_table(profile, root)}",
    )


def _write(path: Path, text: str) -> None:
    """Write a file unless it holds that text already: Sphinx reads again what has a new date."""
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        with atomic_path(path) as temporary:
            temporary.write_text(text, encoding="utf-8")

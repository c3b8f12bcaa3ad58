"""Pages: executed notebooks with their answer and provenance, and what is written of all of them.

This module gathers what a page says; the folder `templates` holds how it is marked up. Everything
here is cheap and is redone on each build; nothing here runs a chapter again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from cde_book.chapters import Chapter, chapters
from cde_book.execution import Execution, load_execution, raw_notebook
from cde_book.landing import landing_pages
from cde_book.ledger_pages import Judged, claims_page, judged, map_page, rules_page
from cde_book.markup import render
from cde_book.reference import names_used, reference_pages
from cde_book.strip import strip
from cde_book.thumbnails import chapter_figures, write_changed, write_figures

#: the output of the cell that makes the answer
GLUED = "```{glue:md} answer\n:format: myst\n```"
#: where `book/_ext/answer_first.py` puts the figure that shows the answer
FIGURE_PLACE = "```{raw} html\n<!-- the figure that shows the answer -->\n```"
#: a cell with more lines of code than this is folded
_OPEN_LINES = 12
#: what a folded cell is called, by what stands in it
_LABELS = {
    "profile: Profile": "The parameters, to be set with -p",
    "page.settings(": "The settings of each profile, and this page's",
}
#: what draws or words what a reader sees anyway
_HOUSEKEEPING = (
    *("plots.figure", "plots.show", "plots.table", "charts.show_forest", "show_differences"),
    *("page.", "claims.", "gates.show"),
)


def chapter_notebook(
    chapter: Chapter,
    raw: NotebookNode,
    log: Execution,
    fragile: Sequence[Judged] = (),
    facts: str = "",
) -> NotebookNode:
    """The page of an executed chapter: its answer below its title, code folded that only draws, and
    its parameters. `fragile` claims, decided but for the correction over all, get a badge; `facts`
    is HTML that stands below the leading figure.

    The answer is glued from the cell that makes it: run again, the page tells of its new run.
    """
    notebook = nbformat.from_dict(raw)
    mark = render("fragile.html.j2", claims=fragile).strip()
    marks = [f"```{{raw}} html\n{mark}\n```"] if fragile else []
    below = [f"```{{raw}} html\n{facts}\n```"] if facts else []
    glued = "\n\n".join([GLUED, *marks, FIGURE_PLACE, *below])
    answer = glued if log.answer else render("failure.md.j2", log=log) if log.error else ""
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            if answer and cell.source.startswith("# "):  # the title, which stands once
                title, _, rest = cell.source.partition("\n")
                cell.source, answer = f"{title}\n\n{answer}\n{rest}", ""
        else:
            cell.metadata["tags"] = _tags(cell)
            if "hide-cell" in cell.metadata["tags"]:
                label = next((one for sign, one in _LABELS.items() if sign in cell.source), "")
                own = cell.metadata.get("mystnb", {})  # a chapter may name what it folds
                cell.metadata["mystnb"] = {"code_prompt_show": label} if label else own
    if log.error and not log.answer and answer:  # there is no title
        # cells made here have fixed names: with random ones the page would be new on each build
        notebook.cells.insert(0, nbformat.v4.new_markdown_cell(answer, id="failure"))
    return _with_parameters(notebook, log.parameters)


def _with_parameters(notebook: NotebookNode, values: Mapping[str, Any]) -> NotebookNode:
    """The page's values as the defaults of its parameters, in place of papermill's cell of them."""
    tagged = [(set(cell.metadata.get("tags", [])), cell) for cell in notebook.cells]
    for tags, cell in tagged:
        if "parameters" in tags:
            for name, value in values.items():
                pattern = rf"(?m)^({re.escape(name)}: [^=\n]+?) = .*?(  #.*)?$"
                written = repr(value).replace("\\", r"\\")
                cell.source = re.sub(pattern, rf"\1 = {written}\2", cell.source)
    notebook.cells = [cell for tags, cell in tagged if "injected-parameters" not in tags]
    return notebook


def _tags(cell: NotebookNode) -> list[str]:
    """The tags of a code cell on its page: papermill's own cells and the one that words the answer
    are left out, and code is folded that is long, sets parameters, draws, or words a verdict.
    """
    tags = list(cell.metadata.get("tags", []))
    if "papermill-error-cell-tag" in tags or "page.answer(" in cell.source:
        return [*tags, "remove-cell"]
    if any(tag.startswith(("hide-", "remove-")) for tag in tags):
        return tags
    if "parameters" in tags or "page.settings(" in cell.source:
        return [*tags, "hide-cell"]
    lines = [line for line in cell.source.splitlines() if line.strip()]
    folded = len(lines) > _OPEN_LINES or any(name in cell.source for name in _HOUSEKEEPING)
    return [*tags, "hide-input"] if folded else tags


def _cell(name: str, template: str, **values: Any) -> NotebookNode:
    return nbformat.v4.new_markdown_cell(render(template, **values), id=name)


def _after_it(chapter: Chapter, contents: str, log: Execution | None) -> list[NotebookNode]:
    """What ends a page: how other tools run it, and the names of `cde` that it calls."""
    cells = []
    if log is not None:
        seed = int(log.parameters.get("seed", 0))
        of = {"profile": log.profile, "seconds": log.seconds, "seed": seed}
        cells.append(_cell("as-a-notebook", "rerun.html.j2", chapter=chapter, **of))
    entries = [entry for entry in names_used(chapter) if entry.page in contents]
    return [*cells, _cell("code-used", "code_used.html.j2", entries=entries)] if entries else cells


def write_pages(profile: str, root: Path) -> None:
    """Write every generated page."""
    # imports torch and transformers, which a command that writes no page can do without
    from cde_book.reproducibility import reproducibility_page

    contents = (root / "_toc.yml").read_text(encoding="utf-8")
    entries = judged(profile, root)
    for chapter in chapters(root):
        path = raw_notebook(chapter, profile, root)
        log = load_execution(chapter, profile, root)
        target = root / "book" / "executed" / chapter.part / f"{chapter.name}.ipynb"
        if log is not None and path.exists():
            own = [one for one in entries if one.claim.chapter == chapter.name and one.is_fragile]
            facts = strip(entries, log, root)
            page = chapter_notebook(chapter, nbformat.read(path, as_version=4), log, own, facts)
        else:
            missing = _cell("missing", "missing.md.j2", chapter=chapter, profile=profile)
            page, log = nbformat.v4.new_notebook(cells=[missing]), None
        page.cells.extend(_after_it(chapter, contents, log))
        write_changed(target, nbformat.writes(page))
    figures = chapter_figures(profile, root)
    write_figures(figures, root)
    pages = {
        "claims.md": claims_page(profile, entries),
        "map.md": map_page(figures, root),
        "rules.md": rules_page(entries, root),
        "reproducibility.md": reproducibility_page(profile, root, entries),
    }
    pages |= landing_pages(profile, root, entries, figures) | reference_pages(root)
    for name, text in pages.items():
        write_changed(root / "book" / "generated" / name, text)

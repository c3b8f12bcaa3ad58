"""An experimenter's journey, from a chapter to a compared rerun: part of `make journeys`.

One quick chapter is run at `smoke` with two seeds, and compared. papermill then runs the notebook
that a reader downloads: it must tell of its own run, and measure what `cde run` measured.

Cost: a minute and a half. Nothing is written but below a temporary folder and `$CDE_CACHE`.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import nbformat
from reader import ENVIRONMENT, QUICK, ROOT, need, none_of, run, step

from cde.storage import content_hash
from cde_book.chapters import chapters, find_chapter
from cde_book.comparison import numbered, read_run
from cde_book.execution import load_execution
from cde_book.page import MIME

CDE, PAPERMILL = str(ENVIRONMENT / "bin" / "cde"), str(ENVIRONMENT / "bin" / "papermill")
RUN = [CDE, "run", QUICK, "--profile", "smoke"]


def execute(folder: Path, name: str, seed: int) -> None:
    """Run the chapter with a seed; its notebook, its log and its verdicts are there."""
    done = run([*RUN, "-p", "seed", str(seed), "--out", f"{name}.ipynb"], folder)
    log = read_run(str(folder / f"{name}.ipynb"))
    need(log.parameters == {"seed": seed, "profile": "smoke"}, f"it ran with {log.parameters}")
    need(log.measurements and log.answer, "the run has no measurements, or no answer")
    numbers = [str(one.interval) for one in numbered(log).values()]
    none_of(f"the command does not print {one}" for one in numbers if one not in done.stdout)
    said = provenance(folder / f"{name}.ipynb")
    need(f"seed = {seed}" in said, f"it ran with seed {seed}; its provenance says {said}")


def compare(folder: Path, one: str, other: str, seeds: tuple[int, int]) -> None:
    """`cde compare` shows the seeds, and of each measurement both numbers in one line."""
    command = [CDE, "compare", f"{one}.ipynb", f"{other}.ipynb"]
    lines = run(command, folder).stdout.splitlines()
    rows = {line.split()[0]: line.split()[1:] for line in lines if line.strip()}
    shown = rows.get("seed")
    need(shown == [str(seed) for seed in seeds], f"of the seeds {seeds} it shows {shown}")
    need("profile" not in rows, f"both ran at smoke, and it shows profile {rows.get('profile')}")
    # papermill writes no log beside c: that it measured what b did has been checked before
    numbers = [numbered(read_run(str(folder / f"{name}.ipynb"))) for name in "ab"]
    for key in numbers[0]:
        both = [str(of[key].interval) for of in numbers]
        need(any(all(n in line for n in both) for line in lines), f"no line has {both}:\n{lines}")


def downloadable(folder: Path) -> Path:
    """The notebook that the built book offers, if it is of the chapter as it is now; else `a`."""
    chapter, book = find_chapter(QUICK), ROOT / "book"
    page = book / "_build" / "html" / "_sources" / "book" / "executed" / chapter.part
    offered, built = page / f"{QUICK}.ipynb", book / "executed" / "profile"
    log = load_execution(chapter, built.read_text()) if built.exists() else None
    if offered.exists() and log is not None and log.notebook == content_hash([chapter.source]):
        return offered
    return folder / "a.ipynb"


def outputs(notebook: Path) -> list[Any]:
    """What the cells of a notebook have shown, by MIME type."""
    cells = nbformat.read(notebook, as_version=4).cells
    return [shown.data for cell in cells for shown in cell.get("outputs", []) if "data" in shown]


def provenance(notebook: Path) -> str:
    """What a run notebook says of its own parameters, data, commit and machine."""
    said = [str(data) for data in outputs(notebook) if "cde-provenance" in str(data)]
    need(len(said) == 1, f"{notebook.name} has {len(said)} statements of its provenance")
    return said[0]


def report(notebook: Path) -> dict[str, Any]:
    """What a run notebook hands over in its last cell: answer, measurements, data."""
    handed = [data[MIME] for data in outputs(notebook) if MIME in data]
    need(len(handed) == 1, f"{notebook.name} hands over {len(handed)} reports of its run")
    return dict(handed[0])


def run_by_papermill(folder: Path) -> None:
    """papermill alone, on the downloaded notebook, with the second seed."""
    source = downloadable(folder)
    print(f"          {source}")
    run([PAPERMILL, str(source), "c.ipynb", "-p", "seed", "2", "-p", "profile", "smoke"], folder)
    said = provenance(folder / "c.ipynb")
    for setting in ("seed = 2", "profile = 'smoke'"):
        need(setting in said, f"{source} ran with {setting}; its provenance says {said}")


def check_same_numbers(folder: Path) -> None:
    """The answer is of papermill's own run: that of `cde run` with the same seed."""
    first, second = (read_run(str(folder / f"{name}.ipynb")) for name in "ab")
    theirs = report(folder / "c.ipynb")
    need(theirs["answer"] != first.answer, "with seed 2 it answers as with seed 1")
    need(
        theirs["answer"] == second.answer,
        f"with seed 2 papermill's run answers\n{theirs['answer']}\nand cde's\n{second.answer}",
    )
    for one, other in zip(theirs["measurements"], second.measurements, strict=True):
        alike = json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
        need(alike, f"with seed 2 papermill's run measured\n{one}\nand cde's\n{other}")
    need(theirs["measurements"] != first.measurements, "seeds 1 and 2 measured the same")


def journey(folder: Path) -> None:
    """Look, run, compare; then the same without `cde`."""
    with step("cde list names every chapter"):
        listed = {line.split()[0] for line in run([CDE, "list"], folder).stdout.splitlines()}
        none_of(f"{one.name} is not listed" for one in chapters() if one.name not in listed)
    with step(f"cde run {QUICK} --help names every parameter and what it accepts"):
        told = run([CDE, "run", QUICK, "--help"], folder).stdout
        for parameter in find_chapter(QUICK).parameters.values():
            line = [one for one in told.splitlines() if one.split()[:1] == [parameter.name]]
            need(line and parameter.accepted in line[0], f"{parameter.name} is not told: {line}")
    with step("cde run -p seed 1 --out a.ipynb"):
        execute(folder, "a", 1)
    with step("cde run -p seed 2 --out b.ipynb"):
        execute(folder, "b", 2)
    with step("cde compare a.ipynb b.ipynb shows the seeds and both numbers"):
        compare(folder, "a", "b", (1, 2))
    with step("papermill alone, -p seed 2, on a page: c.ipynb tells of its run"):
        run_by_papermill(folder)
    with step("papermill and cde gave the same answer and numbers for the same seed"):
        check_same_numbers(folder)
    with step("cde compare a.ipynb c.ipynb shows the seeds and both numbers"):
        compare(folder, "a", "c", (1, 2))


def main() -> int:
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="cde-experimenter-") as folder:
        journey(Path(folder).resolve())
    print(f"{time.perf_counter() - begun:6.1f} s  from the list of chapters to the comparison")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""What the book's commands do, but for `cde run`; `cde_book.cli` reads their options.

Each returns the exit status: 0 well, 1 a chapter or a check failed. Bad input is an exception whose
message is for the user; `cde.cli.main` prints it and returns 2.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from cde.storage import alone, cache_folder, remove_leftovers
from cde_book.chapters import Chapter, chapters, find_chapter
from cde_book.checkout import project_root
from cde_book.run_mode import RunMode

if TYPE_CHECKING:
    from cde_book.ledger_pages import Judged

__all__ = ["book", "claims", "compare", "list_chapters"]


#: folders of the book that builds write into
_WRITTEN = ("executed", "generated", "reruns")


def book(options: argparse.Namespace) -> int:
    """Execute the stale chapters and render the book."""
    root = project_root()
    selected = [find_chapter(name) for name in options.only] or chapters()
    for chapter in selected:
        chapter.check_parameters({"profile": options.profile})  # before anything starts
    # a second build waits for the first, and then has only to do what that one had not
    with alone(root / "book" / "executed" / ".lock", "this book"):
        return _build(selected, options, root)


def _build(selected: list[Chapter], options: argparse.Namespace, root: Path) -> int:
    from cde_book.execution import load_execution, stale_reasons
    from cde_book.pages import write_pages
    from cde_book.rendering import render
    from cde_book.side_by_side import execute_all, usual_jobs

    for place in (*(root / "book" / name for name in _WRITTEN), cache_folder()):
        remove_leftovers(place, below=True)
    due = []
    for chapter in selected:
        reasons = ["--fresh"] if options.fresh else stale_reasons(chapter, options.profile)
        if reasons:
            due.append((chapter, "; ".join([*reasons[:3], *(["…"] if len(reasons) > 3 else [])])))
        else:
            print(f"{chapter.name}: fresh")
    jobs = usual_jobs(options.profile) if options.jobs is None else options.jobs
    errors = execute_all(due, options.profile, jobs, RunMode(fresh=options.fresh))
    failed = [name for name, error in errors.items() if error]
    (root / "book" / "executed").mkdir(exist_ok=True)
    (root / "book" / "executed" / "profile").write_text(options.profile)
    write_pages(options.profile, root)
    index = render(root)
    _tell_of_proofs(options.profile)
    print(f"the book is at {index}")
    for chapter in chapters():
        earlier = load_execution(chapter, options.profile)
        if earlier is not None and earlier.error and chapter.name not in failed:
            failed.append(chapter.name)
    if failed:
        print(f"failed: {', '.join(failed)}; their pages show the traceback", file=sys.stderr)
        return 1
    return 0


def _tell_of_proofs(profile: str) -> None:
    """Which records still stand, by name where they do not, after a build that compares them."""
    from cde_book.records import proof_states

    if profile != "smoke":
        return
    states = proof_states()
    held = sum(one.state == "holds" for one in states)
    print(f"records: {held} of {len(states)} proofs hold")
    for one in states:
        if one.state != "holds":
            print(f"  {one.state.upper()}: {one.record}: {one.reason}")


def _last_profile() -> str:
    path = project_root() / "book" / "executed" / "profile"
    return path.read_text() if path.exists() else "laptop"


def claims(options: argparse.Namespace) -> int:
    """Print the ledger with its verdicts."""
    from cde_book.ledger_pages import judged

    profile = options.profile or _last_profile()
    entries = judged(profile, project_root())
    if options.simulate:
        return _simulate(entries)
    if options.json:
        rows = [_claim_row(entry) for entry in entries]
        print(json.dumps({"profile": profile, "claims": rows}, indent=1, ensure_ascii=False))
        return 0
    for entry in entries:
        where = f" at {entry.verdict.scale}" if entry.verdict.scale else ""
        print(f"{entry.verdict.verdict:<14} {entry.claim.id:<44} {entry.claim.wording}")
        print(f"{'':<14} {entry.verdict.reason}{where}{'; ' + entry.power if entry.power else ''}")
        for one in entry.measurements:
            size = f"n = {one.interval.n:,}, {one.role}, {one.scale}"
            print(f"{'':<16} {one.what}: {one.interval} ({size})")
    return 0


def _claim_row(entry: Judged) -> dict[str, object]:
    from cde_book.verdicts import to_json

    claim, verdict = entry.claim, entry.verdict
    return {
        "id": claim.id,
        "paper": claim.paper,
        "part": claim.part,
        "place": claim.place,
        "claim": claim.wording,
        "paper_value": claim.paper_value,
        "paper_effect": claim.paper_effect,
        "rule_fixed": dict(claim.fixed) | {"date": str(claim.fixed.get("date"))},
        "chapter": claim.chapter,
        "verdict": verdict.verdict,
        "scale": verdict.scale,
        "reason": verdict.reason,
        "smallest_effect": verdict.smallest,
        "p": verdict.p,
        "p_corrected": entry.discovery,
        "survives_correction": entry.survives,
        "by_construction": claim.by_construction,
        "measurements": json.loads(to_json(entry.measurements)),
    }


def _simulate(entries: list[Judged]) -> int:
    """Print what each rule could have said, in per cent of the draws."""
    from cde_book.simulation import TRUTHS, chances

    shown = ("holds", "contradicted")
    print("% of draws in which the claim holds / is contradicted, if the truth is:")
    print(f"{'claim':<46}{''.join(f'{truth:>20}' for truth in TRUTHS)}")
    for entry in entries:
        if entry.tests:
            counted = chances(entry.claim, entry.tests)
            shares = [[of[name] / of.total() for name in shown] for of in counted.values()]
            cells = [" / ".join(f"{100 * share:.0f}" for share in some) for some in shares]
            print(f"{entry.claim.id:<46}{''.join(f'{cell:>20}' for cell in cells)}")
    return 0


def list_chapters(_: argparse.Namespace | None = None) -> int:
    """Print every chapter: its name, its question, and how long its last run took."""
    from cde_book.execution import load_execution

    for chapter in chapters():
        log = load_execution(chapter, _last_profile())
        took = f"{log.seconds:5.0f} s at {log.profile}" if log else "not run yet"
        print(f"{chapter.name:<26} {chapter.title}  [{took}]")
    return 0


def compare(options: argparse.Namespace) -> int:
    """Print what was set and measured in two or more runs of a chapter, side by side."""
    import pandas as pd

    from cde_book.comparison import compared, read_run

    profile = options.profile or _last_profile()
    runs = {place: read_run(place, profile) for place in options.runs}
    if len(runs) == 1:
        (only,) = runs.values()
        runs["the book"] = read_run(only.chapter, profile)
    stems = [Path(name).stem for name in runs]
    shown = stems if len(set(stems)) == len(stems) else list(runs)
    settings, numbers = compared(dict(zip(shown, runs.values(), strict=True)))
    with pd.option_context("display.width", 0, "display.max_colwidth", 70):
        print("what differs\n" if len(settings) else "nothing that was set differs")
        print(settings.to_string() if len(settings) else "")
        print(f"\nverdicts and measurements\n\n{numbers.to_string()}")
    return 0

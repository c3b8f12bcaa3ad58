"""The command `cde`: run a chapter, build the book, print the ledger, look at this machine.

cde run CHAPTER [-p name value]… [--profile P] [--out FILE.ipynb] [--record [PROFILE/NAME]]
cde book [--profile P] [--only CHAPTER]… [--fresh]
cde claims [--json | --simulate] [--profile P]
cde sources
cde doctor
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cde.book.chapters import Chapter
from cde.book.page import PROFILES
from cde.hardware import prefer_short_waits
from cde.storage import project_root

if TYPE_CHECKING:
    from cde.book.ledger_pages import Judged

__all__ = ["main"]


# the chapters' kernels inherit it
prefer_short_waits()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="cde", description="The book of contextual document embeddings."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    run = commands.add_parser("run", help="execute one chapter with your own parameters")
    run.add_argument("chapter", help="the file's stem, such as idf_divergence")
    run.add_argument(
        "-p", "--parameter", nargs=2, action="append", default=[], metavar=("NAME", "VALUE")
    )
    run.add_argument(
        "--profile",
        choices=PROFILES,
        help="scale of every setting that is not given (default: laptop)",
    )
    run.add_argument(
        "--dirty",
        action="store_true",
        help="allow --record with uncommitted changes; the page says so",
    )
    run.add_argument(
        "--out",
        type=Path,
        metavar="FILE.ipynb",
        help="the executed notebook (default: book/reruns/)",
    )
    run.add_argument(
        "--record",
        nargs="?",
        const="1",
        metavar="PROFILE/NAME",
        help="also write the chapter's records, or this one of them, such as hours/table1-arms",
    )

    book = commands.add_parser("book", help="execute the stale chapters and render the book")
    book.add_argument("--profile", choices=PROFILES, default="laptop")
    book.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="CHAPTER",
        help="only this chapter; repeatable",
    )
    book.add_argument(
        "--fresh",
        action="store_true",
        help="execute every chapter, stale or not, and use no record",
    )

    ledger = commands.add_parser("claims", help="print each claim of the papers with its verdict")
    ledger.add_argument("--simulate", action="store_true", help="what each rule could have said")
    ledger.add_argument("--json", action="store_true", help="as JSON, with every measurement")
    ledger.add_argument(
        "--profile",
        choices=PROFILES,
        default=None,
        help="whose measurements (default: the last built)",
    )

    commands.add_parser("sources", help="list the collections that can be loaded here")
    commands.add_parser("doctor", help="check this machine: versions, devices, data, disk")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status (0 well, 1 a chapter or a check failed, 2 bad input).

    Example:
        >>> main(["run", "no_such_chapter"])
        2
    """
    options = _parser().parse_args(arguments)
    try:
        if options.command == "run":
            return _run(options)
        if options.command == "book":
            return _book(options)
        if options.command == "claims":
            return _claims(options)
        if options.command == "sources":
            return _sources()
        from cde.doctor import report

        return report()
    except (
        ValueError,
        TypeError,
        FileNotFoundError,
        ModuleNotFoundError,
        ConnectionError,
        PermissionError,
    ) as error:
        print(f"cde {options.command}: {error}", file=sys.stderr)
        return 2
    except RuntimeError as error:
        print(f"cde {options.command}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(
            "\ninterrupted; what had finished is kept, and the same command goes on from there",
            file=sys.stderr,
        )
        return 130


def _run(options: argparse.Namespace) -> int:
    import nbformat

    from cde.book.chapters import find_chapter
    from cde.book.execution import execute
    from cde.book.pages import chapter_notebook
    from cde.book.parameters import parse_assignments
    from cde.provenance import commit
    from cde.storage import atomic_path, content_hash

    chapter = find_chapter(options.chapter)
    parameters = parse_assignments(options.parameter)
    if options.profile is not None:
        parameters["profile"] = options.profile
    chapter.check_parameters(parameters)
    folder = project_root() / "book" / "reruns"
    name = f"{chapter.name}-{content_hash([json.dumps(parameters, sort_keys=True)], 8)}.ipynb"
    output: Path = options.out or folder / name
    if output.suffix != ".ipynb":
        raise ValueError(f"--out must name a notebook, FILE.ipynb; it is {output}")
    asked = options.record if options.record not in (None, "1") else ""
    if asked and not re.fullmatch(r"[\w-]+/[\w-]+", asked):
        raise ValueError(
            "--record takes a record's profile and name, such as laptop/table1-arms; it is "
            f"{asked!r}"
        )
    if options.record:
        if commit()[1] and not options.dirty:
            raise ValueError(
                "a record names the commit that made it, and there are uncommitted changes: "
                "commit them, or give "
                "--dirty"
            )
        os.environ["CDE_RECORD"] = options.record
    before = _records()
    notebook, log = execute(chapter, parameters, output)
    with atomic_path(output) as temporary:
        nbformat.write(chapter_notebook(chapter, notebook, log), temporary)
    _tell(chapter.name, log.error)
    if not log.error:
        _print_verdicts(log.measurements)
    print(f"{output} ({log.seconds:.0f} s); a log of what it used is beside it, as JSON")
    written = sorted(name for name, changed in _records().items() if before.get(name) != changed)
    if asked and not log.error and asked not in written:
        path = f"book/records/{asked}.json"
        print(f"cde run: no experiment of {chapter.name} wrote {path}", file=sys.stderr)
        return 1
    if options.record and not log.error:
        return _prove(chapter, written)
    return 1 if log.error else 0


def _records() -> dict[str, int]:
    """The committed records, and when each was last written."""
    paths = (project_root() / "book" / "records").glob("*/*.json")
    return {f"{path.parent.name}/{path.stem}": path.stat().st_mtime_ns for path in paths}


def _prove(chapter: Chapter, names: list[str]) -> int:
    """Give records their proof: the chapter's miniature, at the profile `smoke` with the page's own
    parameters.
    """
    from cde.book.execution import execute
    from cde.book.records import proof_states

    os.environ.pop("CDE_RECORD", None)
    os.environ["CDE_PROVE"] = ",".join(names)
    with tempfile.TemporaryDirectory(prefix="cde-") as folder:
        _, log = execute(chapter, {"profile": "smoke"}, Path(folder) / f"{chapter.name}.ipynb")
    _tell(chapter.name, log.error)
    without = [one.record for one in proof_states() if one.record in names and one.state != "holds"]
    if without:
        print(
            f"cde run: no miniature was computed for {', '.join(without)}: they have no proof",
            file=sys.stderr,
        )
    return 1 if without or log.error else 0


def _tell(chapter: str, error: str) -> None:
    if error:
        print(f"\nchapter {chapter} failed in {error}\n", file=sys.stderr)


def _print_verdicts(measurements: list[dict[str, object]]) -> None:
    from cde.book.ledger import ledger
    from cde.book.verdicts import decide, from_json

    entries = from_json(json.dumps(measurements))
    for name in dict.fromkeys(entry.claim for entry in entries):
        verdict = decide(ledger()[name], entries)
        print(f"  {verdict.verdict:<14} {ledger()[name].wording} ({verdict.reason})")


def _book(options: argparse.Namespace) -> int:
    from cde.book.chapters import chapters, find_chapter
    from cde.book.execution import execute, load_execution, raw_notebook, stale_reasons
    from cde.book.pages import write_pages
    from cde.book.rendering import render
    from cde.storage import project_root

    root = project_root()
    selected = [find_chapter(name) for name in options.only] or chapters()
    for chapter in selected:
        chapter.check_parameters({"profile": options.profile})  # before anything starts
    failed = []
    if options.fresh:
        os.environ["CDE_FRESH"] = "1"  # the chapters' kernels use no record
    for chapter in selected:
        reasons = ["--fresh"] if options.fresh else stale_reasons(chapter, options.profile)
        if not reasons:
            print(f"{chapter.name}: fresh")
            continue
        print(
            f"{chapter.name}: runs, since "
            f"{'; '.join(reasons[:3])}{'; …' if len(reasons) > 3 else ''}",
            flush=True,
        )
        _, log = execute(
            chapter, {"profile": options.profile}, raw_notebook(chapter, options.profile)
        )
        _tell(chapter.name, log.error)
        if log.error:
            failed.append(chapter.name)
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
    from cde.book.records import proof_states

    if profile != "smoke":
        return
    states = proof_states()
    held = sum(one.state == "holds" for one in states)
    print(f"records: {held} of {len(states)} proofs hold")
    for one in states:
        if one.state != "holds":
            print(f"  {one.state.upper()}: {one.record}: {one.reason}")


def _last_profile() -> str:
    from cde.storage import project_root

    path = project_root() / "book" / "executed" / "profile"
    return path.read_text() if path.exists() else "laptop"


def _claims(options: argparse.Namespace) -> int:
    from cde.book.ledger_pages import judged
    from cde.storage import project_root

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
    from cde.book.verdicts import to_json

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
        "measurements": json.loads(to_json(entry.measurements)),
    }


def _simulate(entries: list[Judged]) -> int:
    """Print what each rule could have said, in per cent of the draws."""
    from cde.book.simulation import TRUTHS, chances

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


def _sources() -> int:
    from cde.data import list_sources

    for source in list_sources():
        print(f"{source.name:<36} {source.kind:<18} {source.location}")
    print(
        "also: folder:<path>, hub:<repo>[:<config>]; set CDE_DATA to a folder with beir/ and "
        "pairs/ for more"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())

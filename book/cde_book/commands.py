"""What the book's commands do; `cde_book.cli` reads their options.

Each returns the exit status: 0 well, 1 a chapter or a check failed. Bad input is an exception whose
message is for the user; `cde.cli.main` prints it and returns 2.

`cde run --record` runs the chapter's miniature after it, the proof of what was recorded.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import re
import sys
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cde.hardware import compute_device
from cde.provenance import commit
from cde.storage import (
    alone,
    atomic_path,
    cache_folder,
    content_hash,
    remove_leftovers,
    temporary_folder,
)
from cde_book.chapters import Chapter, chapters, find_chapter
from cde_book.checkout import project_root
from cde_book.parameters import parse_assignments
from cde_book.run_mode import EVERY, RunMode
from cde_studies.profiles import PROFILES, making

if TYPE_CHECKING:
    from cde_book.execution import Execution
    from cde_book.ledger_pages import Judged


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
    from cde_book.execution import execute_all, load_execution, stale_reasons, usual_jobs
    from cde_book.pages import write_pages
    from cde_book.rendering import render

    written = [root / "book" / name for name in ("executed", "generated", "reruns")]
    for place in (*written, cache_folder()):
        remove_leftovers(place, below=True)
    due = []
    for chapter in selected:
        reasons = ["--fresh"] if options.fresh else stale_reasons(chapter, options.profile)
        if reasons:
            due.append((chapter, "; ".join(reasons[:3] + ["…"] * (len(reasons) > 3))))
        else:
            print(f"{chapter.name}: fresh")
    jobs = usual_jobs(options.profile) if options.jobs is None else options.jobs
    errors = execute_all(due, options.profile, jobs, RunMode(fresh=options.fresh))
    (root / "book" / "executed").mkdir(exist_ok=True)
    (root / "book" / "executed" / "profile").write_text(options.profile)
    write_pages(options.profile, root)
    index = render(root)
    _tell_of_proofs(options.profile)
    print(f"the book is at {index}")
    logs = [load_execution(chapter, options.profile) for chapter in chapters()]
    errors = {log.chapter: log.error for log in logs if log is not None} | errors
    if failed := [name for name, error in errors.items() if error]:
        print(f"failed: {', '.join(failed)}; their pages show the traceback", file=sys.stderr)
        return 1
    return 0


def _tell_of_proofs(profile: str) -> None:
    """Name the records that no longer stand: proofs where they were compared, else altered rows."""
    from cde_book.records import proof_states

    states, compared = proof_states(), profile == "smoke"
    if compared:
        held = sum(one.state == "holds" for one in states)
        print(f"records: {held} of {len(states)} proofs hold")
    for one in states:
        if one.state == "altered" or (compared and one.state != "holds"):
            print(f"  {one.state.upper()}: {one.record}: {one.reason}")


def _last_profile() -> str:
    path = project_root() / "book" / "executed" / "profile"
    return path.read_text() if path.exists() else "laptop"


def claims(options: argparse.Namespace) -> int:
    """Print the ledger with its verdicts."""
    from cde_book.ledger_pages import judged

    profile = options.profile or _last_profile()
    entries = judged(profile, project_root())
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
    claim, verdict = entry.claim, entry.verdict
    names = ("id", "paper", "part", "place", "paper_value", "paper_effect", "chapter")
    return {name: getattr(claim, name) for name in names} | {
        "claim": claim.wording,
        "rule_fixed": claim.fixed,
        "verdict": verdict.verdict,
        "scale": verdict.scale,
        "reason": verdict.reason,
        "smallest_effect": verdict.smallest,
        "p": verdict.p,
        "p_corrected": entry.discovery,
        "survives_correction": entry.survives,
        "by_construction": claim.by_construction,
        "measurements": [asdict(one) for one in entry.measurements],
    }


def list_chapters(_: argparse.Namespace) -> int:
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


@dataclass(frozen=True)
class _Wanted:
    """A run that was asked for."""

    chapter: Chapter
    parameters: dict[str, Any]
    output: Path
    mode: RunMode

    @property
    def key(self) -> str:
        """What the log of a run says that has made all of it."""
        asked = json.dumps(self.parameters, sort_keys=True), repr(self.mode)
        return content_hash([self.chapter.source, *asked])


def run(options: argparse.Namespace) -> int:
    """Execute one chapter; with `--record`, write its records and their proof."""
    chapter = find_chapter(options.chapter)
    parameters = parse_assignments(options.parameter)
    if options.profile is not None:
        parameters["profile"] = options.profile
    parameters = chapter.check_parameters(parameters)
    output: Path = options.out or _readable_path(chapter, parameters)
    if output.suffix != ".ipynb" or output.is_dir():
        raise ValueError(f"--out must name a notebook, FILE.ipynb; it is {output}")
    wanted = _Wanted(chapter, parameters, output, _mode(options))
    if options.dry_run:
        return _rehearse(wanted)
    begun = time.time()
    with _one_at_a_time(chapter, output, bool(wanted.mode.record)) as waited:
        if waited and _is_done(wanted, begun):
            print(f"{output}: another process has just made it")
            return 0
        return _run_now(wanted)


def _mode(options: argparse.Namespace) -> RunMode:
    """What the options ask of a run beside its parameters; refused is what cannot be made."""
    mode = RunMode(record=options.record or "", add=options.add, fresh=options.fresh)
    if mode.record not in ("", EVERY) and not re.fullmatch(r"[\w-]+/([\w-]+|\*)", mode.record):
        raise ValueError(
            "--record takes a record's profile and name, such as laptop/table1-arms; it is "
            f"{mode.record!r}"
        )
    if mode.record:  # what a run left that was killed at it is not a change of the reader's
        remove_leftovers(project_root() / "book" / "records", below=True)
    if mode.record and commit()[1] and not options.dirty:
        raise ValueError(
            "a record names the commit that made it, and there are uncommitted changes: commit "
            "them, or give --dirty"
        )
    if mode.add and mode.record not in _records():
        raise ValueError(
            "--add adds seeds to a record that is there: give --record PROFILE/NAME, such as "
            "laptop/table1-arms"
        )
    return mode


def _one_at_a_time(chapter: Chapter, output: Path, records: bool) -> AbstractContextManager[bool]:
    """Of the runs that write one notebook, or record one chapter, one after the other."""
    what = f"the records of {chapter.name}" if records else str(output)
    mark = [str(project_root()), chapter.name] if records else [str(output.absolute())]
    return alone(cache_folder("locks") / f"{content_hash(mark)}.lock", what)


def _is_done(wanted: _Wanted, begun: float) -> bool:
    """Whether another process has made meanwhile what was asked for, records and proof too."""
    from cde_book.comparison import read_run

    try:
        log = read_run(str(wanted.output))
        written = wanted.output.with_suffix(".json").stat().st_mtime
    except (FileNotFoundError, ValueError):
        return False
    return log.recorded == wanted.key and written >= begun


def _run_now(wanted: _Wanted) -> int:
    import nbformat

    from cde_book.execution import execute, tell_of_failure, write_execution
    from cde_book.pages import chapter_notebook

    chapter, mode, output = wanted.chapter, wanted.mode, wanted.output
    if mode.add and not _stands(chapter, mode.record):
        return _failed(
            f"the proof of {mode.record} does not hold here, so that other seeds would not be of "
            "the same experiment: make the record again, without --add"
        )
    before = _records()
    notebook, log = execute(chapter, wanted.parameters, output, mode=mode)
    with atomic_path(output) as temporary:
        nbformat.write(chapter_notebook(chapter, notebook, log), temporary)
    write_execution(log, output)
    tell_of_failure(chapter.name, log.error)
    if not log.error:
        _print_verdicts(chapter, log)
    print(f"{output} ({log.seconds:.0f} s); a log of what it used is beside it, as JSON")
    if log.error or (mode.record and not _is_proved(chapter, mode, before)):
        return 1
    log.recorded = wanted.key
    write_execution(log, output)
    return 0


def _is_proved(chapter: Chapter, mode: RunMode, before: dict[str, int]) -> bool:
    """Give the records that a run has written their proof, or compare the one of a grown record."""
    written = sorted(name for name, when in _records().items() if before.get(name) != when)
    if mode.record != EVERY and not fnmatch.filter(written, mode.record):
        _failed(f"no experiment of {chapter.name} wrote book/records/{mode.record}.json")
        return False
    if mode.add:  # its proof is the one that it had
        return _stands(chapter, mode.record)
    ran = _miniature(chapter, written)
    if without := sorted({*written} - _holding()):
        _failed(f"no miniature was computed for {', '.join(without)}: they have no proof")
    return ran and not without


def _failed(why: str) -> int:
    print(f"cde run: {why}", file=sys.stderr)
    return 1


def _rehearse(wanted: _Wanted) -> int:
    """Say what would run, and what is known of its time and memory; nothing runs."""
    from cde_book.comparison import runs_of

    chapter, parameters, output = wanted.chapter, wanted.parameters, wanted.output
    making.fresh = wanted.mode.fresh  # the page's own cell of settings asks for it
    default = {"profile": chapter.parameters["profile"].default}
    settings = chapter.settings(parameters)
    training = _training(settings) if "recipes.recipe_of(settings)" in chapter.source else ""
    print(f"{chapter.name}: {chapter.title}")
    for name, value in (default | settings | parameters).items():
        if value is not None:
            print(f"  {name} = {value!r}{'  (given)' if name in parameters else ''}")
    print(f"to {output}")
    logs = runs_of(chapter)
    same = [log for log in logs if default | log.parameters == default | parameters]
    if same:
        print(f"a run with these settings {_took(same[0])} (measured, whatever was cached then)")
    else:
        print("time and memory: nothing is known here yet of a run with these settings")
        for log in {log.profile: log for log in reversed(logs)}.values():
            own = ", ".join(f"{name} = {value!r}" for name, value in log.parameters.items())
            read = sum(digest != "missing" for digest in log.records.values())
            records = f"; it read from {read} records" if read else ""
            print(f"  one with {own} {_took(log)}{records}")
    print(training, end="")
    return 0


def _took(log: Execution) -> str:
    """What a run cost, in words."""
    memory = f" and {log.memory:.1f} GiB of memory in its kernel" if log.memory else ""
    return f"took {log.seconds:.0f} s{memory}, on {log.device}"


def _training(settings: dict[str, Any]) -> str:
    """What one training of a page's recipe is, from its config alone."""
    from cde_studies.estimate import estimate
    from cde_studies.recipes import recipe_of

    config = recipe_of(argparse.Namespace(**settings)).base
    cost = estimate(config)
    memory = f", {cost.memory:.0f} GiB on a GPU" if compute_device().startswith("cuda") else ""
    return (
        f"a training of its recipe, from which arms depart: {cost.steps:,} steps of "
        f"{cost.tokens:,} tokens, {cost.parameters / 1e6:.0f} million weights{memory} (computed "
        f"from its config)\n  {config}\n"
    )


def _readable_path(chapter: Chapter, parameters: dict[str, Any]) -> Path:
    """Where a rerun goes: its name says what was set, as far as that is short."""
    said = "".join(f"-{name}={value}" for name, value in sorted(parameters.items()))
    said = re.sub(r"[^\w=.,-]+", "_", said)
    if len(said) > 81:
        said = f"{said[:71]}-{content_hash([json.dumps(parameters, sort_keys=True)], 8)}"
    return project_root() / "book" / "reruns" / f"{chapter.name}{said}.ipynb"


def _records() -> dict[str, int]:
    """The committed records, and when each was last written."""
    from cde_book.records import committed

    paths = committed()
    return {f"{path.parent.name}/{path.stem}": path.stat().st_mtime_ns for path in paths}


def _miniature(chapter: Chapter, prove: Sequence[str] = ()) -> bool:
    """Run a chapter at `smoke`: its records' proofs are compared, or made; whether it ran."""
    from cde_book.execution import execute, tell_of_failure

    # proofs are in float32, whatever the record was computed in
    mode = RunMode(prove=tuple(prove), precision="float32")
    with temporary_folder() as folder:
        output = folder / f"{chapter.name}.ipynb"
        _, log = execute(chapter, {"profile": "smoke"}, output, mode=mode)
    tell_of_failure(chapter.name, log.error)
    return not log.error


def _holding() -> set[str]:
    """The records whose proof holds here."""
    from cde_book.records import proof_states

    return {one.record for one in proof_states() if one.state == "holds"}


def _stands(chapter: Chapter, name: str) -> bool:
    """Whether a record's proof holds here today."""
    return _miniature(chapter) and name in _holding()


def _print_verdicts(chapter: Chapter, log: Execution) -> None:
    """Each claim's verdict, with our numbers and the built book's beside them."""
    from cde_book.comparison import compared, numbered
    from cde_book.execution import load_execution
    from cde_book.ledger import ledger
    from cde_book.verdicts import decide

    page = load_execution(chapter, log.profile)
    runs = {"this run": log} | ({} if page is None else {"the book": page})
    differing, numbers = compared(runs)
    for name, row in numbers.iterrows():
        if name in ledger():
            decided = decide(ledger()[str(name)], numbered(log).values())
            print(f"  {row['this run']:<24} {ledger()[str(name)].wording} ({decided.reason})")
        else:
            beside = f"; the book: {row['the book']}" if row.get("the book") else ""
            print(f"  {'':<24} {name}: {row['this run']}{beside}")
    if len(runs) > 1 and len(differing):
        print(f"  what differs from the book: {', '.join(map(str, differing.index))}")


def describe_chapter(name: str) -> str:
    """A chapter's question, parameters and time, for `cde run CHAPTER --help`."""
    from cde_book.execution import load_execution

    chapter = find_chapter(name)
    lines = [f"cde run {chapter.name} [-p NAME VALUE]…", "", chapter.title, "", "parameters:"]
    for parameter in chapter.parameters.values():
        default = "the profile's" if parameter.default is None else f"{parameter.default!r}"
        meaning = f";  {parameter.meaning}" if parameter.meaning else ""
        lines.append(f"  {parameter.name:<24} {parameter.accepted}; default: {default}{meaning}")
    for profile in PROFILES:
        log = load_execution(chapter, profile)
        if log is not None:
            lines.append(f"at {profile} it {_took(log)}")
    return "\n".join(lines)

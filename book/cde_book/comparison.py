"""Runs of one chapter side by side: what was set, what was used, what was measured.

A measurement is told by its claim and by its place among the chapter's measurements of that claim:
its words may name the very settings that differ.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from cde_book.chapters import Chapter, find_chapter
from cde_book.checkout import project_root
from cde_book.execution import Execution, load_execution, parsed_execution
from cde_book.ledger import ledger
from cde_book.verdicts import Measurement, decide, from_rows


def read_run(place: str, profile: str = "laptop") -> Execution:
    """The log of a run."""
    path = Path(place)
    if path.suffix not in (".ipynb", ".json"):
        log = load_execution(find_chapter(place), profile)
        if log is None:
            raise FileNotFoundError(
                f"the book has no run of {place} at {profile}: make it with cde book --profile "
                f"{profile} --only {place}"
            )
        return log
    beside = path.with_suffix(".json")
    if not beside.exists() and path.suffix == ".ipynb" and path.exists():
        return _told_by(path)
    try:
        return parsed_execution(beside.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FileNotFoundError(
            f"{beside} is not there: `cde run` writes it beside the notebook"
        ) from None
    except (ValueError, TypeError) as error:
        raise ValueError(f"{beside} is not a log of a run: {error}") from None


def _told_by(path: Path) -> Execution:
    """The log of a page that another tool has run, from what its last cell has handed over."""
    import nbformat

    from cde_book.page import MIME

    outputs = [one for cell in nbformat.read(path, 4).cells for one in cell.get("outputs", [])]
    handed = [output.data[MIME] for output in outputs if MIME in output.get("data", {})]
    if not handed or "run" not in handed[-1]:
        raise ValueError(
            f"{path} tells of no run, and has no log beside it: only a page of the book that has "
            "run to its last cell can be compared"
        )
    kept = {key: handed[-1][key] for key in ("answer", "data", "device", "measurements")}
    return Execution(**handed[-1]["run"], **kept)


def runs_of(chapter: Chapter) -> list[Execution]:
    """A chapter's runs that have ended well here, of the book or beside it, the latest first."""
    book = project_root() / "book"
    logs = []
    for path in [
        *book.glob(f"executed/raw/*/{chapter.name}.json"),
        *book.glob(f"reruns/{chapter.name}*.json"),
    ]:
        with contextlib.suppress(ValueError):  # of an older form
            logs.append(read_run(str(path)))
    ended = [log for log in logs if log.chapter == chapter.name and not log.error]
    return sorted(ended, key=lambda log: log.started, reverse=True)


def numbered(log: Execution) -> dict[tuple[str, int], Measurement]:
    """The measurements of a run, by claim and place among that claim's."""
    places: dict[tuple[str, int], Measurement] = {}
    for entry in from_rows(log.measurements):
        if entry.claim not in ledger():  # an older log, of a claim that is gone
            continue
        place = sum(claim == entry.claim for claim, _ in places)
        places[entry.claim, place] = entry
    return places


def compared(runs: Mapping[str, Execution]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Settings that differ, and numbers side by side."""
    names = {log.chapter for log in runs.values()}
    if len(names) != 1:
        raise ValueError(f"only runs of one chapter can be compared; these are of {sorted(names)}")
    facts = pd.DataFrame({name: pd.Series(_facts(log)) for name, log in runs.items()}).fillna("")
    differing = facts[facts.ne(facts.iloc[:, 0], axis=0).any(axis=1)]
    places = {name: numbered(log) for name, log in runs.items()}
    lines: list[tuple[str, dict[str, str]]] = []
    for claim in dict.fromkeys(claim for of in places.values() for claim, _ in of):
        decided = {name: decide(ledger()[claim], of.values()) for name, of in places.items()}
        lines.append((claim, {name: str(verdict) for name, verdict in decided.items()}))
        most = max(sum(one == claim for one, _ in of) for of in places.values())
        for place in range(most):
            made = {name: of[claim, place] for name, of in places.items() if (claim, place) in of}
            words = f"  {place + 1}. {next(iter(made.values())).what}"
            lines.append((words, {name: str(one.interval) for name, one in made.items()}))
    labels, rows = zip(*lines, strict=True) if lines else ((), ())
    return differing, pd.DataFrame(rows, labels, columns=list(runs)).fillna("")


def _facts(log: Execution) -> dict[str, str]:
    facts: dict[str, Any] = {"profile": log.profile, **log.parameters, **log.data}
    facts |= {"device": log.device, "commit": log.commit[:12], "seconds": round(log.seconds)}
    return {name: str(value) for name, value in facts.items()}

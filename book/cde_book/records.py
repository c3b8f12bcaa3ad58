"""Committed records: numbers of an experiment that not every reader can run, each with a proof that
it still stands.

`book/records/<profile>/<name>.json` holds rows of numbers, made by `cde run CHAPTER --record` where
the data (or the device, or the time) was at hand, with their provenance. A page that does not run
the experiment itself draws the record in its place and says so. Records hold numbers, never texts.

`cde_book.proofs` says what a proof is and when it holds. Whenever a chapter runs at `smoke`, the
proofs of its records are compared. A record whose proof does not hold is stale: on its page, in
`cde doctor`, and by name at the end of `cde book`.

Cost: that of reading a file; the comparison is of rows that the smoke run has computed in any case.
"""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from cde.hardware import describe
from cde.provenance import account as data_account
from cde.provenance import commit, libraries, now
from cde.storage import atomic_path, cache_folder, content_hash, read_json, write_json
from cde_book.account import account
from cde_book.checkout import project_root
from cde_book.growth import check_settings, grown
from cde_book.proofs import TIMES, ProofState, differences, experiment_digest, stored_rows
from cde_studies.profiles import without_records

__all__ = [
    "Recorded",
    "RecordedRows",
    "proof_states",
    "record_state",
    "recorded",
    "records_and_differences",
    "records_at_other_profiles",
    "rows_of_record",
]


@dataclass(frozen=True)
class Recorded:
    """The rows of an experiment, and whether they were computed here or read from a record."""

    rows: pd.DataFrame
    note: str


def recorded(
    name: str,
    profile: str,
    compute: Callable[[], pd.DataFrame],
    can_run: bool,
    settings: dict[str, Any],
    costly: bool = False,
    varies: Sequence[str] = TIMES,
    proves: Sequence[str] = (),
) -> Recorded | None:
    """Compute an experiment where that is possible, else read its record.

    At the profile `smoke` the experiment is computed, and compared with the proofs of its records.
    """
    path = _path(profile, name)
    foreign = profile != account.profile
    if _another_is_asked_for(name, profile) and (foreign or costly):
        found = _read(path, None)  # a page's other long runs are not what `--record NAME` is for
        if found or foreign:
            return found
    if can_run and not (costly and not _is_asked_for(name, profile) and _is_usable(path, settings)):
        if _grows() and _is_asked_for(name, profile):
            had = json.loads(path.read_text(encoding="utf-8"))["settings"]
            check_settings(had, json.loads(json.dumps(settings)))
        begun, before = time.perf_counter(), data_account.loaded
        # what the experiment loads is its own, though the page has it already
        data_account.loaded = {}
        try:
            rows = compute()
        finally:
            used, data_account.loaded = data_account.loaded, before | data_account.loaded
        if _is_asked_for(name, profile):
            _write(
                path,
                rows,
                settings,
                used or before,
                experiment_digest(compute),
                time.perf_counter() - begun,
            )
        if profile == "smoke":
            for one in (name, *proves):
                _compare(one, rows, settings, varies, experiment_digest(compute))
        return Recorded(rows, "")
    return _read(path, settings)


class RecordedRows(NamedTuple):
    """The rows of a committed record, and the settings that it was made with."""

    rows: pd.DataFrame
    settings: dict[str, Any]


def rows_of_record(name: str, profile: str) -> RecordedRows | None:
    """A record of another chapter, whatever its settings; None where there is none."""
    path = _path(profile, name)
    account.read.add(str(path.relative_to(project_root())))
    if not path.exists():
        return None
    record = json.loads(path.read_text(encoding="utf-8"))
    return RecordedRows(_renamed(record["rows"], record), record["settings"])


def records_and_differences(name: str, settings: Mapping[str, Any]) -> str:
    """Which records of an experiment there are, and in what they differ from some settings."""
    paths = sorted((project_root() / "book" / "records").glob(f"*/{name}.json"))
    if not paths:
        return f"There is no record of {name} at any profile."
    wanted, said = json.loads(json.dumps(settings)), []
    for path in paths:
        made = json.loads(path.read_text(encoding="utf-8"))["settings"]
        apart = [
            f"{key} {made.get(key, 'not set')!r} instead of {wanted.get(key, 'not set')!r}"
            for key in sorted({*made, *wanted})
            if made.get(key) != wanted.get(key)
        ]
        said.append(f"{path.parent.name} has {'; '.join(apart) or 'the same settings'}")
    return f"Records of {name}: {'. '.join(said)}."


def records_at_other_profiles(name: str, profile: str) -> dict[str, Recorded]:
    """The records of an experiment at other profiles, to be drawn beside the reader's own
    numbers.
    """
    records = {}
    for path in sorted((project_root() / "book" / "records").glob(f"*/{name}.json")):
        if path.parent.name not in (profile, "smoke"):
            record = _read(path, None)
            if record is not None:  # with --fresh no record is used
                records[path.parent.name] = record
    return records


def proof_states() -> list[ProofState]:
    """What is known on this machine of every committed record's proof."""
    return [_state(path) for path in sorted((project_root() / "book" / "records").glob("*/*.json"))]


def record_state(path: Path) -> str:
    """A hash of a record and of what is known of its proof here: what a page that draws it
    shows.
    """
    if not path.exists():
        return "missing"
    proof = _state(path)
    return content_hash([path.read_bytes(), proof.state, proof.reason])


def _path(profile: str, name: str) -> Path:
    return project_root() / "book" / "records" / profile / f"{name}.json"


def _is_asked_for(name: str, profile: str) -> bool:
    """Whether `cde run --record` was asked for all of a page's records, or for this one."""
    return os.environ.get("CDE_RECORD") in ("1", f"{profile}/{name}")


def _another_is_asked_for(name: str, profile: str) -> bool:
    """Whether `cde run --record` was asked for one record, and for another than this."""
    return os.environ.get("CDE_RECORD", "1") not in ("", "1", f"{profile}/{name}")


def _grows() -> bool:
    """Whether `cde run --record --add` was asked for."""
    return os.environ.get("CDE_RECORD_ADD") == "1"


def _is_usable(path: Path, settings: dict[str, Any]) -> bool:
    if without_records():
        return False
    account.read.add(str(path.relative_to(project_root())))
    return path.exists() and json.loads(path.read_text(encoding="utf-8"))["settings"] == json.loads(
        json.dumps(settings)
    )


def _read(path: Path, settings: dict[str, Any] | None) -> Recorded | None:
    """A record, if it may be used and was made with these settings (None: whatever they are)."""
    if without_records():
        return None
    account.read.add(str(path.relative_to(project_root())))
    if not path.exists() or (settings is not None and not _is_usable(path, settings)):
        return None
    record = json.loads(path.read_text(encoding="utf-8"))
    return Recorded(_renamed(record["rows"], record), _note(path, record))


def _renamed(rows: list[dict[str, Any]], record: dict[str, Any]) -> pd.DataFrame:
    """Stored rows, with the names that things have today: a record keeps those of its time."""
    return pd.DataFrame(rows).replace(record.get("renamed", {}))


def _note(path: Path, record: dict[str, Any]) -> str:
    """Where a record comes from, and whether it still stands, in sentences for the page."""
    combined = content_hash(part for item in sorted(record["data"].items()) for part in item)
    count = f"{len(record['data'])} collections"
    data = f", from {count} (combined fingerprint {combined}; the record names each)"
    said = [
        f"Read from the record book/records/{path.parent.name}/{path.name}, not computed here: "
        f"made {record['time']} "
        f"on {record['device']}, commit {record['commit'][:12]}{data if record['data'] else ''}.",
        f"It was made in {len(record['parts'])} parts." if "parts" in record else "",
        record["remark"],
        {False: "It was made with uncommitted changes.", None: "", True: ""}[record["clean"]],
        _moved_data(record["data"]),
    ]
    proof = _state(path)
    if proof.state == "stale":
        said.append(
            f"STALE: its miniature gives other numbers today ({proof.reason}); it has to be made "
            "anew."
        )
    else:
        said.append(
            {"holds": "Its proof holds.", "no proof": "It has no proof."}.get(
                proof.state, proof.reason
            )
        )
    return " ".join(part for part in said if part)


def _moved_data(data: dict[str, str]) -> str:
    """Which collections of a record are at hand here with other content."""
    from cde.data.sources import known_fingerprints

    moved = [
        name
        for name, digest in data.items()
        if digest not in (known_fingerprints(name) or {digest})
    ]
    return f"STALE: these collections have other content here: {', '.join(moved)}." if moved else ""


def _state(path: Path) -> ProofState:
    name = f"{path.parent.name}/{path.stem}"
    record = json.loads(path.read_text(encoding="utf-8"))
    if not record.get("proof"):
        return ProofState(name, "no proof", "it has no proof")
    state = read_json(_kept_state(path), since="format")
    if state is None:
        return ProofState(
            name, "not compared", "Its proof has not been compared here: run the chapter at smoke."
        )
    if state["record"] != content_hash([path.read_bytes()]):
        return ProofState(
            name, "not compared", "Its proof has not been compared since it was made."
        )
    return ProofState(name, "stale" if state["differences"] else "holds", state["differences"])


def _kept_state(path: Path) -> Path:
    return cache_folder("proofs") / f"{path.parent.name}-{path.stem}.json"


def _compare(
    name: str, rows: pd.DataFrame, settings: dict[str, Any], varies: Sequence[str], digest: str
) -> None:
    """Hold today's miniature against the proofs of an experiment's records; or give records their
    proof.
    """
    asked = os.environ.get("CDE_PROVE", "").split(",")
    kept = rows[[column for column in rows if column not in varies]]
    settings = json.loads(json.dumps(settings))
    for path in sorted((project_root() / "book" / "records").glob(f"*/{name}.json")):
        one = f"{path.parent.name}/{name}"
        record = json.loads(path.read_text(encoding="utf-8"))
        if one in asked:
            proof = {
                "time": now(),
                "commit": commit()[0],
                "device": describe(),
                "libraries": libraries(),
            }
            proof |= {"experiment": digest}
            record["proof"] = {**proof, "settings": settings, "rows": stored_rows(kept)}
            _save(path, record)
        if not record.get("proof") or record["proof"]["settings"] != settings:
            continue
        then = _renamed(record["proof"]["rows"], record)
        difference = differences(then[[column for column in then if column not in varies]], kept)
        account.proofs[one] = difference
        state = {"record": content_hash([path.read_bytes()]), "differences": difference}
        write_json(_kept_state(path), {"format": 2, **state, "time": now()})


def _write(
    path: Path,
    rows: pd.DataFrame,
    settings: dict[str, Any],
    data: dict[str, str],
    digest: str,
    seconds: float,
) -> None:
    head, dirty = commit(apart_from="book/records")  # another record is no change of the code
    record = {
        "time": now(),
        "commit": head,
        "clean": not dirty,
        "remark": "",
        "device": describe(),
        "python": platform.python_version(),
        "libraries": libraries(),
        "seconds": round(seconds, 1),
        "experiment": digest,
        "settings": settings,
        "data": data,
        "rows": stored_rows(rows),
        "proof": None,
    }
    if _grows():
        # as it would be stored: a tuple of settings is a list there
        record = grown(json.loads(path.read_text(encoding="utf-8")), json.loads(json.dumps(record)))
    _save(path, record)


def _save(path: Path, record: dict[str, Any]) -> None:
    with atomic_path(path) as temporary:
        temporary.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")

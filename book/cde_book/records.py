"""Committed records: numbers of an experiment that not every reader can run, each with a proof that
it still stands.

`book/records/<profile>/<name>.json` holds rows of numbers, never texts, made by `cde run CHAPTER
--record`, with their provenance. A page that does not run the experiment itself draws the record in
its place and says so. `book/running.md` tells how records are made, grow and are checked.

A proof is what the same function gave in miniature when the record was made: the experiment at the
profile `smoke`, in float32, with the page's own seed. Whenever the chapter runs at `smoke`, that is
compared: code that gives other small numbers would give other large ones, and the record is stale
until it is made again. A proof holds if in each column the mean difference is at most `TOLERANCE`
of the column's mean size: a processor, a number of threads or the order of a sum moves losses and
cosines a thousand times less. One proof stands for all parts of a record that has grown.

Cost: milliseconds; the miniature is what the smoke run computes in any case.
"""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cde.hardware import describe
from cde.provenance import account as data_account
from cde.provenance import commit, libraries, now
from cde.storage import atomic_path, cache_folder, content_hash, read_json, write_json
from cde_book.account import account
from cde_book.checkout import project_root
from cde_book.run_mode import PLAIN, RunMode, this_run

#: columns of time, which no proof can hold
TIMES = ("seconds", "step_seconds")
#: the mean difference that a column of a proof may show, as a share of the column's mean size
TOLERANCE = 0.01
#: what a chapter may call the number of its seeds; `trainings` where `seeds` counts other runs
_COUNTS = ("seeds", "trainings")
_OF_A_PART = ("time", "commit", "clean", "device", "python", "libraries", "seconds", "experiment")


@dataclass(frozen=True)
class ProofState:
    """What is known here of a record's proof."""

    record: str
    state: str
    reason: str = ""


@dataclass(frozen=True)
class Recorded:
    """The rows of an experiment, whether they are of a record, and that record's settings."""

    rows: pd.DataFrame
    note: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)


def recorded(
    name: str,
    profile: str,
    compute: Callable[[], pd.DataFrame],
    can_run: bool,
    settings: dict[str, Any],
    costly: bool = False,
    varies: Sequence[str] = TIMES,
    proves: Sequence[str] = (),
    mode: RunMode = PLAIN,
) -> Recorded | None:
    """Compute an experiment where that is possible, else read its record."""
    path, one = _path(profile, name), f"{profile}/{name}"
    settings, foreign = _as_stored(settings), profile != account.profile
    if mode.makes_only_another(one) and (foreign or costly):
        found = _read(path, None, mode)  # a page's other long runs are not what it is made for
        if found or foreign:
            return found
    made = mode.makes(one)
    if not can_run or (costly and not made and _usable(path, settings, mode)):
        return _read(path, settings, mode)
    if made and mode.add:
        _check_settings(_load(path)["settings"], settings)
    begun, before = time.perf_counter(), data_account.loaded
    data_account.loaded = {}  # what the experiment loads is its own, though the page has it already
    try:
        rows = compute()
    finally:
        used, data_account.loaded = data_account.loaded, before | data_account.loaded
    if made:
        seconds = round(time.perf_counter() - begun, 1)
        facts = {"seconds": seconds, "settings": settings}
        record = _head() | facts | {"data": used or before, "rows": stored_rows(rows)}
        whole = grown(_load(path), record) if mode.add else record | {"proof": None}
        _save(path, whole | {"digest": digest_of_rows(whole["rows"])})
    if profile == "smoke":
        for each in (name, *proves):
            _compare(each, rows, settings, varies, mode)
    return Recorded(rows)


def rows_of_record(name: str, profile: str) -> Recorded | None:
    """A record of another chapter, whatever its settings; None where there is none."""
    record = _looked_for(_path(profile, name))
    if record is None:
        return None
    return Recorded(_renamed(record["rows"], record), settings=record["settings"])


def records_and_differences(name: str, settings: Mapping[str, Any]) -> str:
    """Which records of an experiment there are, and in what they differ from some settings."""
    paths = committed(name)
    if not paths:
        return f"There is no record of {name} at any profile."
    wanted, said = _as_stored(settings), []
    for path in paths:
        made = _load(path)["settings"]
        said.append(f"{path.parent.name} has {_apart(made, wanted) or 'the same settings'}")
    return f"Records of {name}: {'. '.join(said)}."


def _apart(made: Mapping[str, Any], wanted: Mapping[str, Any], besides: Sequence[str] = ()) -> str:
    """The settings that differ, but for some, in words."""
    return "; ".join(
        f"{key} {made.get(key, 'not set')!r} instead of {wanted.get(key, 'not set')!r}"
        for key in sorted({*made, *wanted} - {*besides})
        if made.get(key) != wanted.get(key)
    )


def records_at_other_profiles(
    name: str, profile: str, mode: RunMode | None = None
) -> dict[str, Recorded]:
    """The records of an experiment at other profiles, to be drawn beside the reader's numbers; none
    in a fresh run.
    """
    others = [path for path in committed(name) if path.parent.name not in (profile, "smoke")]
    records = {path.parent.name: _read(path, None, mode or this_run()) for path in others}
    return {place: record for place, record in records.items() if record is not None}


def proof_states() -> list[ProofState]:
    """What is known on this machine of every committed record's proof."""
    return [_state(path) for path in committed()]


def record_state(path: Path) -> str:
    """A hash of a record and of what is known of its proof here."""
    if not path.exists():
        return "missing"
    proof = _state(path)
    return content_hash([path.read_bytes(), proof.state, proof.reason])


def _path(profile: str, name: str) -> Path:
    return project_root() / "book" / "records" / profile / f"{name}.json"


def committed(name: str = "*") -> list[Path]:
    """The files of all records, or of those of one experiment."""
    return sorted((project_root() / "book" / "records").glob(f"*/{name}.json"))


def _load(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))  # type: ignore[no-any-return]


def _as_stored(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as a record has them: a tuple is a list there."""
    return json.loads(json.dumps(settings))  # type: ignore[no-any-return]


def _looked_for(path: Path) -> dict[str, Any] | None:
    """A record if there is one; the page has looked for it then, found or not."""
    account.read.add(str(path.relative_to(project_root())))
    return _load(path) if path.exists() else None


def _usable(path: Path, settings: dict[str, Any] | None, mode: RunMode) -> dict[str, Any] | None:
    """A record that may be used, made with these settings (None: whatever they are)."""
    record = None if mode.fresh else _looked_for(path)
    return record if record and settings in (None, record["settings"]) else None


def _read(path: Path, settings: dict[str, Any] | None, mode: RunMode) -> Recorded | None:
    record = _usable(path, settings, mode)
    if record is None:
        return None
    return Recorded(_renamed(record["rows"], record), _note(path, record), record["settings"])


def _renamed(rows: list[dict[str, Any]], record: dict[str, Any]) -> pd.DataFrame:
    """Stored rows, with the names that things have today: a record keeps those of its time."""
    return pd.DataFrame(rows).replace(record.get("renamed", {}))


def _note(path: Path, record: dict[str, Any]) -> str:
    """Where a record comes from, and whether it still stands, in sentences for the page."""
    combined = content_hash(part for item in sorted(record["data"].items()) for part in item)
    count = f"{len(record['data'])} collections"
    data = f", from {count} (combined fingerprint {combined}; the record names each)"
    proof = _state(path)
    stands = {
        "holds": "Its proof holds.",
        "altered": f"ALTERED: {_ALTERED}.",
        "no proof": "It has no proof.",
        "stale": f"STALE: its miniature gives other numbers today ({proof.reason}); it has to be "
        "made again.",
    }
    said = [
        f"Read from the record book/records/{path.parent.name}/{path.name}, not computed here: "
        f"made {record['time']} on {record['device']}, commit {record['commit'][:12]}"
        f"{data if record['data'] else ''}.",
        f"It was made in {len(record['parts'])} parts." if "parts" in record else "",
        record["remark"],
        {False: "It was made with uncommitted changes.", None: "", True: ""}[record["clean"]],
        _moved_data(record["data"]),
        stands.get(proof.state, proof.reason),
    ]
    return " ".join(part for part in said if part)


def _moved_data(data: dict[str, str]) -> str:
    """Which collections of a record are at hand here with other content."""
    from cde_book.contents import known_fingerprints

    moved = [
        name
        for name, digest in data.items()
        if digest not in (known_fingerprints(name) or {digest})
    ]
    return f"STALE: these collections have other content here: {', '.join(moved)}." if moved else ""


def digest_of_rows(rows: Sequence[Mapping[str, Any]]) -> str:
    """A hash of a record's rows, whatever the order of their columns."""
    return content_hash([json.dumps(rows, sort_keys=True)])


def _is_altered(record: Mapping[str, Any]) -> bool:
    return "digest" in record and record["digest"] != digest_of_rows(record["rows"])


_ALTERED = "its rows are not those that were recorded: take the file from git, or make it again"


def _state(path: Path) -> ProofState:
    name, record = f"{path.parent.name}/{path.stem}", _load(path)
    if _is_altered(record):
        return ProofState(name, "altered", _ALTERED)
    if not record.get("proof"):
        return ProofState(name, "no proof", "it has no proof")
    state, waits = read_json(_kept_state(path), since="format"), "Its proof has not been compared"
    if state is None:
        return ProofState(name, "not compared", f"{waits} here: run the chapter at smoke.")
    if state["record"] != content_hash([path.read_bytes()]):
        return ProofState(name, "not compared", f"{waits} since it was made.")
    return ProofState(name, "stale" if state["differences"] else "holds", state["differences"])


def _kept_state(path: Path) -> Path:
    return cache_folder("proofs") / f"{path.parent.name}-{path.stem}.json"


def _compare(
    name: str, rows: pd.DataFrame, settings: dict[str, Any], varies: Sequence[str], mode: RunMode
) -> None:
    """Hold today's miniature against the proofs of an experiment's records, or give a proof."""
    kept = rows[[column for column in rows if column not in varies]]
    for path in committed(name):
        one, record = f"{path.parent.name}/{name}", _load(path)
        if one in mode.prove:
            head = _head()
            proof = {key: head[key] for key in ("time", "commit", "device", "libraries")}
            proof |= {"settings": settings, "rows": stored_rows(kept)}
            record["proof"] = proof
            _save(path, record)
        if not record.get("proof") or record["proof"]["settings"] != settings:
            continue
        then = _renamed(record["proof"]["rows"], record)
        difference = differences(then[[column for column in then if column not in varies]], kept)
        state = {"record": content_hash([path.read_bytes()]), "differences": difference}
        write_json(_kept_state(path), {"format": 2, **state, "time": now()})


def _head() -> dict[str, Any]:
    """When, from what and on what a record or a proof is made."""
    head, dirty = commit(apart_from="book/records")  # another record is not a change of the code
    return {
        "time": now(),
        "commit": head,
        "clean": not dirty,
        "remark": "",
        "device": describe(),
        "python": platform.python_version(),
        "libraries": libraries(),
    }


def _save(path: Path, record: dict[str, Any]) -> None:
    with atomic_path(path) as temporary:
        temporary.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def _part_of(record: dict[str, Any]) -> dict[str, Any]:
    """Where and when the rows of a record were made, and of which seeds they are."""
    settings = record["settings"]
    head = {name: record[name] for name in _OF_A_PART if name in record}
    return {**head, "seed": settings["seed"], "seeds": settings[_count_of(settings)]}


def _count_of(settings: Mapping[str, Any]) -> str:
    """The setting that says how many seeds there are."""
    found = [name for name in _COUNTS if name in settings]
    if "seed" not in settings or not found:
        raise ValueError("only a record of several seeds can grow; this one has no seeds")
    return found[0]


def _check_settings(had: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    """Refuse settings that a record cannot grow by, before hours are spent on them."""
    count = _count_of(had)
    if apart := _apart(had, new, besides=("seed", count)):
        raise ValueError(f"a record made with other settings cannot grow: it has {apart}")
    _count_of(new)  # it must have seeds as well
    follows = had["seed"] + had[count]
    if new["seed"] != follows:
        raise ValueError(
            f"the record has the seeds {had['seed']} to {follows - 1}: add those from {follows} on "
            f"(-p seed={follows}); these begin at {new['seed']}"
        )


def grown(record: dict[str, Any], added: dict[str, Any]) -> dict[str, Any]:
    """A record with the rows of further seeds."""
    if _is_altered(record):
        raise ValueError(f"an altered record cannot grow: {_ALTERED}")
    had, new = record["settings"], added["settings"]
    _check_settings(had, new)
    moved = sorted(
        name for name, digest in added["data"].items() if record["data"].get(name) != digest
    )
    if moved:
        raise ValueError(f"a record made from other data cannot grow: {', '.join(moved)}")
    count = _count_of(had)
    return record | {
        "settings": {**had, count: had[count] + new[count]},
        "rows": [*record["rows"], *added["rows"]],
        "parts": [*record.get("parts", [_part_of(record)]), _part_of(added)],
    }


def stored_rows(rows: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows as a record stores them."""
    return json.loads(rows.to_json(orient="records", double_precision=6))  # type: ignore[no-any-return]


def differences(then: pd.DataFrame, rows: pd.DataFrame) -> str:
    """What differs between a proof and the rows of today's miniature; "" if the proof holds."""
    today = pd.DataFrame(stored_rows(rows))
    gone = [column for column in then if column not in today]
    if gone:
        return "without the column " + ", ".join(map(str, gone))
    if len(then) != len(today):
        return f"{len(today)} rows in place of {len(then)}"
    today = today[list(then)]
    names = [column for column in then if not pd.api.types.is_float_dtype(then[column])]
    if names:
        order = {"key": lambda column: column.astype(str), "kind": "stable", "ignore_index": True}
        then, today = then.sort_values(names, **order), today.sort_values(names, **order)  # type: ignore[call-overload]
    reasons = []
    for column in then:
        was, now_ = then[column], today[column]
        if not pd.api.types.is_numeric_dtype(was):
            if was.astype(str).tolist() != now_.astype(str).tolist():
                reasons.append(f"{column} names other things")
            continue
        old, new = np.asarray(was, dtype=float), np.asarray(now_, dtype=float)
        if (np.isnan(old) != np.isnan(new)).any():
            reasons.append(f"{column} is missing elsewhere")
            continue
        size, apart = float(np.nanmean(np.abs(old))) if len(old) else 0.0, np.abs(old - new)
        mean = float(np.nanmean(apart)) if len(old) and not np.isnan(apart).all() else 0.0
        if mean > TOLERANCE * size + 1e-6:
            share = f"{mean:.2g}" if size == 0 else f"{100 * mean / size:.2g} %"
            count = int((apart > TOLERANCE * size).sum())
            reasons.append(f"{column} moved by {share} ({count} of {len(old)})")
    return "; ".join(reasons)

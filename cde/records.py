"""Committed records: numbers of an experiment that not every reader can run.

`book/records/<profile>/<name>.json` holds rows of numbers, made by `cde run CHAPTER --record` where
the data (or the device) was at hand, with their provenance. A page that cannot run the experiment
itself draws the record in its place and says so; if the code behind it has changed since, the page
says that too. Records hold numbers, never texts.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd

from cde.storage import atomic_path, code_hash, content_hash, project_root

__all__ = ["Recorded", "beside", "recorded"]


# drawing and telling do not change the numbers
_TELLING = ("__init__.py", "plots.py", "page.py", "claims.py", "records.py", "progress.py")

#: the records that this process has looked for, as paths below the checkout: a page is stale when one changes
consulted: set[str] = set()


@dataclass(frozen=True)
class Recorded:
    """The rows of an experiment, and whether they were computed here or read from a record.

    Attributes:
        rows: the numbers.
        note: where they come from, for the page: empty if they were computed just now.
    """

    rows: pd.DataFrame
    note: str


def recorded(
    name: str,
    profile: str,
    compute: Callable[[], pd.DataFrame],
    here: bool,
    settings: dict[str, Any],
    costly: bool = False,
) -> Recorded | None:
    """Compute an experiment where that is possible, else read its record.

    Args:
        name: of the experiment, and of the record's file.
        profile: the reader's profile; a record stands in at its own profile only.
        compute: makes the rows (columns of numbers and short names).
        here: whether this machine has what `compute` needs.
        settings: what the rows depend on; a record made with others is not used.
        costly: prefer a record to computing here, except for `--fresh` and `--record`: for training runs.

    Returns:
        The rows, or None if they can neither be computed here nor read (or, with `--fresh`, may not be).

    Example:
        >>> recorded("toy", "laptop", lambda: pd.DataFrame({"x": [1]}), here=True, settings={}).rows["x"].item()
        1
    """
    path = project_root() / "book" / "records" / profile / f"{name}.json"
    if here and costly and not _is_asked_for(name, profile):
        found = recorded(name, profile, compute, False, settings)
        if found is not None:
            return found
    if here:
        before = dict(_loaded())
        rows = compute()
        if _is_asked_for(name, profile):
            used = {name: digest for name, digest in _loaded().items() if name not in before}
            _write(path, rows, settings, used or before)
        return Recorded(rows, "")
    if os.environ.get("CDE_FRESH") == "1":
        return None
    consulted.add(str(path.relative_to(project_root())))
    if not path.exists():
        return None
    record = json.loads(path.read_text(encoding="utf-8"))
    if record["settings"] != json.loads(json.dumps(settings)):
        return None
    changed = [
        module
        for module, digest in record["modules"].items()
        if module not in _TELLING and _module_hash(module) != digest
    ]
    flag = f" Since then {', '.join(changed)} changed; the record may be out of date." if changed else ""
    combined = content_hash(part for item in sorted(record["data"].items()) for part in item)
    data = f", from {len(record['data'])} collections (combined fingerprint {combined}; the record names each)"
    note = (
        f"Read from the record book/records/{profile}/{name}.json, not computed here: made {record['time']} "
        f"on {record['device']}, commit {record['commit'][:12]}{data if record['data'] else ''}.{flag}"
    )
    return Recorded(pd.DataFrame(record["rows"]), note)


def beside(name: str, profile: str) -> dict[str, Recorded]:
    """The records of an experiment at other profiles, to be drawn beside the reader's own numbers.

    Args:
        name: of the experiment.
        profile: the reader's, which is left out; so are those of the profile `smoke`.

    Returns:
        profile → its rows and where they come from; their settings are their own.

    Used by the chapter `table1`.

    Example:
        >>> beside("no such experiment", "laptop")
        {}
    """
    found = {}
    for path in sorted((project_root() / "book" / "records").glob(f"*/{name}.json")):
        other = path.parent.name
        if other not in (profile, "smoke"):
            settings = json.loads(path.read_text(encoding="utf-8"))["settings"]
            record = recorded(name, other, pd.DataFrame, False, settings)
            if record is not None:  # with --fresh no record is used
                found[other] = record
    return found


def _is_asked_for(name: str, profile: str) -> bool:
    """Whether `cde run --record` was asked for this record: for all of a page's, or for this one."""
    return os.environ.get("CDE_RECORD") in ("1", f"{profile}/{name}")


def _module_hash(module: str) -> str:
    return code_hash(Path(__file__).parent / module)


def _loaded() -> dict[str, str]:
    sources = sys.modules.get("cde.data.sources")
    return dict(sources.loaded) if sources is not None else {}


def _write(path: Path, rows: pd.DataFrame, settings: dict[str, Any], data: dict[str, str]) -> None:
    from cde.page import device, imported_modules

    found = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=project_root(), capture_output=True, text=True, check=False
    )
    record = {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": found.stdout.strip() or "unknown",
        "device": device(),
        "python": platform.python_version(),
        "settings": settings,
        "data": data,
        "modules": {module: _module_hash(module) for module in imported_modules() if module not in _TELLING},
        "rows": json.loads(rows.to_json(orient="records", double_precision=6)),
    }
    with atomic_path(path) as temporary:
        temporary.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")

"""The page *Reliability*: what was tried to break, how often, and what came of it.

Each attempt is a script in `tests/reliability`; what it counted lies in `book/reliability` as JSON,
with the time, the commit and the machine. The page shows the counts and says of none more than its
report does. What was found and mended is prose: `book/mended.md`.

Cost: reading a few small files.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from cde_book.markup import render
from cde_book.plots import table

__all__ = ["Report", "hashed_files", "read_reports", "reliability_page"]


@dataclass(frozen=True)
class Report:
    """What a script of `tests/reliability` counted."""

    what: str
    time: str
    commit: str
    device: str
    rows: list[dict[str, Any]]
    note: str = ""

    def sum(self, name: str) -> int:
        """The sum of a count over all rows."""
        return sum(row[name] for row in self.rows)

    @property
    def markup(self) -> str:
        """The counts as a table of HTML."""
        return table(pd.DataFrame(self.rows)).markup

    def by(self, name: str, outcome: str) -> str:
        """Outcomes counted by another name, as a table of HTML."""
        frame = pd.DataFrame(self.rows)
        return table(pd.crosstab(frame[name], frame[outcome]).rename_axis(columns=None)).markup


def read_reports(root: Path) -> dict[str, Report]:
    """The reports, by name."""
    found = {}
    for path in sorted((root / "book" / "reliability").glob("[!.]*.json")):
        told = json.loads(path.read_text(encoding="utf-8"))
        named = {name: told[name] for name in ("what", "time", "commit", "device", "rows")}
        found[path.stem] = Report(**named, note=told.get("note", ""))
    return found


def hashed_files(root: Path) -> Counter[str]:
    """How many files of each package the lock knows by their SHA-256."""
    files: Counter[str] = Counter()
    package = ""
    lock = root / "hashes.txt"
    for line in lock.read_text(encoding="utf-8").splitlines() if lock.exists() else ():
        if named := re.match(r"([\w.-]+)==", line):
            package = named[1]
        files[package] += line.count("--hash=sha256:")
    return files


def reliability_page(root: Path) -> str:
    """The page *Reliability*."""
    return render(
        "reliability.md.j2", reports=read_reports(root), files=hashed_files(root).values()
    )

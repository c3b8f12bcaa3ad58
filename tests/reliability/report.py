"""What a script of this folder counted, as a report, and its numbers on the page *Reliability*."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cde.hardware import describe
from cde.provenance import commit, now
from cde.storage import atomic_path

ROOT = Path(__file__).resolve().parents[2]


def write_report(path: Path, what: str, rows: Sequence[Mapping[str, Any]], **more: Any) -> None:
    """Write the rows with time, commit and machine, and then the page that reads them.

    Args:
        path: the file; the page reads those in `book/reliability`.
        what: what was counted, in a few words.
        rows: each has the same names.
        more: whatever else a reader of the file may need, such as the seed.
    """
    head, dirty = commit(apart_from="book/reliability*")
    report = {
        "what": what,
        "time": now(),
        "commit": head,
        "clean": not dirty,
        "device": describe(),
        **more,
        "rows": list(rows),
    }
    with atomic_path(path) as temporary:
        temporary.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    if path.resolve().parent == ROOT / "book" / "reliability":
        command = [sys.executable, str(ROOT / "benchmarks" / "pages.py"), "reliability"]
        subprocess.run(command, check=True)

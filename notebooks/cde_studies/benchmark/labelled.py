"""Labelled texts below `$CDE_DATA`: `labelled/<name>.jsonl[.gz]`, a text with its label a line.

Cost: reading the file, 0.1 s for 20,000 texts.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from cde.data.sources import data_folder
from cde.validation import unknown

__all__ = ["labelled_names", "load_labelled"]


def labelled_names() -> list[str]:
    """The sets of labelled texts that are at hand; none without `$CDE_DATA`."""
    return sorted(_files())


def load_labelled(name: str) -> pd.DataFrame:
    """Texts with their labels: columns text, label and split, all strings."""
    files = _files()
    if name not in files:
        raise ValueError(
            f"{unknown([name], files, 'set of labelled texts')}: they are looked for in "
            "$CDE_DATA/labelled/"
        )
    rows = pd.read_json(files[name], lines=True, dtype=False)
    if missing := {"text", "label"} - set(rows.columns):
        raise ValueError(f"{files[name]}: lines have no {' and no '.join(sorted(missing))}")
    if "split" not in rows:
        rows["split"] = "all"
    return rows[["text", "label", "split"]].astype(str)


def _files() -> dict[str, Path]:
    folder = data_folder()
    if folder is None:
        return {}
    found = sorted((folder / "labelled").glob("*.jsonl*"))
    return {path.name.split(".jsonl")[0]: path for path in found}

"""Text that is read from installed packages: where their files lie, what they are known by, and the
table that is kept of what was read.

Nothing of a package is imported or executed.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import io
import os
from collections.abc import Callable, Iterable
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import joblib
import pandas as pd
from filelock import FileLock

from cde.progress import progress
from cde.storage import end_with, read_sealed, remove_leftovers, write_sealed

__all__ = ["distribution_key", "kept_table", "package_folder", "read_in_processes"]


def package_folder(package: str) -> Path:
    """Where an installed package's files lie; it is not imported."""
    # find_spec of a top-level name looks the package up without running any of it
    specification = importlib.util.find_spec(package)
    if specification is None or not specification.submodule_search_locations:
        raise ModuleNotFoundError(f"{package!r} is not installed as a package with sources")
    return Path(next(iter(specification.submodule_search_locations)))


@cache
def distribution_key(package: str, distribution_name: str) -> str:
    """Name, version and a hash of the list of files of an installed package."""
    try:
        distribution = importlib.metadata.distribution(distribution_name)
    except importlib.metadata.PackageNotFoundError as error:
        raise ModuleNotFoundError(
            f"the collection reads the texts of {package!r}, which is not installed. "
            "Install what the book reads: pip install -c constraints.txt -e '.[book]'"
        ) from error
    record = distribution.read_text("RECORD") or ""
    # byte-compiled files come and go without the source changing
    lines = sorted(line for line in record.splitlines() if ".pyc" not in line)
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    return f"{package} {distribution.version} {digest}"


def read_in_processes(
    read: Callable[..., list[Any]], portions: list[tuple[Any, ...]], title: str, batch: int = 1
) -> Iterable[Any]:
    """What `read` finds in each portion, one after the other, on all cores."""
    # joblib's workers do not import the caller's main module again: a script needs no guard
    with joblib.parallel_config("loky", initializer=end_with, initargs=(os.getpid(),)):
        found = joblib.Parallel(n_jobs=-1, batch_size=batch, return_as="generator")(
            joblib.delayed(read)(*portion) for portion in portions
        )
    return [row for rows in progress(found, title, total=len(portions)) for row in rows]


@lru_cache(maxsize=2)  # one a collection
def kept_table(path: Path, extract: Callable[[], pd.DataFrame]) -> pd.DataFrame:
    """The table of a file, which is extracted and written first where the file is not there."""
    remove_leftovers(path.parent)
    if (data := read_sealed(path)) is None:
        with FileLock(f"{path}.lock"):  # a second process waits for the first one's work
            if (data := read_sealed(path)) is None:
                buffer = io.BytesIO()
                extract().to_parquet(buffer)
                data = buffer.getvalue()
                write_sealed(path, data)
    return pd.read_parquet(io.BytesIO(data))

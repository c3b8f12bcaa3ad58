"""Texts of installed packages as a table that is made once and kept.

A table that was made elsewhere, `<collection>.parquet.sealed` in `$CDE_DATA`, stands for them.
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
from cde.storage import read_sealed, remove_leftovers, unsealed, write_sealed
from cde_studies.workers import end_with


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


def carried_table(name: str) -> Path | None:
    """The table of a collection that was made elsewhere, where it lies in `$CDE_DATA`."""
    folder = os.environ.get("CDE_DATA")
    path = Path(folder).expanduser() / f"{name}.parquet.sealed" if folder else None
    return path if path is not None and path.is_file() else None


def _read_carried(path: Path, columns: tuple[str, ...]) -> pd.DataFrame:
    """A table of the user's own: where it is damaged, nothing else is read in its place."""
    written = path.read_bytes()
    try:
        frame = pd.read_parquet(io.BytesIO(unsealed(written)))
        if len(frame) and {*columns} <= {*frame}:
            return frame
    except (OSError, ValueError):  # as pyarrow's errors are
        pass
    raise ValueError(
        f"{path} is damaged, or is not a table that cde has made: copy it again; without it the "
        "installed packages are read"
    )


def digest_of_table(path: Path) -> str:
    """The sha256 of a table, which stands in the first line of its file."""
    with path.open("rb") as file:
        return file.readline(200).decode("ascii", "replace").strip()


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
def kept_table(
    path: Path, extract: Callable[[], pd.DataFrame], columns: tuple[str, ...]
) -> pd.DataFrame:
    """The table of a file, which is extracted and written first where the file is not there."""
    if path == carried_table(path.name.partition(".")[0]):
        return _read_carried(path, columns)
    remove_leftovers(path.parent)
    if (data := read_sealed(path)) is None:
        with FileLock(f"{path}.lock"):  # a second process waits for the first one's work
            if (data := read_sealed(path)) is None:
                buffer = io.BytesIO()
                extract().to_parquet(buffer)
                data = buffer.getvalue()
                write_sealed(path, data)
    return pd.read_parquet(io.BytesIO(data))

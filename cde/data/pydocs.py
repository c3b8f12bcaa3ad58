"""`pydocs`: the docstrings of installed Python packages as a retrieval collection.

Real text that every machine with the lock has, offline. A docstring's summary line is the query,
the rest is the document, the package is the domain. Sources are parsed with `ast`: nothing is
imported, nothing is executed. The lock alone fixes the text; the standard library is left out,
since it moves with the interpreter.

Steps:

1. Parse (all cores).
2. Keep docstrings that have a summary and a body.
3. Drop exact and near duplicates (MinHash over query and document, Jaccard 0.8).
4. Cache by the versions and file hashes of the packages.

Cost: 145 MB of source, 9,000 files; about 15 s cold and 0.2 s warm on 2 cores.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import io
import os
from collections.abc import Sequence
from functools import cache, lru_cache
from pathlib import Path

import joblib
import numpy as np
import pandas as pd
from filelock import FileLock

from cde.data.docstrings import Docstring, read_docstrings, source_files
from cde.data.duplicates import first_occurrences
from cde.data.sets import Pairs, RetrievalSet, Split, is_held_out
from cde.progress import progress
from cde.storage import cache_folder, content_hash, remove_leftovers
from cde.storage.damage import read_sealed, write_sealed
from cde.storage.processes import end_with

__all__ = ["HELD_OUT", "PACKAGES", "TRAINING", "load_pairs", "load_retrieval", "source_key"]

#: import name → distribution that carries it; the order is that of the collection.
PACKAGES = {
    "sympy": "sympy",
    "torch": "torch",
    "scipy": "scipy",
    "pandas": "pandas",
    "sklearn": "scikit-learn",
    "sqlalchemy": "SQLAlchemy",
    "transformers": "transformers",
    "polars": "polars",
    "matplotlib": "matplotlib",
    "networkx": "networkx",
    "numpy": "numpy",
    "huggingface_hub": "huggingface-hub",
    "fontTools": "fonttools",
    "mteb": "mteb",
    "IPython": "ipython",
    "narwhals": "narwhals",
    "datasets": "datasets",
    "sentence_transformers": "sentence-transformers",
    "pydantic": "pydantic",
    "tornado": "tornado",
    "accelerate": "accelerate",
    "sphinx": "Sphinx",
    "rich": "rich",
    "mpmath": "mpmath",
    "PIL": "pillow",
}
#: whole packages that no training ever sees: the out-of-domain corpora.
HELD_OUT = ("sympy", "networkx", "polars", "sqlalchemy")
#: the other packages, whose documents training may see
TRAINING = tuple(package for package in PACKAGES if package not in HELD_OUT)

_FORMAT = "5"  # raise it when what is extracted from a docstring changes


def source_key(packages: Sequence[str] = tuple(PACKAGES)) -> str:
    """A hash that changes when an installed file of one of the packages does; reads no source.

    It covers each distribution's version and its RECORD, which lists a hash of every file; a file
    that was edited by hand after the installation is not noticed.
    """
    return content_hash([_FORMAT, *(_distribution_key(package) for package in packages)])


@cache
def _distribution_key(package: str) -> str:
    try:
        distribution = importlib.metadata.distribution(PACKAGES[package])
    except importlib.metadata.PackageNotFoundError as error:
        raise ModuleNotFoundError(
            f"the collection pydocs reads the docstrings of {package!r}, which is not installed. "
            "Install the lock: pip install -c constraints.txt -e . (or run `make book`)"
        ) from error
    record = distribution.read_text("RECORD") or ""
    # byte-compiled files come and go without the source changing
    lines = sorted(line for line in record.splitlines() if ".pyc" not in line)
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    return f"{package} {distribution.version} {digest}"


def _extract(packages: Sequence[str]) -> pd.DataFrame:
    files = [file for package in packages for file in source_files(package)]
    portions = [files[start : start + 64] for start in range(0, len(files), 64)]
    # joblib's workers do not import the caller's main module again: a script needs no guard
    with joblib.parallel_config("loky", initializer=end_with, initargs=(os.getpid(),)):
        parsed = joblib.Parallel(n_jobs=-1, batch_size=1, return_as="generator")(
            joblib.delayed(read_docstrings)(portion) for portion in portions
        )
    title = f"pydocs: reading {len(files):,} source files"
    rows = [row for portion in progress(parsed, title, total=len(portions)) for row in portion]
    frame = pd.DataFrame(rows, columns=Docstring._fields)
    repeated = frame.groupby("id").cumcount()
    frame["id"] = frame["id"].where(repeated == 0, frame["id"] + "#" + (repeated + 1).astype(str))
    texts = (frame["query"] + " " + frame["document"]).tolist()
    frame["first"] = first_occurrences(texts, threshold=0.8)
    return frame


def _table() -> pd.DataFrame:
    """All docstrings, duplicates included; `first` is the row that a row repeats."""
    return _kept_table(cache_folder("pydocs") / f"{source_key()}.parquet.sealed")


@lru_cache(maxsize=1)
def _kept_table(path: Path) -> pd.DataFrame:
    remove_leftovers(path.parent)
    if (data := read_sealed(path)) is None:
        with FileLock(f"{path}.lock"):  # a second process waits for the first one's work
            if (data := read_sealed(path)) is None:
                buffer = io.BytesIO()
                _extract(list(PACKAGES)).to_parquet(buffer)
                data = buffer.getvalue()
                write_sealed(path, data)
    return pd.read_parquet(io.BytesIO(data))


def _is_test(frame: pd.DataFrame) -> pd.Series[bool]:
    """Stable split: by the hash of the text alone, so that a new release moves no old pair."""
    held = [is_held_out(document) for document in frame["document"]]
    return pd.Series(held, index=frame.index, dtype=bool)


def _select(packages: Sequence[str], deduplicate: bool) -> pd.DataFrame:
    if isinstance(packages, str):
        raise ValueError(
            f"packages must be a list of names, such as [{packages!r}]; one string was given"
        )
    unknown = [package for package in packages if package not in PACKAGES]
    if unknown:
        raise ValueError(f"pydocs has no package {unknown[0]!r}; it has {', '.join(PACKAGES)}")
    frame = _table()
    if deduplicate:
        frame = frame[frame["first"] == np.arange(len(frame))]
    return frame[frame["domain"].isin(packages)]


def load_pairs(
    packages: Sequence[str] = TRAINING,
    split: Split = "train",
    deduplicate: bool = True,
    name: str = "pydocs",
) -> Pairs:
    """Docstring pairs of the given packages.

    Args:
        packages: import names from `PACKAGES`; by default those that training may see.
        split: "train" (90 %), "test" (10 %, by a stable hash of the document) or "all".
        deduplicate: False keeps exact and near duplicates, to study them.
        name: what the result is called.

    Raises:
        ValueError: an unknown package or split.
        ModuleNotFoundError: a package of the collection is not installed.

    Example:
        >>> pairs = load_pairs(["rich"], split="all")
        >>> set(pairs.domains)
        {'rich'}
    """
    if split not in ("train", "test", "all"):
        raise ValueError(f"split must be 'train', 'test' or 'all'; it is {split!r}")
    frame = _select(packages, deduplicate)
    if split != "all":
        frame = frame[_is_test(frame) == (split == "test")]
    return Pairs(
        frame["query"].tolist(),
        frame["document"].tolist(),
        frame["domain"].tolist(),
        frame["id"].tolist(),
        name=name,
    )


def load_retrieval(packages: Sequence[str] = tuple(PACKAGES), name: str = "pydocs") -> RetrievalSet:
    """Docstring search: find the body that belongs to a summary, among all bodies of the packages.

    The corpus holds every document. Queries are those that no training sees: all of a held-out
    package, the test split of the others. Each query has one judged document, its own; others
    may answer it as well (the chapter `nearest_neighbors` counts them).

    Raises:
        ValueError, ModuleNotFoundError: as `load_pairs`.
    """
    frame = _select(packages, deduplicate=True)
    asked = frame[frame["domain"].isin(HELD_OUT) | _is_test(frame)]
    return RetrievalSet(
        document_ids=frame["id"].tolist(),
        documents=frame["document"].tolist(),
        query_ids=asked["id"].tolist(),
        queries=asked["query"].tolist(),
        qrels={identifier: {identifier: 1} for identifier in asked["id"]},
        name=name,
    )

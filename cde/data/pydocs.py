"""`pydocs`: the docstrings of installed Python packages as a retrieval collection.

Real text that every machine with the lock has, offline. A docstring's summary line is the query,
the rest is the document, the package is the domain. Sources are parsed with `ast`: nothing is
imported. Exact and near duplicates are dropped (MinHash, Broder 1997, over sets of three-word
shingles; Jaccard 0.8), and the table is cached by the versions and file hashes of the packages. The
standard library is left out, since it moves with the interpreter. A table that was made elsewhere,
`pydocs.parquet.sealed` in `$CDE_DATA`, stands for the packages where it lies.
"""

from __future__ import annotations

import ast
import contextlib
import gc
import hashlib
import importlib.metadata
import importlib.util
import io
import os
import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import joblib
import numpy as np
import pandas as pd
from filelock import FileLock
from numpy.typing import NDArray

from cde.data.sets import Pairs, RetrievalSet, Split, is_held_out
from cde.progress import progress
from cde.storage import (
    cache_folder,
    content_hash,
    end_with,
    read_sealed,
    remove_leftovers,
    unsealed,
    write_sealed,
)
from cde.validation import shown

__all__ = ["HELD_OUT", "PACKAGES", "TRAINING", "first_occurrences", "load_pairs", "load_retrieval"]


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
    data = unsealed(path.read_bytes())
    try:
        frame = pd.DataFrame() if data is None else pd.read_parquet(io.BytesIO(data))
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


#: texts that agree in a whole band of their signatures are compared; at Jaccard 0.8 and 64
#: permutations a pair escapes all sixteen bands with probability (1 − 0.8⁴)¹⁶ ≈ 0.02 %
BAND = 4


def minhash_signatures(
    texts: Sequence[str], permutations: int = 64, seed: int = 0
) -> NDArray[np.uint32]:
    """MinHash signatures of texts, `(n, permutations)` uint32; all ones for the shortest texts."""
    if len(texts) == 0:
        return np.zeros((0, permutations), np.uint32)
    # scikit-learn takes most of a second to import, and every command imports this module
    from sklearn.feature_extraction.text import HashingVectorizer

    shingles = HashingVectorizer(
        analyzer="word",
        ngram_range=(3, 3),
        token_pattern=r"\w+",
        binary=True,
        norm=None,
        alternate_sign=False,
        n_features=2**22,
        dtype=np.float32,
    ).transform(texts)
    values = shingles.indices.astype(np.uint64)
    starts = shingles.indptr[:-1]
    filled = np.diff(shingles.indptr) > 0
    signatures = np.full((len(texts), permutations), np.iinfo(np.uint32).max, np.uint32)
    generator = np.random.default_rng(seed)
    multipliers = generator.integers(1, 2**62, permutations, dtype=np.uint64) | np.uint64(1)
    offsets = generator.integers(0, 2**62, permutations, dtype=np.uint64)
    for column in range(permutations):
        # multiply-shift hashing: overflow is meant, the upper 32 bits are the hash
        hashed = (values * multipliers[column] + offsets[column]) >> np.uint64(32)
        signatures[filled, column] = np.minimum.reduceat(hashed, starts[filled])
    return signatures


def first_occurrences(
    texts: Sequence[str], threshold: float = 0.8, permutations: int = 64
) -> NDArray[np.int64]:
    """For each text, the position of the earliest text it duplicates, `(n,)`; its own if none."""
    if not 0 < threshold <= 1:
        raise ValueError(f"threshold must be above 0 and at most 1; it is {threshold}")
    if permutations < BAND or permutations % BAND:
        raise ValueError(f"permutations must be a multiple of {BAND}; it is {permutations}")
    signatures = minhash_signatures(texts, permutations)
    # exact duplicates first: it also settles texts that are shorter than one shingle
    folded = pd.Series([" ".join(text.split()).casefold() for text in texts], dtype=object)
    first = np.array(pd.Series(np.arange(len(texts))).groupby(folded).transform("min"))
    comparable = (signatures != np.iinfo(np.uint32).max).any(axis=1)
    for band in range(0, permutations, BAND):
        bytes_of_band = np.ascontiguousarray(signatures[:, band : band + BAND])
        keys = bytes_of_band.view(np.dtype((np.void, bytes_of_band.dtype.itemsize * BAND))).ravel()
        # within a bucket every text is compared with the bucket's earliest text
        _, earliest, bucket = np.unique(keys, return_index=True, return_inverse=True)
        candidate = earliest[bucket]
        agreement = np.zeros(len(texts))
        rows = np.flatnonzero(comparable & (candidate < first))
        agreement[rows] = (signatures[rows] == signatures[candidate[rows]]).mean(axis=1)
        match = agreement >= threshold
        first[match] = candidate[match]
    # a duplicate of a duplicate belongs to the group's earliest text
    while not np.array_equal(first, first[first]):
        first = first[first]
    return first


# Tests are not documentation; the others repeat one template hundreds of times over.
_SKIPPED_FOLDERS = frozenset({"tests", "test", "testing", "_tests"})
_SKIPPED_PARTS = {"transformers": {"models"}, "torch": {"_inductor", "_dynamo"}}
_DEFINITIONS = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


class SourceFile(NamedTuple):
    """A source file: the package it belongs to, its path, and its dotted module name."""

    package: str
    path: Path
    module: str


class Docstring(NamedTuple):
    """A docstring in two parts, summary (query) and rest (document); package; qualified name."""

    query: str
    document: str
    domain: str
    id: str


def source_files(package: str) -> list[SourceFile]:
    """The source files of an installed package, in a stable order, tests left out."""
    root = package_folder(package)
    files = []
    for folder, folders, names in os.walk(root):
        # cut branches before they are walked: a lookup in half of torch's folders is not free
        skipped = _SKIPPED_FOLDERS | _SKIPPED_PARTS.get(package, set())
        folders[:] = sorted(set(folders) - skipped)
        dotted = ".".join((package, *Path(folder).relative_to(root).parts))
        for name in sorted(names):
            if name.endswith(".py"):
                stem = name.removesuffix(".py")
                module = dotted if stem == "__init__" else f"{dotted}.{stem}"
                files.append(SourceFile(package, Path(folder) / name, module))
    return files


def _docstrings(file: SourceFile) -> list[Docstring]:
    package, path, module = file
    source = path.read_text(encoding="utf-8", errors="replace")
    if '"""' not in source and "'''" not in source:
        return []
    try:
        with warnings.catch_warnings():
            # an invalid escape in somebody's string is not ours to report, let alone to stop at
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return []  # templates and Python 2 leftovers that some packages ship
    docstrings = []
    # definitions inside functions are nobody's documentation, and most of the tree's nodes
    waiting: list[tuple[ast.AST, str]] = [(tree, module)]
    while waiting:
        node, name = waiting.pop()
        if isinstance(node, (*_DEFINITIONS, ast.Module)):
            pair = split_docstring(ast.get_docstring(node) or "")
            if pair is not None:
                docstrings.append(Docstring(*pair, package, name))
        if isinstance(node, (ast.Module, ast.ClassDef, ast.If, ast.Try)):
            children = [*node.body, *getattr(node, "orelse", ()), *getattr(node, "finalbody", ())]
            children += [child for one in getattr(node, "handlers", ()) for child in one.body]
            for child in reversed(children):
                inner = f"{name}.{child.name}" if isinstance(child, _DEFINITIONS) else name
                waiting.append((child, inner))
    return docstrings


def split_docstring(docstring: str) -> tuple[str, str] | None:
    """Split a docstring into its summary and the rest, or return None if either is too thin."""
    first, _, rest = docstring.strip().partition("\n")
    underline = rest.partition("\n")[0].strip()
    if underline and not set(underline) - set("-=~"):
        return None  # it begins with a section ("Parameters", underlined): there is no summary
    if first and first.rstrip()[-1] not in ".:?!" and rest and not rest.startswith("\n"):
        paragraph, _, remainder = docstring.strip().partition("\n\n")
        if paragraph.count("\n") <= 2:
            first, rest = paragraph, remainder
    query, document = " ".join(first.split()), rest.strip()
    if len(query.split()) < 3 or len(query) > 300 or len(document.split()) < 12:
        return None
    return query, document


def read_docstrings(files: Sequence[SourceFile]) -> list[Docstring]:
    """The usable docstrings of some files, in the order of the files and of their definitions."""
    was_on = gc.isenabled()
    # a syntax tree is many small objects and no cycle: collecting costs a third of the time
    gc.disable()
    try:
        return [row for file in files for row in _docstrings(file)]
    finally:
        if was_on:
            gc.enable()


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


def _installed() -> list[str]:
    found = []
    for package in PACKAGES:
        with contextlib.suppress(ModuleNotFoundError):
            distribution_key(package, PACKAGES[package])
            found.append(package)
    return found


def source_key(packages: Sequence[str] | None = None) -> str:
    """A hash that changes when the RECORD of one of the packages does, by default of all that are
    installed; reads no source.
    """
    if table := carried_table("pydocs"):
        return content_hash([_FORMAT, digest_of_table(table)])
    names = packages or _installed()
    return content_hash([_FORMAT, *(distribution_key(name, PACKAGES[name]) for name in names)])


def _extract() -> pd.DataFrame:
    files = [file for package in _installed() for file in source_files(package)]
    portions = [(files[start : start + 64],) for start in range(0, len(files), 64)]
    title = f"pydocs: reading {len(files):,} source files"
    rows = read_in_processes(read_docstrings, portions, title)
    frame = pd.DataFrame(rows, columns=Docstring._fields)
    repeated = frame.groupby("id").cumcount()
    frame["id"] = frame["id"].where(repeated == 0, frame["id"] + "#" + (repeated + 1).astype(str))
    texts = (frame["query"] + " " + frame["document"]).tolist()
    frame["first"] = first_occurrences(texts)
    return frame


def table() -> pd.DataFrame:
    """All docstrings of what is installed, duplicates included; `first` is the row that a row
    repeats.
    """
    return kept_table(table_path(), _extract, (*Docstring._fields, "first"))


def table_path() -> Path:
    """Where the table lies, once it is made."""
    kept = cache_folder("pydocs") / f"{source_key()}.parquet.sealed"
    return carried_table("pydocs") or kept


def _select(packages: Sequence[str], deduplicate: bool) -> pd.DataFrame:
    for package in packages:
        if package not in PACKAGES:
            raise ValueError(
                f"pydocs has no package {shown(package)}; it has {', '.join(PACKAGES)}"
            )
        if carried_table("pydocs") is None:
            distribution_key(package, PACKAGES[package])  # refuses what is not installed
    frame = table()
    if deduplicate:
        frame = frame[frame["first"] == np.arange(len(frame))]
    return frame[frame["domain"].isin(packages)]


def load_pairs(
    packages: Sequence[str] = TRAINING,
    split: Split = "train",
    deduplicate: bool = True,
    name: str = "pydocs",
) -> Pairs:
    """Docstring pairs of the given packages, by default of those that training may see."""
    frame = _select(packages, deduplicate)
    queries, documents, domains, ids = (frame[column].tolist() for column in Docstring._fields)
    return Pairs(queries, documents, domains, ids, name=name).split(split)


def load_retrieval(packages: Sequence[str] = tuple(PACKAGES), name: str = "pydocs") -> RetrievalSet:
    """Docstring search: find the body that belongs to a summary, among all bodies of the packages;
    queries are those that no training sees, all of a held-out package and the test split of others.
    """
    frame = _select(packages, deduplicate=True)
    asked = frame[frame["domain"].isin(HELD_OUT) | frame["document"].map(is_held_out)]
    return RetrievalSet(
        document_ids=frame["id"].tolist(),
        documents=frame["document"].tolist(),
        query_ids=asked["id"].tolist(),
        queries=asked["query"].tolist(),
        qrels={identifier: {identifier: 1} for identifier in asked["id"]},
        name=name,
    )

"""Text that is read from installed packages: where their files lie, what they are known by, which
texts repeat others, and the table that is kept of what was read.

Nothing of a package is imported or executed. Repeats are found by MinHash (Broder 1997): a text is
the set of its three-word shingles, and two texts agree in the smallest value of a random hash over
their sets with probability equal to the Jaccard similarity of the sets.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import io
import os
from collections.abc import Callable, Iterable, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
from filelock import FileLock
from numpy.typing import NDArray

from cde.progress import progress
from cde.storage import end_with, read_sealed, remove_leftovers, write_sealed

__all__ = ["first_occurrences"]


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


#: texts that agree in a whole band of their signatures are compared; at Jaccard 0.8 and 64
#: permutations a pair escapes all sixteen bands with probability (1 − 0.8⁴)¹⁶ ≈ 0.02 %
BAND = 4


def minhash_signatures(
    texts: Sequence[str], permutations: int = 64, words: int = 3, seed: int = 0
) -> NDArray[np.uint32]:
    """MinHash signatures of texts, `(n, permutations)` uint32; all ones for the shortest texts."""
    if len(texts) == 0:
        return np.zeros((0, permutations), np.uint32)
    # scikit-learn takes most of a second to import, and every command imports this module
    from sklearn.feature_extraction.text import HashingVectorizer

    shingles = HashingVectorizer(
        analyzer="word",
        ngram_range=(words, words),
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
    if not filled.any():
        return signatures
    generator = np.random.default_rng(seed)
    multipliers = generator.integers(1, 2**62, permutations, dtype=np.uint64) | np.uint64(1)
    offsets = generator.integers(0, 2**62, permutations, dtype=np.uint64)
    for column in range(permutations):
        # multiply-shift hashing: overflow is meant, the upper 32 bits are the hash
        hashed = ((values * multipliers[column] + offsets[column]) >> np.uint64(32)).astype(
            np.uint32
        )
        signatures[filled, column] = np.minimum.reduceat(hashed, starts[filled])
    return signatures


def first_occurrences(
    texts: Sequence[str], threshold: float = 0.8, permutations: int = 64, seed: int = 0
) -> NDArray[np.int64]:
    """For each text, the position of the earliest text it duplicates, `(n,)`; its own if none."""
    if not 0 < threshold <= 1:
        raise ValueError(f"threshold must be above 0 and at most 1; it is {threshold}")
    if permutations < BAND or permutations % BAND:
        raise ValueError(f"permutations must be a multiple of {BAND}; it is {permutations}")
    signatures = minhash_signatures(texts, permutations, seed=seed)
    first = np.arange(len(texts))
    # exact duplicates first: it also settles texts that are shorter than one shingle
    codes, _ = pd.factorize(
        np.array([" ".join(text.split()).casefold() for text in texts], dtype=object)
    )
    first = np.array(pd.Series(first).groupby(codes).transform("min"))
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

"""Near duplicates of texts: MinHash (Broder 1997) over sets of three-word shingles."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

#: texts that agree in a whole band of their signatures are compared; at Jaccard 0.8 and 64
#: permutations a pair escapes all sixteen bands with probability (1 − 0.8⁴)¹⁶ ≈ 0.02 %
_BAND = 4


def minhash_signatures(
    texts: Sequence[str], permutations: int = 64, seed: int = 0
) -> NDArray[np.uint32]:
    """MinHash signatures of texts, `(n, permutations)` uint32; all ones for the shortest texts."""
    if len(texts) == 0:
        return np.zeros((0, permutations), np.uint32)
    # scikit-learn takes most of a second to import, and a list of names needs no duplicates
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
    signatures = minhash_signatures(texts, permutations)
    # exact duplicates first: it also settles texts that are shorter than one shingle
    folded = pd.Series([" ".join(text.split()).casefold() for text in texts], dtype=object)
    first = np.array(pd.Series(np.arange(len(texts))).groupby(folded).transform("min"))
    comparable = (signatures != np.iinfo(np.uint32).max).any(axis=1)
    for band in range(0, permutations, _BAND):
        bytes_of_band = np.ascontiguousarray(signatures[:, band : band + _BAND])
        keys = bytes_of_band.view(np.dtype((np.void, bytes_of_band.dtype.itemsize * _BAND))).ravel()
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

"""Position sensitivity index: how much worse the worst group of queries is served than the best.

Queries are grouped by where the relevant part of their document stands; s is the mean score of each
group, and the index is 1 − min(s) / max(s) (Zeng et al. 2025, arXiv 2505.13950): 0 where all places
are served alike, 1 where nothing is found at one of them.

The least and the greatest of several noisy means differ by chance alone, so the index is above 0
for an encoder without any bias, the more so the fewer queries there are. What it would be without
sensitivity is therefore measured as well, on the same scores: with the places of a document's moved
passages shuffled, or with the natural groups of each document given to another.

Two kinds of group, with different meanings:

- *moved*: every query has a score in every group, its passage at each place in turn. The groups
  differ in nothing but the place.
- *natural*: a query has a score in one group alone, that of the place where its passage was
  written. Questions about what is said first may be other questions: the index holds both.

Power: of 200 queries whose scores at ten places are independent, four in five such samples show an
index of 0.3 (tested); places of one query are mostly alike, and then smaller indices are seen.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cde.intervals import Interval

#: how intervals are made
BASIC = "basic bootstrap of documents"

#: rounding of sums: two orders of the same numbers count as equal
_ROUNDING = 1e-9

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Sensitivity:
    """A position sensitivity index and what it would be without sensitivity."""

    index: float
    low: float
    high: float
    without: float
    p: float
    groups: Mapping[Hashable, float]
    limit: float
    documents: int


def position_sensitivity(
    scores: pd.DataFrame, documents: Sequence[Hashable], draws: int
) -> Sensitivity:
    """The index of a table of scores, a row for each query and a column for each group, its
    interval, and its value without sensitivity. The interval is the bootstrap over documents,
    reflected at the estimate (the "basic" one): noise raises the index of each draw, as it has
    raised that of the data.
    """
    values = scores.to_numpy(dtype=np.float64)
    owners, count = _owners(documents)
    means = np.nanmean(values, axis=0)
    index = index_of_means(means)
    generator = np.random.default_rng(0)
    shuffled = _dealt if np.isnan(values).any() else _moved
    shuffles = (shuffled(values, owners, count, generator) for _ in range(draws))
    by_chance = np.array([index_of_means(np.nanmean(one, axis=0)) for one in shuffles])
    drawn = _resampled(values, owners, count, draws, generator)
    below, above = np.nanpercentile(drawn, [2.5, 97.5])
    return Sensitivity(
        index=float(index),
        low=float(np.clip(2 * index - above, 0.0, index)),
        high=float(np.clip(2 * index - below, index, 1.0)),
        without=float(by_chance.mean()),
        p=float((1 + (by_chance >= index - _ROUNDING).sum()) / (1 + draws)),
        groups=dict(zip(scores.columns, means.tolist(), strict=True)),
        limit=float(np.percentile(by_chance, 95)),
        documents=count,
    )


def index_share(
    part: pd.DataFrame, whole: pd.DataFrame, documents: Sequence[Hashable], draws: int
) -> Interval:
    """The index of one table as a share of that of another on the same queries, 1 where the whole
    has none, with its percentile bootstrap interval.
    """
    (one, count), (all_of_it, _) = (_with_draws(each, documents, draws) for each in (part, whole))
    shares = np.divide(one, all_of_it, out=np.ones_like(all_of_it), where=~(all_of_it <= 0))
    low, high = np.nanpercentile(shares[1:], [2.5, 97.5])
    method = "percentile bootstrap of documents"
    return Interval(float(shares[0]), float(low), float(high), count, method)


def index_difference(
    one: pd.DataFrame,
    other: pd.DataFrame,
    documents: tuple[Sequence[Hashable], Sequence[Hashable]],
    draws: int,
) -> Interval:
    """The index of one table minus that of another, of other documents; the interval as above."""
    (first, n), (second, m) = (
        _with_draws(table, own, draws, seed)
        for seed, (table, own) in enumerate(zip((one, other), documents, strict=True))
    )
    apart = first - second
    below, above = np.nanpercentile(apart[1:], [2.5, 97.5])
    found = float(apart[0])
    return Interval(found, 2 * found - above, 2 * found - below, n + m, BASIC)


def _with_draws(
    table: pd.DataFrame, documents: Sequence[Hashable], draws: int, seed: int = 0
) -> tuple[Floats, int]:
    """The index of a table, then those of draws of its documents, and how many these are."""
    (owners, count), values = _owners(documents), table.to_numpy(dtype=np.float64)
    drawn = _resampled(values, owners, count, draws, np.random.default_rng(seed))
    return np.concatenate([[index_of_means(np.nanmean(values, axis=0))], drawn]), count


def _owners(documents: Sequence[Hashable]) -> tuple[NDArray[np.int64], int]:
    """The number of each query's document, and how many there are."""
    owners, names = pd.factorize(pd.Series(list(documents), dtype=object))
    if len(names) < 2:
        raise ValueError("queries of two documents or more are needed; all are of one")
    return owners, len(names)


def index_of_means(means: Floats) -> Floats:
    """1 − min / max along the last axis; 0 where nothing is found at all, NaN where a mean is."""
    best, worst = means.max(axis=-1), means.min(axis=-1)
    share = np.divide(worst, best, out=np.ones_like(best), where=~(best <= 0))
    return np.asarray(np.clip(1 - share, 0.0, 1.0))


def _moved(
    values: Floats, owners: NDArray[np.int64], count: int, generator: np.random.Generator
) -> Floats:
    """Every document's places in random order, the same for all of its queries."""
    order = generator.random((count, values.shape[1])).argsort(axis=1)
    return np.take_along_axis(values, order[owners], axis=1)


def _dealt(
    values: Floats, owners: NDArray[np.int64], count: int, generator: np.random.Generator
) -> Floats:
    """Every document's groups given, with a random turn, to another document with as many queries,
    which stay together: dealt by themselves they would look surer than they are.
    """
    sizes = np.bincount(owners, minlength=count)
    scored, placed = (
        np.argsort(np.lexsort((generator.random(count), sizes)).argsort()[owners], kind="stable")
        for _ in range(2)
    )
    size = sizes[owners[scored]]
    first = np.flatnonzero(np.diff(owners[scored], prepend=-1))
    start = np.repeat(first, size[first])
    turn = np.repeat(generator.integers(size[first]), size[first])
    turned = start + (np.arange(len(values)) - start + turn) % size
    score, group = np.nanmax(values, axis=1)[scored], np.isfinite(values).argmax(axis=1)[placed]
    dealt = np.full(values.shape, np.nan)
    dealt[np.arange(len(values)), group[turned]] = score
    return dealt


def _resampled(
    values: Floats,
    owners: NDArray[np.int64],
    count: int,
    draws: int,
    generator: np.random.Generator,
) -> Floats:
    """The index of each bootstrap sample of documents, `(draws,)`; NaN where a group is empty."""
    sums, sizes = np.zeros((2, count, values.shape[1]))
    np.add.at(sums, owners, np.nan_to_num(values))
    np.add.at(sizes, owners, np.isfinite(values))
    found = []
    for start in range(0, draws, 100):
        part = min(100, draws - start)
        weights = generator.multinomial(count, np.full(count, 1 / count), size=part).astype(float)
        with np.errstate(invalid="ignore"):
            found.append(index_of_means((weights @ sums) / (weights @ sizes)))
    return np.concatenate(found)

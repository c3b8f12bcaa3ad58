"""Intervals of what chapters measure beside means: shares, correlations, clusters of queries,
optima on a grid; and where the spread of a score comes from.

When every seed was tested on every collection, a difference y of seed i on collection j is
μ + aᵢ + bⱼ + eᵢⱼ, all independent and normal (the two-way random model without repeats). The mean
squares of rows, columns and rest give the variances (Searle, Casella and McCulloch 1992, §4.4). The
mean over all cells has the variance σ²ₐ/I + σ²_b/J + σ²ₑ/IJ, estimated by
(MSₐ + MS_b − MSₑ)/IJ, with Satterthwaite's degrees of freedom. Its interval speaks of other seeds
and of other collections at once, where one over seeds alone takes the collections as given.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from cde.intervals import (
    EQUAL,
    RESAMPLES,
    STUDENT,
    Interval,
    check_values,
    interval_text,
    number_text,
    run_interval,
)

__all__ = [
    "BINOMIAL",
    "Spread",
    "best_on_grid",
    "clustered_interval",
    "correlation_interval",
    "crossed_interval",
    "mean_and_interval",
    "mean_and_spread",
    "share_interval",
    "spread",
    "table_interval",
]

#: how the method of a share's interval begins
BINOMIAL = "exact binomial"


def share_interval(ahead: ArrayLike, over: str) -> Interval:
    """The share of a handful of things that are so, with the exact binomial interval.

    Args:
        ahead: `(n,)` bool, one for each thing.
        over: what they are, such as "collections".

    Example:
        >>> print(share_interval([True, True, False, True], "sets"))
        0.75 [0.19, 0.99]
    """
    from scipy import stats

    array = np.asarray(ahead, dtype=bool).ravel()
    if not len(array):
        raise ValueError(f"a share of no {over} has no interval")
    count = int(array.sum())
    exact = stats.binomtest(count, len(array)).proportion_ci(method="exact")
    low, high = float(exact.low), float(exact.high)
    return Interval(count / len(array), low, high, len(array), f"{BINOMIAL} over {over}")


def clustered_interval(values: ArrayLike, clusters: Sequence[Hashable], seed: int = 0) -> Interval:
    """Mean of values that come in clusters, with a percentile bootstrap of these, which `n` counts.
    Queries of one document, drawn one by one, would have too narrow an interval.

    Example:
        >>> interval = clustered_interval([1.0, 1.0, 2.0, 3.0], ["a", "a", "b", "c"])
        >>> interval.estimate, interval.n
        (1.75, 3)
    """
    array = np.asarray(values, dtype=np.float64).ravel()
    if len(array) != len(clusters):
        raise ValueError(f"each value needs a cluster; there are {len(array)} and {len(clusters)}")
    check_values(array, 2)
    numbers: dict[Hashable, int] = {}
    which = [numbers.setdefault(one, len(numbers)) for one in clusters]
    count = len(numbers)
    if count < 2:
        raise ValueError(f"two clusters or more are needed for an interval; there is {count}")
    mean = float(array.mean())
    if np.ptp(array) == 0:
        return Interval(float(array[0]), float(array[0]), float(array[0]), count, EQUAL)
    sums, sizes = (np.bincount(which, weights, count) for weights in (array, None))
    generator = np.random.default_rng(seed)
    drawn = []
    for start in range(0, RESAMPLES, 100):
        part = min(100, RESAMPLES - start)
        weights = generator.multinomial(count, np.full(count, 1 / count), size=part)
        drawn.append((weights @ sums) / (weights @ sizes))
    low, high = np.percentile(np.concatenate(drawn), [2.5, 97.5])
    return Interval(mean, float(low), float(high), count, "percentile bootstrap of clusters")


def best_on_grid(chosen: ArrayLike, grid: Sequence[float]) -> Interval:
    """Where an optimum lies that each training run has placed on one point of a grid.

    Student's interval over the runs, within the grid's limits, and never narrower than from the
    point below the least choice to the point above the greatest: runs that all choose one point
    have shown no more than that the optimum lies between its neighbours.

    Args:
        chosen: `(n,)`, each run's best point.
        grid: points in ascending order. The first and the last are limits within which the
            optimum must lie; a run cannot choose them.

    Example:
        >>> print(best_on_grid([2, 2, 2], grid=[0, 1, 2, 4, 8]))
        2.0 [1.0, 4.0]
    """
    points = np.asarray(chosen, dtype=np.float64).ravel()
    inside = [float(point) for point in grid[1:-1]]
    if len(points) < 1 or not np.isin(points, inside).all():
        raise ValueError(f"chosen must be one or more of {inside}; it is {points.tolist()}")
    low = float(grid[inside.index(points.min())])
    high = float(grid[inside.index(points.max()) + 2])
    if len(points) > 1:
        interval = run_interval(points)
        low = min(low, max(interval.low, float(grid[0])))
        high = max(high, min(interval.high, float(grid[-1])))
    method = f"{STUDENT} over runs, to the next points at least"
    return Interval(float(points.mean()), low, high, len(points), method)


def correlation_interval(
    x: ArrayLike, y: ArrayLike, method: Literal["pearson", "spearman"] = "pearson", seed: int = 0
) -> Interval:
    """Correlation of paired values with a percentile bootstrap interval over the pairs.

    Example:
        >>> correlation_interval([1, 2, 3, 4, 5], [2, 4, 6, 8, 10]).estimate
        1.0
    """
    from scipy import stats

    first = np.asarray(x, dtype=np.float64)
    second = np.asarray(y, dtype=np.float64)
    if first.shape != second.shape:
        raise ValueError(f"x and y must have one length; they have {len(first)}, {len(second)}")
    if method not in ("pearson", "spearman"):
        raise ValueError(f"method must be 'pearson' or 'spearman'; it is {method!r}")
    for name, values in (("x", first), ("y", second)):
        check_values(values, 4)
        if np.ptp(values) == 0:
            raise ValueError(f"all values of {name} are equal ({values[0]}): no correlation")
    rows = np.random.default_rng(seed).integers(0, len(first), (RESAMPLES, len(first)))
    samples = [np.concatenate([values[None], values[rows]]) for values in (first, second)]
    if method == "spearman":  # each draw is ranked anew
        samples = [stats.rankdata(values, axis=1) for values in samples]
    drawn = _rowwise_correlation(*samples)
    estimate, drawn = float(np.round(drawn[0], 12)), drawn[1:]
    # a draw of one point repeated has no correlation
    low, high = map(float, np.nanpercentile(drawn, [2.5, 97.5]))
    return Interval(estimate, low, high, len(first), f"{method}, percentile bootstrap over pairs")


def _rowwise_correlation(x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
    x = x - x.mean(axis=1, keepdims=True)
    y = y - y.mean(axis=1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray((x * y).sum(axis=1) / np.sqrt((x**2).sum(axis=1) * (y**2).sum(axis=1)))


def mean_and_spread(values: ArrayLike, digits: int = 2) -> str:
    """Numbers of training runs as text: mean ± standard deviation; one alone; none as nothing.

    Example:
        >>> mean_and_spread([1.0, 2.0, 3.0]), mean_and_spread([1.0])
        ('2.00 ± 1.00', '1.00')
    """
    numbers = np.asarray(values, dtype=np.float64).ravel()
    if len(numbers) < 2:
        return f"{numbers[0]:.{digits}f}" if len(numbers) else ""
    return f"{numbers.mean():.{digits}f} ± {numbers.std(ddof=1):.{digits}f}"


def mean_and_interval(values: ArrayLike, digits: int | None = None) -> str:
    """Numbers of training runs as text: mean and Student's interval; of a single one that it is so.
    NaN (not measured) is left out. Decimals are by default those that the interval's width bears.

    Example:
        >>> mean_and_interval([1.0, 2.0, 3.0]), mean_and_interval([1.0])
        ('2.0 [-0.5, 4.5]', '1 (one run)')
        >>> mean_and_interval([0.1, 0.2], digits=2)
        '0.15 [-0.49, 0.79]'
    """
    numbers = np.asarray(values, dtype=np.float64).ravel()
    numbers = numbers[~np.isnan(numbers)]
    if len(numbers) < 2:
        return f"{number_text(numbers[0], digits)} (one run)" if len(numbers) else "not measured"
    over = run_interval(numbers)
    return interval_text(over.estimate, over.low, over.high, digits)


class Spread(NamedTuple):
    """Standard deviations of the parts of a difference, in its unit.

    Attributes:
        seeds: of what a seed has on all collections.
        collections: of what a collection has with all seeds.
        rest: of what is neither: sampling of queries, and how a seed suits a collection.
    """

    seeds: float
    collections: float
    rest: float


def spread(values: ArrayLike) -> Spread:
    """The parts of the spread of a table of differences, `(seeds, collections)`.

    Example:
        >>> spread([[0.0, 1.0], [2.0, 3.0]])
        Spread(seeds=1.4142135623730951, collections=0.7071067811865476, rest=0.0)
    """
    table = _checked(values)
    seeds, collections = table.shape
    rows, columns, rest = _mean_squares(table)
    return Spread(
        float(np.sqrt(max(0.0, rows - rest) / collections)),
        float(np.sqrt(max(0.0, columns - rest) / seeds)),
        float(np.sqrt(rest)),
    )


def crossed_interval(values: ArrayLike) -> Interval:
    """Mean of a table of differences, `(seeds, collections)`, with an interval over others of both.

    Example:
        >>> print(crossed_interval([[1.0, 2.0, 3.0], [1.2, 1.8, 3.1], [0.9, 2.1, 2.8]]))
        2.0 [-0.4, 4.4]
    """
    from scipy import stats

    table = _checked(values)
    rows, columns, rest = _mean_squares(table)
    seeds, collections = table.shape
    combined = rows + columns - rest
    error = np.sqrt(max(combined, rows, columns) / table.size)
    if combined >= max(rows, columns):
        parts = rows**2 / (seeds - 1), columns**2 / (collections - 1)
        last = rest**2 / ((seeds - 1) * (collections - 1))
        freedom = combined**2 / (sum(parts) + last) if combined else None
    else:  # a source without spread of its own: the other alone
        freedom = float(seeds - 1 if rows >= columns else collections - 1)
    half = float(stats.t.ppf(0.975, freedom) * error) if freedom else 0.0
    mean = float(table.mean())
    method = f"random effects of {seeds} seeds and {collections} collections"
    return Interval(mean, mean - half, mean + half, min(table.shape), method, freedom)


def table_interval(values: ArrayLike | pd.Series[float]) -> Interval | None:
    """Mean of a table of differences, `(seeds, collections)` or a series by both, with the interval
    that its shape allows: over both, where there are two or more of each (`crossed_interval`);
    Student's over the one that there are two or more of; None for a single value, or none.

    Example:
        >>> print(table_interval([[1.0, 2.0, 3.0]]), table_interval([[1.0]]))
        2.0 [-0.5, 4.5] None
        >>> cells = pd.MultiIndex.from_product([(0, 1), (2, 3, 4)], names=["seed", "set"])
        >>> by_cell = pd.Series([1.0, 2.0, 3.0, 1.2, 1.8, 3.1], cells)
        >>> table_interval(by_cell) == crossed_interval([[1.0, 2.0, 3.0], [1.2, 1.8, 3.1]])
        True
    """
    if isinstance(values, pd.Series) and values.index.nlevels == 2:
        values = values.dropna().unstack()  # noqa: PD010
    table = np.asarray(values, dtype=np.float64)
    if table.ndim != 2:
        raise ValueError(f"values must be a table, (seeds, collections): {table.shape}")
    if table.size < 2:
        return None
    if min(table.shape) > 1:
        return crossed_interval(table)
    return run_interval(table, "seeds" if table.shape[1] == 1 else "collections")


def _checked(values: ArrayLike) -> np.ndarray:
    table = np.asarray(values, dtype=np.float64)
    if table.ndim != 2 or min(table.shape) < 2:
        raise ValueError(f"values must be (seeds, collections), two or more of each: {table.shape}")
    check_values(table.ravel(), 4)
    return table


def _mean_squares(table: np.ndarray) -> tuple[float, float, float]:
    seeds, collections = table.shape
    centred = table - table.mean()
    of_row, of_column = centred.mean(axis=1), centred.mean(axis=0)
    rest = centred - of_row[:, None] - of_column
    freedom = (seeds - 1) * (collections - 1)
    return (
        float(collections * (of_row**2).sum() / (seeds - 1)),
        float(seeds * (of_column**2).sum() / (collections - 1)),
        float((rest**2).sum() / freedom),
    )

"""Intervals of what chapters measure beside means: shares, correlations, clusters of queries,
optima on a grid, and equality within a tolerance.
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import scipy  # which loads its parts on first use
from numpy.typing import ArrayLike

from cde.intervals import (
    BINOMIAL,
    EQUAL,
    RESAMPLES,
    STUDENT,
    Interval,
    check_values,
    interval_text,
    number_text,
    run_interval,
)


def numbers_of(interval: Interval, name: str, ends: str = "") -> dict[str, float]:
    """An interval as columns of a row: its estimate by a name, and `low` and `high`."""
    return {name: interval.estimate, f"{ends}low": interval.low, f"{ends}high": interval.high}


def interval_of(
    row: Mapping[Hashable, Any],
    name: str,
    ends: str = "",
    n: str = "documents",
    method: str = "percentile bootstrap of documents",
) -> Interval:
    """The interval that `numbers_of` made columns of a row of; `n` is the column of its number."""
    return Interval(row[name], row[f"{ends}low"], row[f"{ends}high"], int(row[n]), method)


def mean_of_runs(values: ArrayLike, over: str = "runs") -> Interval:
    """As `run_interval`; of a single number that alone, which has no width."""
    numbers = np.asarray(values, dtype=np.float64).ravel()
    if len(numbers) > 1:
        return run_interval(numbers, over)
    one = float(numbers[0])
    return Interval(one, one, one, 1, f"one {over.removesuffix('s')}: no interval")


def share_interval(ahead: ArrayLike, over: str) -> Interval:
    """The share of a handful of things (`over`) that are so, with the exact binomial interval."""
    array = np.asarray(ahead, dtype=bool).ravel()
    if not len(array):
        raise ValueError(f"a share of no {over} has no interval")
    count = int(array.sum())
    exact = scipy.stats.binomtest(count, len(array)).proportion_ci(method="exact")
    low, high = float(exact.low), float(exact.high)
    return Interval(count / len(array), low, high, len(array), f"{BINOMIAL} over {over}")


def clustered_interval(values: ArrayLike, clusters: Sequence[Hashable]) -> Interval:
    """Mean of values that come in clusters, with a percentile bootstrap of these, which `n` counts:
    queries of one document, drawn one by one, would have too narrow an interval.
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
    generator = np.random.default_rng(0)
    drawn = []
    for start in range(0, RESAMPLES, 100):
        part = min(100, RESAMPLES - start)
        weights = generator.multinomial(count, np.full(count, 1 / count), size=part)
        drawn.append((weights @ sums) / (weights @ sizes))
    low, high = np.percentile(np.concatenate(drawn), [2.5, 97.5])
    return Interval(mean, float(low), float(high), count, "percentile bootstrap of clusters")


def best_on_grid(chosen: ArrayLike, grid: Sequence[float]) -> Interval:
    """Where an optimum lies that each training run has placed on one point of a grid, whose first
    and last points are limits that no run can choose.

    Student's interval over the runs, within the grid's limits, and never narrower than from the
    point below the least choice to the point above the greatest: runs that all choose one point
    have shown no more than that the optimum lies between its neighbours.

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
    x: ArrayLike, y: ArrayLike, method: Literal["pearson", "spearman"] = "pearson"
) -> Interval:
    """Correlation of paired values with a percentile bootstrap interval over the pairs."""
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
    rows = np.random.default_rng(0).integers(0, len(first), (RESAMPLES, len(first)))
    samples = [np.concatenate([values[None], values[rows]]) for values in (first, second)]
    if method == "spearman":  # each draw is ranked anew
        samples = [scipy.stats.rankdata(values, axis=1) for values in samples]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a draw of one point repeated has no correlation
        drawn = scipy.stats.pearsonr(*samples, axis=1).statistic
    estimate, drawn = float(np.round(drawn[0], 12)), drawn[1:]
    low, high = map(float, np.nanpercentile(drawn, [2.5, 97.5]))
    return Interval(estimate, low, high, len(first), f"{method}, percentile bootstrap over pairs")


def mean_and_spread(values: ArrayLike, digits: int = 2) -> str:
    """Numbers of training runs as text: mean ± standard deviation; one alone; none as nothing."""
    numbers = np.asarray(values, dtype=np.float64).ravel()
    if len(numbers) < 2:
        return f"{numbers[0]:.{digits}f}" if len(numbers) else ""
    return f"{numbers.mean():.{digits}f} ± {numbers.std(ddof=1):.{digits}f}"


def mean_and_interval(values: ArrayLike, digits: int | None = None) -> str:
    """Numbers of training runs as text: mean and Student's interval; of a single one that it is so.
    NaN (not measured) is left out. Decimals are by default those that the interval's width bears.
    """
    numbers = np.asarray(values, dtype=np.float64).ravel()
    numbers = numbers[~np.isnan(numbers)]
    if len(numbers) < 2:
        return f"{number_text(numbers[0], digits)} (one run)" if len(numbers) else "not measured"
    over = run_interval(numbers)
    return interval_text(over.estimate, over.low, over.high, digits)


def smallest_tolerance(interval: Interval) -> float:
    """The smallest tolerance within which both ends of such an interval lie with a power of 0.8,
    where the truth is in the middle.
    """
    quantile = scipy.stats.t.ppf([0.975, (1 + 0.8) / 2], interval.freedom)
    return interval.standard_error * float(quantile.sum())

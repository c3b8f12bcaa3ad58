"""Estimates with their uncertainty: bootstrap and Student's intervals, through SciPy.

Every number that tests a claim comes as an `Interval`: the estimate, a 95 % interval, n, and how it
was made. The percentile bootstrap resamples what the claim is about: queries for a mean over
queries, corpora for a correlation over corpora. Where there are only a few training runs,
resampling them gives intervals that are far too narrow: those are Student's.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = [
    "Interval",
    "best_on_grid",
    "clustered_interval",
    "correlation_interval",
    "interval_text",
    "mean_and_interval",
    "mean_and_spread",
    "mean_interval",
    "number_text",
    "run_interval",
    "share_interval",
]

_MOST_DECIMALS = 6


def number_text(value: float, digits: int | None = None) -> str:
    """A number with some digits behind the point, or with three significant ones."""
    # + 0.0, since a small negative number would be shown as -0.00
    return f"{value:.3g}" if digits is None else f"{round(value, digits) + 0.0:.{digits}f}"


def interval_text(estimate: float, low: float, high: float, digits: int | None = None) -> str:
    """An estimate and its bounds, all with the same decimals."""
    if digits is None:
        digits = _decimals(low, high)
    shown, lowest, highest = (number_text(one, digits) for one in (estimate, low, high))
    return f"{shown} [{lowest}, {highest}]"


def _decimals(low: float, high: float) -> int | None:
    half = (high - low) / 2
    if not 0 < half < math.inf:
        return None
    decimals = max(0, 1 - int(f"{half:.1e}".partition("e")[2]))
    bounds = [one for one in (low, high) if one]
    while decimals <= _MOST_DECIMALS and not all(round(one, decimals) for one in bounds):
        decimals += 1
    return decimals if decimals <= _MOST_DECIMALS else None


RESAMPLES = 2000
STUDENT = "Student's t"
BINOMIAL = "exact binomial"
_EQUAL = "all values equal"


@dataclass(frozen=True)
class Interval:
    """An estimate and its 95 % interval.

    Attributes:
        estimate, low, high: the estimate and its bounds, in the unit of what was measured.
        n: how many independent things were measured (queries, corpora, batches, seeds).
        method: how the interval was made.
        degrees: degrees of freedom of Student's t, where its method has them of its own; None for
            those of `method` and `n`.
    """

    estimate: float
    low: float
    high: float
    n: int
    method: str
    degrees: float | None = None

    @property
    def freedom(self) -> float:
        """Degrees of freedom of Student's t; infinite for the methods that have none."""
        if self.degrees is not None:
            return self.degrees
        return self.n - 1.0 if self.method.startswith(STUDENT) else float("inf")

    @property
    def doubt(self) -> float:
        """Degrees of freedom for a p-value: a bootstrap of few values is no surer than t."""
        return self.n - 1.0 if "bootstrap" in self.method and self.n > 1 else self.freedom

    @property
    def standard_error(self) -> float:
        """The estimate's standard error, as its interval has it: half its width over the quantile.

        Example:
            >>> round(Interval(2.0, 1.02, 2.98, 1000, "percentile bootstrap").standard_error, 3)
            0.5
        """

        from scipy import stats

        return (self.high - self.low) / 2 / float(stats.t.ppf(0.975, self.freedom))

    def __str__(self) -> str:
        return interval_text(self.estimate, self.low, self.high)


def mean_interval(values: ArrayLike, seed: int = 0) -> Interval:
    """Mean of independent values with a percentile bootstrap interval.

    Raises:
        ValueError: fewer than two values, or a value that is no number.

    Example:
        >>> interval = mean_interval([1.0, 2.0, 3.0])
        >>> interval.low < interval.estimate == 2.0 < interval.high
        True
    """

    from scipy import stats

    array = np.asarray(values, dtype=np.float64).ravel()
    _check(array, 2)
    if np.ptp(array) == 0:
        return Interval(float(array[0]), float(array[0]), float(array[0]), len(array), _EQUAL)
    interval = stats.bootstrap(
        (array,),
        np.mean,
        n_resamples=RESAMPLES,
        method="percentile",
        rng=np.random.default_rng(seed),
        batch=100,
    ).confidence_interval
    return Interval(
        float(array.mean()),
        float(interval.low),
        float(interval.high),
        len(array),
        "percentile bootstrap",
    )


def clustered_interval(values: ArrayLike, clusters: Sequence[Hashable], seed: int = 0) -> Interval:
    """Mean of values that come in clusters, with a percentile bootstrap of whole clusters.

    Queries of one document are not independent: drawn one by one, their interval is too narrow.

    Args:
        values: `(n,)`.
        clusters: the cluster of each, such as the id of the query's document.
        seed: of the draws.

    Returns:
        The mean over values; `n` counts clusters.

    Raises:
        ValueError: different lengths, fewer than two clusters, or a value that is no number.

    Example:
        >>> interval = clustered_interval([1.0, 1.0, 2.0, 3.0], ["a", "a", "b", "c"])
        >>> interval.estimate, interval.n
        (1.75, 3)
    """
    array = np.asarray(values, dtype=np.float64).ravel()
    if len(array) != len(clusters):
        raise ValueError(f"each value needs a cluster; there are {len(array)} and {len(clusters)}")
    _check(array, 2)
    numbers: dict[Hashable, int] = {}
    which = [numbers.setdefault(one, len(numbers)) for one in clusters]
    count = len(numbers)
    if count < 2:
        raise ValueError(f"two clusters or more are needed for an interval; there is {count}")
    mean = float(array.mean())
    if np.ptp(array) == 0:
        return Interval(float(array[0]), float(array[0]), float(array[0]), count, _EQUAL)
    sums, sizes = (np.bincount(which, weights, count) for weights in (array, None))
    generator = np.random.default_rng(seed)
    drawn = []
    for start in range(0, RESAMPLES, 100):
        part = min(100, RESAMPLES - start)
        weights = generator.multinomial(count, np.full(count, 1 / count), size=part)
        drawn.append((weights @ sums) / (weights @ sizes))
    low, high = np.percentile(np.concatenate(drawn), [2.5, 97.5])
    return Interval(mean, float(low), float(high), count, "percentile bootstrap of clusters")


def run_interval(values: ArrayLike, over: str = "runs") -> Interval:
    """Mean of a few independent training runs with Student's interval.

    Three seeds have 27 resamples, so that a bootstrap interval of them is at best their range,
    which holds the mean of all runs three times in four. Student's supposes that runs scatter
    normally.

    Args:
        values: `(n,)`, one a run (or one a pair of runs with the same seed, of a difference).
        over: what there is one value of, for the interval's method.

    Raises:
        ValueError: fewer than two values, or a value that is no number.

    Example:
        >>> print(run_interval([1.0, 2.0, 3.0]))
        2.0 [-0.5, 4.5]
    """

    from scipy import stats

    array = np.asarray(values, dtype=np.float64).ravel()
    _check(array, 2)
    half = float(stats.t.ppf(0.975, len(array) - 1) * stats.sem(array))
    mean = float(array.mean())
    return Interval(mean, mean - half, mean + half, len(array), f"{STUDENT} over {over}")


def share_interval(ahead: ArrayLike, over: str) -> Interval:
    """The share of a handful of things that are so, with the exact binomial interval.

    Args:
        ahead: `(n,)` bool, one for each thing.
        over: what they are, such as "collections".

    Raises:
        ValueError: no thing at all.

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
    return Interval(
        count / len(array),
        float(exact.low),
        float(exact.high),
        len(array),
        f"{BINOMIAL} over {over}",
    )


def best_on_grid(chosen: ArrayLike, grid: Sequence[float]) -> Interval:
    """Where an optimum lies that each training run has placed on one point of a grid.

    Student's interval over the runs, within the grid's limits, and never narrower than from the
    point below the least choice to the point above the greatest: runs that all choose one point
    have shown no more than that the optimum lies between its neighbours.

    Args:
        chosen: `(n,)`, each run's best point.
        grid: points in ascending order. The first and the last are limits within which the
            optimum must lie; a run cannot choose them.

    Raises:
        ValueError: no run, or a choice that is not inside the grid.

    Example:
        >>> print(best_on_grid([2, 2, 2], grid=[0, 1, 2, 4, 8]))
        2.0 [1.0, 4.0]
    """
    points, inside = (
        np.asarray(chosen, dtype=np.float64).ravel(),
        [float(point) for point in grid[1:-1]],
    )
    if len(points) < 1 or not np.isin(points, inside).all():
        raise ValueError(f"chosen must be one or more of {inside}; it is {points.tolist()}")
    low = float(grid[inside.index(points.min())])
    high = float(grid[inside.index(points.max()) + 2])
    if len(points) > 1:
        interval = run_interval(points)
        low, high = (
            min(low, max(interval.low, float(grid[0]))),
            max(high, min(interval.high, float(grid[-1]))),
        )
    return Interval(
        float(points.mean()),
        low,
        high,
        len(points),
        f"{STUDENT} over runs, to the next points at least",
    )


def correlation_interval(
    x: ArrayLike, y: ArrayLike, method: Literal["pearson", "spearman"] = "pearson", seed: int = 0
) -> Interval:
    """Correlation of paired values with a percentile bootstrap interval over the pairs.

    Raises:
        ValueError: fewer than four pairs, different lengths, a value that is no number, values that
            are all equal, or an unknown method.

    Example:
        >>> correlation_interval([1, 2, 3, 4, 5], [2, 4, 6, 8, 10]).estimate
        1.0
    """

    from scipy import stats

    first = np.asarray(x, dtype=np.float64)
    second = np.asarray(y, dtype=np.float64)
    if first.shape != second.shape:
        raise ValueError(
            f"x and y must have the same length; they have {len(first)} and {len(second)}"
        )
    if method not in ("pearson", "spearman"):
        raise ValueError(f"method must be 'pearson' or 'spearman'; it is {method!r}")
    for name, values in (("x", first), ("y", second)):
        _check(values, 4)
        if np.ptp(values) == 0:
            raise ValueError(
                f"all values of {name} are equal ({values[0]}): they have no correlation with "
                "anything"
            )
    rows = np.random.default_rng(seed).integers(0, len(first), (RESAMPLES, len(first)))
    samples = [np.concatenate([values[None], values[rows]]) for values in (first, second)]
    if method == "spearman":  # each draw is ranked anew
        samples = [stats.rankdata(values, axis=1) for values in samples]
    drawn = _rowwise_correlation(*samples)
    estimate, drawn = float(np.round(drawn[0], 12)), drawn[1:]
    low, high = np.nanpercentile(
        drawn, [2.5, 97.5]
    )  # a draw of one point repeated has no correlation
    return Interval(
        estimate, float(low), float(high), len(first), f"{method}, percentile bootstrap over pairs"
    )


def _rowwise_correlation(x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
    x = x - x.mean(axis=1, keepdims=True)
    y = y - y.mean(axis=1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray((x * y).sum(axis=1) / np.sqrt((x**2).sum(axis=1) * (y**2).sum(axis=1)))


def mean_and_spread(values: ArrayLike, digits: int = 2) -> str:
    """Numbers of training runs as text: mean ± standard deviation; a single one alone; none as
    nothing.

    Example:
        >>> mean_and_spread([1.0, 2.0, 3.0]), mean_and_spread([1.0])
        ('2.00 ± 1.00', '1.00')
    """
    numbers = np.asarray(values, dtype=np.float64).ravel()
    if len(numbers) < 2:
        return f"{numbers[0]:.{digits}f}" if len(numbers) else ""
    return f"{numbers.mean():.{digits}f} ± {numbers.std(ddof=1):.{digits}f}"


def mean_and_interval(values: ArrayLike, digits: int | None = None) -> str:
    """Numbers of training runs as text: mean and Student's interval; of a single one that it is
    one.

    Values that are no numbers (not measured) are left out.

    Args:
        values: value of each run.
        digits: digits behind the point, for columns of numbers that are compared; by default
            those that the interval's width bears; of one run three significant ones.

    Example:
        >>> mean_and_interval([1.0, 2.0, 3.0]), mean_and_interval([1.0]), mean_and_interval([0.1,
        ...     0.2], digits=2)
        ('2.0 [-0.5, 4.5]', '1 (one run)', '0.15 [-0.49, 0.79]')
    """
    numbers = np.asarray(values, dtype=np.float64).ravel()
    numbers = numbers[~np.isnan(numbers)]

    if len(numbers) < 2:
        return f"{number_text(numbers[0], digits)} (one run)" if len(numbers) else "not measured"
    over = run_interval(numbers)
    return interval_text(over.estimate, over.low, over.high, digits)


def _check(array: NDArray[np.float64], least: int) -> None:
    if len(array) < least:
        raise ValueError(
            f"{least} values or more are needed for an interval; there are {len(array)}"
        )
    if not np.isfinite(array).all():
        raise ValueError(
            f"{int((~np.isfinite(array)).sum())} of {len(array)} values are not numbers"
        )

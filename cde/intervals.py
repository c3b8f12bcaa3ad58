"""Estimates with their uncertainty, through SciPy, and the test of two systems on the same queries.

A number comes as an `Interval`: the estimate, a 95 % interval, n, and how it was made. The
percentile bootstrap resamples what the number is about: queries for a mean over queries. Where
there are only a few training runs, resampling them gives intervals that are far too narrow: those
are Student's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["Interval", "PairedTest", "mean_interval", "paired_test", "run_interval"]

#: draws of a bootstrap
RESAMPLES = 2000
#: how the method of Student's intervals begins
STUDENT = "Student's t"
_MOST_DECIMALS = 6
#: method of the interval of values that do not differ
EQUAL = "all values equal"


def number_text(value: float, digits: int | None = None) -> str:
    """A number with some digits behind the point, or with three significant ones."""
    # + 0.0, since a small negative number would be shown as -0.00
    return f"{value:.3g}" if digits is None else f"{round(value, digits) + 0.0:.{digits}f}"


def interval_text(estimate: float, low: float, high: float, digits: int | None = None) -> str:
    """An estimate and its bounds, all with the same decimals."""
    if digits is None:
        digits = _decimals(low, high)
    shown, lowest, highest = (number_text(value, digits) for value in (estimate, low, high))
    return f"{shown} [{lowest}, {highest}]"


def _decimals(low: float, high: float) -> int | None:
    half = (high - low) / 2
    if not 0 < half < math.inf:
        return None
    decimals = max(0, 1 - int(f"{half:.1e}".partition("e")[2]))
    bounds = [bound for bound in (low, high) if bound]
    while decimals <= _MOST_DECIMALS and not all(round(bound, decimals) for bound in bounds):
        decimals += 1
    return decimals if decimals <= _MOST_DECIMALS else None


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
    def standard_error(self) -> float:
        """The estimate's standard error: half its interval's width over the quantile."""
        from scipy import stats

        return (self.high - self.low) / 2 / float(stats.t.ppf(0.975, self.freedom))

    def __str__(self) -> str:
        return interval_text(self.estimate, self.low, self.high)


def mean_interval(values: ArrayLike, seed: int = 0) -> Interval:
    """Mean of independent values with a percentile bootstrap interval."""
    from scipy import stats

    array = np.asarray(values, dtype=np.float64).ravel()
    check_values(array, 2)
    if np.ptp(array) == 0:
        return Interval(float(array[0]), float(array[0]), float(array[0]), len(array), EQUAL)
    interval = stats.bootstrap(
        (array,),
        np.mean,
        n_resamples=RESAMPLES,
        method="percentile",
        rng=np.random.default_rng(seed),
        batch=100,
    ).confidence_interval
    low, high = float(interval.low), float(interval.high)
    return Interval(float(array.mean()), low, high, len(array), "percentile bootstrap")


def run_interval(values: ArrayLike, over: str = "runs") -> Interval:
    """Mean of a few independent training runs with Student's interval, which supposes that they
    scatter normally; a bootstrap interval of three is at best their range.
    """
    from scipy import stats

    array = np.asarray(values, dtype=np.float64).ravel()
    check_values(array, 2)
    half = float(stats.t.ppf(0.975, len(array) - 1) * stats.sem(array))
    mean = float(array.mean())
    return Interval(mean, mean - half, mean + half, len(array), f"{STUDENT} over {over}")


@dataclass(frozen=True)
class PairedTest:
    """The mean difference of two systems on the same queries, its interval, and a p-value."""

    difference: Interval
    p_value: float


def paired_test(first: Sequence[float], second: Sequence[float], seed: int = 0) -> PairedTest:
    """Compare two systems on the same queries: the mean of first − second, and a randomisation test
    of 9,999 swappings of the two scores of a query, two-sided (Smucker et al. 2007).
    """
    from scipy import stats

    if len(first) != len(second):
        raise ValueError(
            f"both systems need the same queries; they have {len(first)} and {len(second)} scores"
        )
    difference = np.asarray(first, dtype=np.float64) - np.asarray(second, dtype=np.float64)
    interval = mean_interval(difference, seed)
    if not difference.any():
        return PairedTest(interval, 1.0)
    result = stats.permutation_test(
        (difference,),
        np.mean,
        permutation_type="samples",
        n_resamples=9999,
        batch=200,
        rng=np.random.default_rng(seed),
        vectorized=True,
    )
    return PairedTest(interval, float(result.pvalue))


def check_values(array: NDArray[np.float64], least: int) -> None:
    """Refuse fewer values than an interval needs, and values that are not numbers."""
    if len(array) < least:
        raise ValueError(
            f"{least} values or more are needed for an interval; there are {len(array)}"
        )
    if not np.isfinite(array).all():
        raise ValueError(
            f"{int((~np.isfinite(array)).sum())} of {len(array)} values are not numbers"
        )

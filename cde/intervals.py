"""Estimates with their uncertainty, through SciPy, and the test of two systems on the same queries.

The percentile bootstrap resamples what a number is about: queries for a mean over queries.
Resampling a few training runs gives intervals that are far too narrow: those are Student's.

When every seed was tested on every collection, a difference y of seed i on collection j is μ + aᵢ +
bⱼ + eᵢⱼ, all independent and normal (the two-way random model without repeats). The mean squares of
rows, columns and rest give the variances (Searle, Casella and McCulloch 1992, §4.4). The mean over
all cells has the variance σ²ₐ/I + σ²_b/J + σ²ₑ/IJ, estimated by (MSₐ + MS_b − MSₑ)/IJ, with
Satterthwaite's degrees of freedom. Its interval speaks of other seeds and of other collections at
once.

A null result means something only beside the effect that would have been seen. With n runs whose
differences scatter with standard deviation s, Student's interval lies wholly above the bound with
probability 80 % if the truth lies δ above it, where δ solves P(T' > t) = 0.8. T' is noncentral t
with δ √n / s, and t the 97.5 % quantile with n − 1 degrees of freedom. With three runs δ is 3.3 s,
with five 1.7 s, with ten 1.0 s.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import scipy  # which loads its parts on first use
from numpy.typing import ArrayLike, NDArray

__all__ = [
    "Interval",
    "PairedTest",
    "crossed_interval",
    "holm",
    "mean_interval",
    "p_value",
    "paired_test",
    "run_interval",
    "smallest_effect",
    "table_interval",
]

#: draws of a bootstrap
RESAMPLES = 2000
#: how the method of Student's intervals begins
STUDENT = "Student's t"
#: how the method of a share's interval begins
BINOMIAL = "exact binomial"
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
        return (self.high - self.low) / 2 / float(scipy.stats.t.ppf(0.975, self.freedom))

    def __str__(self) -> str:
        return interval_text(self.estimate, self.low, self.high)


def mean_interval(values: ArrayLike, seed: int = 0) -> Interval:
    """Mean of independent values with a percentile bootstrap interval."""
    array = np.asarray(values, dtype=np.float64).ravel()
    check_values(array, 2)
    if np.ptp(array) == 0:
        return Interval(float(array[0]), float(array[0]), float(array[0]), len(array), EQUAL)
    interval = scipy.stats.bootstrap(
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
    """Mean of a few independent training runs, which scatter normally, with Student's interval."""
    array = np.asarray(values, dtype=np.float64).ravel()
    check_values(array, 2)
    half = float(scipy.stats.t.ppf(0.975, len(array) - 1) * scipy.stats.sem(array))
    mean = float(array.mean())
    return Interval(mean, mean - half, mean + half, len(array), f"{STUDENT} over {over}")


def crossed_interval(values: ArrayLike) -> Interval:
    """Mean of a table of differences, `(seeds, collections)`, with an interval over others of both.

    Example:
        >>> print(crossed_interval([[1.0, 2.0, 3.0], [1.2, 1.8, 3.1], [0.9, 2.1, 2.8]]))
        2.0 [-0.4, 4.4]
    """
    table = np.asarray(values, dtype=np.float64)
    if table.ndim != 2 or min(table.shape) < 2:
        raise ValueError(f"values must be (seeds, collections), two or more of each: {table.shape}")
    check_values(table.ravel(), 4)
    rows, columns, rest = mean_squares(table)
    seeds, collections = table.shape
    combined = rows + columns - rest
    error = np.sqrt(max(combined, rows, columns) / table.size)
    if combined >= max(rows, columns):
        parts = rows**2 / (seeds - 1), columns**2 / (collections - 1)
        last = rest**2 / ((seeds - 1) * (collections - 1))
        freedom = combined**2 / (sum(parts) + last) if combined else None
    else:  # a source without spread of its own: the other alone
        freedom = float(seeds - 1 if rows >= columns else collections - 1)
    half = float(scipy.stats.t.ppf(0.975, freedom) * error) if freedom else 0.0
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


def mean_squares(table: np.ndarray) -> tuple[float, float, float]:
    """Mean squares of rows, of columns and of the rest."""
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


def smallest_effect(interval: Interval, bound: float = 0.0, power: float = 0.8) -> float:
    """The smallest distance from a bound that such a measurement shows with this power: the whole
    interval lies beyond it. Infinite for a share of too few things to show anything. The bound is
    of no matter but for a share, whose scatter depends on it.

    Raises:
        ValueError: a power that is not between 0.025, with which it shows an effect of none, and 1.

    Example:
        >>> three = Interval(0.0, -2.48, 2.48, 3, "Student's t over runs")
        >>> round(smallest_effect(three), 2)
        3.26
    """
    if not 0.025 < power < 1:
        raise ValueError(f"power must be between 0.025 and 1; it is {power}")
    if interval.method.startswith(BINOMIAL):
        return _smallest_share(interval.n, bound, power)
    error, freedom = interval.standard_error, interval.freedom
    if error == 0:
        return 0.0
    needed = float(scipy.stats.t.ppf(0.975, freedom))
    if math.isinf(freedom):
        return error * (needed + float(scipy.stats.norm.ppf(power)))

    def lacking(noncentrality: float) -> float:
        return float(scipy.stats.nct.sf(needed, freedom, noncentrality)) - power

    return error * float(scipy.optimize.brentq(lacking, 0.0, 20 * needed))


def _smallest_share(n: int, bound: float, power: float) -> float:
    """The same for a share: counts whose exact interval lies above the bound, and how likely."""
    counts = np.arange(n + 1)
    low = np.where(counts > 0, scipy.stats.beta.ppf(0.025, counts, n - counts + 1), 0.0)
    enough = counts[low > bound]
    if not len(enough):
        return math.inf
    shares = np.linspace(bound, 1.0, 1001)
    shown = scipy.stats.binom.sf(enough[0] - 1, n, shares) >= power
    return float(shares[shown][0] - bound) if shown.any() else math.inf


def p_value(interval: Interval, bound: float) -> float:
    """Two-sided p-value of "the truth is the bound", as the interval's method has it.

    Example:
        >>> round(p_value(Interval(2.0, 0.0, 4.0, 3, "Student's t over runs"), 0.0), 3)
        0.05
    """
    if interval.method.startswith(BINOMIAL):
        count, share = round(interval.estimate * interval.n), min(max(bound, 0.0), 1.0)
        below = scipy.stats.binom.cdf(count, interval.n, share)
        above = scipy.stats.binom.sf(count - 1, interval.n, share)
        return float(min(2 * below, 2 * above, 1.0))  # as Clopper and Pearson's interval
    if interval.standard_error == 0:
        return 1.0 if interval.estimate == bound else 0.0
    t = abs(interval.estimate - bound) / interval.standard_error
    few = "bootstrap" in interval.method and interval.n > 1
    # a bootstrap of few values is no surer than t
    freedom = interval.n - 1.0 if few else interval.freedom
    return float(2 * scipy.stats.t.sf(t, freedom))


def holm(p_values: ArrayLike) -> NDArray[np.float64]:
    """p-values of many tests, in their order, after Holm's correction: below 5 % are those that
    stand at a family-wise error of 5 %.

    Example:
        >>> holm([0.01, 0.04, 0.03]).tolist()
        [0.03, 0.06, 0.06]
    """
    uncorrected = np.asarray(p_values, dtype=np.float64).ravel()
    order = np.argsort(uncorrected, kind="stable")
    raised = uncorrected[order] * np.arange(len(uncorrected), 0, -1)
    corrected = np.empty(len(uncorrected))
    corrected[order] = np.maximum.accumulate(raised).clip(max=1)
    return corrected


@dataclass(frozen=True)
class PairedTest:
    """The mean difference of two systems on the same queries, its interval, and a p-value."""

    difference: Interval
    p_value: float


def paired_test(first: Sequence[float], second: Sequence[float], seed: int = 0) -> PairedTest:
    """Compare two systems on the same queries: the mean of first − second, and a randomisation test
    of 9,999 swappings of the two scores of a query, or of all where there are fewer, two-sided
    (Smucker et al. 2007). Of two `Series` the labels must agree.
    """
    given: tuple[Any, Any] = first, second
    labels = [one.index for one in given if isinstance(one, pd.Series)]
    alike = len(labels) < 2 or labels[0].equals(labels[1])
    if len(first) != len(second) or not alike:
        raise ValueError(
            f"both systems need the same queries in one order; they have {len(first)} and "
            f"{len(second)} scores{'' if alike else ' of other labels'}"
        )
    difference = np.asarray(first, dtype=np.float64) - np.asarray(second, dtype=np.float64)
    interval = mean_interval(difference, seed)
    if not difference.any():
        return PairedTest(interval, 1.0)
    result = scipy.stats.permutation_test(
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
        said = f"{least} values or more are needed for an interval; there are {len(array)}"
        raise ValueError(said)
    if wrong := int((~np.isfinite(array)).sum()):
        raise ValueError(f"{wrong} of {len(array)} values are not numbers")

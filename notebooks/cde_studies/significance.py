"""What a measurement shows, and what it could have shown: p-values, many tests at once, power.

A null result means something only beside the effect that would have been seen. With n runs whose
differences scatter with standard deviation s, Student's interval lies wholly above the bound with
probability 80 % if the truth lies δ above it, where δ solves P(T' > t) = 0.8. T' is noncentral t
with δ √n / s, and t the 97.5 % quantile with n − 1 degrees of freedom. With three runs δ is 3.3 s,
with five 1.7 s, with ten 1.0 s; the estimate of s itself is off by a factor of up to six with three
runs (95 %), and of 1.8 with ten.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cde.intervals import Interval
from cde_studies.intervals import BINOMIAL

__all__ = ["false_discovery", "holm", "p_value", "smallest_effect", "smallest_tolerance"]


def smallest_effect(interval: Interval, bound: float = 0.0, power: float = 0.8) -> float:
    """The smallest distance from a bound that such a measurement shows with this power: the whole
    interval lies beyond it. Infinite for a share of too few things to show anything.

    Args:
        interval: a measurement; its width says how much it scatters.
        bound: the bound of a share, of which the scatter depends; of no matter otherwise.
        power: the probability.

    Example:
        >>> three = Interval(0.0, -2.48, 2.48, 3, "Student's t over runs")
        >>> round(smallest_effect(three), 2)
        3.26
        >>> four = Interval(1.0, 0.4, 1.0, 4, "exact binomial over collections")
        >>> smallest_effect(four, bound=0.5)
        inf
    """
    from scipy import optimize, stats

    if interval.method.startswith(BINOMIAL):
        return _smallest_share(interval.n, bound, power)
    error, freedom = interval.standard_error, interval.freedom
    if error == 0:
        return 0.0
    needed = float(stats.t.ppf(0.975, freedom))
    if math.isinf(freedom):
        return error * (needed + float(stats.norm.ppf(power)))

    def lacking(noncentrality: float) -> float:
        return float(stats.nct.sf(needed, freedom, noncentrality)) - power

    return error * float(optimize.brentq(lacking, 0.0, 20 * needed))


def smallest_tolerance(interval: Interval, power: float = 0.8) -> float:
    """The smallest tolerance within which such a measurement shows equality with this power.

    Both ends of the interval have to lie within it, when the truth is in the middle.

    Example:
        >>> round(smallest_tolerance(Interval(0.0, -1.96, 1.96, 500, "percentile bootstrap")), 2)
        3.24
    """
    from scipy import stats

    quantile = stats.t.ppf([0.975, (1 + power) / 2], interval.freedom)
    return interval.standard_error * float(quantile.sum())


def _smallest_share(n: int, bound: float, power: float) -> float:
    """The same for a share: counts whose exact interval lies above the bound, and how likely."""
    from scipy import stats

    counts = np.arange(n + 1)
    low = np.where(counts > 0, stats.beta.ppf(0.025, counts, n - counts + 1), 0.0)
    enough = counts[low > bound]
    if not len(enough):
        return math.inf
    shares = np.linspace(bound, 1.0, 1001)
    shown = stats.binom.sf(enough[0] - 1, n, shares) >= power
    return float(shares[shown][0] - bound) if shown.any() else math.inf


def p_value(interval: Interval, bound: float) -> float:
    """Two-sided p-value of "the truth is the bound", as the interval's method has it.

    Example:
        >>> round(p_value(Interval(2.0, 0.0, 4.0, 3, "Student's t over runs"), 0.0), 3)
        0.05
    """
    from scipy import stats

    if interval.method.startswith(BINOMIAL):
        count = round(interval.estimate * interval.n)
        return float(stats.binomtest(count, interval.n, min(max(bound, 0.0), 1.0)).pvalue)
    if interval.standard_error == 0:
        return 1.0 if interval.estimate == bound else 0.0
    t = abs(interval.estimate - bound) / interval.standard_error
    few = "bootstrap" in interval.method and interval.n > 1
    # a bootstrap of few values is no surer than t
    freedom = interval.n - 1.0 if few else interval.freedom
    return float(2 * stats.t.sf(t, freedom))


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


def false_discovery(p_values: ArrayLike) -> NDArray[np.float64]:
    """p-values of many tests, in their order, after Benjamini and Hochberg's correction.

    Of the tests that are below 0.05 afterwards, at most one in twenty is expected to be a false
    discovery. It holds for tests that are independent, or depend on each other positively.

    Example:
        >>> false_discovery([0.01, 0.04, 0.03]).tolist()
        [0.03, 0.04, 0.04]
    """
    from scipy import stats

    values = np.asarray(p_values, dtype=np.float64).ravel()
    return np.asarray(stats.false_discovery_control(values) if len(values) else values)

"""Tests: two systems on the same queries, and what remains of many tests at once, through SciPy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cde.intervals.estimates import Interval, mean_interval

__all__ = ["PairedTest", "false_discovery", "holm", "paired_test"]


@dataclass(frozen=True)
class PairedTest:
    """The mean difference of two systems on the same queries, its interval, and a p-value."""

    difference: Interval
    p_value: float


def paired_test(first: Sequence[float], second: Sequence[float], seed: int = 0) -> PairedTest:
    """Compare two systems on the same queries: mean of first − second, and a randomisation test.

    Under the null hypothesis each query's two scores may be swapped. The p-value is the share of
    9,999 random swappings whose mean difference is at least as large, two-sided (Smucker et al.
    2007). Where there are fewer swappings, it is the share of all of them.

    Raises:
        ValueError: different lengths, or fewer than two queries.

    Example:
        >>> paired_test([0.5, 0.6, 0.7], [0.5, 0.6, 0.7]).p_value
        1.0
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


def holm(p_values: ArrayLike) -> NDArray[np.float64]:
    """p-values of many tests after Holm's correction, in the order that they came in.

    Args:
        p_values: `(n,)`, between 0 and 1.

    Returns:
        `(n,)`, none above 1: below 5 % are those that stand at a family-wise error of 5 %.

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
    """p-values of many tests after Benjamini and Hochberg's correction, in their order.

    Of the tests that are below 0.05 afterwards, at most one in twenty is expected to be a false
    discovery. It holds for tests that are independent, or depend on each other positively.

    Args:
        p_values: `(n,)`, between 0 and 1.

    Example:
        >>> false_discovery([0.01, 0.04, 0.03]).tolist()
        [0.03, 0.04, 0.04]
    """

    from scipy import stats

    values = np.asarray(p_values, dtype=np.float64).ravel()
    return np.asarray(stats.false_discovery_control(values) if len(values) else values)

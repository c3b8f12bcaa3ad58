"""Bootstrap intervals and the paired test, against SciPy, by enumeration, and by simulation."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from cde.intervals import Interval, mean_interval, paired_test, run_interval, smallest_effect

VALUES = st.lists(st.floats(-100, 100), min_size=2, max_size=12)


@given(VALUES)
def test_the_estimate_is_the_mean_and_lies_within_its_interval(values: list[float]) -> None:
    interval = mean_interval(values)
    assert interval.estimate == pytest.approx(np.mean(values), abs=1e-9)
    slack = 1e-9 * (1 + abs(interval.estimate))
    assert min(values) - slack <= interval.low <= interval.estimate + slack
    assert interval.estimate - slack <= interval.high <= max(values) + slack
    assert interval.n == len(values)


def test_the_interval_moves_and_scales_with_the_values() -> None:
    values = np.random.default_rng(3).exponential(size=30)
    interval, moved = mean_interval(values), mean_interval(10 * values - 4)
    assert (moved.low, moved.high) == pytest.approx((10 * interval.low - 4, 10 * interval.high - 4))


def test_the_interval_is_the_same_for_one_seed_and_not_for_two() -> None:
    values = np.random.default_rng(3).exponential(size=30)
    assert mean_interval(values, seed=1) == mean_interval(values, seed=1)
    assert mean_interval(values, seed=1).low != mean_interval(values, seed=2).low


def test_the_interval_of_a_large_sample_is_the_normal_one() -> None:
    """1.96 standard errors either side, within a tenth."""
    values = np.random.default_rng(4).normal(2, 3, 2000)
    interval, error = mean_interval(values), values.std() / math.sqrt(2000)
    assert interval.low == pytest.approx(values.mean() - 1.96 * error, abs=0.2 * error)
    assert interval.high == pytest.approx(values.mean() + 1.96 * error, abs=0.2 * error)


def test_equal_values_have_an_interval_of_no_width() -> None:
    assert mean_interval([0.3] * 5) == Interval(0.3, 0.3, 0.3, 5, "all values equal")


def test_intervals_of_a_mean_cover_the_truth_about_as_often_as_they_say() -> None:
    """300 samples of 40: nominally 95 %, a little less on skewed values."""
    generator = np.random.default_rng(5)
    intervals = [mean_interval(generator.exponential(size=40), seed) for seed in range(300)]
    covered = np.mean([interval.low <= 1.0 <= interval.high for interval in intervals])
    assert 0.89 <= covered <= 0.985


@given(seed=st.integers(0, 99), n=st.integers(2, 40))
def test_swapping_the_systems_turns_the_difference_and_keeps_the_p_value(seed: int, n: int) -> None:
    first, second = np.random.default_rng(seed).normal(size=(2, n))
    there, back = paired_test(first, second), paired_test(second, first)
    assert back.p_value == pytest.approx(there.p_value, abs=2e-4)
    assert back.difference.estimate == pytest.approx(-there.difference.estimate)
    assert there.difference.estimate == pytest.approx((first - second).mean())
    assert 0 < there.p_value <= 1


@given(seed=st.integers(0, 99), n=st.integers(2, 9))
def test_few_queries_have_the_p_value_of_all_their_swappings(seed: int, n: int) -> None:
    """Counted here one by one: the share of the 2ⁿ swappings whose mean is at least as large."""
    first, second = np.random.default_rng(seed).normal(size=(2, n))
    difference = first - second
    means = [abs(np.mean(difference * signs)) for signs in itertools.product([1, -1], repeat=n)]
    expected = np.mean([mean >= abs(difference.mean()) - 1e-12 for mean in means])
    assert paired_test(first, second).p_value == pytest.approx(expected)


def test_systems_that_do_not_differ_are_called_different_as_often_as_the_level_says() -> None:
    """120 pairs of systems of one distribution: 5 % at 0.05, within 4 standard errors."""
    generator = np.random.default_rng(7)
    p_values = [paired_test(*generator.normal(size=(2, 12))).p_value for _ in range(120)]
    assert abs(np.mean(np.array(p_values) <= 0.05) - 0.05) < 4 * math.sqrt(0.05 * 0.95 / 120)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: mean_interval([1.0]), "2 values or more are needed for an interval; there are 1"),
        (lambda: paired_test([1.0], [2.0]), "2 values or more"),
        (lambda: mean_interval([1, math.nan, math.inf]), "2 of 3 values are not numbers"),
        (
            lambda: paired_test([1, 2], [1, 2, 3]),
            "same queries in one order; they have 2 and 3 scores",
        ),
        (
            lambda: paired_test(pd.Series({"q": 1.0, "r": 2.0}), pd.Series({"r": 1.0, "q": 2.0})),
            "same queries in one order; they have 2 and 2 scores of other labels",
        ),
        (lambda: smallest_effect(mean_interval([1, 2]), power=80), "between 0.025 and 1; it is 80"),
    ],
)
def test_what_is_no_sample_is_refused(call: Callable[[], object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        call()


@pytest.mark.parametrize(
    ("estimate", "low", "high", "text"),
    [
        (6.123456, 0.1, 12.3456, "6.1 [0.1, 12.3]"),
        (0.02164, -0.003, 0.04773, "0.022 [-0.003, 0.048]"),
        (12.34, 9.94, 15.7, "12.3 [9.9, 15.7]"),
        (12.34, 12.1, 12.6, "12.34 [12.10, 12.60]"),
        (1.0, 0.9, 1.1, "1.00 [0.90, 1.10]"),  # half the width is 0.1 and a bit, or less a bit
        (-1.0, -1.1, -0.9, "-1.00 [-1.10, -0.90]"),
        (1234.5, 1100.0, 1400.0, "1234 [1100, 1400]"),
        (2.0, 0.004, 4.0, "2.000 [0.004, 4.000]"),  # above nought, and said to be
        (-0.001, -1.0, 1.0, "0.0 [-1.0, 1.0]"),
        (0.5, 0.5, 0.5, "0.5 [0.5, 0.5]"),
        (1.5e-9, 1e-9, 2e-9, "1.5e-09 [1e-09, 2e-09]"),
    ],
)
def test_an_interval_reads_as_estimate_and_bounds_to_the_digits_that_it_is_sure_of(
    estimate: float, low: float, high: float, text: str
) -> None:
    assert str(Interval(estimate, low, high, 9, "x")) == text


@pytest.mark.parametrize("n", [2, 3, 5])
def test_the_interval_of_a_few_runs_is_students_and_covers_as_often_as_it_says(n: int) -> None:
    draws = np.random.default_rng(0).normal(3.0, 2.0, (2000, n))
    intervals = [run_interval(draw) for draw in draws]
    peer = stats.ttest_1samp(draws, 0, axis=1).confidence_interval(0.95)
    np.testing.assert_allclose([one.low for one in intervals], peer.low)
    np.testing.assert_allclose([one.high for one in intervals], peer.high)
    covered = np.mean([one.low <= 3.0 <= one.high for one in intervals])
    assert abs(covered - 0.95) < 4 * math.sqrt(0.95 * 0.05 / 2000)

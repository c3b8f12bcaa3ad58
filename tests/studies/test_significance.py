"""Power, p-values and corrections of many tests, against simulation and SciPy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from scipy import stats

from cde.intervals import Interval, holm, p_value, run_interval, smallest_effect
from cde_studies.intervals import share_interval, smallest_tolerance


@pytest.mark.parametrize("n", [3, 5, 12])
def test_the_smallest_effect_is_shown_in_four_of_five_experiments(n: int) -> None:
    """Runs of known scatter, drawn with a true mean at the smallest effect."""
    half = float(stats.t.ppf(0.975, n - 1)) / math.sqrt(n)
    effect = smallest_effect(Interval(0.0, -half, half, n, "Student's t over runs"))
    draws = np.random.default_rng(n).normal(effect, 1.0, (20_000, n))
    error = draws.std(axis=1, ddof=1) / math.sqrt(n)
    shown = draws.mean(axis=1) - stats.t.ppf(0.975, n - 1) * error > 0
    assert shown.mean() == pytest.approx(0.8, abs=0.01)


def test_many_values_need_2_8_standard_errors() -> None:
    interval = Interval(5.0, 5 - 1.96, 5 + 1.96, 1000, "percentile bootstrap")
    assert smallest_effect(interval) == pytest.approx(2.80, abs=0.005)
    assert smallest_effect(Interval(1, 1, 1, 5, "all values equal")) == 0


def test_the_smallest_share_is_that_of_the_exact_interval() -> None:
    assert math.isinf(smallest_effect(share_interval([True] * 5, "sets"), bound=0.5))
    effect = smallest_effect(share_interval([True] * 20, "sets"), bound=0.5)
    drawn = np.random.default_rng(0).binomial(20, 0.5 + effect, 20_000)
    low = stats.beta.ppf(0.025, drawn, 20 - drawn + 1)
    assert (low > 0.5).mean() >= 0.79
    # and a share that is a little smaller is shown less often: 15 of 20 are needed
    assert stats.beta.ppf(0.025, 15, 6) > 0.5 > stats.beta.ppf(0.025, 14, 7)
    for share, enough in ((0.5 + effect, True), (0.5 + effect - 0.001, False)):
        assert (stats.binom.sf(14, 20, share) >= 0.8) == enough


def test_the_smallest_tolerance_is_shown_in_four_of_five_experiments() -> None:
    half = float(stats.t.ppf(0.975, 9)) / math.sqrt(10)
    tolerance = smallest_tolerance(Interval(0.0, -half, half, 10, "Student's t over runs"))
    draws = np.random.default_rng(1).normal(0.0, 1.0, (20_000, 10))
    reach = stats.t.ppf(0.975, 9) * draws.std(axis=1, ddof=1) / math.sqrt(10)
    inside = np.abs(draws.mean(axis=1)) + reach <= tolerance
    assert inside.mean() == pytest.approx(0.8, abs=0.08)


def test_p_values_are_those_of_scipy() -> None:
    runs = [1.2, 0.4, 2.2, 1.0]
    expected = stats.ttest_1samp(runs, 0.25).pvalue
    assert p_value(run_interval(runs), 0.25) == pytest.approx(expected)
    ahead = [True] * 7 + [False]
    assert p_value(share_interval(ahead, "sets"), 0.5) == pytest.approx(
        stats.binomtest(7, 8).pvalue
    )


@given(st.integers(1, 60), st.data(), st.floats(0.01, 0.99))
def test_a_share_is_shown_by_its_interval_where_its_p_value_is_below_5_per_cent(
    n: int, data: st.DataObject, bound: float
) -> None:
    count = data.draw(st.integers(0, n))
    interval = share_interval([place < count for place in range(n)], "sets")
    p, outside = p_value(interval, bound), not interval.low <= bound <= interval.high
    assume(abs(p - 0.05) > 1e-9)
    assert outside == (p < 0.05)


def test_a_bootstrap_of_few_values_is_no_surer_than_students() -> None:
    few, many = (Interval(2.0, 0.04, 3.96, n, "percentile bootstrap") for n in (4, 100_000))
    assert p_value(few, 0.0) == pytest.approx(2 * stats.t.sf(2.0, 3), rel=1e-3)
    assert p_value(many, 0.0) == pytest.approx(2 * stats.norm.sf(2.0), rel=1e-3)


@example([0.01, 0.03, 0.02])  # stands as a whole, and each three times as large would not
@given(st.lists(st.floats(0, 0.1) | st.floats(0, 1), min_size=1, max_size=12))
def test_holms_correction_rejects_what_the_step_down_procedure_rejects(
    p_values: list[float],
) -> None:
    corrected = holm(p_values)
    standing = set()
    for step, place in enumerate(sorted(range(len(p_values)), key=lambda one: p_values[one])):
        if p_values[place] * (len(p_values) - step) >= 0.05:
            break
        standing.add(place)
    assert set(np.flatnonzero(corrected < 0.05)) == standing
    # a larger p-value is never made the smaller one
    assert (np.diff(corrected[np.argsort(p_values, kind="stable")]) >= 0).all()
    assert all(corrected >= np.asarray(p_values) - 1e-12)
    assert corrected.max() <= 1

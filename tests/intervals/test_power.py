"""Power, p-values and sources of spread, against simulation, SciPy and known small answers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from cde.intervals import (
    Interval,
    crossed_interval,
    false_discovery,
    p_value,
    run_interval,
    share_interval,
    smallest_effect,
    smallest_tolerance,
    spread,
    table_interval,
)


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
    assert p_value(share_interval(ahead, "sets"), 0.5) == stats.binomtest(7, 8).pvalue


def test_a_bootstrap_of_few_values_is_no_surer_than_students() -> None:
    few, many = (Interval(2.0, 0.04, 3.96, n, "percentile bootstrap") for n in (4, 100_000))
    assert p_value(few, 0.0) == pytest.approx(2 * stats.t.sf(2.0, 3), rel=1e-3)
    assert p_value(many, 0.0) == pytest.approx(2 * stats.norm.sf(2.0), rel=1e-3)


def test_a_bound_on_the_edge_of_an_interval_has_a_p_value_of_five_per_cent() -> None:
    interval = run_interval([1.0, 2.0, 4.0])
    assert p_value(interval, interval.low) == pytest.approx(0.05)
    assert p_value(interval, interval.high) == pytest.approx(0.05)


def test_false_discoveries_stay_below_their_share() -> None:
    """Of what is called a discovery at 5 %, at most one in twenty is false, in the mean."""
    generator = np.random.default_rng(3)
    shares = []
    for _ in range(400):
        effect = np.r_[np.zeros(60), np.full(40, 3.5)]
        p = 2 * stats.norm.sf(np.abs(generator.normal(effect)))
        called = false_discovery(p) <= 0.05
        shares.append(called[:60].sum() / max(1, called.sum()))
    assert np.mean(shares) <= 0.05


def table(
    generator: np.random.Generator, shape: tuple[int, int], *parts: float
) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    seeds, collections, rest = parts
    return (
        generator.normal(0, seeds, (shape[0], 1))
        + generator.normal(0, collections, (1, shape[1]))
        + generator.normal(0, rest, shape)
    )


def test_the_parts_of_a_spread_are_found_again() -> None:
    generator = np.random.default_rng(5)
    parts = np.array([spread(table(generator, (30, 40), 1.0, 2.0, 0.5)) for _ in range(60)])
    assert (parts**2).mean(axis=0) == pytest.approx([1.0, 4.0, 0.25], rel=0.12)


def test_a_small_spread_by_hand() -> None:
    """Row means ½ and 3½, column means 1 and 3, and ± ½ that is neither: mean squares 9, 4 and 1."""
    assert spread([[0.0, 1.0], [2.0, 5.0]]) == pytest.approx((2.0, 1.5**0.5, 1.0))
    # two rows of three: the rest has the freedom of (2 − 1) (3 − 1)
    rows = [[0.0, 0.0, 0.0], [1.0, -1.0, 0.0]]
    assert spread(rows) == pytest.approx((0.0, 0.0, 0.5**0.5))


@pytest.mark.parametrize("parts", [(1.0, 1.0, 1.0), (0.2, 2.0, 0.5), (0.0, 0.0, 1.0)])
def test_crossed_intervals_hold_the_truth_at_least_as_often_as_they_say(
    parts: tuple[float, float, float],
) -> None:
    generator = np.random.default_rng(7)
    intervals = [crossed_interval(table(generator, (4, 8), *parts)) for _ in range(1500)]
    assert np.mean([one.low <= 0 <= one.high for one in intervals]) > 0.93


def test_crossed_intervals_are_no_wider_than_they_need_be() -> None:
    """Where rows and columns tell little, their mean squares are made of the rest: once, not twice."""
    generator, parts, shape = np.random.default_rng(9), (0.2, 0.2, 2.0), (30, 40)
    widths = [crossed_interval(table(generator, shape, *parts)) for _ in range(200)]
    half = np.sqrt(np.mean([((one.high - one.low) / 2 / 1.96) ** 2 for one in widths]))
    of_the_mean = np.sqrt(0.2**2 / 30 + 0.2**2 / 40 + 2.0**2 / 1200)
    assert half == pytest.approx(of_the_mean, rel=0.15)


def test_a_crossed_interval_of_no_spread_between_collections_is_that_over_seeds() -> None:
    seeds = np.array([1.0, 2.0, 4.0])
    crossed = crossed_interval(np.repeat(seeds[:, None], 6, axis=1))
    over_seeds = run_interval(seeds)
    assert (crossed.low, crossed.high) == pytest.approx((over_seeds.low, over_seeds.high))
    # and doubts nothing less: p-values and power take its degrees of freedom, too
    for bound in (0.0, 0.3, -2.0):
        assert p_value(crossed, bound) == pytest.approx(p_value(over_seeds, bound))
    assert smallest_effect(crossed) == pytest.approx(smallest_effect(over_seeds))


def test_a_crossed_interval_s_end_has_a_p_value_of_five_percent() -> None:
    values = table(np.random.default_rng(3), (4, 8), 0.5, 0.5, 1.0)
    crossed = crossed_interval(values)
    assert [p_value(crossed, end) for end in (crossed.low, crossed.high)] == pytest.approx(
        [0.05] * 2
    )
    far = crossed.low - (crossed.high - crossed.low)
    t = (crossed.estimate - far) / crossed.standard_error
    assert p_value(crossed, far) > 3 * 2 * stats.norm.sf(t), "few seeds: no normal tail"
    assert crossed_interval(np.ones((2, 3))).high == 1.0


def test_a_table_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="two or more of each"):
        spread([[1.0, 2.0]])
    with pytest.raises(ValueError, match="1 of 4 values are no numbers"):
        crossed_interval([[1.0, 2.0], [float("nan"), 1.0]])


def test_a_table_has_the_interval_that_its_shape_allows() -> None:
    values = np.random.default_rng(0).normal(size=(3, 5))
    assert table_interval(values) == crossed_interval(values)
    row, column = table_interval(values[:1]), table_interval(values[:, :1])
    assert row == run_interval(values[0], "collections")
    assert column == run_interval(values[:, 0], "seeds")
    assert table_interval(values[:1, :1]) is None and table_interval(values[:, :0]) is None
    with pytest.raises(ValueError, match="a table"):
        table_interval(values[0])
    with pytest.raises(ValueError, match="are not numbers"):
        table_interval([[1.0, float("nan")]])

"""Intervals of correlations, shares, clusters and optima: against SciPy and simulation."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from cde.intervals import (
    crossed_interval,
    mean_interval,
    mean_squares,
    p_value,
    run_interval,
    smallest_effect,
    table_interval,
)
from cde_studies.intervals import (
    best_on_grid,
    clustered_interval,
    correlation_interval,
    mean_and_spread,
    share_interval,
)


@pytest.mark.parametrize("method", ["pearson", "spearman"])
@given(seed=st.integers(0, 999), n=st.integers(4, 20), ties=st.booleans())
def test_correlations_are_scipys(method: str, seed: int, n: int, ties: bool) -> None:
    x, y = np.random.default_rng(seed).normal(size=(2, n))
    if ties:
        x = np.round(x)
        x[0] += 5  # never all equal
    peer = {"pearson": stats.pearsonr, "spearman": stats.spearmanr}[method]
    interval = correlation_interval(x, y, method)  # type: ignore[arg-type]
    assert interval.estimate == pytest.approx(peer(x, y).statistic, abs=1e-9)
    assert -1 - 1e-9 <= interval.low <= interval.high <= 1 + 1e-9
    assert interval.n == n


def test_rank_correlation_does_not_change_under_increasing_maps() -> None:
    x, y = np.random.default_rng(0).normal(size=(2, 20))
    ranks = correlation_interval(x, y, "spearman")
    assert correlation_interval(np.exp(x), y**3, "spearman") == ranks


@pytest.mark.parametrize("method", ["pearson", "spearman"])
def test_intervals_of_a_correlation_cover_the_truth_about_as_often_as_they_say(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """300 samples of 50 normal pairs of correlation 0.5 (rank correlation 6/π · arcsin 0.25)."""
    monkeypatch.setattr("cde_studies.intervals.RESAMPLES", 400)  # few, for many samples
    generator = np.random.default_rng(6)
    truth = {"pearson": 0.5, "spearman": 6 / math.pi * math.asin(0.25)}[method]
    covered = []
    for _ in range(300):
        x, y = generator.multivariate_normal([0, 0], [[1, 0.5], [0.5, 1]], 50).T
        interval = correlation_interval(x, y, method)  # type: ignore[arg-type]
        covered.append(interval.low <= truth <= interval.high)
    assert 0.89 <= np.mean(covered) <= 0.985


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_pairs_that_say_nothing_of_a_correlation_are_refused() -> None:
    """A verdict must not rest on an interval from nan to nan."""
    for x, y, message in (
        ([1, 1, 1, 1], [1, 2, 3, 4], "equal"),
        ([1, 2, 3], [1, 2, 3], "4 values or more are needed for an interval; there are 3"),
        ([1, 2, 3, 4], [1, 2, 3, math.nan], "1 of 4 values are not numbers"),
        ([1, 2, 3, 4], [1, 2, 3, 4, 5], "one length; they have 4, 5"),
    ):
        with pytest.raises(ValueError, match=message):
            correlation_interval(x, y)
    with pytest.raises(ValueError, match="kendall"):  # and not quietly taken for Pearson's
        correlation_interval([1, 5, 3, 9], [1, 2, 3, 4], "kendall")  # type: ignore[arg-type]


@given(st.lists(st.sampled_from([1.0, 2.0, 4.0, 8.0]), min_size=1, max_size=6))
def test_the_best_point_of_a_grid_is_known_no_better_than_to_its_neighbours(
    chosen: list[float],
) -> None:
    grid = [0.0, 1.0, 2.0, 4.0, 8.0, 16.0]
    best = best_on_grid(chosen, grid)
    assert best.low <= grid[grid.index(min(chosen)) - 1]
    assert best.high >= grid[grid.index(max(chosen)) + 1]
    assert best.estimate == pytest.approx(np.mean(chosen))
    if len(chosen) > 1:
        students = run_interval(chosen)
        assert best.low <= max(students.low, grid[0])
        assert best.high >= min(students.high, grid[-1])
    assert grid[0] <= best.low <= best.high <= grid[-1]


def test_the_interval_of_a_share_is_clopper_and_pearsons() -> None:
    share = share_interval([True, False, False], "sets")
    assert share.low == pytest.approx(stats.beta.ppf(0.025, 1, 3))
    assert share.high == pytest.approx(stats.beta.ppf(0.975, 2, 2))
    assert (share.estimate, share.n, share.method) == (1 / 3, 3, "exact binomial over sets")
    with pytest.raises(ValueError, match="a share of no sets has no interval"):
        share_interval([], "sets")


@given(st.lists(st.floats(-10, 10), min_size=2, max_size=8))
def test_numbers_of_runs_as_text_are_mean_and_sample_deviation(values: list[float]) -> None:
    mean, spread = statistics.mean(values), statistics.stdev(values)
    shown = [float(part) for part in mean_and_spread(values, digits=6).split(" ± ")]
    assert shown == pytest.approx([mean, spread], abs=1e-6)
    assert (mean_and_spread([1.0]), mean_and_spread([])) == ("1.00", "")


def test_copies_of_a_query_make_no_interval_narrower() -> None:
    """Of clusters of one value each it is the bootstrap; copies in one are not new evidence."""
    generator = np.random.default_rng(0)
    values = generator.normal(0, 1, 200)
    plain = mean_interval(values)
    one_each = clustered_interval(values, range(200))
    copies = clustered_interval(np.repeat(values, 5), np.repeat(np.arange(200), 5).tolist())
    alone = clustered_interval(np.repeat(values, 5), range(1000))
    width = plain.high - plain.low
    assert one_each.high - one_each.low == pytest.approx(width, rel=0.1)
    assert copies.high - copies.low == pytest.approx(width, rel=0.1)
    assert alone.high - alone.low == pytest.approx(width / np.sqrt(5), rel=0.1)
    assert (copies.n, copies.estimate) == (200, pytest.approx(plain.estimate))


def test_a_value_counts_as_much_in_a_large_cluster_as_in_a_small_one() -> None:
    """Against drawing clusters and laying their values end to end."""
    generator = np.random.default_rng(0)
    clusters = np.repeat(np.arange(30), np.arange(1, 31))
    values = clusters + generator.normal(0, 1, len(clusters))  # the larger, the higher
    interval = clustered_interval(values, clusters.tolist())
    held = [values[clusters == one] for one in range(30)]
    means = [
        np.concatenate([held[one] for one in generator.integers(0, 30, 30)]).mean()
        for _ in range(4000)
    ]
    assert interval.estimate == pytest.approx(values.mean())
    ends = np.percentile(means, [2.5, 97.5]).tolist()
    assert [interval.low, interval.high] == pytest.approx(ends, rel=0.02)
    with pytest.raises(ValueError, match="two clusters or more"):
        clustered_interval([1.0, 2.0], ["a", "a"])
    with pytest.raises(ValueError, match="each value needs a cluster"):
        clustered_interval([1.0, 2.0], ["a"])


def table(
    generator: np.random.Generator, shape: tuple[int, int], *parts: float
) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    seeds, collections, rest = parts
    return (
        generator.normal(0, seeds, (shape[0], 1))
        + generator.normal(0, collections, (1, shape[1]))
        + generator.normal(0, rest, shape)
    )


def test_the_mean_squares_of_a_small_table_by_hand() -> None:
    """Row means 1 and 4, column means 1, 2 and 4½, and ±½, ±½, ∓1 that are neither."""
    assert mean_squares(np.array([[0.0, 1.0, 2.0], [2.0, 3.0, 7.0]])) == pytest.approx(
        (13.5, 6.5, 1.5)
    )


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
    ends = [p_value(crossed, end) for end in (crossed.low, crossed.high)]
    assert ends == pytest.approx([0.05, 0.05])
    far = crossed.low - (crossed.high - crossed.low)
    t = (crossed.estimate - far) / crossed.standard_error
    assert p_value(crossed, far) > 3 * 2 * stats.norm.sf(t), "few seeds: no normal tail"
    assert crossed_interval(np.ones((2, 3))).high == 1.0


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

"""What the rule simulator says agrees with what is known of the tests that it simulates."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from cde.intervals import Interval, run_interval, smallest_effect
from cde_book.ledger import Claim, ledger
from cde_book.simulation import chances, simulated
from cde_book.verdicts import Measurement
from cde_studies.intervals import share_interval

CLAIM = replace(
    ledger()["cde-table1-clustered-batches"], expect={"above": 0.0}, paper_effect=None, gates=()
)
EQUAL = replace(CLAIM, expect={"near": 0.0, "tolerance": 0.5})
THREE, TEN = run_interval([0.0, 1.0, 2.0]), run_interval([float(x) for x in range(10)])


def made(interval: Interval, claim: Claim = CLAIM) -> Measurement:
    return Measurement(claim.id, "", interval)


def share(counted: Counter[str], verdict: str) -> float:
    return counted[verdict] / counted.total()


@pytest.mark.parametrize("interval", [THREE, TEN, Interval(1, 0.5, 1.5, 400, "bootstrap")])
def test_a_false_claim_holds_in_one_of_forty_experiments(interval: Interval) -> None:
    """At the bound itself, 2.5 % of 95 % intervals lie above it and 2.5 % below."""
    counted = simulated(CLAIM, [made(interval)], truth=0.0, repetitions=8000)
    assert share(counted, "holds") == pytest.approx(0.025, abs=0.006)
    assert share(counted, "contradicted") == pytest.approx(0.025, abs=0.006)


@pytest.mark.parametrize("interval", [THREE, TEN])
def test_a_claim_that_is_true_at_the_smallest_effect_holds_in_four_of_five(
    interval: Interval,
) -> None:
    counted = simulated(CLAIM, [made(interval)], smallest_effect(interval), repetitions=8000)
    assert share(counted, "holds") == pytest.approx(0.8, abs=0.015)


def test_a_claim_with_two_tests_holds_less_often_than_with_one() -> None:
    effect = smallest_effect(TEN)
    both = simulated(CLAIM, [made(TEN), made(TEN)], effect, repetitions=8000)
    assert share(both, "holds") == pytest.approx(0.64, abs=0.02)
    assert share(both, "holds in part") == pytest.approx(0.32, abs=0.02)


def test_a_share_is_drawn_by_counting() -> None:
    claim = replace(CLAIM, expect={"above": 0.5})
    nine = share_interval([True] * 9, "collections")
    counted = simulated(claim, [made(nine)], truth=0.9, repetitions=8000)
    # with nine things the exact interval lies above a half from eight on
    assert share(counted, "holds") == pytest.approx(0.9**9 + 9 * 0.9**8 * 0.1, abs=0.015)
    four = share_interval([True] * 4, "collections")
    assert set(simulated(claim, [made(four)], truth=1.0)) == {"inconclusive"}


def test_equality_is_seldom_shown_where_it_is_not() -> None:
    counted = chances(EQUAL, [made(run_interval([0.0, 0.1, -0.1, 0.05, 0.0]), EQUAL)])
    assert counted["the paper's effect"]["holds"] > 90
    assert counted["none"]["holds"] < 5


def test_half_an_effect_is_shown_less_often_and_half_is_measured_from_the_bound() -> None:
    claim = replace(CLAIM, expect={"below": 1.0}, paper_effect=0.4)
    counted = chances(claim, [made(Interval(0.5, 0.3, 0.7, 500, "bootstrap"), claim)])
    whole, half, none = (of["holds"] for of in counted.values())
    assert whole > 99 and 75 < half < 92 and none < 5


def test_the_same_seed_draws_the_same() -> None:
    one, other = (simulated(CLAIM, [made(THREE)], 0.5) for _ in range(2))
    assert one == other

"""The ledger decides by the interval and nothing else."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cde.intervals import Interval, crossed_interval, p_value, run_interval, smallest_effect
from cde_book import claims
from cde_book.ledger import Claim, gates, ledger
from cde_book.verdicts import Measurement, Reading, decide, from_rows, outcome


def claim(*gates: str, **rule: float) -> Claim:
    """One of that rule and those gates alone."""
    plain = {"range": (None, None), "paper_effect": None, "by_construction": False}
    return replace(next(iter(ledger().values())), id="toy", expect=rule, gates=gates, **plain)


def interval(low: float, high: float) -> Interval:
    return Interval((low + high) / 2, low, high, 10, "made up")


def entry(low: float, high: float, role: str = "test", what: str = "a") -> Measurement:
    return Measurement("toy", what, interval(low, high), role)


@pytest.mark.parametrize(
    ("rule", "low", "high", "expected"),
    [
        ({"above": 0}, 0.1, 0.2, "supports"),
        ({"above": 0}, -0.1, 0.2, "undecided"),
        ({"above": 0}, -0.2, -0.1, "contradicts"),
        ({"above": 0}, 0.0, 0.2, "undecided"),
        ({"above": 0}, 0.0, 0.0, "contradicts"),
        ({"below": 1}, 0.1, 0.9, "supports"),
        ({"below": 1}, 1.0, 1.2, "contradicts"),
        ({"near": 5, "tolerance": 1}, 4.0, 6.0, "supports"),
        ({"near": 5, "tolerance": 1}, 3.9, 5.0, "undecided"),
        ({"near": 5, "tolerance": 1}, 6.5, 7.0, "contradicts"),
    ],
)
def test_outcome_of_an_interval(
    rule: dict[str, float], low: float, high: float, expected: str
) -> None:
    assert outcome(claim(**rule), interval(low, high)) == expected


@given(st.floats(-10, 10), st.floats(0, 5), st.floats(-10, 10))
def test_above_and_below_are_opposites(low: float, width: float, bound: float) -> None:
    measured = interval(low, low + width)
    opposite = {"supports": "contradicts", "contradicts": "supports", "undecided": "undecided"}
    if measured.low != bound and measured.high != bound:
        above = outcome(claim(above=bound), measured)
        assert outcome(claim(below=bound), measured) == opposite[above]


@pytest.mark.parametrize(
    ("entries", "verdict"),
    [
        ([], "not tested"),
        ([Measurement("another", "a", interval(1, 2))], "not tested"),
        ([entry(1, 2, "rehearsal")], "not tested"),
        ([entry(1, 2, "exploratory")], "not tested"),
        ([entry(1, 2)], "holds"),
        ([entry(1, 2), entry(-2, -1, "exploratory", "b")], "holds"),
        ([entry(1, 2), entry(-1, 2, what="b")], "holds in part"),
        ([entry(1, 2), entry(-2, -1, what="b")], "mixed"),
        ([entry(1, 2), entry(1, 3, what="b"), entry(-2, -1, what="c")], "holds in part"),
        ([entry(-1, 2)], "inconclusive"),
        ([entry(-2, -1), entry(-1, 1, what="b")], "inconclusive"),
        ([entry(-2, -1)], "contradicted"),
        ([entry(-2, -1), entry(-3, -1, what="b")], "contradicted"),
    ],
)
def test_verdict_of_several_measurements(entries: list[Measurement], verdict: str) -> None:
    assert decide(claim(above=0), entries).verdict == verdict


def test_runs_on_several_collections_are_entered_with_the_interval_over_both() -> None:
    index = pd.MultiIndex.from_product([(0, 1, 2), ("a", "b")], names=["seed", "set"])
    # seeds agree to a hair, collections do not
    values = pd.Series([1.0, 3.0, 1.01, 3.01, 0.99, 2.99], index)
    found = claims.measure_runs("cde-table1-clustered-batches", values, "toy")
    assert found == crossed_interval([[1.0, 3.0], [1.01, 3.01], [0.99, 2.99]])
    assert found.low < 0 < run_interval([2.0, 2.01, 1.99]).low


def test_measurements_survive_json() -> None:
    entries = [entry(1, 2), entry(-1, 1, "exploratory", "ψ(q) ⊕ φ(d)")]
    assert from_rows(json.loads(json.dumps([asdict(one) for one in entries]))) == entries


def test_measuring_again_at_a_scale_replaces_and_unknown_claims_are_refused() -> None:
    name = next(iter(ledger()))
    claims.measure(name, interval(0, 1), "a")
    claims.measure(name, interval(2, 3), "a")
    claims.measure(name, interval(4, 5), "b")
    claims.measure(name, interval(6, 7), "b", scale="hours")
    assert [m.interval.low for m in claims.account.measured] == [2, 4, 6]
    with pytest.raises(KeyError, match="no claim 'nonsense'"):
        claims.measure("nonsense", interval(0, 1), "a")


@pytest.mark.parametrize(
    ("role", "reason"),
    [("rehearsal", "smoke profile only"), ("exploratory", "exploratory measurements only")],
)
def test_a_claim_that_was_not_tested_says_why(role: str, reason: str) -> None:
    known = ledger()["cde-fig6-cluster-size"]
    measured = Interval(1.5, 1.0, 2.0, 2, "made up")
    made = Measurement(known.id, "something", measured, role)  # type: ignore[arg-type]
    verdict = decide(known, [made])
    assert verdict.verdict == "not tested" and reason in verdict.reason


def test_a_single_run_is_entered_and_decides_nothing() -> None:
    name = "cde-table1-clustered-batches"
    claims.measure_runs(name, [5.0], "one seed")
    assert [entry.role for entry in claims.account.measured] == ["exploratory"]
    assert decide(ledger()[name], claims.account.measured).verdict == "not tested"
    claims.measure_runs(name, [5.0, 5.2, 4.9], "three seeds")
    floor = claims.gate("above-floor", 0.9, "made up")
    assert floor.passed
    claims.measure_runs(name, [5.0, 5.2, 4.9], "three seeds")
    assert decide(ledger()[name], claims.account.measured).verdict == "holds"


OPEN, CLOSED = Reading("reads-context", 0.3), Reading("reads-context", 0.003)
UNKNOWN = Reading("reads-context", None)


def gated(
    *readings: Reading, low: float = 1, high: float = 2, scale: str = "laptop"
) -> Measurement:
    return Measurement("toy", scale, interval(low, high), scale=scale, gates=readings)


def test_the_largest_scale_whose_gates_are_passed_leads() -> None:
    rule, small = claim("reads-context", above=0), gated(OPEN, low=-2, high=2)
    large = gated(OPEN, scale="hours")
    assert decide(rule, [small, large]).scale == "hours"
    assert decide(rule, [small, large]).verdict == "holds"
    shut = gated(CLOSED, scale="gpu")
    assert decide(rule, [small, large, shut]).scale == "hours"
    null = gated(OPEN, low=-1, high=1, scale="gpu")
    assert decide(rule, [small, large, null]).verdict == "inconclusive"


def test_a_measurement_carries_the_gates_of_its_own_scale() -> None:
    claims.gate("above-floor", 0.9, "the small runs", scale="laptop")
    name = "cde-table1-clustered-batches"
    small = claims.measure(name, interval(1, 2), "a", scale="laptop")
    large = claims.measure(name, interval(1, 2), "b", scale="hours")
    assert [one.passed for one in small.gates] == [True]
    assert [one.value for one in large.gates] == [None]
    with pytest.raises(KeyError, match="no gate 'open'"):
        claims.gate("open", 1.0, "nothing")


def test_facts_and_measurements_at_odds_have_no_p_value() -> None:
    rule = claim(above=0)
    assert decide(rule, [entry(1, 1)]).p is None
    assert decide(rule, [entry(1, 2), entry(-2, -1, what="b")]).p is None
    assert decide(rule, [entry(1, 2)]).p is not None


def test_a_reading_of_a_gate_that_is_gone_is_not_passed() -> None:
    gone = Reading("no-such-gate", 5.0)
    assert not gone.passed and "no gate no-such-gate" in gone.reason


def test_of_several_measurements_the_largest_p_value_and_effect_are_told() -> None:
    rule, runs = claim(above=0), [[-1.0, 3.0, 2.0], [0.5, 1.5, 1.4], [-9.0, 5.0, 7.0]]
    made = [Measurement("toy", str(one), run_interval(one)) for one in runs]
    decided = decide(rule, made)
    assert decided.p == max(p_value(one.interval, 0) for one in made)
    assert decided.smallest == max(smallest_effect(one.interval) for one in made)
    alone = [decide(rule, [one]) for one in made]
    assert len({one.p for one in alone}) == len({one.smallest for one in alone}) == 3


def test_of_two_bounds_the_nearer_one_is_doubted() -> None:
    rule, runs = claim(near=5, tolerance=1), run_interval([5.4, 5.5, 5.7])
    assert decide(rule, [Measurement("toy", "", runs)]).p == p_value(runs, 6) > p_value(runs, 4)


def test_a_gate_is_not_passed_on_its_bound() -> None:
    for gate in gates().values():
        assert not Reading(gate.id, gate.above).passed, "asked for is more"
        assert Reading(gate.id, gate.above + 1e-6 * max(1, abs(gate.above))).passed


def test_one_gate_of_two_keeps_a_claim_closed() -> None:
    rule, floor = claim("reads-context", "above-floor", above=0), Reading("above-floor", 0.9)
    assert floor.passed and OPEN.passed and not CLOSED.passed
    assert decide(rule, [gated(OPEN, floor)]).verdict == "holds"
    assert decide(rule, [gated(CLOSED, floor)]).verdict == "not testable here"
    assert decide(rule, [gated(floor, UNKNOWN)]).verdict == "not testable here"
    against = decide(rule, [gated(CLOSED, floor, low=-2, high=-1)])
    assert against.verdict == "not testable here" and "needed: more than 0.01" in against.reason

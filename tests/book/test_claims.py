"""The ledger decides by the interval and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cde.book import claims
from cde.book.claims import (
    Claim,
    Measurement,
    decide,
    from_json,
    ledger,
    outcome,
    read_ledger,
    to_json,
)
from cde.intervals import Interval


def claim(**rule: float) -> Claim:
    return Claim(
        "toy", "cde", "results", "Fig. 0", "wording", "no number", "test", "unit", rule, None
    )


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
        assert (
            outcome(claim(below=bound), measured) == opposite[outcome(claim(above=bound), measured)]
        )


@pytest.mark.parametrize(
    ("entries", "verdict"),
    [
        ([], "not tested"),
        ([entry(1, 2, "rehearsal")], "not tested"),
        ([entry(1, 2, "exploratory")], "not tested"),
        ([entry(1, 2)], "holds"),
        ([entry(1, 2), entry(-2, -1, "exploratory", "b")], "holds"),
        ([entry(1, 2), entry(-1, 2, what="b")], "holds in part"),
        ([entry(1, 2), entry(-2, -1, what="b")], "holds in part"),
        ([entry(-1, 2)], "does not hold"),
        ([entry(-2, -1), entry(-1, 1, what="b")], "does not hold"),
    ],
)
def test_verdict_of_several_measurements(entries: list[Measurement], verdict: str) -> None:
    assert decide(claim(above=0), entries).verdict == verdict


def test_other_claims_measurements_do_not_count() -> None:
    stranger = Measurement("another", "a", interval(1, 2))
    assert decide(claim(above=0), [stranger]).verdict == "not tested"


def test_measurements_survive_json() -> None:
    entries = [entry(1, 2), entry(-1, 1, "exploratory", "ψ(q) ⊕ φ(d)")]
    assert from_json(to_json(entries)) == entries


def test_measuring_again_replaces_and_unknown_claims_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(claims.account, "measured", [])
    name = next(iter(ledger()))
    claims.measure(name, interval(0, 1), "a")
    claims.measure(name, interval(2, 3), "a")
    claims.measure(name, interval(4, 5), "b")
    assert [m.interval.low for m in claims.account.measured] == [2, 4]
    with pytest.raises(KeyError, match="no claim 'nonsense'"):
        claims.measure("nonsense", interval(0, 1), "a")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("  surplus: 1\n", "amiss: surplus"),
        ("  expect: {over: 0}\n", "expect must be"),
        ("  paper: other\n", "paper must be one of"),
    ],
)
def test_a_faulty_ledger_is_refused_with_the_claim_s_name(
    tmp_path: Path, change: str, message: str
) -> None:
    good = (
        "- id: toy\n  paper: cde\n  part: p\n  place: q\n  wording: w\n  paper_value: v\n  test: "
        "t\n  unit: u\n"
        "  expect: {above: 0}\n  chapter: null\n"
    )
    path = tmp_path / "claims.yml"
    path.write_text(good)
    assert list(read_ledger(path)) == ["toy"]
    path.write_text(good + good)
    with pytest.raises(ValueError, match="toy occurs twice"):
        read_ledger(path)
    key = change.split(":")[0] + ":"
    path.write_text(
        "".join(line for line in good.splitlines(True) if not line.startswith(key)) + change
    )
    with pytest.raises(ValueError, match=f"toy.*{message}"):
        read_ledger(path)


def test_a_claim_is_worded_by_us() -> None:
    """No ten words in a row of the ledger stand in the papers, where these are at hand."""
    import os
    import re

    folder = Path(os.environ.get("CDE_DATA", "/nowhere")).parent / "papers"
    if not folder.is_dir():
        pytest.skip("the papers' texts are not at hand ($CDE_DATA/../papers)")
    words = [re.findall(r"\w+", path.read_text().casefold()) for path in folder.iterdir()]
    theirs = {tuple(text[i : i + 10]) for text in words for i in range(len(text) - 9)}
    for known_claim in ledger().values():
        ours = re.findall(r"\w+", known_claim.wording.casefold())
        copied = any(tuple(ours[i : i + 10]) in theirs for i in range(len(ours) - 9))
        assert not copied, known_claim.id


@pytest.mark.parametrize(
    ("role", "reason"),
    [("rehearsal", "smoke profile only"), ("exploratory", "exploratory measurements only")],
)
def test_a_claim_that_was_not_tested_says_why(role: str, reason: str) -> None:
    claim = claims.ledger()["cde-fig6-cluster-size"]
    measured = Interval(1.5, 1.0, 2.0, 2, "made up")
    entry = claims.Measurement(claim.id, "something", measured, role)  # type: ignore[arg-type]
    verdict = claims.decide(claim, [entry])
    assert verdict.verdict == "not tested" and reason in verdict.reason


def test_a_single_run_is_entered_and_decides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims.account, "measured", [])
    name = "cde-table1-clustered-batches"
    claims.measure_runs(name, [5.0], "one seed")
    assert [entry.role for entry in claims.account.measured] == ["exploratory"]
    assert claims.decide(claims.ledger()[name], claims.account.measured).verdict == "not tested"
    claims.measure_runs(name, [5.0, 5.2, 4.9], "three seeds")
    assert claims.decide(claims.ledger()[name], claims.account.measured).verdict == "holds"

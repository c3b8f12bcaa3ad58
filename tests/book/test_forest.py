"""Intervals drawn for a claim: equal values at equal places, and nothing that decides cut off."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from cde.intervals import Interval
from cde_book.ledger import ledger
from cde_book.ledger_pages import Axis, axis, line
from cde_book.verdicts import Measurement, Role

CLAIM = ledger()["cde-table1-clustered-batches"]  # above 0, and the paper has a value
NEAR = next(claim for claim in ledger().values() if "near" in claim.expect)
numbers = st.floats(-1e6, 1e6, allow_nan=False)
intervals = st.tuples(numbers, numbers, numbers).map(
    lambda three: Interval(sorted(three)[1], min(three), max(three), 5, "made up")
)


def made(interval: Interval, role: Role = "test") -> Measurement:
    return Measurement(CLAIM.id, "", interval, role)


@given(st.lists(intervals, min_size=1, max_size=6))
def test_equal_values_stand_at_equal_places_and_larger_ones_further_right(
    several: list[Interval],
) -> None:
    on = axis(CLAIM, [made(one) for one in several])
    placed: list[tuple[float, float]] = []
    for one in several:
        drawn = line(CLAIM, one, on)
        placed += [(one.low, drawn.low), (one.estimate, drawn.estimate), (one.high, drawn.high)]
        assert drawn.cut == ()
        assert drawn.inside == (on.place(0), 100) and drawn.paper == on.place(1.8)
    placed.sort()
    assert [place for _, place in placed] == sorted(place for _, place in placed)
    assert len({value for value, _ in placed}) >= len({place for _, place in placed})
    assert all(0 < place < 100 for _, place in placed)


@given(intervals, intervals)
def test_what_only_explores_moves_nothing_and_is_cut_off_with_a_sign(
    test: Interval, explored: Interval
) -> None:
    both = axis(CLAIM, [made(explored, "exploratory"), made(test)])
    assert both == axis(CLAIM, [made(test)])
    drawn = line(CLAIM, explored, both)
    assert ("low" in drawn.cut) == (explored.low < both.low)
    assert ("high" in drawn.cut) == (explored.high > both.high)
    assert 0 <= drawn.low <= drawn.estimate <= drawn.high <= 100


def test_both_bounds_of_a_tolerance_are_in_the_drawing() -> None:
    on = axis(NEAR, [])
    low, high = line(NEAR, Interval(*[NEAR.expect["near"]] * 3, 5, "made up"), on).inside
    assert 0 < low < high < 100


@given(numbers, st.floats(1e-3, 1e6))
def test_ticks_are_round_numbers_at_their_places(low: float, span: float) -> None:
    on = Axis(low, low + span)
    for place, label in on.ticks:
        assert 0 < place < 100
        assert math.isclose(
            on.place(float(label)), place, abs_tol=0.5 + 100 * abs(low) * 1e-5 / span
        )

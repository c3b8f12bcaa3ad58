"""The page made from the ledger: each claim once; exhibits and intervals where they belong."""

from __future__ import annotations

from dataclasses import asdict
from types import SimpleNamespace
from typing import Any

import pytest
from bs4 import BeautifulSoup, Tag
from hypothesis import given
from hypothesis import strategies as st

from cde.intervals import Interval
from cde_book import ledger_pages
from cde_book.checkout import project_root
from cde_book.ledger import ledger
from cde_book.ledger_pages import axis, claims_page, judged, line
from cde_book.verdicts import Measurement, Reading, Role

ROOT = project_root()
NAMES = list(ledger())
SEVERAL, ALONE, NULL = NAMES[4], NAMES[40], NAMES[-1]


def passed(claim: str) -> tuple[Reading, ...]:
    return tuple(Reading(name, 1e9, "made up") for name in ledger()[claim].gates)


def measured(claim: str, low: float, high: float, scale: str, role: Any = "test") -> Measurement:
    interval = Interval((low + high) / 2, low, high, 5, "made up")
    return Measurement(claim, f"{low} to {high}", interval, role, scale, passed(claim))


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> BeautifulSoup:
    """The page of claims, of which three have measurements that were made up."""
    made = {
        "table1": [
            measured(SEVERAL, 2, 4, "hours"),
            measured(SEVERAL, 3, 5, "hours"),
            measured(SEVERAL, -900, 900, "laptop", "exploratory"),
            measured(ALONE, -1e6, 1e6, "laptop"),
            measured(NULL, -5, 5, "gpu", "exploratory"),
        ]
    }

    def load(chapter: Any, *_: Any) -> Any:
        rows = [asdict(one) for one in made.get(chapter.name, ())]
        return SimpleNamespace(measurements=rows)

    monkeypatch.setattr(ledger_pages, "load_execution", load)
    return BeautifulSoup(claims_page("laptop", judged("laptop", ROOT)), "html.parser")


def rows(page: BeautifulSoup) -> dict[str, Tag]:
    return {str(row["id"]): row for row in page.select(".cde-claims li")}


def test_each_claim_stands_once_with_its_wording_its_anchor_and_its_verdict(
    page: BeautifulSoup,
) -> None:
    by_place = sorted(page.select(".cde-claims li"), key=lambda row: int(str(row["data-place"])))
    assert [row["id"] for row in by_place] == NAMES, "the ledger's order can be had back"
    # without a script every claim is there, and no control that does nothing
    assert page.select_one("form.cde-filters").has_attr("hidden")  # type: ignore[union-attr]
    assert not any(row.has_attr("hidden") for row in by_place)
    for entry in judged("laptop", ROOT):
        row = rows(page)[entry.claim.id]
        assert " ".join(entry.claim.wording.split()) in " ".join(row.get_text().split())
        assert [a["href"] for a in row.select("a.anchor")] == [f"#{entry.claim.id}"]
        assert row.select_one(".verdict").get_text() == entry.verdict.verdict  # type: ignore[union-attr]
        assert row["data-verdict"] == entry.group
        assert row["data-scale"] == entry.verdict.scale


CLAIM = ledger()["cde-table1-clustered-batches"]  # above 0, and the paper has a value
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

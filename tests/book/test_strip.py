"""The strip of a chapter: of one claim, drawn from the ledger, the measurements and the records."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from bs4 import BeautifulSoup

from cde.intervals import Interval
from cde_book.chapters import chapters
from cde_book.execution import Execution
from cde_book.ledger import Claim, ledger
from cde_book.ledger_pages import Judged
from cde_book.strip import strip, would_change
from cde_book.verdicts import Measurement, Reading, decide

CROSSED = "random effects of 5 seeds and 9 collections"


def claim(**changes: object) -> Claim:
    """An open claim with the rule "above 0.5"."""
    one = next(one for one in ledger().values() if one.principal and not one.by_construction)
    plain = {"expect": {"above": 0.5}, "gates": (), "range": (None, None), "paper_effect": None}
    return replace(one, **{**plain, **changes})  # type: ignore[arg-type]


def judged(of: Claim, low: float, high: float, *gates: Reading) -> Judged:
    interval = Interval((low + high) / 2, low, high, 5, CROSSED, 4.0)
    made = [Measurement(of.id, "nine sets", interval, "test", "hours", gates)]
    return Judged(of, decide(of, made), made, [])


def log(chapter: str, *records: str) -> Execution:
    used = dict.fromkeys(records, "")
    return Execution(chapter, "laptop", records=used)


def test_each_chapter_that_judges_has_one_principal_claim() -> None:
    judging = {one.chapter for one in ledger().values()} - {None}
    principal = [one.chapter for one in ledger().values() if one.principal]
    assert sorted(principal) == sorted(judging & {one.name for one in chapters()})


def test_the_strip_tells_what_was_measured_on_what_and_the_verdict(tmp_path: Path) -> None:
    entry = judged(claim(), 1.25, 1.75)
    shown = BeautifulSoup(strip([entry], log(str(entry.claim.chapter)), tmp_path), "html.parser")
    lines = {
        str(term.string): " ".join(said.get_text().split())
        for term, said in zip(shown.select("dt"), shown.select("dd"), strict=True)
    }
    assert lines["We measured"] == f"{entry.measurements[0].interval} {entry.claim.unit}"
    assert lines["Model, data, seeds"] == "nine sets; 5 seeds × 9 collections (hours)"
    assert lines["Verdict"].startswith("holds") and len(lines) == 5
    assert entry.claim.wording in lines[next(iter(lines))]


@pytest.mark.parametrize(
    ("rule", "bounds", "verdict", "said"),
    [
        ({"above": 0.5}, (1, 2), "holds", "reaches 0.5 or less"),
        ({"below": 0.5}, (1, 2), "contradicted", "reaches below 0.5"),
        ({"above": 0.5}, (0, 1), "inconclusive", "wholly above 0.5, or wholly 0.5 or less"),
        ({"near": 1, "tolerance": 0.5}, (0, 2), "inconclusive", "wholly between 0.5 and 1.5"),
    ],
)
def test_what_would_change_a_verdict_is_the_other_side_of_its_rule(
    rule: dict[str, float], bounds: tuple[float, float], verdict: str, said: str
) -> None:
    entry = judged(claim(expect=rule), *bounds)
    assert entry.verdict.verdict == verdict
    assert said in would_change(entry)

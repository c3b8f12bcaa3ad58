"""The book's ledger: rules that agree with their words, and that could come out either way."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

import jupytext
import pytest

from cde.intervals import Interval
from cde_book.chapters import chapters
from cde_book.ledger import ledger, read_ledger
from cde_book.simulation import attainable
from cde_book.verdicts import Measurement
from cde_studies.intervals import share_interval

GOOD = """- id: toy
  paper: cde
  part: p
  place: q
  wording: w
  paper_value: v
  paper_effect: null
  test: t
  unit: u
  expect: {above: 0}
  fixed: {date: 2026-11-22, order: before, note: ''}
  chapter: null
"""
#: verdicts of single numbers: no result may stand in prose that no cell computes
VERDICT_WORDS = re.compile(
    r"\b(inconclusive|contradicted|holds in part|does not hold|was confirmed|is confirmed)\b"
)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("  surplus: 1\n", "there is no setting surplus"),
        ("  expect: {over: 0}\n", "expect must be"),
        ("  expect: {above: 1e-05}\n", "expect must have numbers"),
        ("  expect: {above: .nan}\n", "expect must have numbers"),
        ("  expect: {above: true}\n", "expect must have numbers"),
        ("  expect: [0]\n", "expect must be {above"),
        ("  paper_effect: .nan\n", "paper_effect must have numbers"),
        ("  paper: other\n", "paper must be one of"),
        ("  fixed: {date: 2026-11-22, order: once}\n", "fixed must have an order"),
        ("  gates: [open]\n", "gates must be of reads-context"),
    ],
)
def test_a_faulty_ledger_is_refused_with_the_claim_s_name(
    tmp_path: Path, change: str, message: str
) -> None:
    path = tmp_path / "claims.yml"
    path.write_text(GOOD)
    assert list(read_ledger(path)) == ["toy"]
    path.write_text(GOOD + GOOD)
    with pytest.raises(ValueError, match="toy: the id occurs twice"):
        read_ledger(path)
    key = change.split(":")[0] + ":"
    kept = [line for line in GOOD.splitlines(True) if not line.startswith(key)]
    path.write_text("".join(kept) + change)
    with pytest.raises(ValueError, match=f"toy.*{message}"):
        read_ledger(path)


def bound_in_words(test: str) -> dict[str, float]:
    """The rule that a claim's `test` states in its last words."""
    number = r"(-?[\d,]+(?:\.\d+)?)"
    if within := re.search(rf"lies within {number} of {number}\.$", test):
        tolerance, near = (float(one.replace(",", "")) for one in within.groups())
        return {"near": near, "tolerance": tolerance}
    if beyond := re.search(rf"is (above|below) {number}\.$", test):
        return {beyond[1]: float(beyond[2].replace(",", ""))}
    if exactly := re.search(rf"is {number}\.$", test):
        return {"near": float(exactly[1]), "tolerance": 0.001}
    return {}


def test_a_rule_is_what_its_words_say(subtests: pytest.Subtests) -> None:
    for claim in ledger().values():
        with subtests.test(claim=claim.id):
            assert bound_in_words(claim.test) == {
                name: float(x) for name, x in claim.expect.items()
            }


def test_a_rule_can_pass_and_can_fail(subtests: pytest.Subtests) -> None:
    """Whatever the quantity can be by nature, some values support the claim, others contradict."""
    for claim in ledger().values():
        with subtests.test(claim=claim.id):
            measured = Measurement(claim.id, "", Interval(0, 0, 0, 100, "made up"))
            assert {"supports", "contradicts"} <= attainable(claim, measured)


def test_a_share_of_too_few_things_cannot_pass() -> None:
    claim = ledger()["cde-s6-most-datasets"]
    for count, can_pass in ((4, False), (5, False), (6, True), (7, True)):
        made = Measurement(claim.id, "", share_interval([True] * count, "collections"))
        assert ("supports" in attainable(claim, made)) == can_pass


def test_a_rule_at_the_quantity_s_own_limit_is_found() -> None:
    claim = replace(ledger()["cde-fig7-crossover"], range=(0.1, 1.0))
    measured = Measurement(claim.id, "", Interval(0, 0, 0, 100, "made up"))
    assert attainable(claim, measured) == {"supports"}


def test_claims_on_context_have_the_gate_that_the_context_is_read() -> None:
    for claim in ledger().values():
        if claim.place.startswith(("Fig. 7", "Fig. 16", "Fig. 17", "Fig. 18")):
            assert "reads-context" in claim.gates, claim.id
        if claim.place.startswith("Fig. 16"):
            assert "null-trained" in claim.gates, claim.id


def test_a_rule_that_was_fixed_after_a_look_says_what_was_changed() -> None:
    for claim in ledger().values():
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", claim.fixed["date"]), claim.id
        assert claim.fixed["order"] != "after" or len(claim.fixed["note"]) > 40, claim.id


def test_prose_states_no_result_that_no_cell_computes(subtests: pytest.Subtests) -> None:
    """No verdict in prose; decimals are the paper's, or stand in the code or the ledger."""
    for chapter in chapters():
        with subtests.test(chapter=chapter.name):
            notebook = jupytext.read(chapter.path)  # type: ignore[attr-defined]
            known = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "code")
            own = [one for one in ledger().values() if one.chapter == chapter.name]  # type: ignore[attr-defined]
            known += "\n".join(f"{one.paper_value} {one.test}" for one in own)
            for cell in notebook.cells:
                if cell.cell_type != "markdown":
                    continue
                assert not VERDICT_WORDS.search(cell.source), VERDICT_WORDS.search(cell.source)
                text = re.sub(r"(§+|§)[\d., and§]+|\d\.\d [Kk]B", " ", cell.source)
                for sentence in re.split(r"(?<=[.:;])\s+(?=[A-Z])", text):
                    if re.search(r"paper|MS MARCO|probability|Student's", sentence):
                        continue
                    for number in re.findall(r"(?<![\w.§])\d+\.\d+(?![\d.])", sentence):
                        assert number in known, sentence


def test_a_claim_is_worded_by_us() -> None:
    """No ten words in a row of the ledger stand in the papers, where these are at hand."""
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
    ("rule", "effect", "expected"),
    [
        ({"above": 2}, 5.0, 3.0),
        ({"above": 2}, -1.0, -3.0),
        ({"below": 2}, 0.5, 1.5),
        ({"below": 2}, 5.0, -3.0),
        ({"near": 2, "tolerance": 1}, 2.0, None),
        ({"above": 2}, None, None),
    ],
)
def test_how_far_the_paper_s_value_lies_beyond_the_bound_has_the_claim_s_direction(
    rule: dict[str, float], effect: float | None, expected: float | None
) -> None:
    one = replace(next(iter(ledger().values())), expect=rule, paper_effect=effect)
    assert one.beyond == expected

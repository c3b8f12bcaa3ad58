"""What an answer is put together of: sentences and badges that follow from the verdicts."""

from __future__ import annotations

import html
import re

import pytest

from cde.intervals import Interval
from cde_book.account import account
from cde_book.claims import apart, badges, by_verdict, measure
from cde_book.ledger import ledger

#: two claims that hold above zero and have no gates
POSITIVE = [
    claim.id for claim in ledger().values() if claim.expect == {"above": 0} and not claim.gates
]


@pytest.fixture
def at_laptop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(account, "profile", "laptop")


SENTENCES = {"holds": "It helps.", "contradicted": "It harms.", "otherwise": "Open."}


@pytest.mark.parametrize(
    ("interval", "sentence"),
    [((1, 2), "It helps."), ((-2, -1), "It harms."), ((-1, 1), "Open."), (None, "Open.")],
)
def test_the_sentence_follows_the_interval(
    interval: tuple[float, float] | None, sentence: str, at_laptop: None
) -> None:
    if interval is not None:
        low, high = interval
        measure(POSITIVE[0], Interval((low + high) / 2, low, high, 9, ""), "toy")
    assert by_verdict(POSITIVE[0], **SENTENCES) == sentence


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        (Interval(0.84, 0.1, 1.5, 9, ""), "A is 0.8 [0.1, 1.5] points above B"),
        (Interval(-0.84, -1.5, 0.1, 9, ""), "A is 0.8 [-0.1, 1.5] points below B"),
        (2.0, "A is 2.0 points above B"),
        (-2.0, "A is 2.0 points below B"),
    ],
)
def test_a_difference_is_said_from_its_interval(found: Interval | float, sentence: str) -> None:
    assert apart("A", found, "B", unit="points") == sentence


def test_equal_verdicts_are_one_badge_and_none_is_forgotten(at_laptop: None) -> None:
    assert badges() == ""
    for claim, low in zip(POSITIVE[:3], (1, 1, -1), strict=True):
        measure(claim, Interval(1.5, low, 2, 9, ""), "toy")
    markup = html.unescape(badges())
    shown = re.findall(r">([^<>]+)</a>", markup)
    assert [" ".join(one.split()) for one in shown] == [
        "holds × 2, at laptop",
        "inconclusive, at laptop",
    ]
    assert all(ledger()[claim].wording[:20] in markup for claim in POSITIVE[:3])

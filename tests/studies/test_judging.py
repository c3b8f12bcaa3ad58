"""The judge of texts: its classes on texts small enough to be judged by hand."""

from __future__ import annotations

import numpy as np
import pytest

from cde.batching.negatives import false_negatives
from cde.data import Pairs
from cde_studies.batches.judging import KINDS, TextJudge
from cde_studies.batches.statistics import removed_share

QUERIES = ["draw a line", "Draw a  line", "sort the rows", "rows of a table", "the of"]
DOCUMENTS = ["plots points", "on a screen", "plots  POINTS", "in a database", "nothing else"]
DOMAINS = ["a", "a", "b", "b", "b"]
BATCH = np.arange(5)


def judge(common: float = 1.0) -> TextJudge:
    return TextJudge(Pairs(QUERIES, DOCUMENTS, DOMAINS, list("vwxyz")), [0, 1, 0, 3, 4], common)


def test_a_document_is_of_the_first_kind_that_fits_or_foreign_or_open() -> None:
    classes = judge().classes(BATCH)
    where = {name: set(map(tuple, np.argwhere(classes[name]).tolist())) for name in KINDS}
    assert where["same text"] == {(0, 2), (2, 0)}
    assert where["similar text"] == set()  # equal documents are of the first kind
    assert where["same summary line"] == {(0, 1), (1, 0)}
    known, negative = classes["known"], classes["negative"]
    assert (known == np.any([classes[name] for name in KINDS], axis=0)).all()
    assert (known.astype(int) + negative + classes["open"] == 1).all()
    assert negative[0, 3]  # of another domain, no word of "draw a line" but single letters
    assert not negative[0, 2]  # the same text
    assert not negative[2, 3]  # of the same domain


def test_frequent_words_are_not_looked_at() -> None:
    every, few = judge(1.0), judge(1.0).with_common(0.3)
    assert every.asks.all()
    # draw, line and rows, the, of are in two of the five pairs each
    assert few.asks.tolist() == [False, False, True, True, False]
    assert every.asks.all()  # the first judge is as it was


def test_an_account_agrees_with_the_matrices() -> None:
    generator = np.random.default_rng(0)
    queries, documents = generator.normal(size=(2, 5, 3)).astype(np.float32)
    account = judge().account(queries, documents, [BATCH[:3], BATCH[3:]], epsilon=-0.5)
    counts = account.counts.set_index("query")
    for batch in (BATCH[:3], BATCH[3:]):
        removed = false_negatives(queries[batch], documents[batch], epsilon=-0.5)
        assert counts.loc[batch, "removed"].tolist() == removed.sum(axis=1).tolist()
        known = judge().classes(batch)["known"] & removed
        assert counts.loc[batch, "known, removed"].tolist() == known.sum(axis=1).tolist()
    share = removed_share(queries, documents, [BATCH[:3], BATCH[3:]], epsilon=-0.5)
    assert (counts["removed"].sort_index() / [2, 2, 2, 1, 1]).tolist() == share.tolist()


def test_the_bound_takes_off_what_the_rule_condemns_wrongly() -> None:
    judged = judge()
    assert judged.condemned[0]  # "plots points" has no word of "draw a line"
    ones = np.ones((5, 2), np.float32)
    account = judged.account(ones, ones, [BATCH])  # everything is removed
    called = judged.classes(BATCH)["negative"].sum()
    expected = (called - 4 * judged.condemned.sum()) / 20
    assert account.lower_bound() == pytest.approx([expected])
    assert account.of_removed("known") == pytest.approx([4 / 20])
    assert account.recall().tolist() == [1.0, 1.0, 1.0]


def test_known_pairings_are_of_the_whole_set() -> None:
    asking, answering = judge().known_pairings()
    assert list(zip(asking.tolist(), answering.tolist(), strict=True)) == [
        (0, 1),
        (0, 2),
        (1, 0),
        (2, 0),
    ]
    assert judge().in_other_domains(asking, answering).tolist() == [False, True, False, True]

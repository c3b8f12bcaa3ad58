"""A corpus replaced bit by bit: whole, nested, and no loss where the context says nothing."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from tiny_encoders import gated_minilm

import cde
from cde.data import RetrievalSet
from cde.lexical import BM25
from cde_studies.recipes import EvaluationSet
from cde_studies.results import stale_context


def corpus(word: str, size: int = 12) -> RetrievalSet:
    ids = [str(n) for n in range(size)]
    texts = [f"{word} number {n} of a list" for n in range(size)]
    return RetrievalSet(ids, texts, ids, [f"{word} {n}" for n in ids], {n: {n: 1} for n in ids})


def test_a_share_of_the_documents_changes_and_their_queries_with_them() -> None:
    old, new = corpus("boat"), corpus("soup")
    gone: set[str] = set()
    for share in (0.0, 0.25, 0.5, 1.0):
        now = stale_context.replaced(old, new, share, seed=3)
        assert len(now.documents) == 12
        assert sum("soup" in text for text in now.documents) == 12 * share
        # every query that is asked has its answer, and each document is asked for
        assert [set(now.qrels[query]) for query in now.query_ids] == [{q} for q in now.query_ids]
        assert set(now.query_ids) == set(now.document_ids)
        left = {f"old {n}" for n in range(12)} - set(now.document_ids)
        assert gone <= left
        gone = left
    with pytest.raises(ValueError, match="12 documents are to be replaced, and .* has 5"):
        stale_context.replaced(old, corpus("soup", 5), 1.0)
    with pytest.raises(ValueError, match="from 0 to 1"):
        stale_context.replaced(old, new, 25)


def test_a_query_loses_the_answers_that_are_gone() -> None:
    old = RetrievalSet(["a", "b"], ["x", "y"], ["q"], ["x or y"], {"q": {"a": 1, "b": 2}})
    now = stale_context.replaced(old, corpus("soup"), 0.5)
    judged = now.qrels["old q"]
    assert len(judged) == 1 and set(judged) <= set(now.document_ids)


READER = {"context_size": 6, "precision": "float32", "device": "cpu"}


def test_an_encoder_that_reads_nothing_loses_nothing_by_any_way() -> None:
    sets = [EvaluationSet(word, corpus(word), "out") for word in ("boat", "soup")]
    rows = stale_context.lose_context(gated_minilm(0.0, **READER), sets, [0.0, 0.5, 1.0])
    assert len(rows) == 2 * 3 * len(stale_context.WAYS)
    assert (rows["loss"] == 0).all() and (rows["moved"] == 0).all()
    assert rows.groupby("share")["vocabulary"].mean().is_monotonic_increasing
    assert rows["queries"].eq(12).all()


def test_what_stays_and_what_comes_is_embedded_as_the_ways_say() -> None:
    """With everything replaced a mixed index holds new vectors alone; with nothing, old ones."""
    sets = [EvaluationSet(word, corpus(word), "out") for word in ("boat", "soup")]
    rows = stale_context.lose_context(gated_minilm(0.3, **READER), sets, [0.0, 1.0])
    ndcg = rows.set_index(["old", "share", "way"])["ndcg"]
    for name in ("boat", "soup"):
        assert ndcg[name, 1.0, "mixed, new queries"] == ndcg[name, 1.0, "re-embedded"]
        assert ndcg[name, 0.0, "mixed, old queries"] == ndcg[name, 0.0, "stale"]


def test_a_limit_catches_what_it_must_and_is_the_largest_that_does() -> None:
    measured = np.random.default_rng(1).uniform(size=97)
    limit = stale_context.largest_catching_limit(measured)
    assert (measured > limit).mean() >= 0.9
    assert (measured > measured[measured > limit].min()).mean() < 0.9


def test_a_corpus_has_no_say_in_its_own_limit() -> None:
    rows = pd.DataFrame(
        {
            "old": ["a", "a", "b", "b"],
            "loss": [0.0, 5.0, 0.2, 6.0],
            "error": [0.1, 0.1, 0.1, 4.0],  # the last loss is one that chance explains
            "moved": [0.1, 0.3, 0.1, 0.4],
        }
    )
    found = stale_context.trigger_elsewhere(rows, "moved")
    assert found["lost"].tolist() == [False, True, False, False]
    assert found.loc[:1, "limit"].tolist() == [np.inf, np.inf]  # nothing was lost in b
    changed = stale_context.trigger_elsewhere(rows.assign(moved=[9.0, 9.0, 0.1, 0.4]), "moved")
    assert changed.loc[:1, "limit"].tolist() == found.loc[:1, "limit"].tolist()


def test_what_is_excluded_from_a_query_s_ranking_stays_so_when_a_corpus_is_replaced() -> None:
    texts = ["red boats", "red boats at sea", "soup"]
    old = RetrievalSet(
        ["a", "b", "c"], texts, ["q"], ["red boats"], {"q": {"b": 1}}, {"q": frozenset("a")}
    )
    same = stale_context.replaced(old, old, 0.0)
    assert cde.evaluate(BM25(), same) == cde.evaluate(BM25(), old)

"""The gates of a recipe: each is told from what was trained, and from nothing else."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest

from cde.data import RetrievalSet
from cde_book.account import account
from cde_book.gates import bm25_scores, of_recipe, share_moved
from cde_studies.recipes import EvaluationSet, recipe
from cde_studies.sweeps import Sweep

CORPUS = RetrievalSet(["a", "b"], ["red boats", "green houses"], ["q"], ["green"], {"q": {"b": 1}})


@pytest.fixture(autouse=True)
def _own_account(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(account, "profile", "laptop")


def passed() -> dict[str, bool]:
    return {name: reading.passed for (_, name), reading in account.gates.items()}


def results(**scores: float) -> Sweep:
    rows = [
        {"arm": arm, "seed": 0, "set": "s", "where": "out", "context": "none", "ndcg": ndcg}
        for arm, ndcg in scores.items()
    ]
    return Sweep(pd.DataFrame(rows))


def test_steps_and_null_tokens_are_counted_from_the_recipe() -> None:
    of_recipe("context_source", recipe("laptop", steps=999))
    assert not passed()["enough-updates"]
    # 1,000 steps of 32 context documents, each null with a probability of 0.005: 160 times
    long = recipe("laptop", steps=1000)
    of_recipe("context_source", long)
    assert passed()["enough-updates"] and not passed()["null-trained"]
    often = replace(long, base=replace(long.base, model={"sequence_dropout": 0.1}))
    of_recipe("context_source", often)
    assert passed()["null-trained"]
    of_recipe("batch_and_cluster_size", long, updates=25)
    assert not passed()["enough-updates"]


def test_the_floor_is_held_against_the_weakest_arm() -> None:
    for weakest, enough in ((0.29, True), (0.19, False)):
        of_recipe("false_negatives", recipe("laptop"), results(one=0.6, two=weakest), bm25=40.0)
        assert passed()["above-floor"] == enough


def test_the_encoder_s_reading_comes_from_the_record_of_the_same_recipe_alone() -> None:
    share = share_moved(recipe("laptop"), "laptop")
    assert share is not None and 0 < share < 1
    assert share_moved(recipe("laptop", learning_rate=1e-5), "laptop") is None
    assert share_moved(recipe("laptop"), "paper") is None
    of_recipe("context_source", recipe("laptop", learning_rate=1e-5))
    assert account.gates["laptop", "reads-context"].value is None
    assert not passed()["reads-context"]


def test_bm25_is_scored_out_of_domain_alone() -> None:
    tests = [EvaluationSet("out", CORPUS, "out"), EvaluationSet("in", CORPUS, "in")]
    assert bm25_scores(tests).to_dict() == {"out": 100.0}

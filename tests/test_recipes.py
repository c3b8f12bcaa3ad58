"""The recipe of the result chapters: arms share runs, and each context is the one it says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cde.data import RetrievalSet
from cde.models import BiEncoder
from cde.recipes import EvaluationSet, recipe
from cde.sweeps import evaluate_in_contexts, sweep
from cde.training import Trainer

pytestmark = pytest.mark.usefixtures("one_thread")


class Bound:
    """Ranks as its context says: with its own corpus it finds everything, else nothing."""

    def __init__(self, right: bool) -> None:
        self.right = right

    def rank(self, retrieval_set: RetrievalSet, depth: int = 1000) -> dict[str, dict[str, float]]:
        best = retrieval_set.document_ids if self.right else retrieval_set.document_ids[::-1]
        return {query: {best[int(query[1:])]: 1.0} for query in retrieval_set.query_ids}


class Contextual:
    def __init__(self) -> None:
        self.given: list[Any] = []

    def with_context(self, documents: Any, seed: int = 0) -> Bound:
        self.given.append(documents)
        return Bound(bool(documents) and documents[0].startswith("a"))


def small(name: str) -> EvaluationSet:
    texts = [f"{name} {number}" for number in range(4)]
    ids = [f"d{number}" for number in range(4)]
    queries = [f"q{number}" for number in range(4)]
    qrels = {query: {document: 1} for query, document in zip(queries, ids, strict=True)}
    return EvaluationSet(name, RetrievalSet(ids, texts, queries, texts, qrels), "out")


def test_each_set_is_searched_in_its_own_another_and_no_context() -> None:
    model: Any = Contextual()
    found = evaluate_in_contexts(model, [small("a"), small("b")], ("own", "other", "null"))
    assert [None if one is None else one[0] for one in model.given] == ["a 0", "b 0", None, "b 0", "a 0", None]
    scores = found.set_index(["set", "context"])["ndcg"]
    assert scores["a", "own"] == scores["b", "other"] == 1
    assert scores["a", "other"] == scores["a", "null"] == scores["b", "own"] == 0


def test_another_context_needs_another_set() -> None:
    model: Any = Contextual()
    with pytest.raises(ValueError, match="second test set"):
        evaluate_in_contexts(model, [small("a")], ("other",))


def test_a_bi_encoder_has_no_context() -> None:
    found = evaluate_in_contexts(BiEncoder.from_backbone(layers=1), [small("a"), small("b")], ("own", "other"))
    assert found["context"].tolist() == ["none", "none"]


def test_a_sweep_has_every_arm_seed_set_and_context_and_a_second_one_trains_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    using = recipe("smoke")
    arms = {
        "plain": {"architecture": "bi-encoder", "batches": "random"},
        "contextual": {"architecture": "contextual", "attention": "cached"},
    }
    tests = [replace(test, collection=test.collection.select_queries(10)) for test in using.tests()[:2]]
    found = sweep(arms, (3, 4), using, ("own", "null"), tests)
    counts = found.groupby(["arm", "seed"]).size()
    assert counts["plain"].tolist() == [2, 2]
    assert counts["contextual"].tolist() == [4, 4]
    assert found["ndcg"].between(0, 1).all()
    assert found.groupby(["arm", "seed"])["loss"].nunique().eq(1).all()
    assert found["loss"].nunique() == 4

    def no_training(self: Trainer) -> Any:
        raise AssertionError("trained again")

    monkeypatch.setattr(Trainer, "run", no_training)
    again = sweep({"another name": arms["contextual"]}, (4,), using, ("own", "null"), tests)
    before = found[(found["arm"] == "contextual") & (found["seed"] == 4)]
    np.testing.assert_array_equal(again["ndcg"], before["ndcg"])


def test_none_leaves_the_recipe_and_errors_name_what_is_wrong() -> None:
    assert recipe("laptop", steps=None).base == recipe("laptop").base
    assert recipe("laptop", steps=7).base == replace(recipe("laptop").base, steps=7)
    with pytest.raises(ValueError, match="profile must be one of smoke, laptop"):
        recipe("desktop")
    with pytest.raises(ValueError, match="unknown settings stepz"):
        recipe("smoke", stepz=3)


def test_no_query_of_a_test_set_is_in_the_training_pairs() -> None:
    using = recipe("laptop")
    trained = set(using.pairs.documents)
    for test in using.tests():
        assert len(test.collection.documents) <= 300
        asked = {document for judged in test.collection.qrels.values() for document in judged}
        texts = dict(zip(test.collection.document_ids, test.collection.documents, strict=True))
        assert not trained & {texts[document] for document in asked}, test.name
        assert test.where == ("out" if test.name in ("sympy", "networkx", "polars", "sqlalchemy") else "in")


def test_data_without_two_test_sets_are_refused_before_anything_is_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cde.recipes.is_available", lambda name: name == "beir/med")
    with pytest.raises(ValueError, match="of which 1 are here and two are needed: scifact"):
        recipe("smoke", data="folder:mine.jsonl").tests()


def test_a_record_on_other_data_depends_on_the_collections_at_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    using = recipe("smoke", data="folder:mine.jsonl")
    monkeypatch.setattr("cde.recipes.is_available", lambda name: name in ("beir/med", "beir/cisi"))
    two = using.kept()
    monkeypatch.setattr("cde.recipes.is_available", lambda name: True)
    assert two["tests"] == ["beir/med", "beir/cisi"] != using.kept()["tests"]
    assert "tests" not in recipe("smoke").kept()

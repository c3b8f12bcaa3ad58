"""The recipe of the result chapters: arms share runs, and each context is the one it says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import cde_studies
from cde.data import RetrievalSet, load_pairs, load_retrieval
from cde.training import Trainer
from cde_studies.collections import manuals
from cde_studies.profiles import making
from cde_studies.recipes import EvaluationSet, Recipe, profile_values, recipe
from cde_studies.results.sizes import sweep_sizes
from cde_studies.sweeps import evaluate_in_contexts, sweep


class Bound:
    """Ranks as its context says: with its own corpus it finds everything, else nothing."""

    def __init__(self, right: bool) -> None:
        self.right = right

    def rank(self, retrieval_set: RetrievalSet, depth: int = 1000) -> dict[str, dict[str, float]]:
        best = retrieval_set.document_ids if self.right else retrieval_set.document_ids[::-1]
        return {query: {best[int(query[1:])]: 1.0} for query in retrieval_set.query_ids}


class Contextual:
    reads_context = True
    config = SimpleNamespace(context_size=8)

    def __init__(self) -> None:
        self.given: list[Any] = []

    def with_context(self, documents: Any, seed: int = 0) -> Bound:
        self.given.append(documents)
        return Bound(bool(documents) and documents[0].startswith("a"))


def test_a_book_without_records_shortens_the_recipe_of_the_laptop_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = Path(cde_studies.__file__).with_name("recipes.yml")
    monkeypatch.setattr(making, "fresh", False)
    whole = {name: profile_values(file, name) for name in ("smoke", "laptop", "gpu")}
    monkeypatch.setattr(making, "fresh", True)
    shortened = profile_values(file, "laptop")
    for phase in ("first", "second"):
        short, long = shortened[phase], whole["laptop"][phase]
        assert short["pairs"] < long["pairs"]
        assert set(short) == set(long), "the rest is the laptop's"
    assert all(profile_values(file, name) == whole[name] for name in ("smoke", "gpu"))
    with pytest.raises(ValueError, match="'fresh'"):
        profile_values(file, "fresh")


def own_pairs(folder: Path, names: Sequence[str] = ("law", "news"), count: int = 300) -> str:
    """Files of pairs, each text answering two queries."""
    for name in names:
        lines = [
            f'{{"query": "{name} {number}", "document": "{name} text {number // 2}"}}\n'
            for number in range(count)
        ]
        (folder / f"{name}.jsonl").write_text("".join(lines))
    return f"folder:{folder}"


def small(name: str) -> EvaluationSet:
    texts = [f"{name} {number}" for number in range(6)]
    ids = [f"d{number}" for number in range(6)]
    queries = [f"q{number}" for number in range(6)]
    qrels = {query: {document: 1} for query, document in zip(queries, ids, strict=True)}
    return EvaluationSet(name, RetrievalSet(ids, texts, queries, texts, qrels), "out")


def test_each_set_is_searched_in_its_own_another_and_no_context() -> None:
    model: Any = Contextual()
    rows = evaluate_in_contexts(model, [small("a"), small("b")], ("own", "other", "null"))
    firsts = [None if one is None else one[0] for one in model.given]
    assert firsts == ["a 0", "b 0", None, "b 0", "a 0", None]
    scores = rows.set_index(["set", "context"])["ndcg"]
    assert scores["a", "own"] == scores["b", "other"] == 1
    assert scores["a", "other"] == scores["a", "null"] == scores["b", "own"] == 0


def test_contexts_hold_what_they_are_named_after() -> None:
    model: Any = Contextual()
    own, fixed = small("a"), ["one", "two", "three"]
    evaluate_in_contexts(model, [own], ("strings", "fixed"), fixed=fixed)
    strings, given = model.given
    assert len(strings) == 8 and not set(strings) & set(own.collection.documents)
    assert given == fixed
    for context, said in (("fixed", "a run whose context_from is 'fixed'"), ("other", "second")):
        with pytest.raises(ValueError, match=said):
            evaluate_in_contexts(model, [own], (context,))


def test_documents_beside_the_answers_are_all_the_collection_s_that_answer_nothing_asked() -> None:
    for test in recipe("smoke").tests():
        whole = load_retrieval(f"pydocs/{test.name}")
        texts = dict(zip(whole.document_ids, whole.documents, strict=True))
        answers = {texts[one] for grades in test.collection.qrels.values() for one in grades}
        assert not answers & set(test.beside)
        assert answers | set(test.beside) == set(whole.documents)


def two_small_tests(here: Recipe) -> list[EvaluationSet]:
    return [replace(one, collection=one.collection.select_queries(10)) for one in here.tests()[:2]]


def test_a_sweep_has_every_arm_seed_set_and_context_and_a_second_one_trains_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = recipe("smoke")
    arms = {
        "plain": {"architecture": "bi-encoder", "batches": "random"},
        "contextual": {"architecture": "contextual", "attention": "cached"},
    }
    tests = two_small_tests(here)
    rows = sweep(arms, (3, 4), here, ("own", "null"), tests)
    counts = rows.groupby(["arm", "seed"]).size()
    assert counts["plain"].tolist() == [2, 2]
    assert counts["contextual"].tolist() == [4, 4]
    assert rows["ndcg"].between(0, 1).all()
    assert rows.groupby(["arm", "seed"])["loss"].nunique().eq(1).all()
    assert rows["loss"].nunique() == 4

    def no_training(self: Trainer) -> Any:
        raise AssertionError("trained again")

    monkeypatch.setattr(Trainer, "run", no_training)
    again = sweep({"another name": arms["contextual"]}, (4,), here, ("own", "null"), tests)
    before = rows[(rows["arm"] == "contextual") & (rows["seed"] == 4)]
    np.testing.assert_array_equal(again["ndcg"], before["ndcg"])


def test_the_second_phase_goes_on_from_the_first_on_pairs_that_it_has_not_seen() -> None:
    """Without a useful step the weights are the first phase's."""
    here = recipe("smoke")
    first = here.train({"architecture": "bi-encoder", "batches": "random"}, 5)
    barely = here.fine_tune(first, {"learning_rate": 1e-30}, 5)
    texts = here.tests()[0].collection.documents[:8]
    np.testing.assert_allclose(
        barely.model().encode_documents(texts), first.model().encode_documents(texts), atol=1e-6
    )
    assert barely.config.batches == "random"
    assert barely.config.hard_negatives == 1
    assert barely.config.steps == len(here.supervised_pairs) // here.second["batch_size"]
    thrice = here.fine_tune(first, {"epochs": 3, "learning_rate": 1e-30}, 5)
    assert thrice.config.steps == 3 * barely.config.steps
    assert not set(here.supervised_pairs.documents) & set(here.pairs.documents)


def test_the_second_phase_has_a_seed_of_its_own() -> None:
    here = recipe("smoke")
    first = here.train({"architecture": "bi-encoder", "batches": "random"}, 5)
    losses = {}
    for seed in (5, 6):
        run = here.fine_tune(first, {"learning_rate": 1e-30}, seed)
        assert run.config.seed == seed
        losses[seed] = run.metrics["loss"].tolist()
    assert losses[5] != losses[6], "other batches"


def test_arms_after_a_first_phase_are_second_phases_of_their_own_seed() -> None:
    here = recipe("smoke")
    before = {"architecture": "bi-encoder", "batches": "random"}
    tests = two_small_tests(here)
    first = sweep({"first": before}, (5, 6), here, tests=tests)
    idle = sweep({"idle": {"learning_rate": 1e-30}}, (5, 6), here, tests=tests, after=before)
    np.testing.assert_allclose(idle["ndcg"], first["ndcg"], atol=1e-6)
    with pytest.raises(ValueError, match="not one step"):
        here.fine_tune(here.train(before, 5), {"batch_size": 512}, 5)


def test_written_questions_are_the_second_phase_where_they_are_among_the_pairs(
    tmp_path: Any,
) -> None:
    data = own_pairs(tmp_path, ("squad-question-sentence", "wordnet-definitions"), 60)
    here = recipe("smoke", data=data, pairs=40)
    assert set(here.supervised_pairs.domains) == {"squad-question-sentence"}
    assert set(here.pairs.domains) == {"squad-question-sentence", "wordnet-definitions"}


@pytest.mark.parametrize(
    ("batches", "clusters", "seen", "wrong"),
    [
        ([8], [8], 64, "two sizes of batches or of clusters"),
        ([8, 16], [8, 16], 31, "two of the"),
        ([4, 16], [8, 16], 64, "context_size 8 is more than the smallest"),
        ([8, 400], [8, 16], 800, "no batch of 400 can be filled"),
    ],
)
def test_a_sweep_that_cannot_compare_is_refused(
    batches: list[int], clusters: list[int], seen: int, wrong: str
) -> None:
    with pytest.raises(ValueError, match=wrong):
        sweep_sizes(recipe("smoke"), batches, clusters, seen, "cached", 0, 1)


def test_every_cell_of_the_sweep_sees_equally_many_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, dict[str, Any]] = {}

    def no_training(arms: Any, seeds: Any, recipe: Any, **_: Any) -> pd.DataFrame:
        asked.update(arms)
        return pd.DataFrame({"arm": list(arms), "seed": 0, "ndcg": 0.5})

    monkeypatch.setattr("cde_studies.results.sizes.sweep", no_training)
    cells = sweep_sizes(recipe("smoke"), [16, 8], [8, 32], 64, "cached", 0, 1)
    assert len(asked) == len(cells) == 2 * 2 * 2 * 2
    assert {arm["steps"] * arm["batch_size"] for arm in asked.values()} == {64}
    rows = cells.set_index("arm")
    for name, arm in asked.items():
        assert arm["architecture"] == rows.loc[name, "encoder"]
        assert arm["cluster_size"] == rows.loc[name, "cluster_size"]
        assert (arm["filter_epsilon"] is not None) == rows.loc[name, "filtered"]


def test_manuals_are_trained_on_and_tested_on_by_whole_families() -> None:
    of = recipe("laptop", data="manuals")
    searched = {one.name for one in of.tests()}
    kin = manuals.table().drop_duplicates("corpus").set_index("corpus")["family"]
    assert len(searched) == 12
    assert not set(kin[list(searched)]) & set(kin[list(set(of.pairs.domains))])


def test_no_query_of_a_test_set_is_in_the_training_pairs() -> None:
    here = recipe("laptop")
    trained = set(here.pairs.documents)
    for test in here.tests():
        assert len(test.collection.documents) <= 300
        asked = {document for judged in test.collection.qrels.values() for document in judged}
        texts = dict(zip(test.collection.document_ids, test.collection.documents, strict=True))
        assert not trained & {texts[document] for document in asked}, test.name
        assert test.where == (
            "out" if test.name in ("sympy", "networkx", "polars", "sqlalchemy") else "in"
        )


def test_a_record_on_other_data_depends_on_the_collections_at_hand(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = recipe("smoke", data="pairs/*")
    at_hand = ("beir/med", "beir/cisi")
    monkeypatch.setattr("cde_studies.recipes.is_available", at_hand.__contains__)
    two = here.record_key()
    monkeypatch.setattr("cde_studies.recipes.is_available", lambda name: True)
    assert two["tests"] == [*at_hand] != here.record_key()["tests"]
    assert "tests" not in recipe("smoke").record_key()


def test_ones_own_pairs_are_trained_on_and_tested_on_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cde_studies.recipes.is_available", lambda name: False)
    here = recipe("smoke", data=own_pairs(tmp_path), pairs=1000)
    every, test = load_pairs(here.base.data), load_pairs(here.base.data, split="test")
    assert not set(here.pairs.documents) & set(test.documents)
    assert not set(here.supervised_pairs.documents) & set(test.documents)
    assert len(here.pairs) + len(test) == len(every) == 600
    tests = {one.name: one for one in here.tests()}
    assert {name for name, one in tests.items() if one.where == "in"} == {"own: law", "own: news"}
    assert {name for name, one in tests.items() if one.where == "out"} == {"networkx", "polars"}
    whole = {one.name: one for one in cde_studies.recipes.own_tests(every)}
    assert sorted(query for one in whole.values() for query in one.queries) == sorted(test.queries)
    for one in whole.values():
        # all texts of the domain once, those of training too
        assert len(one.documents) == len(set(one.documents)) == 150
        texts = dict(zip(one.document_ids, one.documents, strict=True))
        for query, text in zip(one.query_ids, one.queries, strict=True):
            place = every.queries.index(text)
            assert [texts[d] for d in one.qrels[query]] == [every.documents[place]]


def test_sources_of_the_data_folder_are_trained_on_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Committed records rest on them."""
    (tmp_path / "pairs").mkdir()
    own_pairs(tmp_path / "pairs")
    monkeypatch.setenv("CDE_DATA", str(tmp_path))
    assert len(cde_studies.recipes.training_pairs("pairs/*")) == len(load_pairs("pairs/*")) == 600
    assert len(load_pairs("pairs/law", split="train")) < len(load_pairs("pairs/law")) == 300

"""Search against brute force, and scores against trec_eval's definitions, written out here."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import polars
import pytest
import pytrec_eval
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from sentence_transformers import CrossEncoder

from cde.data import RetrievalSet
from cde.lexical import BM25
from cde.retrieval import Hybrid, Rankings, compare, evaluate, rank, rerank, score_queries, search

Vectors = NDArray[np.float32]


def unit(shape: tuple[int, int], seed: int) -> Vectors:
    vectors = np.random.default_rng(seed).normal(size=shape).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


# --- search


@given(
    queries=st.integers(1, 9),
    documents=st.integers(1, 40),
    depth=st.integers(1, 50),
    block=st.integers(1, 45),
    seed=st.integers(0, 99),
)
def test_exact_search_is_brute_force(
    queries: int, documents: int, depth: int, block: int, seed: int
) -> None:
    """For every block size, and with a depth beyond the corpus."""
    asked, held = unit((queries, 6), seed), unit((documents, 6), seed + 100)
    with mock.patch("cde.retrieval.ranking.BLOCK", block):
        scores, positions = search(asked, held, depth)
    product = asked @ held.T
    order = np.argsort(-product, axis=1)[:, :depth]
    assert scores.shape == positions.shape == (queries, min(depth, documents))
    assert (positions == order).all()
    np.testing.assert_allclose(scores, np.take_along_axis(product, order, axis=1), atol=1e-6)
    assert (scores.dtype, positions.dtype) == (np.float32, np.int64)


@given(st.integers(1, 20), st.integers(1, 20), st.integers(1, 20), st.integers(0, 20))
def test_the_block_size_does_not_change_which_scores_are_found_among_ties(
    documents: int, depth: int, block: int, seed: int
) -> None:
    """Small whole numbers tie often: scores are the largest, and no document comes twice."""
    generator = np.random.default_rng(seed)
    asked, held = (generator.integers(-1, 2, (n, 3)).astype(np.float32) for n in (5, documents))
    with mock.patch("cde.retrieval.ranking.BLOCK", block):
        scores, positions = search(asked, held, depth)
    product = asked @ held.T
    assert (scores == -np.sort(-product, axis=1)[:, :depth]).all()
    assert (np.take_along_axis(product, positions, axis=1) == scores).all()
    assert all(len(set(row)) == len(row) for row in positions.tolist())


def test_vectors_that_run_backwards_are_searched_in_their_order() -> None:
    asked, held = unit((3, 4), 0)[::-1], unit((9, 4), 1)[::-2]
    assert (search(asked, held, 2)[1] == search(asked.copy(), held.copy(), 2)[1]).all()


def test_searching_nothing_or_for_nothing_has_the_right_shape() -> None:
    some, none = unit((3, 4), 0), np.zeros((0, 4), np.float32)
    assert [array.shape for array in search(none, some, 2)] == [(0, 2), (0, 2)]
    assert [array.shape for array in search(some, none, 2)] == [(3, 0), (3, 0)]


# --- encoders and rankers


class Table:
    """An encoder that knows its vectors: a name's letter says which table, its number which row."""

    def __init__(self, vectors: Mapping[str, Vectors]) -> None:
        self.vectors = vectors

    def encode_queries(self, texts: Sequence[str]) -> Vectors:
        return np.stack([self.vectors[text[0]][int(text[1:])] for text in texts])

    encode_documents = encode_queries


def test_an_encoders_ranking_is_by_inner_product() -> None:
    asked, held = unit((3, 8), 0), unit((12, 8), 1)
    names = [f"d{i}" for i in range(12)]
    toy = RetrievalSet(names, names, ["q0", "q1", "q2"], ["q0", "q1", "q2"], {})
    rankings = rank(Table({"q": asked, "d": held}), toy, depth=5)
    for i in range(3):
        order = np.argsort(-(held @ asked[i]))[:5]
        assert list(rankings[f"q{i}"]) == [f"d{p}" for p in order]
        assert list(rankings[f"q{i}"].values()) == pytest.approx(
            (held @ asked[i])[order].tolist(), abs=1e-6
        )


# --- scores


def judged(qrels: Mapping[str, Mapping[str, int]], documents: int = 12) -> RetrievalSet:
    names = [f"d{i:02}" for i in range(documents)]
    return RetrievalSet(names, names, list(qrels), list(qrels), qrels)


def in_order(*names: str) -> dict[str, float]:
    return {name: float(len(names) - place) for place, name in enumerate(names)}


def by_definition(metric: str, ranking: Mapping[str, float], grades: Mapping[str, int]) -> float:
    """trec_eval's measures of rankings without ties; all relevant documents count, found or not."""
    kind, _, cut = metric.partition("@")
    k = int(cut)
    order = sorted(ranking, key=lambda name: -ranking[name])[:k]
    relevant = {name for name, grade in grades.items() if grade > 0}
    hits = [name in relevant for name in order]
    if kind == "ndcg":
        ideal = sorted((grade for grade in grades.values() if grade > 0), reverse=True)[:k]
        gain = sum(max(grades.get(name, 0), 0) / math.log2(i + 2) for i, name in enumerate(order))
        best = sum(grade / math.log2(i + 2) for i, grade in enumerate(ideal))
        return gain / best if best else 0.0
    if kind == "mrr":
        return next((1 / (i + 1) for i, hit in enumerate(hits) if hit), 0.0)
    if kind == "p":
        return sum(hits) / k
    if not relevant:
        return 0.0
    if kind == "recall":
        return sum(hits) / len(relevant)
    return sum(sum(hits[: i + 1]) / (i + 1) for i, hit in enumerate(hits) if hit) / len(relevant)


NAMES = [f"d{i:02}" for i in range(12)]
GRADES = st.dictionaries(st.sampled_from(NAMES), st.integers(0, 3), min_size=1)
ORDER = st.permutations(NAMES).flatmap(
    lambda order: st.integers(0, 12).map(lambda depth: order[:depth])
)
METRICS = [f"{kind}@{k}" for kind in ("ndcg", "map", "recall", "p", "mrr") for k in (1, 3, 10, 100)]


@given(st.lists(st.tuples(GRADES, ORDER), min_size=1, max_size=3))
def test_scores_are_those_of_the_definitions(drawn: list[tuple[dict[str, int], list[str]]]) -> None:
    """Random grades and rankings, short ones and empty ones among them."""
    qrels = {f"q{i}": grades for i, (grades, _) in enumerate(drawn)}
    rankings = {f"q{i}": in_order(*order) for i, (_, order) in enumerate(drawn)}
    scores = score_queries(rankings, judged(qrels), METRICS)
    assert list(scores.index) == list(qrels)
    for query, grades in qrels.items():
        expected = {metric: by_definition(metric, rankings[query], grades) for metric in METRICS}
        assert scores.loc[query].to_dict() == pytest.approx(expected, abs=1e-6)


@given(GRADES, ORDER)
def test_scores_do_not_change_under_an_increasing_map_of_the_ranking_scores(
    grades: dict[str, int], order: list[str]
) -> None:
    toy, ranking = judged({"q": grades}), in_order(*order)
    mapped = {name: math.exp(score / 2) - 40 for name, score in ranking.items()}
    assert score_queries({"q": mapped}, toy, METRICS).equals(
        score_queries({"q": ranking}, toy, METRICS)
    )


def test_scores_that_agree_in_float32_tie_for_every_measure() -> None:
    """trec_eval keeps scores in float32: a difference beyond it orders nothing."""
    toy = judged({"q": {"d01": 1}})
    rankings = {"q": {"d01": 1.0 + 1e-10, "d02": 1.0}}
    scores = score_queries(rankings, toy, ["p@1", "ndcg@1", "mrr@1", "mrr@2"]).loc["q"].to_dict()
    assert scores == {"p@1": 0.0, "ndcg@1": 0.0, "mrr@1": 0.0, "mrr@2": 0.5}


def test_a_query_without_results_scores_0_and_counts_in_the_mean() -> None:
    toy = judged({"found": {"d01": 1}, "empty": {"d01": 1}, "absent": {"d01": 1}})
    rankings: Rankings = {"found": {"d01": 1.0}, "empty": {}}
    scores = score_queries(rankings, toy, ["ndcg@10", "mrr@10"])
    assert scores["ndcg@10"].to_dict() == {"found": 1.0, "empty": 0.0, "absent": 0.0}
    assert scores["mrr@10"].to_dict() == {"found": 1.0, "empty": 0.0, "absent": 0.0}
    assert score_queries({}, toy, METRICS).to_numpy().sum() == 0


def test_results_of_queries_that_are_not_in_the_set_do_not_count() -> None:
    toy = judged({"q": {"d01": 1}})
    assert score_queries({"q": {"d01": 1.0}, "other": {"d02": 1.0}}, toy).to_dict() == {
        "ndcg@10": {"q": 1.0}
    }


def test_a_document_with_the_querys_own_id_is_dropped_unless_it_is_judged_relevant() -> None:
    """BEIR drops it (quora, arguana: the query is a document); in pydocs it is the answer."""
    names, texts = ["a", "b", "c"], ["x", "y", "z"]
    qrels = {"a": {"b": 1}, "b": {"b": 1}, "c": {"c": 0, "b": 1}}
    toy = RetrievalSet(names, texts, names, texts, qrels)
    rankings = {"a": in_order("a", "b"), "b": in_order("b", "c"), "c": in_order("c", "b")}
    assert score_queries(rankings, toy, ["mrr@10"])["mrr@10"].to_dict() == {
        "a": 1.0,
        "b": 1.0,
        "c": 1.0,
    }
    kept = score_queries(rankings, toy, ["mrr@10"], drop_own=False)
    assert kept["mrr@10"].to_dict() == {"a": 0.5, "b": 1.0, "c": 0.5}


def test_excluded_documents_are_dropped_from_their_querys_ranking_only() -> None:
    toy = replace(judged({"q": {"d02": 1}, "r": {"d02": 1}}), excluded={"q": frozenset({"d01"})})
    rankings = dict.fromkeys(("q", "r"), in_order("d01", "d02"))
    assert score_queries(rankings, toy, ["mrr@10"])["mrr@10"].to_dict() == {"q": 1.0, "r": 0.5}


def test_rankings_are_left_as_they_were() -> None:
    toy = replace(judged({"q": {"d02": 1}}), excluded={"q": frozenset({"d01"})})
    rankings = {"q": in_order("d01", "d02", "d03")}
    score_queries(rankings, toy, METRICS)
    assert rankings == {"q": in_order("d01", "d02", "d03")}


@pytest.mark.parametrize(
    "metric", ["ndcg", "ndcg@0", "ndcg@", "accuracy@1", "NDCG@10", "map@-1", "mrr@ten"]
)
def test_an_unknown_metric_is_shown_with_those_accepted(metric: str) -> None:
    with pytest.raises(
        ValueError,
        match=f"unknown metric '{metric}'; accepted are ndcg@k, map@k, recall@k, p@k and",
    ):
        score_queries({}, judged({"q": {"d01": 1}}), ["ndcg@10", metric])


# --- reranking another model's candidates


class Ranked:
    """A ranker with an encoder's rankings."""

    def __init__(self, encoder: Table) -> None:
        self.encoder = encoder

    def rank(self, retrieval_set: RetrievalSet, depth: int = 1000) -> Rankings:
        return rank(self.encoder, retrieval_set, depth)


def two_models(queries: int = 5) -> tuple[Table, RetrievalSet, Rankings]:
    """An encoder, twelve documents, and candidates: all documents in another model's order."""
    names, asked = [f"d{i:02}" for i in range(12)], [f"q{i}" for i in range(queries)]
    toy = RetrievalSet(
        names, names, asked, asked, {query: {"d03": 1, "d07": 2, "d11": 1} for query in asked}
    )
    generator = np.random.default_rng(9)
    candidates = {
        query: dict(zip(names, generator.random(12).tolist(), strict=True)) for query in asked
    }
    return Table({"q": unit((queries, 6), 7), "d": unit((12, 6), 8)}), toy, candidates


def test_reranking_candidates_that_are_the_whole_corpus_is_ranking() -> None:
    encoder, toy, candidates = two_models()
    for model in (encoder, Ranked(encoder), BM25()):
        reranked, expected = rerank(model, toy, candidates, depth=12), rank(model, toy)
        assert list(reranked) == list(expected)
        for query in expected:
            assert dict(reranked[query]) == pytest.approx(dict(expected[query]), abs=1e-6)
        assert score_queries(reranked, toy, METRICS).equals(score_queries(expected, toy, METRICS))
    assert list(rerank(encoder, toy, candidates)["q0"]) == list(rank(encoder, toy)["q0"])


@given(st.integers(1, 15))
def test_each_query_keeps_its_own_best_candidates_and_no_other_document_appears(depth: int) -> None:
    """Also where candidates are few or none; the order within is the encoder's or ranker's."""
    encoder, toy, candidates = two_models()
    few = {**candidates, "q1": {"d05": 0.2, "d02": 0.1}, "q2": {}}
    del few["q3"]
    whole = rank(encoder, toy)
    for model in (encoder, Ranked(encoder)):
        reranked = rerank(model, toy, few, depth)
        assert list(reranked) == list(toy.query_ids)
        for query in toy.query_ids:
            best = sorted(few.get(query, {}), key=lambda name: -few[query][name])[:depth]
            assert list(reranked[query]) == [name for name in whole[query] if name in best]


def test_of_candidates_that_tie_at_the_cut_the_later_id_stays() -> None:
    """As in trec_eval, in single precision, whatever the order of the candidates."""
    encoder, toy, _ = two_models(1)
    tied = {"d01": 0.5, "d04": 0.5 + 1e-10, "d02": 0.9, "d09": 0.5}
    for candidates in (tied, dict(reversed(tied.items()))):
        assert set(rerank(encoder, toy, {"q0": candidates}, 2)["q0"]) == {"d02", "d09"}


def test_only_documents_that_are_candidates_are_embedded() -> None:
    encoder, toy, _ = two_models(2)
    embedded: list[str] = []

    class Counted(Table):
        def encode_documents(self, texts: Sequence[str]) -> Vectors:
            embedded.extend(texts)
            return encoder.encode_documents(texts)

    rerank(
        Counted(encoder.vectors),
        toy,
        {"q0": {"d08": 1.0, "d02": 0.5}, "q1": {"d02": 1.0, "d00": 0.5}},
        depth=1,
    )
    assert embedded == ["d02", "d08"]
    rerank(Counted(encoder.vectors), toy, {}, depth=1)
    assert embedded == ["d02", "d08"]


# --- evaluate


def test_evaluate_is_the_mean_over_queries_of_the_scores_of_the_ranking() -> None:
    encoder = Table({"q": unit((6, 5), 4), "d": unit((12, 5), 5)})
    toy = judged({f"q{i}": {f"d{i:02}": 1, f"d{2 * i:02}": 2} for i in range(6)})
    scores = score_queries(rank(encoder, toy), toy, METRICS)
    assert evaluate(encoder, toy, METRICS) == pytest.approx(scores.mean().to_dict())


class Alike:
    """An encoder of few whole numbers, so that many documents tie."""

    def encode_queries(self, texts: Sequence[str]) -> Vectors:
        return np.array([[1 + len(text) % 3, 1] for text in texts], np.float32)

    encode_documents = encode_queries


@pytest.mark.parametrize("system", [BM25(), Alike()])
@given(
    lengths=st.lists(st.integers(1, 3), min_size=12, max_size=30),
    answer=st.integers(0, 11),
    own=st.booleans(),
)
def test_a_measure_is_trec_eval_s_of_the_whole_ranking_whatever_the_depth(
    system: Any, lengths: list[int], answer: int, own: bool
) -> None:
    """Of equal texts the later ids come first, also where they are more than are ranked."""
    names = [f"d{row:02}" for row in range(len(lengths))]
    texts = ["boat " * length for length in lengths]
    query = names[3] if own else "q"
    qrels, metrics = {query: {names[answer]: 2, names[7]: 1}}, ["ndcg@10", "recall@1", "map@3"]
    toy = RetrievalSet(names, texts, [query], ["boat"], qrels, {query: frozenset({names[5]})})
    run = dict(rank(system, toy, depth=len(names))[query])
    assert len(run) == len(names)
    for one in (names[5], query):
        if one == names[5] or answer != 3:
            run.pop(one, None)
    trec = pytrec_eval.RelevanceEvaluator(qrels, {"ndcg_cut.10", "recall.1", "map_cut.3"})
    expected = trec.evaluate({query: run})[query]
    for depth in (1, 10, 11, 1000):
        assert list(evaluate(system, toy, metrics, depth).values()) == pytest.approx(
            [expected[name] for name in ("ndcg_cut_10", "recall_1", "map_cut_3")]
        )


def test_queries_without_a_judgement_are_left_out_and_counted() -> None:
    """As trec_eval and mteb do; one that is judged, with nothing relevant, scores 0."""
    toy = RetrievalSet(
        ["a", "b"], ["red boats", "soup"], ["q", "r", "s"], ["boats", "soup", "x"], {"q": {"a": 1}}
    )
    with pytest.warns(UserWarning, match="2 of 3 queries have no judgement, and are left out"):
        assert evaluate(BM25(), toy) == {"ndcg@10": 1.0}
    judged = replace(toy, qrels={"q": {"a": 1}, "r": {"b": 0}, "s": {}})
    with pytest.warns(UserWarning, match="1 of 3 queries"):
        assert evaluate(BM25(), judged) == {"ndcg@10": 0.5}
    with pytest.warns(UserWarning, match="1 of 3 queries"):
        compared = compare(BM25(), BM25(k1=2.0), judged)
    assert set(compared.queries.index) == {"q", "r"}
    for of_none in (lambda one: evaluate(BM25(), one), lambda one: compare(BM25(), BM25(), one)):
        with pytest.raises(ValueError, match="has no judged query to evaluate on"):
            of_none(replace(toy, qrels={}))


# --- what is refused


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_vectors_that_are_not_finite_are_refused(bad: float) -> None:
    """One such document came first for every query."""
    good, spoilt = np.eye(4, dtype=np.float32), np.eye(4, dtype=np.float32)
    spoilt[2, 1] = bad
    with pytest.raises(
        ValueError, match="those of 1 documents are not, of which the first is row 2"
    ):
        search(good, spoilt)
    with pytest.raises(ValueError, match="those of 1 queries are not"):
        search(spoilt, good)
    with pytest.raises(ValueError, match="those of 4 queries are not"):
        search(good.astype(np.float64) * 1e200, good)
    with pytest.raises(ValueError, match="inner products leave single precision"):
        search(good * np.float32(1e20), good * np.float32(1e20))


class Gives:
    """A ranker that gives what a test wants."""

    def __init__(self, given: Any) -> None:
        self.given = given

    def rank(self, retrieval_set: RetrievalSet, depth: int = 1000) -> Any:
        return self.given


#: what asks a system to rank a set
USES: list[Any] = [
    rank,
    evaluate,
    lambda system, toy: compare(BM25(), system, toy),
    lambda system, toy: Hybrid([BM25(), system]).rank(toy),
    lambda system, toy: rerank(system, toy, {"q": {"d01": 1.0}}),
]


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        (None, TypeError, "rankings of Gives must be a mapping of query ids → .* they are None"),
        ([{"d01": 1.0}], TypeError, "rankings of Gives must be a mapping"),
        ({"q": ["d01"]}, TypeError, "of 'q' there is"),
        ({"q": {"d01": "9", "d02": "10"}}, TypeError, "scores of the query 'q' must be numbers"),
        ({"q": {"d01": [1.0, 2.0]}}, TypeError, "scores of the query 'q' must be numbers"),
        ({"q": {"d01": 1.0, "d02": math.nan}}, ValueError, "scores must be finite .* 'd02' is nan"),
        ({"q": {"d01": math.inf}}, ValueError, "scores must be finite"),
        (
            {"q": {"zz": 1.0, "d01": 2.0}},
            ValueError,
            "1 documents are not in the corpus, such as zz",
        ),
        ({"q": {7: 1.0}}, TypeError, "must be strings"),
        ({"other": {"d01": 1.0}}, ValueError, "are of other queries than those of .* 'other'"),
    ],
)
def test_a_ranker_s_answer_is_checked_wherever_it_is_used(
    given: Any, error: type[Exception], message: str
) -> None:
    toy = judged({"q": {"d01": 1}, "r": {"d02": 1}})
    for use in USES:
        with pytest.raises(error, match=message):
            use(Gives(given), toy)


@pytest.mark.parametrize(
    "other",
    [pd.DataFrame({"text": ["a"]}), polars.Series([1.0]), CrossEncoder.__new__(CrossEncoder), None],
    ids=lambda one: type(one).__name__,
)
def test_what_cannot_rank_or_has_another_rank_than_a_ranker_is_refused(other: Any) -> None:
    toy = judged({"q": {"d01": 1}, "r": {"d02": 1}})
    for use in USES:
        with pytest.raises(
            TypeError, match=f"{type(other).__name__} cannot rank: expected encode_"
        ):
            use(other, toy)

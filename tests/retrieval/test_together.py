"""Two systems: compared as SciPy would, fused as the formula says."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from scipy import stats

import cde
from cde import Index, RetrievalSet
from cde.intervals import paired_test
from cde.lexical import BM25
from cde.retrieval import Hybrid, compare


class Fixed:
    """A ranker with rankings of its own."""

    def __init__(self, **rankings: Mapping[str, float]) -> None:
        self.rankings = rankings

    def rank(
        self, retrieval_set: RetrievalSet, depth: int = 1000
    ) -> Mapping[str, Mapping[str, float]]:
        return self.rankings


CORPUS = RetrievalSet(
    ["a", "b", "c"], ["x", "y", "z"], ["q", "r"], ["?", "!"], {"q": {"a": 1}, "r": {"b": 1}}
)
ONE = Fixed(q={"a": 9.0, "b": 5.0}, r={"b": 1.0})
OTHER = Fixed(q={"b": 0.9, "c": 0.5}, r={"c": 0.4, "b": 0.2})


def test_a_document_s_score_is_the_sum_of_its_reciprocal_ranks() -> None:
    fused = Hybrid([ONE, OTHER], k=1).rank(CORPUS)
    assert fused["q"] == pytest.approx({"b": 1 / 3 + 1 / 2, "a": 1 / 2, "c": 1 / 3})
    assert list(fused["q"]) == ["b", "a", "c"]
    # what stands below the depth counts for nothing, whatever a ranker gives
    assert Hybrid([ONE, OTHER], k=1).rank(CORPUS, depth=1)["q"] == {"b": 1 / 2}


def test_a_comparison_is_the_paired_test_of_its_queries() -> None:
    corpus = cde.load_retrieval("pydocs/rich")
    made = compare(cde.BM25(), cde.BM25(k1=0.1, b=1.0), corpus)
    both = [cde.evaluate(one, corpus)["ndcg@10"] for one in (cde.BM25(), cde.BM25(k1=0.1, b=1.0))]
    assert made.difference.estimate == pytest.approx(both[0] - both[1])
    assert len(made.queries) == len(corpus.queries)
    assert made.queries["difference"].is_monotonic_decreasing
    t = stats.ttest_rel(made.queries["first"], made.queries["second"]).pvalue
    assert made.p_value == pytest.approx(float(t), abs=0.05)
    turned = compare(cde.BM25(k1=0.1, b=1.0), cde.BM25(), corpus)
    assert turned.difference.estimate == pytest.approx(-made.difference.estimate)


def test_the_swaps_of_a_comparison_are_drawn_by_its_seed() -> None:
    corpus = cde.load_retrieval("pydocs/rich")
    made = {seed: compare(cde.BM25(), cde.BM25(b=0.9), corpus, seed=seed) for seed in (0, 1, 2)}
    for seed, one in made.items():
        table = one.queries.loc[sorted(one.queries.index, key=corpus.query_ids.index)]
        again = paired_test(table["first"].tolist(), table["second"].tolist(), seed)
        assert (one.p_value, one.difference) == (again.p_value, again.difference)
    assert len({one.p_value for one in made.values()}) > 1


def test_ties_go_to_the_later_id_as_in_trec_eval() -> None:
    twins = RetrievalSet(["d1", "d2"], ["a boat", "a boat"], ["q"], ["boat"], {"q": {"d2": 1}})
    assert list(Hybrid([cde.BM25()]).rank(twins)["q"]) == ["d2", "d1"]
    assert cde.evaluate(Hybrid([cde.BM25()]), twins) == cde.evaluate(cde.BM25(), twins)


def test_a_document_with_the_query_s_number_counts_where_ids_are_one_s_own() -> None:
    texts, queries = ["red boats", "red boats at sea", "soup"], ["red boats", "soup sea"]
    qrels = {"0": {"1": 1}, "1": {"2": 1}}
    toy = RetrievalSet(["0", "1", "2"], texts, ["0", "1"], queries, qrels)
    found = compare(BM25(), BM25(), toy, "mrr@10", drop_own=False).queries["first"]
    index = Index(dict(zip(toy.document_ids, toy.documents, strict=True)), encoder=BM25())
    asked = dict(zip(toy.query_ids, toy.queries, strict=True))
    assert found.mean() == index.evaluate(asked, toy.qrels, ("mrr@10",))["mrr@10"] == 0.75
    assert compare(BM25(), BM25(), toy, "mrr@10").queries["first"].mean() == 1.0

"""Own, foreign and no statistics: against BM25, MiniLM and trec_eval, and on corpora made to tell."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.covariance import ledoit_wolf

import cde
from cde.data import RetrievalSet
from cde.intervals import run_interval, smallest_effect
from cde.models.encoder import load_tokenizer
from cde.retrieval import score_queries
from cde_studies.intervals import correlation_interval
from cde_studies.motivation.corpus_statistics import Counts, Moments, shrunk_covariance
from cde_studies.motivation.headroom import (
    GENERAL,
    NONE,
    OTHERS,
    WAYS,
    PooledMiniLM,
    TermMatrix,
    headroom,
    whiten,
)
from cde_studies.motivation.headroom_readings import (
    Headroom,
    correlation_over_pairs,
    mean_over_pairs,
)
from cde_studies.motivation.score_matrices import JudgedMatrix
from cde_studies.motivation.word_counts import document_frequencies, idf_divergence_of_counts

WORDS = ("boat", "hill", "stone", "river", "lamp", "red", "the")
TEXT = st.lists(st.sampled_from(WORDS), max_size=9).map(" ".join)


def pydocs(package: str, documents: int) -> RetrievalSet:
    return RetrievalSet.from_pairs(cde.load_pairs(f"pydocs/{package}").sample_per_domain(documents))


def counted(documents: Sequence[str]) -> Counts:
    """Of which only terms are looked at."""
    return Counts(len(documents), document_frequencies(documents), np.zeros(3, np.int64))


# --- scores and measures


@given(
    scores=st.lists(st.sampled_from([0.0, 0.5, 1.0, -np.inf]), min_size=28, max_size=28),
    grades=st.lists(st.sampled_from([0, 0, 0, 1, 2]), min_size=28, max_size=28),
    dropped=st.sets(st.integers(0, 13), max_size=3),
)
def test_ndcg_is_that_of_trec_eval_ties_and_dropped_documents_included(
    scores: list[float], grades: list[int], dropped: set[int]
) -> None:
    documents = [f"d{place}" for place in range(12)] + ["q0", "q1"]
    table, of = np.reshape(scores, (2, 14)), np.reshape(grades, (2, 14))
    qrels = {f"q{row}": dict(zip(documents, of[row].tolist(), strict=True)) for row in (0, 1)}
    excluded = {"q1": frozenset(documents[place] for place in dropped)}
    made = RetrievalSet(documents, documents, ["q0", "q1"], ["", ""], qrels, excluded)
    rankings = {
        f"q{row}": {d: s for d, s in zip(documents, table[row], strict=True) if s > -np.inf}
        for row in (0, 1)
    }
    expected = score_queries(rankings, made)["ndcg@10"]
    found = JudgedMatrix.of(made).ndcg(table.astype(np.float32))
    assert found == pytest.approx(expected.to_numpy(), abs=1e-6)


@given(st.lists(TEXT, min_size=2, max_size=6), st.lists(TEXT, min_size=1, max_size=3))
def test_with_its_own_idf_the_term_matrix_scores_as_bm25(
    documents: list[str], queries: list[str]
) -> None:
    names, asked = (list(map(str, range(len(of)))) for of in (documents, queries))
    matrix = TermMatrix.of(RetrievalSet(names, documents, asked, queries, {}))
    weights = counted(documents).term_weights(matrix.vocabulary)
    all_found = cde.BM25(documents).search(queries)
    # BM25 searches by stop words where there is nothing else
    ordinary = matrix.queries.getnnz(axis=1)
    for row, found, terms in zip(matrix.scores(weights), all_found, ordinary, strict=True):
        assert not terms or found == pytest.approx(
            {place: x for place, x in enumerate(row) if x > -np.inf}
        )


def test_equal_weights_give_minilm_itself_and_other_weights_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CDE_PRECISION", "float32")
    texts = ["red boats", "", "the shortest path between two nodes of a weighted graph " * 4]
    model = PooledMiniLM(24)
    equal = np.full(len(model.tokenizer), 3.0, np.float32)
    other = equal.copy()
    other[model.tokenizer.convert_tokens_to_ids("boats")] = 0.1
    vectors = model.encode(texts, np.stack([equal, other]))
    surrogate = cde.Surrogate(max_tokens=24, precision="float32", cache=False)
    assert vectors[:, 0] == pytest.approx(surrogate.embed(texts), abs=1e-5)
    moved = 1 - (vectors[:, 0] * vectors[:, 1]).sum(axis=1)
    assert moved[0] > 0.01 and moved[1:] == pytest.approx(0, abs=1e-5)


def test_whitened_documents_have_one_variance_in_all_directions() -> None:
    generator = np.random.default_rng(0)
    vectors = generator.normal(size=(20_000, 3)) @ np.diag([5.0, 1.0, 0.2]) + 7
    moments = Moments.of(vectors.astype(np.float32))
    white = (vectors - moments.mean) @ moments.whitening
    assert np.cov(white.T) == pytest.approx(np.eye(3), abs=0.05)
    lengths = whiten(torch.from_numpy(vectors).float(), moments).norm(dim=1)
    assert lengths.numpy() == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("n", [5, 300])
def test_the_covariance_is_shrunk_as_by_scikit_learn(n: int) -> None:
    vectors = np.random.default_rng(0).normal(size=(n, 8)).astype(np.float32) * np.arange(8) + 3
    expected, _ = ledoit_wolf(vectors.astype(np.float64))
    found = shrunk_covariance(vectors.astype(np.float32))
    assert found == pytest.approx(expected, rel=1e-4, abs=1e-4)


def test_corpora_together_have_the_counts_of_their_union() -> None:
    texts = [["red boat", "boat"], ["red hill", "stone", "hill hill"]]
    tokenizer = load_tokenizer("minilm")
    together = Counts.together([Counts.of(some, tokenizer, 16) for some in texts])
    whole = Counts.of([*texts[0], *texts[1]], tokenizer, 16)
    assert together.terms.to_dict() == whole.terms.to_dict() and together.size == whole.size == 5
    assert (together.pieces == whole.pieces).all()
    red, hill = tokenizer.convert_tokens_to_ids(["red", "hill"])
    assert whole.pieces[[red, hill, tokenizer.cls_token_id]].tolist() == [2, 2, 5]


# --- the experiment


@pytest.fixture(scope="module")
def small() -> Headroom:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CDE_PRECISION", "float32")
        return Headroom(headroom([pydocs(name, 25) for name in ("rich", "PIL", "mpmath")], 16))


def test_own_statistics_and_none_are_bm25_and_minilm(
    small: Headroom, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CDE_PRECISION", "float32")
    minilm = cde.Surrogate(max_tokens=16)
    for name in small.names:
        searched = pydocs(name, 25)
        lexical, dense = (cde.evaluate(one, searched)["ndcg@10"] for one in (cde.BM25(), minilm))
        assert small.table(WAYS[0]).loc[name, name] == pytest.approx(lexical, abs=1e-6)
        for way in WAYS[1:]:
            assert small.table(way).loc[name, NONE] == pytest.approx(dense, abs=1e-6)


def test_rows_say_what_they_say(small: Headroom) -> None:
    assert small.names == ["rich", "PIL", "mpmath"]
    assert len(small.rows) == len(WAYS) * 3 * (3 + 3)
    for way in WAYS:
        table = small.table(way)
        others = [table.loc["rich", name] for name in ("PIL", "mpmath")]
        assert table.loc["rich", OTHERS] == pytest.approx(np.mean(others))
        for over in (NONE, GENERAL, OTHERS):
            rows = small.rows[(small.rows["way"] == way) & (small.rows["source"] == over)]
            points = small.gains(way, over).to_numpy() / 100
            assert (rows["low"].to_numpy() <= points + 1e-9).all()
            assert (rows["high"].to_numpy() >= points - 1e-9).all()
    divergence = small.table(WAYS[0], "divergence")
    texts = (pydocs("rich", 25).documents, pydocs("PIL", 25).documents)
    counts = [(document_frequencies(some), len(some)) for some in texts]
    expected = idf_divergence_of_counts(*counts[0], *counts[1])
    assert divergence.loc["rich", "PIL"] == pytest.approx(expected)
    assert divergence.loc["rich", "rich"] == 0


def test_words_alone_give_the_rows_of_the_first_way(small: Headroom) -> None:
    sets = [pydocs(name, 25) for name in small.names]
    rows = small.rows[small.rows["way"] == WAYS[0]].reset_index(drop=True)
    pd.testing.assert_frame_equal(headroom(sets, 16, by_words_alone=True), rows)


def boilerplate(name: str, word: str = "alpha", key: str = "omega") -> RetrievalSet:
    """A corpus whose documents all say `word`, most of them twice; one says `key` and is wanted."""
    documents = [f"{word} {key}"] + [f"{word} {word}"] * 7
    ids = [f"{name}{n}" for n in range(8)]
    return RetrievalSet(ids, documents, ["q"], [f"{word} {key}"], {"q": {ids[0]: 1}}, name=name)


def test_where_one_corpus_boilerplate_is_another_s_key_word_foreign_weights_mislead() -> None:
    one, other = boilerplate("a"), boilerplate("b", "omega", "alpha")
    matrix, judged = TermMatrix.of(one), JudgedMatrix.of(one)
    own, foreign = (
        judged.ndcg(matrix.scores(counted(of.documents).term_weights(matrix.vocabulary)))
        for of in (one, other)
    )
    assert own == 1 and foreign == pytest.approx(1 / np.log2(9))


# --- intervals over pairs


@given(n=st.integers(4, 6), seed=st.integers(0, 999))
def test_the_mean_over_pairs_is_their_mean(n: int, seed: int) -> None:
    table = np.random.default_rng(seed).normal(size=(n, n))
    apart = ~np.eye(len(table), dtype=bool)
    interval = mean_over_pairs(table)
    assert interval.estimate == pytest.approx(table[apart].mean(), abs=1e-9)
    assert interval.n == len(table)
    assert mean_over_pairs(table.T).high == pytest.approx(interval.high)


def test_what_only_the_searched_corpus_decides_has_student_s_interval() -> None:
    """The jackknife of means of n things is Student's, but for the pair that a corpus lacks."""
    generator = np.random.default_rng(0)
    of_corpus = generator.normal(size=200)
    table = np.repeat(of_corpus[:, None], 200, axis=1)
    made, plain = mean_over_pairs(table), run_interval(of_corpus)
    assert made.estimate == pytest.approx(plain.estimate)
    assert smallest_effect(made) == pytest.approx(smallest_effect(plain), rel=0.02)


def test_the_interval_over_pairs_covers_the_truth_where_corpora_have_two_roles() -> None:
    """Effects of the searched corpus, of the source, and of the pair, 14 corpora as in the book."""
    generator, hits = np.random.default_rng(0), 0
    for _ in range(400):
        searched, source = generator.normal(size=(2, 14))
        table = searched[:, None] + source[None] + generator.normal(size=(14, 14))
        interval = mean_over_pairs(table)
        hits += interval.low < 0 < interval.high
    assert 0.92 < hits / 400 < 0.985


def test_a_correlation_over_pairs_is_pearson_s_and_its_interval_is_over_corpora() -> None:
    generator = np.random.default_rng(1)
    x, y = generator.normal(size=(2, 12, 12))
    y += 0.5 * x
    apart = ~np.eye(12, dtype=bool)
    found = correlation_over_pairs(x, y)
    assert found.estimate == pytest.approx(np.corrcoef(x[apart], y[apart])[0, 1])
    assert found.low < found.estimate < found.high and found.n == 12
    shift = 100 * generator.normal(size=(12, 1))
    there, moved = (correlation_over_pairs(one, y, within=True) for one in (x, x + shift))
    assert moved.estimate == pytest.approx(there.estimate)


def test_pairs_that_share_corpora_have_a_wider_interval_than_pairs_of_their_own() -> None:
    a, b = np.random.default_rng(2).normal(size=(2, 12, 1)) + np.zeros((2, 1, 12))
    apart = ~np.eye(12, dtype=bool)
    shared, naive = correlation_over_pairs(a, b), correlation_interval(a[apart], b[apart])
    assert shared.estimate == pytest.approx(naive.estimate)
    assert shared.high - shared.low > 2.5 * (naive.high - naive.low)


def test_tables_that_have_no_mean_over_pairs() -> None:
    with pytest.raises(ValueError, match="6 pairs have no number"):
        mean_over_pairs(np.full((3, 3), np.nan))
    with pytest.raises(ValueError, match="all values of x or of y are equal"):
        correlation_over_pairs(np.ones((5, 5)), np.arange(25.0).reshape(5, 5))


def test_readings_of_a_table_by_hand() -> None:
    scores = {("a", "a"): 0.5, ("a", "b"): 0.4, ("a", "c"): 0.3}
    scores |= {("b", "b"): 0.6, ("b", "a"): 0.6, ("b", "c"): 0.5}
    scores |= {("c", "c"): 0.2, ("c", "a"): 0.3, ("c", "b"): 0.2, ("a", NONE): 0.1}
    rows = [{"way": "w", "searched": t, "source": s, "ndcg": x} for (t, s), x in scores.items()]
    read = Headroom(pd.DataFrame(rows))
    over_others = 100 * (0.1 + 0.2 + 0 + 0.1 - 0.1 + 0) / 6
    assert read.gain("w", OTHERS).estimate == pytest.approx(over_others)
    assert read.gains("w", NONE)["a"] == pytest.approx(40)
    assert read.losses("w").loc["a", "c"] == pytest.approx(20)

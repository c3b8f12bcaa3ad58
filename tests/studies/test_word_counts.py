"""IDF, its divergence between corpora, and tf-idf vectors."""

from __future__ import annotations

import math
from collections import Counter
from typing import get_args

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from cde_studies.motivation.word_counts import (
    Divergence,
    document_frequencies,
    idf_divergence_of_counts,
    sparse_vectors,
)

MEASURES: tuple[Divergence, ...] = get_args(Divergence)

#: words that are their own stems and no stop words
WORDS = ("boat", "hill", "stone", "river", "lamp", "red")
DOCUMENT = st.lists(st.sampled_from(WORDS), min_size=1, max_size=9).map(" ".join)
CORPUS = st.lists(DOCUMENT, min_size=1, max_size=7)


@given(CORPUS)
def test_a_term_is_counted_once_for_each_text_that_holds_it(corpus: list[str]) -> None:
    expected = Counter(word for text in corpus for word in set(text.split()))
    assert document_frequencies(corpus).to_dict() == dict(sorted(expected.items()))


def test_terms_are_lower_case_stems_without_stop_words() -> None:
    """Boats, boat and BOATING are one term; "the", "a" and single letters are none."""
    assert document_frequencies(["The Boats, a boat!", "BOATING x", ""]).to_dict() == {"boat": 2}


def idf_divergence(test: list[str], training: list[str], measure: Divergence = "expected") -> float:
    (counts, size), (others, of_others) = (
        (document_frequencies(texts), len(texts)) for texts in (test, training)
    )
    return idf_divergence_of_counts(counts, size, others, of_others, measure)


@pytest.mark.parametrize("measure", MEASURES)
@given(corpus=CORPUS)
def test_a_corpus_has_no_distance_from_itself(corpus: list[str], measure: Divergence) -> None:
    assert idf_divergence(corpus, corpus, measure) == 0


@pytest.mark.parametrize("measure", MEASURES)
@given(test=CORPUS, training=CORPUS, seed=st.integers(0, 9))
def test_the_order_of_documents_and_of_words_does_not_matter(
    test: list[str], training: list[str], seed: int, measure: Divergence
) -> None:
    generator = np.random.default_rng(seed)
    shuffled = [
        " ".join(generator.permutation(text.split())) for text in generator.permutation(training)
    ]
    assert idf_divergence(test, shuffled, measure) == idf_divergence(test, training, measure)


@pytest.mark.parametrize("measure", ["sum", "shared"])
@given(test=CORPUS, training=CORPUS)
def test_sum_and_shared_are_symmetric(
    test: list[str], training: list[str], measure: Divergence
) -> None:
    there, back = idf_divergence(test, training, measure), idf_divergence(training, test, measure)
    assert there == pytest.approx(back)


@pytest.mark.parametrize("measure", ["expected", "shared"])
@given(test=CORPUS, training=CORPUS, times=st.integers(2, 20))
def test_repeating_a_whole_corpus_moves_the_distance_by_less_than_ln_2(
    test: list[str], training: list[str], times: int, measure: Divergence
) -> None:
    """Exact in the limit of large counts only: the ones in ln((N + 1)/(df + 1)) do not repeat.

    Both (mN + 1)/(N + 1) and (m df + 1)/(df + 1) lie between (m + 1)/2 and m where df ≥ 1, so that
    no IDF, and no mean of their differences, moves by more than ln(2m/(m + 1)).
    """
    assume(set(" ".join(test).split()) & set(" ".join(training).split()))
    once, often = (idf_divergence(test * n, training, measure) for n in (1, times))
    assert abs(often - once) <= math.log(2 * times / (times + 1)) + 1e-12


#: IDF of red, boat, hous: 0, ln 3/2, ln 3/2 in the first corpus, 0, 0, ln 2 in the second
EXAMPLE = (["red boats", "a red house"], ["the red boat"])


@pytest.mark.parametrize(
    ("measure", "by_hand"),
    [
        # red counts twice, boat and house once; |ln 3/2 − ln 2| = ln 4/3
        ("expected", (2 * 0 + math.log(3 / 2) + math.log(4 / 3)) / 4),
        ("sum", math.log(3 / 2) + math.log(4 / 3)),
        # both corpora hold red and boat
        ("shared", math.sqrt((0 + math.log(3 / 2) ** 2) / 2)),
    ],
)
def test_a_small_example_by_hand(measure: Divergence, by_hand: float) -> None:
    assert idf_divergence(*EXAMPLE, measure) == pytest.approx(by_hand)


def test_only_the_sum_grows_with_words_that_the_test_corpus_lacks() -> None:
    """`expected` and `shared` do not count vocabulary; the module says so of the paper's axis."""
    test, training = ["red boats", "a red house"], ["the red boat", "stones"]
    wider = [training[0], training[1] + " lamps rivers hills"]
    assert idf_divergence(test, wider) == idf_divergence(test, training)
    assert idf_divergence(test, wider, "shared") == idf_divergence(test, training, "shared")
    # each new word: ln 3 in the test corpus, ln 3/2 in the training corpus
    more = idf_divergence(test, wider, "sum") - idf_divergence(test, training, "sum")
    assert more == pytest.approx(3 * math.log(2))


def test_corpora_without_a_common_term_are_infinitely_far_apart_on_common_terms() -> None:
    assert idf_divergence(["boats"], ["houses"], "shared") == math.inf
    assert math.isfinite(idf_divergence(["boats"], ["houses"], "expected"))


def test_sparse_vectors_compare_texts_by_their_words() -> None:
    queries = ["red boats", "the price of houses", "of the"]
    documents = ["a red boat on the water", "house prices rise", "water"]
    query_vectors, document_vectors = sparse_vectors(queries, documents, dim=4)
    assert query_vectors.shape == document_vectors.shape == (3, 4)
    assert query_vectors.dtype == np.float32
    lengths = np.linalg.norm(query_vectors, axis=1)
    assert lengths == pytest.approx([1, 1, 0], abs=1e-5), "'of the' keeps no term"
    scores = query_vectors @ document_vectors.T
    assert scores[0].argmax() == 0 and scores[1].argmax() == 1
    assert (sparse_vectors(queries, documents, dim=4)[0] == query_vectors).all()


def test_all_dimensions_keep_every_cosine() -> None:
    """Without a reduction to speak of, cosines are those of the tf-idf rows."""
    documents = ["alpha beta", "beta gamma", "gamma gamma delta", "alpha delta"]
    vectors = np.concatenate(sparse_vectors(documents[:2], documents[2:], dim=4))
    frequency, texts = np.array([2, 2, 2, 2]), 4
    counts = np.array([[1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 2, 1], [1, 0, 0, 1]])
    weights = np.where(counts, 1 + np.log(np.maximum(counts, 1)), 0) * (
        np.log((1 + texts) / (1 + frequency)) + 1
    )
    unit = weights / np.linalg.norm(weights, axis=1, keepdims=True)
    assert vectors @ vectors.T == pytest.approx(unit @ unit.T, abs=1e-5)

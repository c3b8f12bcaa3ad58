"""The words that clusters are named by."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cde_studies.batches.naming import telling_terms

WORDS = ["anchor", "basket", "candle", "dragon", "engine", "feather", "garden", "hammer", "island"]


def random_texts(count: int, seed: int) -> list[str]:
    """Texts of five words each, drawn alike for all."""
    generator = np.random.default_rng(seed)
    return [" ".join(generator.choice(WORDS, 5)) for _ in range(count)]


@given(st.integers(0, 10**6))
def test_a_planted_word_comes_first_in_its_cluster_and_in_no_other(seed: int) -> None:
    texts, labels = random_texts(60, seed), np.arange(60) % 3
    planted = [text + " zephyr" * (number % 3 == 1) for number, text in enumerate(texts)]
    found = telling_terms(planted, labels)
    assert found[1][0] == "zephyr"
    assert "zephyr" not in found[0] + found[2]


@given(st.integers(0, 10**6))
def test_the_order_of_texts_and_their_case_do_not_matter(seed: int) -> None:
    texts, labels = random_texts(40, seed), np.random.default_rng(seed).integers(4, size=40)
    order = np.random.default_rng(seed + 1).permutation(40)
    shouted = [texts[i].upper() for i in order]
    assert telling_terms(shouted, labels[order]) == telling_terms(texts, labels)


@given(st.integers(0, 10**6), st.integers(1, 39))
def test_a_word_that_all_texts_hold_is_never_telling(seed: int, size: int) -> None:
    texts = [f"{text} everywhere" for text in random_texts(40, seed)]
    found = telling_terms(texts, (np.arange(40) >= size).astype(np.int64), count=100)
    assert "everywhere" not in found[0] + found[1]


def test_what_many_texts_hold_tells_more_than_what_one_holds() -> None:
    """Neither word occurs outside; plain odds would not tell them apart."""
    texts = ["common rare", "common", "common", "common", "blue", "blue", "blue", "blue"]
    assert telling_terms(texts, np.repeat([0, 1], 4)) == [["common", "rare"], ["blue"]]


def test_a_word_counts_once_a_text() -> None:
    texts = ["zebra zebra zebra zebra", "apple", "melon", "melon", "stone", "stone"]
    labels = np.array([0, 0, 0, 0, 1, 1])
    assert telling_terms(texts, labels)[0] == ["melon", "apple", "zebra"]


def test_numbers_and_stop_words_are_no_words() -> None:
    texts = ["the 2017 x of_2 3d ünder", "the 2017 x of_2 3d ünder", "grey", "grey"]
    assert telling_terms(texts, np.array([0, 0, 1, 1]))[0] == ["3d", "of_2", "ünder"]


def test_scores_agree_with_the_formula_by_hand() -> None:
    """One cluster of 3 texts, one of 5: 'wide' in 3 and 2 of them, 'narrow' in 2 and 0."""
    texts = ["wide narrow", "wide narrow", "wide", "wide", "wide", "grey", "grey", "grey"]
    labels = np.repeat([0, 1], [3, 5])
    # wide: ln(3.5 · 3.5 / (0.5 · 2.5)) / √(1/3.5 + 1/0.5 + 1/2.5 + 1/3.5) = 2.282 / 1.724 = 1.324
    # narrow: ln(2.5 · 5.5 / (1.5 · 0.5)) / √(1/2.5 + 1/1.5 + 1/0.5 + 1/5.5) = 2.909 / 1.802 = 1.614
    assert telling_terms(texts, labels)[0] == ["narrow", "wide"]


def test_a_number_without_texts_has_no_words_and_the_count_is_kept() -> None:
    found = telling_terms(random_texts(30, 1), np.repeat([0, 2], 15), count=2)
    assert [len(one) for one in found] == [2, 0, 2]
    assert telling_terms(random_texts(5, 1), np.zeros(5, np.int64)) == [[]]

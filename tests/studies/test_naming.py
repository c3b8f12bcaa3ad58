"""The words that clusters are named by."""

from __future__ import annotations

import numpy as np
import pytest
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


@pytest.mark.parametrize(
    ("texts", "size", "expected"),
    [
        # neither word occurs outside; plain odds would not tell them apart
        (["common rare", *["common"] * 3, *["blue"] * 4], 4, ["common", "rare"]),
        # a word counts once a text
        (["zebra " * 4, "apple", *["melon"] * 2, *["stone"] * 2], 4, ["melon", "apple", "zebra"]),
        # numbers and stop words are no words
        ([*["the 2017 x of_2 3d ünder"] * 2, *["grey"] * 2], 2, ["3d", "of_2", "ünder"]),
        # wide: ln(3.5 · 3.5 / (0.5 · 2.5)) / √(1/3.5 + 1/0.5 + 1/2.5 + 1/3.5) = 2.282 / 1.724 = 1.324
        # narrow: ln(2.5 · 5.5 / (1.5 · 0.5)) / √(1/2.5 + 1/1.5 + 1/0.5 + 1/5.5) = 2.909 / 1.802 = 1.614
        ([*["wide narrow"] * 2, *["wide"] * 3, *["grey"] * 3], 3, ["narrow", "wide"]),
    ],
)
def test_the_words_of_a_first_cluster_by_hand(
    texts: list[str], size: int, expected: list[str]
) -> None:
    labels = (np.arange(len(texts)) >= size).astype(np.int64)
    assert telling_terms(texts, labels)[0] == expected

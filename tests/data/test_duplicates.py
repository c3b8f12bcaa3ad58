"""MinHash: the estimate is one of Jaccard similarity, and duplicates are found by it."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cde_studies.collections.duplicates import first_occurrences, minhash_signatures


def shingles(text: str) -> set[tuple[str, ...]]:
    """Three-word shingles, by definition."""
    words = re.findall(r"\w+", text.lower())
    return {tuple(words[i : i + 3]) for i in range(len(words) - 2)}


def jaccard(first: str, second: str) -> float:
    a, b = shingles(first), shingles(second)
    return len(a & b) / len(a | b)


def sentences(count: int, words: int, seed: int = 0) -> list[str]:
    """Texts of random words from a vocabulary so large that two texts share no shingle."""
    drawn = np.random.default_rng(seed).integers(0, 10_000, (count, words))
    return [" ".join(f"w{word}" for word in row) for row in drawn]


@pytest.mark.parametrize("shared", [10, 60, 150, 190])
def test_the_share_of_equal_values_estimates_the_jaccard_similarity(shared: int) -> None:
    """Within 4 standard errors √(J(1 − J)/permutations), for random texts that begin alike."""
    common, *rests = sentences(3, 200, seed=shared)
    texts = [" ".join([*common.split()[:shared], *rest.split()[shared:]]) for rest in rests]
    true = jaccard(*texts)
    first, second = minhash_signatures(texts, permutations=1024)
    assert abs((first == second).mean() - true) < 4 * np.sqrt(true * (1 - true) / 1024)


def test_a_signature_is_that_of_the_set_of_shingles() -> None:
    """Repeats, case and punctuation do not count; the order of words does, beyond a shingle."""
    once = "one two three four five six"
    same = minhash_signatures(
        [once, "One, two: THREE four five six!", "one two three four five six one two three"]
    )
    assert (same[0] == same[1]).all()
    # the third text also holds "five six one" and "six one two": six sevenths or less agree
    assert 0 < (same[0] == same[2]).mean() < 1
    looped, twice = minhash_signatures(["a b c a b c a b", "a b c a b c a b c a b"])
    assert (looped == twice).all()
    mixed = minhash_signatures([once, "six two four one five three"])
    assert not (mixed[0] == mixed[1]).any()


@given(st.lists(st.integers(0, 4), max_size=12), st.integers(0, 40))
def test_exact_duplicates_are_those_of_the_earliest_text_at_any_length(
    pattern: list[int], words: int
) -> None:
    """Also where a text is shorter than a shingle, where signatures say nothing."""
    distinct = [" ".join(f"t{i}w{j}" for j in range(words)) or "x" * (i + 1) for i in range(5)]
    firsts = first_occurrences([distinct[i] for i in pattern])
    assert firsts.tolist() == [pattern.index(i) for i in pattern]


def test_case_and_spacing_alone_make_no_difference() -> None:
    assert first_occurrences(["Ab c", "ab  C\n", "abc"]).tolist() == [0, 0, 2]


def near_copies(count: int = 40, words: int = 100, seed: int = 1) -> list[str]:
    """Texts, then a copy of each with one word exchanged (Jaccard about 0.94)."""
    texts = sentences(count, words, seed)
    generator = np.random.default_rng(seed)
    copies = []
    for text in texts:
        held = text.split()
        held[int(generator.integers(words))] = "exchanged"
        copies.append(" ".join(held))
    return texts + copies


def test_near_duplicates_are_found_and_unrelated_texts_are_not() -> None:
    texts = near_copies()
    assert min(jaccard(texts[i], texts[i + 40]) for i in range(40)) > 0.9
    assert first_occurrences(texts).tolist() == [*range(40), *range(40)]


def test_what_is_kept_holds_no_further_duplicates() -> None:
    """And every text points at one that is kept: the map is idempotent."""
    texts = near_copies(count=200, words=40, seed=2)
    firsts = first_occurrences(texts)
    assert (firsts[firsts] == firsts).all()
    kept = [text for i, text in enumerate(texts) if firsts[i] == i]
    assert first_occurrences(kept).tolist() == list(range(len(kept)))


def test_a_chain_of_near_duplicates_ends_at_its_first_text() -> None:
    """b differs a little from a, c a little from b, and c from a too much: c still belongs to a."""
    words, other = (text.split() for text in sentences(2, 200))
    a = " ".join(words)
    b = " ".join([*other[:15], *words[15:]])
    c = " ".join([*other[:15], *words[15:185], *other[185:]])
    assert jaccard(a, b) > 0.85
    assert jaccard(b, c) > 0.85
    assert jaccard(a, c) < 0.8
    assert first_occurrences([a, c], permutations=512).tolist() == [0, 1]
    assert first_occurrences([a, b, c], permutations=512).tolist() == [0, 0, 0]

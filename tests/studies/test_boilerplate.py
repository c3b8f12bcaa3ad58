"""Docstrings with boilerplate of their own: what a corpus holds, and what only its counts find."""

from __future__ import annotations

import numpy as np
import pytest

from cde_studies.collections.pydocs import load_pairs
from cde_studies.encoder.boilerplate import (
    Boilerplate,
    BoilerplateRecipe,
    GradedBoilerplate,
    of_test,
    search_by_counting,
    telling_words,
)
from cde_studies.recipes import recipe

PACKAGES = ("rich", "tornado", "sphinx", "networkx", "pandas")
RULES = Boilerplate(PACKAGES)
BASE = recipe("smoke").base


def common_words(texts: list[str], share: float) -> set[str]:
    held = [set(text.split()) for text in texts]
    every = set.union(*held)
    return {word for word in every if np.mean([word in one for one in held]) >= share}


@pytest.mark.parametrize(("unseen", "packages"), [(False, PACKAGES[:4]), (True, PACKAGES[4:])])
def test_without_its_boilerplate_a_document_is_a_docstring_of_its_packages(
    unseen: bool, packages: tuple[str, ...]
) -> None:
    corpus = RULES.corpus(40, seed=1, unseen=unseen)
    words = np.array(telling_words(PACKAGES))
    pool = set(words[of_test(len(words)) == unseen])
    known = {" ".join(text.split()) for text in load_pairs(list(packages), split="all").documents}
    boilerplate = common_words(list(corpus.documents), 0.5) & pool
    assert len(boilerplate) == RULES.words
    for text in corpus.documents[:10]:
        held = [word for word in text.split() if word in boilerplate]
        # a docstring may hold such a word itself
        assert len(held) >= RULES.in_document
        assert len(text.split()) <= RULES.document_words + RULES.in_document
        if len(held) == RULES.in_document:
            rest = " ".join(word for word in text.split() if word not in boilerplate)
            assert any(one.startswith(rest) for one in known)


def test_corpora_of_training_and_test_share_no_boilerplate() -> None:
    seen, unseen = (
        RULES.corpus(20, seed=0, unseen=kept, corpora=30).documents for kept in (False, True)
    )
    words = telling_words(PACKAGES)
    kept = {word for word, one in zip(words, of_test(len(words)).tolist(), strict=True) if one}
    for place in range(0, 600, 20):
        assert common_words(list(seen[place : place + 20]), 0.7).isdisjoint(kept)
        assert common_words(list(unseen[place : place + 20]), 0.7) & set(words) <= kept


def test_every_batch_of_training_is_a_corpus() -> None:
    small = BoilerplateRecipe("smoke", BASE, (60, 2), {}, RULES)
    domains = np.asarray(small.pairs.domains).reshape(BASE.steps, BASE.batch_size)
    assert (domains == domains[:, :1]).all()
    assert len(set(domains[:, 0])) == BASE.steps


def test_only_the_corpus_own_counts_find_the_docstring() -> None:
    lines = search_by_counting(BoilerplateRecipe("smoke", BASE, (150, 3), {}, RULES).tests())
    assert lines["own"] > lines["equal"] + 0.1
    assert lines["other"] < lines["own"] - 0.1


def test_a_graded_word_tells_less_the_commoner_it_is() -> None:
    rules = GradedBoilerplate(PACKAGES, document_words=1, query_words=1)
    every = rules.corpus(300, seed=0, corpora=12)
    domains = np.asarray(every.domains)
    words = set(np.array(telling_words(PACKAGES))[~of_test(len(telling_words(PACKAGES)))])
    shares, chances = [], []
    for name in dict.fromkeys(every.domains):
        corpus = every.select(domains == name)
        documents, queries = (
            [set(text.split()) for text in texts] for texts in (corpus.documents, corpus.queries)
        )
        for word in common_words(list(corpus.documents), 0.04) & words:
            held = np.array([word in one for one in documents])
            asked = np.array([word in one for one in queries])
            shares.append(held.mean())
            # of the queries that have the word, how many are its document's
            chances.append(asked[held].mean() / max(asked[~held].mean(), 0.5 / 300))
    assert len(shares) > 100
    assert min(shares) < 0.06
    assert 0.6 < max(shares) < 0.85
    of_shares = np.argsort(shares)
    rare, common = np.array(chances)[of_shares[:30]], np.array(chances)[of_shares[-30:]]
    # (1/2 + share/4) / (share/2): 17 at a share of 0.06 and 2 at 0.6
    assert np.median(rare) > 8
    assert 1.2 < np.median(common) < 4


def test_own_counts_find_more_than_another_corpus_counts_where_words_are_graded() -> None:
    of = BoilerplateRecipe("smoke", BASE, (200, 3), {}, GradedBoilerplate(PACKAGES))
    found = search_by_counting(of.tests())
    assert found["own"] > found["equal"] > found["other"] - 0.03
    assert found["own"] > found["other"] + 0.03

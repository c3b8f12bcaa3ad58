"""Lessons in reading: what a taught reader trains on, and what it must not have seen."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest
from tiny_encoders import gated_minilm

from cde.data import RetrievalSet, load_pairs
from cde.models.encoder import load_tokenizer
from cde.training.preparation import Preparation
from cde_studies.collections.pydocs import HELD_OUT
from cde_studies.recipes import EvaluationSet
from cde_studies.results.frozen_encoder import taught_recipe
from cde_studies.results.movement import moved_between_corpora

SMALL = taught_recipe("smoke")


def test_half_of_the_pairs_are_lessons_and_the_others_the_recipe_s() -> None:
    domains = np.asarray(SMALL.pairs.domains)
    lesson = np.char.startswith(domains.astype(str), "corpus ")
    real = load_pairs("pydocs").sample(SMALL.base.pairs or 0, 0)
    assert lesson.mean() == 0.5
    assert SMALL.pairs.select(~lesson).documents == real.documents
    _, sizes = np.unique(domains[lesson], return_counts=True)
    assert set(sizes) == {SMALL.base.batch_size}


def test_a_batch_is_one_lesson_or_real_pairs_of_one_source() -> None:
    tokenizer = load_tokenizer("minilm")
    prepared = Preparation(SMALL.base, SMALL.pairs, tokenizer, ("", ""))
    domains = np.asarray(SMALL.pairs.domains)
    epoch = [domains[rows] for rows in islice(prepared.sampler, 80)]
    assert all(len(set(batch)) == 1 for batch in epoch)
    lessons = [batch[0] for batch in epoch if batch[0].startswith("corpus ")]
    assert 30 < len(lessons) == len(set(lessons))


def test_no_lesson_has_text_of_the_packages_that_are_searched() -> None:
    rules = taught_recipe("laptop").rules
    assert rules.packages is not None
    assert set(rules.packages).isdisjoint(HELD_OUT)
    assert {test.name for test in taught_recipe("laptop").tests() if test.where == "out"} == set(
        HELD_OUT
    )


def test_corpora_that_need_reading_are_not_among_the_lessons() -> None:
    def common(texts: list[str]) -> set[str]:
        """Words of most texts."""
        held = [set(text.split()) for text in texts]
        return {word for word in set.union(*held) if np.mean([word in one for one in held]) > 0.6}

    every = zip(SMALL.pairs.documents, SMALL.pairs.domains, strict=True)
    lessons = [text for text, domain in every if domain.startswith("corpus ")]
    taught = [common(lessons[start : start + 8]) for start in range(0, len(lessons), 8)]
    for test in SMALL.corpora():
        boilerplate = common(test.collection.documents)
        assert test.where == "in" and boilerplate
        assert boilerplate.isdisjoint(set.union(*taught))


def test_documents_move_only_through_an_open_gate() -> None:
    sets = [
        EvaluationSet(
            name,
            RetrievalSet(["a", "b"], texts, ["q"], ["boat"], {"q": {"a": 1}}, name=name),
            "out",
        )
        for name, texts in (
            ("harbour", ["a red boat", "a boat with a sail"]),
            ("village", ["a green house", "the house in a garden"]),
        )
    ]
    assert moved_between_corpora(gated_minilm(), sets) == pytest.approx(0, abs=1e-5)
    assert moved_between_corpora(gated_minilm(0.1), sets) > 0.01
    with pytest.raises(ValueError, match="two corpora or more"):
        moved_between_corpora(gated_minilm(), sets[:1])

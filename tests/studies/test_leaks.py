"""What is planted in a test set is found in it, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cde.data import Pairs, RetrievalSet
from cde_studies.leaks import shared_with_training

GENERATOR = np.random.default_rng(0)
WORDS = [f"{a}{b}" for a in "bcdfghjklm" for b in ("at", "en", "ig", "op", "un")]
COLUMNS = ["ids", "equal documents", "near documents", "equal queries", "answers", "pairs"]


def texts(count: int, words: int = 40) -> list[str]:
    return [" ".join(GENERATOR.choice(WORDS, words)) for _ in range(count)]


TRAINED = Pairs(texts(30, 6), texts(30), ["x"] * 30, [f"t{row}" for row in range(30)])
NAMES = [f"d{row}" for row in range(20)]
QRELS = {f"q{row}": {f"d{row}": 1, "d19": 0} for row in range(5)}
CLEAN = RetrievalSet(NAMES, texts(20), list(QRELS), texts(5, 6), QRELS, name="clean")


def found(one: RetrievalSet, training: Pairs = TRAINED) -> list[int]:
    return shared_with_training(training, [one]).loc[one.name, COLUMNS].tolist()


def with_documents(changes: dict[int, str]) -> RetrievalSet:
    documents = [changes.get(row, text) for row, text in enumerate(CLEAN.documents)]
    return replace(CLEAN, documents=documents)


def test_texts_of_their_own_share_nothing() -> None:
    assert found(CLEAN) == [0, 0, 0, 0, 0, 0]


def test_a_document_is_found_whatever_its_case_and_spacing() -> None:
    copied = "  ".join(TRAINED.documents[3].upper().split())
    # d12 answers no query, d1 answers q1
    assert found(with_documents({12: copied})) == [0, 1, 1, 0, 0, 0]
    assert found(with_documents({1: copied})) == [0, 1, 1, 0, 1, 0]
    # d19 is judged, and not relevant
    assert found(with_documents({19: copied})) == [0, 1, 1, 0, 0, 0]


def test_a_document_with_a_word_changed_is_nearly_equal_and_one_half_alike_is_not() -> None:
    words = TRAINED.documents[3].split()
    one_word = " ".join([*words[:39], "other"])
    half = " ".join([*words[:20], *texts(1, 20)])
    assert found(with_documents({1: one_word})) == [0, 0, 1, 0, 1, 0]
    assert found(with_documents({1: half})) == [0, 0, 0, 0, 0, 0]


def test_a_query_is_a_leak_of_its_own_and_with_its_document_a_pair() -> None:
    queries = [TRAINED.queries[7].title(), *CLEAN.queries[1:]]
    assert found(replace(CLEAN, queries=queries)) == [0, 0, 0, 1, 0, 0]
    both = with_documents({0: TRAINED.documents[7]})
    assert found(replace(both, queries=queries)) == [0, 1, 1, 1, 1, 1]
    # query and document of two pairs are not a pair
    crossed = with_documents({0: TRAINED.documents[8]})
    assert found(replace(crossed, queries=queries)) == [0, 1, 1, 1, 1, 0]


def test_ids_are_counted_apart_from_texts() -> None:
    named = replace(TRAINED, ids=[f"d{row}" for row in range(15, 45)])
    assert found(CLEAN, named) == [5, 0, 0, 0, 0, 0]


def test_every_set_is_counted_on_its_own() -> None:
    leaky = replace(with_documents({1: TRAINED.documents[0]}), name="leaky")
    table = shared_with_training(TRAINED, [CLEAN, leaky, CLEAN.select_queries(2)])
    assert table["near documents"].tolist() == [0, 1, 0]
    assert table["queries"].tolist() == [5, 5, 2]

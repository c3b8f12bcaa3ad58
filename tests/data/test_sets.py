"""Pairs and retrieval sets: fingerprints, samples, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cde.data import Pairs, RetrievalSet

WORDS = st.text(alphabet="ab", max_size=2)
ROWS = st.lists(st.tuples(WORDS, WORDS, WORDS), max_size=3)


def make_pairs(size: int, domains: tuple[str, ...] = ("x", "y", "z"), name: str = "toy") -> Pairs:
    """Pair i: query q<i>, document d<i>, domains in turn."""
    held = [domains[i % len(domains)] for i in range(size)]
    ids = [f"{domain}/{i}" for i, domain in enumerate(held)]
    return Pairs(
        [f"q{i}" for i in range(size)], [f"d{i}" for i in range(size)], held, ids, name=name
    )


def make_set(documents: int = 30, queries: int = 8) -> RetrievalSet:
    """Query i is answered by documents i and 2i, and document 3i is judged not relevant."""
    names = [f"d{i}" for i in range(documents)]
    asked = [f"q{i}" for i in range(1, queries + 1)]
    qrels = {f"q{i}": {f"d{i}": 2, f"d{2 * i}": 1, f"d{3 * i}": 0} for i in range(1, queries + 1)}
    return RetrievalSet(
        names, [f"text {n}" for n in names], asked, [f"what {q}" for q in asked], qrels, name="toy"
    )


def pairs_of(rows: list[tuple[str, str, str]], name: str = "pairs") -> Pairs:
    columns: list[list[str]] = [list(column) for column in zip(*rows, strict=True)] or [[], [], []]
    return Pairs(*columns, ids=[f"{name}{i}" for i in range(len(rows))], name=name)


@given(ROWS, ROWS)
def test_pairs_have_one_fingerprint_exactly_when_texts_domains_and_order_agree(
    first: list[tuple[str, str, str]], second: list[tuple[str, str, str]]
) -> None:
    """The names and the ids, which differ here, do not enter it."""
    equal = pairs_of(first, "one").fingerprint == pairs_of(second, "two").fingerprint
    assert equal == (first == second)


CHANGES: dict[str, dict[str, Any]] = {
    "a document's text": {"documents": ["text d0", "TEXT d1", "text d2"]},
    "a document's id": {"document_ids": ["d0", "d1", "d9"]},
    "the order of documents": {"documents": ["text d1", "text d0", "text d2"]},
    "a query's text": {"queries": ["what q2"]},
    "a query's id": {"query_ids": ["q2"], "qrels": {"q2": {"d1": 1}}},
    "a grade": {"qrels": {"q1": {"d1": 2}}},
    "a judged document": {"qrels": {"q1": {"d2": 1}}},
    "one judgement more": {"qrels": {"q1": {"d1": 1, "d2": 0}}},
    "an excluded document": {"excluded": {"q1": frozenset({"d2"})}},
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_retrieval_set_has_another_fingerprint_after_a_change_of(change: str) -> None:
    texts, qrels = ["text d0", "text d1", "text d2"], {"q1": {"d1": 1}}
    base = RetrievalSet(["d0", "d1", "d2"], texts, ["q1"], ["what q1"], qrels, name="toy")
    assert replace(base, **CHANGES[change]).fingerprint != base.fingerprint


def test_the_name_and_the_order_of_judgements_do_not_enter_the_fingerprint() -> None:
    base = make_set()
    turned = {
        query: dict(reversed(judged.items())) for query, judged in reversed(base.qrels.items())
    }
    assert replace(base, qrels=turned, name="other").fingerprint == base.fingerprint


def test_it_counts_for_the_fingerprint_what_a_text_is_used_as() -> None:
    """Two sets that spell the same strings in one order, as other parts, are different sets."""
    query = RetrievalSet(["a"], ["b"], ["c"], ["d"], {})
    document = RetrievalSet(["a", "b"], ["c", "d"], [], [], {})
    toy: Any = (["0"], ["x"], ["q"], ["y"])
    judged = RetrievalSet(*toy, {"q": {"0": 1}})
    excluded = RetrievalSet(*toy, {}, {"q": frozenset({"0", "1"})})
    assert query.fingerprint != document.fingerprint
    assert judged.fingerprint != excluded.fingerprint


@given(st.integers(0, 30), st.integers(0, 40), st.integers(0, 5))
def test_a_sample_is_a_subset_in_the_old_order_without_repeats(
    size: int, wanted: int, seed: int
) -> None:
    pairs = make_pairs(size)
    sample = pairs.sample(wanted, seed)
    places = [int(query[1:]) for query in sample.queries]
    assert len(sample) == min(size, wanted)
    assert places == sorted(set(places))
    assert [int(document[1:]) for document in sample.documents] == places, "pairs stay together"


def test_samples_keep_the_old_order_and_depend_on_the_seed_alone() -> None:
    pairs = make_pairs(60)
    for draw in (pairs.sample, pairs.sample_per_domain):
        ids = draw(10, seed=1).ids
        assert ids == sorted(ids, key=pairs.ids.index) == draw(10, seed=1).ids
        assert ids != draw(10, seed=2).ids


@given(st.integers(0, 12), st.integers(0, 3))
def test_what_is_sampled_from_a_domain_does_not_depend_on_the_other_domains(
    size: int, seed: int
) -> None:
    pairs = make_pairs(36)
    everything = pairs.sample_per_domain(size, seed)
    for domain in ("x", "y", "z"):
        alone = pairs.select(np.array(pairs.domains) == domain).sample_per_domain(size, seed)
        assert alone.ids == [name for name in everything.ids if name.startswith(domain)]
        assert len(alone) == min(size, 12)


@given(st.integers(0, 12), st.integers(0, 12), st.integers(0, 3))
def test_a_smaller_sample_per_domain_lies_within_a_larger_one(
    one: int, other: int, seed: int
) -> None:
    """So that a curve over sizes adds data, and does not exchange it."""
    pairs = make_pairs(36)
    small, large = sorted((one, other))
    assert set(pairs.sample_per_domain(small, seed).ids) <= set(
        pairs.sample_per_domain(large, seed).ids
    )


@given(st.lists(st.booleans(), min_size=7, max_size=7))
def test_a_mask_selects_as_the_positions_where_it_is_true(mask: list[bool]) -> None:
    pairs = make_pairs(7)
    by_mask = pairs.select(np.array(mask))
    assert by_mask == pairs.select(np.flatnonzero(mask))
    assert by_mask.queries == [f"q{i}" for i in range(7) if mask[i]]


@given(st.integers(0, 40), st.integers(1, 10), st.integers(0, 3))
def test_shrinking_keeps_every_document_relevant_to_a_kept_query(
    documents: int, queries: int, seed: int
) -> None:
    whole = make_set()
    small = whole.shrink(documents, queries, seed)
    assert len(small.queries) == min(queries, 8)
    kept = set(small.document_ids)
    relevant = {
        d for query in small.query_ids for d, grade in whole.qrels[query].items() if grade > 0
    }
    assert relevant <= kept
    assert len(small.documents) == min(30, max(documents, len(relevant)))
    # judgements stay as they were, but for those of documents that are gone: none of these was
    # relevant
    for query in small.query_ids:
        assert small.qrels[query] == {
            d: grade for d, grade in whole.qrels[query].items() if d in kept
        }
    assert small.documents == [f"text {name}" for name in small.document_ids]
    places = [whole.document_ids.index(name) for name in small.document_ids]
    assert places == sorted(places)


@given(st.integers(1, 12), st.integers(0, 3))
def test_fewer_queries_leave_the_corpus_as_it_is(size: int, seed: int) -> None:
    whole = make_set()
    small = whole.select_queries(size, seed)
    assert small.documents == whole.documents
    places = [whole.query_ids.index(name) for name in small.query_ids]
    assert len(places) == min(size, 8)
    assert places == sorted(set(places))
    assert small.queries == [f"what {name}" for name in small.query_ids]
    assert set(small.qrels) == set(small.query_ids)


def test_pairs_as_a_retrieval_set_ask_each_query_for_its_own_document() -> None:
    pairs = make_pairs(6)
    collection = RetrievalSet.from_pairs(pairs)
    assert (collection.documents, collection.queries) == (pairs.documents, pairs.queries)
    assert collection.name == "toy"
    assert all(collection.qrels[name] == {name: 1} for name in pairs.ids)
    some = RetrievalSet.from_pairs(pairs, queries=2)
    assert (len(some.queries), len(some.documents)) == (2, 6)


def test_pairs_without_domains_and_ids_have_those_of_their_name() -> None:
    rows = [("q", "d"), ("r", "e")]
    made = Pairs(*zip(*rows, strict=True), name="toy")
    assert list(made) == rows
    assert (made.domains, made.ids) == (["toy", "toy"], ["toy/0", "toy/1"])


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Pairs(["a", "b"], ["c"], ["x"], ["1"]), "same length; they have 2, 1, 1 and 1"),
        (lambda: RetrievalSet(["d", "d"], ["a", "b"], [], [], {}), "document id 'd' occurs more"),
        (lambda: RetrievalSet([], [], ["q", "q"], ["a", "b"], {}), "query id 'q' occurs more"),
        (lambda: RetrievalSet(["d", "e"], ["a"], [], [], {}), "2 document ids for 1 texts"),
        (lambda: RetrievalSet([], [], ["q"], [], {}), "1 query ids for 0 texts"),
    ],
)
def test_lists_that_do_not_fit_are_refused_with_their_lengths_or_the_id(
    make: Any, said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        make()


def test_stray_judgements_say_how_many_and_name_the_first_and_how_to_load_without_them() -> None:
    qrels = {"q1": {"d1": 1, "gone": 1}, "q9": {"d1": 1, "d2": 1}, "q8": {"d1": 0}}
    with pytest.raises(ValueError, match="4 judgements") as caught:
        RetrievalSet(["d1", "d2"], ["a", "b"], ["q1"], ["c"], qrels, name="toy")
    message = str(caught.value)
    assert message.startswith("toy: ")
    assert "q1 → gone, q9 → d1, q9 → d2" in message
    assert "q8" not in message, "three are enough to find them by"
    assert "drop_unknown=True" in message


def test_queries_may_come_from_a_generator_and_strangers_are_named() -> None:
    toy = RetrievalSet(["a"], ["a boat"], ["p", "q"], ["boat", "sail"], {"q": {"a": 1}})
    assert toy.asking(one for one in ["q"]).queries == ["sail"]
    with pytest.raises(ValueError, match="has no query 'z'"):
        toy.asking(["q", "z"])

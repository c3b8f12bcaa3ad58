"""What was once taken for something else, and scored: each is refused, by name and place."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from tiny_encoders import bi_encoder, contextual

import cde
from cde.data.readers import folder_pairs as load_pairs
from cde.data.readers import folder_retrieval as load_retrieval
from cde.data.sets import LARGEST_GRADE
from cde.retrieval import rank, rerank, score_queries
from cde.validation import group_numbers

WriteBeir = Callable[..., Path]

TOY = cde.RetrievalSet(["d1", "d2", "d3"], ["a", "b", "c"], ["q"], ["x"], {"q": {"d2": 1}})
NAN = float("nan")


class Gives:
    """An encoder that gives what it is told, of as many documents as it likes."""

    def __init__(self, documents: Any, queries: Any = None) -> None:
        self.queries = np.ones((1, 2), np.float32) if queries is None else queries
        self.documents = documents

    def encode_queries(self, texts: Sequence[str]) -> Any:
        return self.queries

    def encode_documents(self, texts: Sequence[str]) -> Any:
        return self.documents


# --- vectors

BAD = [
    (
        np.full((3, 2), NAN),
        "of 3 documents, 3 have numbers that are not finite, the first in row 0",
    ),
    ([[1, 0], [0, 1], [0, 0]], "of 3 documents, 1 have only zeros, the first in row 2"),
    ([[1, 0], [1e30, 1e30], [0, 1]], "1 have lengths that single precision cannot multiply"),
    (np.ones((2, 2)), r"shape \(2, 2\) for 3 documents; expected \(3, 2\)"),
    (np.ones((3, 4)), r"shape \(3, 4\) for 3 documents; expected \(3, 2\)"),
    ([["a", "b"]] * 3, "no vectors for 3 documents"),
    (None, "no vectors for 3 documents"),
]


@pytest.mark.parametrize(("given_back", "message"), BAD)
def test_an_encoder_that_gives_no_vectors_is_named_with_the_first_row(
    given_back: Any, message: str
) -> None:
    """Three documents of NaN scored 0.565, and too few rows 1.0."""
    bad = Gives(given_back)
    calls: list[Callable[[], Any]] = [
        lambda: cde.evaluate(bad, TOY),
        lambda: rerank(bad, TOY, {"q": {"d1": 3.0, "d2": 2.0, "d3": 1.0}}),
        lambda: cde.compare(cde.BM25(), bad, TOY),
        lambda: cde.Hybrid([bad]).rank(TOY),
    ]
    for call in calls:
        with pytest.raises(ValueError, match=f"Gives gave .*{message}"):
            call()


@pytest.mark.parametrize(("given_back", "message"), BAD[:3])
def test_an_index_and_queries_are_looked_at_too(given_back: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"Gives gave .*{message}"):
        cde.Index(["a", "b", "c"], encoder=Gives(given_back))
    with pytest.raises(ValueError, match="Gives gave .*of 1 queries, 1 have only zeros"):
        cde.evaluate(Gives(np.ones((3, 2)), np.zeros((1, 2))), TOY)


@given(st.integers(0, 2**32 - 1), st.sampled_from(["float16", "float32", "float64"]))
def test_good_vectors_are_ranked_as_they_came(seed: int, kind: str) -> None:
    """The check copies and rounds nothing: scores are those of the vectors, to the last bit."""
    made = np.random.default_rng(seed).normal(size=(3, 5)).astype(kind)
    asked = np.random.default_rng([seed]).normal(size=(1, 5)).astype(kind)
    found = rank(Gives(made, asked), TOY)["q"]
    scores, places = cde.search(asked, made)
    names = [TOY.document_ids[place] for place in places[0]]
    assert list(found.items()) == list(zip(names, scores[0].tolist(), strict=True))
    tensors = Gives(torch.from_numpy(made), torch.from_numpy(asked))
    assert rank(tensors, TOY)["q"] == found


def test_a_ranker_s_scores_are_numbers_of_documents_that_can_be_named() -> None:
    with pytest.raises(ValueError, match="rankings must be whole text"):  # ended the interpreter
        score_queries({"q": {"\ud800": 1.0}}, TOY)
    assert score_queries({"q": {"d2": np.float32(1), "d1": 0}}, TOY).loc["q", "ndcg@10"] == 1


# --- ids and grades


@pytest.mark.parametrize("name", ["a\ud800", "a\0b", "\udc80"])
def test_ids_that_trec_eval_cannot_hold_are_refused(name: str) -> None:
    for given_to in (
        {"document_ids": [name], "query_ids": ["q"]},
        {"document_ids": ["d"], "query_ids": [name]},
    ):
        with pytest.raises(ValueError, match=r"toy: (document|query) ids must .*item 0"):
            cde.RetrievalSet(documents=["a"], queries=["b"], qrels={}, name="toy", **given_to)


@pytest.mark.parametrize("grade", [10**20, LARGEST_GRADE + 1, -(2**40), 1.5, "1", None])
def test_grades_that_trec_eval_cannot_hold_are_refused(grade: Any) -> None:
    """2⁴⁰ scored nought, 10²⁰ ended the interpreter at the next call."""
    with pytest.raises(ValueError, match="toy: the grade of 'q' → 'd' must be .*; it is "):
        cde.RetrievalSet(["d"], ["a"], ["q"], ["b"], {"q": {"d": grade}}, name="toy")


@pytest.mark.slow
def test_the_largest_grade_is_scored_and_the_interpreter_lives() -> None:
    """In a process of its own: a grade that is too large ends it without a word."""
    code = (
        "import cde\n"
        f"for grade in ({LARGEST_GRADE}, -{LARGEST_GRADE}):\n"
        "    toy = cde.RetrievalSet(['d', 'e'], ['boat', 'soup'], ['q'], ['boat'],\n"
        "        {'q': {'d': grade, 'e': 1}})\n"
        "    print(cde.evaluate(cde.BM25(), toy, ['ndcg@10', 'map@10', 'p@1', 'recall@5']))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    first, second = (json.loads(line.replace("'", '"')) for line in done.stdout.splitlines())
    assert first["ndcg@10"] == pytest.approx(1, abs=1e-5) and first["p@1"] == 1
    assert set(second.values()) == {0.0}


def test_a_judgement_that_is_given_twice_and_agrees_counts_once(
    tmp_path: Path, write_beir: WriteBeir
) -> None:
    folder = write_beir(tmp_path / "toy", qrels={"test": "q1\td1\t1\nq1\td1\t+1\nq2\td2\t 0\n"})
    assert load_retrieval(folder).qrels == {"q1": {"d1": 1}, "q2": {"d2": 0}}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"_id": "d", "text": "a", "title": ["x"]}', '"title" must be a string or null'),
        (r'{"_id": "d", "text": "a \ud83d"}', '"text" has half of a surrogate pair'),
        (r'{"_id": "\udc80", "text": "a"}', '"_id" has half of a surrogate pair'),
        (r'{"_id": "d\u0000", "text": "a"}', "an id must not hold NUL"),
        ('{"_id": "d2", text: "two"}', r"not JSON .*\(char 14\)"),
        ("[" * 100_000, "not JSON"),
        ('{"_id": "d", "text": ' + "1" * 5000 + "}", "not JSON"),
        *(
            (line, f'expected a JSON object .* "_id", "text", got {re.escape(line)}$')
            for line in (
                '{"_id": "d"}',
                '{"_id": 2, "text": "x"}',
                '{"_id": "d", "text": null}',
                '["d", "x"]',
                "null",
            )
        ),
    ],
)
def test_a_line_of_a_corpus_that_is_no_document_is_named(
    tmp_path: Path, write_beir: WriteBeir, line: str, message: str
) -> None:
    """Blank lines count, so that the number is the editor's."""
    folder = write_beir(tmp_path / "toy")
    (folder / "corpus.jsonl").write_text('\n{"_id": "d1", "text": "b"}\n' + line)
    with pytest.raises(ValueError, match=f"corpus.jsonl, line 3: {message}"):
        load_retrieval(folder)


def test_a_pair_of_surrogates_is_one_character(tmp_path: Path) -> None:
    path = tmp_path / "pairs.jsonl"
    path.write_text(r'{"query": "\ud83d\ude80", "document": "x", "domain": null}')
    assert load_pairs(path).queries == ["🚀"]
    path.write_text(r'{"query": "\ude80\ud83d", "document": "x"}')
    with pytest.raises(ValueError, match='pairs.jsonl, line 1: "query" has half of a surrogate'):
        load_pairs(path)


# --- settings

PAIRS = cde.Pairs(["a", "b"], ["c", "d"])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: PAIRS.sample(-1), "size must be 0 or more; it is -1"),
        (lambda: PAIRS.sample(1.5), "size must be a whole number; it is 1.5"),
        (lambda: TOY.shrink(1, -1), "queries must be 0 or more; it is -1"),
        (
            lambda: cde.false_negatives(np.eye(2), np.eye(2), epsilon=NAN),
            "epsilon must be a finite number; it is nan",
        ),
        (
            lambda: cde.Pairs(["a", "b"], ["c", "d"], ["x", None]),  # type: ignore[list-item]
            "domains must be strings; item 1 is of type NoneType",
        ),
    ],
)
def test_a_setting_that_would_be_taken_for_another_is_refused(
    call: Callable[[], Any], message: str
) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        call()


@given(st.lists(st.one_of(st.text(max_size=2), st.integers(0, 3)), min_size=1, max_size=6))
def test_groups_are_equal_where_their_numbers_are(groups: list[str | int]) -> None:
    if len({type(one) for one in groups}) > 1:
        with pytest.raises(ValueError, match="all strings or all numbers"):
            group_numbers(groups, "domains")
        return
    numbers = group_numbers(groups, "domains").tolist()
    for one, own in zip(groups, numbers, strict=True):
        for other, its in zip(groups, numbers, strict=True):
            assert (one == other) == (own == its) and (one < other) == (own < its)  # type: ignore[operator]


# --- files of models


def test_weights_of_whole_numbers_are_refused(tmp_path: Path) -> None:
    """Copied into a model, 8-bit weights would be numbers that mean something else."""
    folder = tmp_path / "model"
    bi_encoder().save_pretrained(folder)
    tensors = load_file(folder / "model.safetensors")
    name = next(iter(tensors))
    tensors[name] = (10 * tensors[name]).to(torch.int64)
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(
        ValueError, match=f"of another kind of number: {name} int64, expected float32"
    ):
        cde.BiEncoder.from_pretrained(folder)


# --- texts

ODD = [
    "👩\u200d🚀🚢", "שלום עולם", "\u202eabc\u202c", "a\u200bb", "\u200d", "\ufeff", "", "\0",
    "é\u0301",
]  # fmt: skip


def test_text_of_every_kind_embeds_and_is_evaluated() -> None:
    ids = [f"{text}/{place}" for place, text in enumerate(ODD) if "\0" not in text]
    texts = [text for text in ODD if "\0" not in text]
    toy = cde.RetrievalSet(ids, texts, ids, texts, {name: {name: 1} for name in ids})
    minilm = cde.BiEncoder.from_backbone("minilm", 1, device="cpu", precision="float32")
    for encoder in (minilm, bi_encoder(), contextual().with_context(ODD[:2]), cde.BM25()):
        assert 0 <= cde.evaluate(encoder, toy)["ndcg@10"] <= 1
    vectors = minilm.encode_documents(ODD)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert vectors[0] @ vectors[1] < 0.999  # not all one unknown word


def test_half_a_pair_is_refused_by_whatever_embeds() -> None:
    for embed in (
        cde.Surrogate(cache=False).embed,
        bi_encoder().encode_queries,
        contextual().with_context(None).encode_documents,
        cde.Index,
        lambda texts: cde.Pairs(texts, texts),
    ):
        with pytest.raises(ValueError, match="must be whole text; item 1 has half of a surrogate"):
            embed(["boats", "a \ud83d"])


class OfWords(Gives):
    """An encoder that knows no word of some texts, and says so."""

    zeros_for_unknown = True


def test_zeros_are_taken_from_an_encoder_that_says_what_they_mean() -> None:
    judged = {"q": {"a": 1}, "r": {"a": 0}}  # nothing is relevant for the other query
    toy = cde.RetrievalSet(["a", "b"], ["x", "y"], ["q", "r"], ["x", "z"], judged)
    assert cde.evaluate(OfWords(*[[[1, 0], [0, 0]]] * 2), toy)["ndcg@10"] == 0.5
    with pytest.raises(ValueError, match="OfWords gave .* of 2 queries, 2 have only zeros"):
        cde.evaluate(OfWords(*np.zeros((2, 2, 2))), toy)
    with pytest.raises(ValueError, match="1 have numbers that are not finite"):
        cde.evaluate(OfWords(*[[[1, 0], [np.nan, 0]]] * 2), toy)

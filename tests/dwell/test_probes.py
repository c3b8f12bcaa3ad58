"""The probes recover the bias of encoders that were built to have one, and move tokens exactly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from string import ascii_lowercase
from typing import Any
from zlib import crc32

import numpy as np
import pandas as pd
import pytest
from biased_encoders import ALL, FIRST, LAST, Bag, marked_passages
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from cde.data import RetrievalSet
from cde.models.encoder import load_tokenizer
from cde.retrieval import Encoder, Ranker
from cde_studies.dwell import probes
from cde_studies.dwell.passages import Passages
from cde_studies.dwell.probes import move_passage
from cde_studies.dwell.substrings import segments, substring_similarity, token_spans

WORDS = [
    f"{a}{b}"
    for a in ("red", "boat", "sail", "wind", "rope")
    for b in ("", "s", "ing", "-like", "é")
]


TOKENIZER, PASSAGES = load_tokenizer("minilm"), marked_passages()


def mrr_by_place(encoder: Encoder | Ranker, passages: Passages = PASSAGES) -> pd.DataFrame:
    """MRR@100 of each query (row), unchanged and with the passage at each place (columns)."""
    versions = probes.moved_versions(passages, TOKENIZER)
    return probes.scores_by_place(encoder, passages, versions, ["mrr@100"])["mrr@100"]


@given(st.lists(st.sampled_from(WORDS), min_size=2, max_size=30), st.data())
def test_a_move_keeps_every_token_and_the_passage_whole(words: list[str], data: Any) -> None:
    text = data.draw(st.sampled_from([" ", "  ", "\n"])).join(words)
    first = data.draw(st.integers(0, len(words) - 2))
    last = data.draw(st.integers(first, len(words) - 2))
    start = len(text) - len(text.split(None, first)[-1]) if first else 0
    passage = text[start:].split()[: last - first + 1]
    end = text.index(passage[-1], start + sum(map(len, passage[:-1]))) + len(passage[-1])
    versions = move_passage(text, (start, end), TOKENIZER)
    before, inside = (token_spans(some, TOKENIZER)[0] for some in (text, text[start:end]))
    assert len(versions) == probes.PLACES
    places = []
    for version in versions:
        ids = token_spans(version, TOKENIZER)[0]
        assert Counter(ids) == Counter(before)
        places.append([ids[at : at + len(inside)] for at in range(len(ids))].index(inside))
    assert versions[0].split()[: len(passage)] == passage
    assert versions[-1].split()[-len(passage) :] == passage


def test_insertion_points_are_uniform() -> None:
    letters = list("abcdefghijklmnopqrs")
    text = " ".join([*letters[:5], "PASSAGE", *letters[5:]]).replace("PASSAGE", "red boat")
    start = text.index("red boat")
    versions = move_passage(text, (start, start + 8), TOKENIZER)
    assert [version.split().index("red") for version in versions] == [
        round(point * 19 / 9) for point in range(10)
    ]


def test_a_tokenizer_whose_first_word_is_different_is_given_a_blank() -> None:
    """One like GPT-2's: a blank belongs to the word after it; the first word has none."""
    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    inner.train_from_iterator(
        [" ".join(WORDS)] * 20, trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet)
    )
    byte_level = PreTrainedTokenizerFast(tokenizer_object=inner)
    text = "red boats sailing windé rope"
    versions = move_passage(text, (4, 9), byte_level)
    places = [version.split().index("boats") for version in versions]
    assert places == sorted(places) and set(places) == {0, 1, 2, 3, 4}
    assert len({tuple(sorted(token_spans(version, byte_level)[0])) for version in versions}) == 1
    assert segments(text, byte_level, 5) == [f" {word}" for word in text.split()]


def test_what_does_not_round_trip_is_left_out() -> None:
    class Merging:
        """Has one token for "a" before "b", whatever stands between: a move makes and breaks it."""

        is_fast = True

        def __call__(self, text: str, **_: Any) -> dict[str, Any]:
            ids, spans, place = [], [], 0
            for word in text.split():
                at = text.index(word, place)
                place = at + len(word)
                if ids and ids[-1] == ord("a") and word == "b":
                    ids[-1], spans[-1] = 1, (spans[-1][0], place)
                else:
                    ids.append(ord(word[0]) if len(word) == 1 else 1000 + len(word))
                    spans.append((at, place))
            return {"input_ids": ids, "offset_mapping": spans}

    assert move_passage("a c b", (2, 3), Merging()) == []
    assert segments("c a b d", Merging(), 3) == ["c", "a b", "d"]
    names = ["d0", "d1"]
    texts = ["a c b", "c a d"]
    collection = RetrievalSet(names, texts, names, ["c", "a"], {one: {one: 1} for one in names})
    merged, both = (
        Passages(collection.asking(asked), dict.fromkeys(asked, (2, 3)), {})
        for asked in (names[:1], names)
    )
    assert list(probes.moved_versions(both, Merging())) == ["d1"]
    with pytest.raises(ValueError, match="no query is left"):
        probes.moved_versions(merged, Merging())


@pytest.mark.parametrize(("chosen", "kind"), [FIRST, ALL, LAST])
def test_the_moved_passage_recovers_a_built_bias(
    chosen: Callable[[list[int]], list[int]], kind: str
) -> None:
    scores = mrr_by_place(Bag(TOKENIZER, chosen))
    assert len(scores) == len(PASSAGES.spans)
    assert list(scores.columns) == ["default", *range(1, 11)]
    means = scores.mean()
    if kind == "all":
        np.testing.assert_allclose(
            scores.to_numpy(), np.repeat(scores[["default"]].to_numpy(), 11, axis=1)
        )
        assert means["default"] > 0.9
    else:
        near, far = (1, 10) if kind == "first" else (10, 1)
        assert means[near] == 1.0
        assert means[[place for place in range(1, 11) if place != near]].max() < 0.3
        assert means[far] < 0.2


class Early:
    """Finds a document for any query the better, the earlier its passage stands; no two alike."""

    def encode_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return np.tile(np.array([1, 0], np.float32), (len(texts), 1))

    def encode_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        angles = []
        for text in texts:
            place = next(row for row, word in enumerate(text.split()) if len(word) > 1)
            angles.append(0.2 + place / 100 + crc32(text.encode()) / 2**32 / 10)
        return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


def test_a_passage_that_falls_below_the_cut_off_scores_nothing() -> None:
    """The best places were the document's own before the move: it may lose them to others."""
    deep = mrr_by_place(Early())
    versions = probes.moved_versions(PASSAGES, TOKENIZER)
    for cut in (1, 5):
        metric = f"mrr@{cut}"
        scores = probes.scores_by_place(Early(), PASSAGES, versions, [metric])[metric]
        within = deep.to_numpy() >= 1 / cut - 1e-9
        np.testing.assert_array_equal(scores.to_numpy(), np.where(within, deep.to_numpy(), 0))
        fell = within[:, 0] & ~within[:, -1]
        assert fell.any()


def test_encoder_and_ranker_are_searched_alike() -> None:
    """Two queries for one document: a ranker needs two corpora for them, an encoder one."""
    collection = PASSAGES.collection
    twice = RetrievalSet(
        collection.document_ids,
        collection.documents,
        [*collection.query_ids, "again"],
        [*collection.queries, collection.queries[0].split()[0]],
        {**collection.qrels, "again": {"d0": 1}},
    )
    asked = Passages(twice, {**PASSAGES.spans, "again": PASSAGES.spans["q0"]}, {})
    bag = Bag(TOKENIZER, FIRST[0])

    class Ranking:
        def rank(self, some: RetrievalSet, depth: int = 1000) -> dict[str, dict[str, float]]:
            scores = bag.encode_queries(some.queries) @ bag.encode_documents(some.documents).T
            return {
                q: dict(zip(some.document_ids, map(float, row), strict=True))
                for q, row in zip(some.query_ids, scores, strict=True)
            }

    # at the default place other documents are the same for both
    by_ranker, by_encoder = mrr_by_place(Ranking(), asked), mrr_by_place(bag, asked)
    np.testing.assert_allclose(by_ranker["default"].loc[by_encoder.index], by_encoder["default"])
    assert by_ranker[1].mean() == by_encoder[1].mean() == 1.0


@pytest.mark.parametrize(("chosen", "kind"), [FIRST, ALL, LAST])
@pytest.mark.slow
def test_substring_similarity_recovers_a_built_bias(
    chosen: Callable[[list[int]], list[int]], kind: str
) -> None:
    generator = np.random.default_rng(1)
    texts = [" ".join(generator.choice(list(ascii_lowercase), 120)) for _ in range(200)]
    similarity = substring_similarity(Bag(TOKENIZER, chosen), [*texts, "too short"], TOKENIZER)
    assert similarity.rows.tolist() == list(range(200))
    assert np.nanmean(similarity.cosines - similarity.others) > 0.02, (
        "a document's runs are nearer to it than to another"
    )
    assert similarity.left_out == {"fewer than 10 words": 1}
    means = similarity.cosines.mean(axis=0)
    if kind == "all":
        assert np.ptp(means) < 0.03
    else:
        near = 0 if kind == "first" else -1
        assert means[near] == pytest.approx(1.0, abs=1e-5)
        others = np.delete(means, near)
        assert others.max() < 0.6
        assert np.ptp(others) < 0.05


def test_the_room_of_an_encoder_that_cannot_tell_texts_apart_is_nought() -> None:
    texts = [" ".join(one) for one in (ascii_lowercase, ascii_lowercase[::-1], ascii_lowercase)]
    similarity = substring_similarity(Bag(TOKENIZER, lambda tokens: [7]), texts, TOKENIZER)
    alone = np.isnan(similarity.others).all(axis=1)
    assert alone.tolist() == [True, False, False], "the same text is no other"
    np.testing.assert_allclose(similarity.cosines[1:] - similarity.others[1:], 0, atol=1e-6)


@given(st.lists(st.sampled_from(WORDS), min_size=1, max_size=60), st.integers(2, 10))
def test_runs_are_the_document_in_order_and_of_about_one_length(
    words: list[str], parts: int
) -> None:
    text = " ".join(words)
    pieces = segments(text, TOKENIZER, parts)
    if isinstance(pieces, str):
        assert len(words) < parts or "longer" in pieces
        return
    runs = [token_spans(run, TOKENIZER)[0] for run in pieces]
    whole = token_spans(text, TOKENIZER)[0]
    assert [token for run in runs for token in run] == whole
    longest_word = max(len(token_spans(word, TOKENIZER)[0]) for word in words)
    for run in runs:
        assert abs(len(run) - len(whole) / parts) <= longest_word + 1

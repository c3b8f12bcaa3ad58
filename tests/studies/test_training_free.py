"""Numbers are those of the adapted encoder, and no way sees the queries that it is asked."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from numpy.typing import NDArray

import cde
from cde.adaptation import AdaptedEncoder, Shift, unit
from cde.data import Pairs
from cde_studies.motivation import training_free
from cde_studies.sweeps import random_texts

DIM = 12
WORDS = [f"{first}{second}" for first in "bcdfgh" for second in "aeiou"]


class Bag:
    """Random directions of words, added up, with a mean of their own."""

    def _vectors(self, texts: list[str], lean: float) -> NDArray[np.float32]:
        def of(word: str) -> NDArray[np.float64]:
            return np.random.default_rng(zlib.crc32(word.encode())).normal(size=DIM)

        return unit(np.array([sum(map(of, text.split()), np.full(DIM, lean)) for text in texts]))

    def encode_queries(self, texts: list[str]) -> NDArray[np.float32]:
        return self._vectors(texts, 0.5)

    def encode_documents(self, texts: list[str]) -> NDArray[np.float32]:
        return self._vectors(texts, 1.0)


def pairs(seed: int, count: int = 60) -> Pairs:
    drawn = np.random.default_rng(seed).choice(WORDS, (count, 6))
    queries = [f"q{number} {' '.join(row[:2])}" for number, row in enumerate(drawn)]
    return Pairs(queries, [" ".join(row) for row in drawn], name=f"toys/{seed}")


def test_samples_are_queries_that_are_not_asked() -> None:
    one = training_free._asked(pairs(0), (40, 20), 0, "test", "kin")
    assert one.samples and not set(one.samples) & set(one.collection.queries)
    assert set(one.samples) <= set(pairs(0).queries)


def test_another_corpus_is_of_the_same_part_and_no_kin() -> None:
    kinds = [("test", 0), ("test", 0), ("train", 1), ("test", 2), ("alone", 3)]
    asked = [training_free._asked(pairs(n), (20, 10), 0, *kind) for n, kind in enumerate(kinds)]
    assert [training_free._other(asked, place) for place in range(5)] == [3, 3, None, 0, None]


def test_scores_are_those_of_the_adapted_encoder() -> None:
    sides = np.random.default_rng(0).normal(size=(2, 8, DIM)).astype(np.float32) / 4
    names = [f"{vendor}/{n}" for vendor in ("aws", "google") for n in range(4)]
    deviations = np.random.default_rng(1).normal(size=(80, DIM)).astype(np.float32)
    means = training_free.CorpusMeans(names, *sides, deviations)
    asked = [training_free._asked(pairs(n), (40, 20), 0, "test", n) for n in range(2)]
    encoder, reader = Bag(), means.reader()
    rows = training_free.search_all(asked, encoder, means, draws=2, context=16, seed=5)
    found = rows.set_index(["collection", "way", "context"])["ndcg"]
    letters = encoder.encode_documents(random_texts(16, np.random.default_rng(5))).mean(axis=0)
    sides = [
        (
            encoder.encode_queries(one.collection.queries),
            encoder.encode_documents(one.collection.documents),
        )
        for one in asked
    ]
    for place, one in enumerate(asked):
        own, other = ([side.mean(axis=0) for side in sides[n]] for n in (place, 1 - place))
        samples = encoder.encode_queries(one.samples[:20]).mean(axis=0)
        wanted = {
            ("MiniLM", "none"): (np.zeros(DIM), np.zeros(DIM)),
            ("documents' mean", "own"): (own[1], own[1]),
            ("both means", "own"): own,
            ("both means", "other"): other,
            ("sample queries, 20", "own"): (samples, own[1]),
            ("linear reader", "strings"): (reader.predict(letters), letters),
            ("training corpora", "pooled"): (
                means.queries.mean(axis=0),
                means.documents.mean(axis=0),
            ),
        }
        for way, (queries, documents) in wanted.items():
            shift = Shift(np.float32(queries), np.float32(documents))
            scores = cde.evaluate(AdaptedEncoder(encoder, shift), one.collection)
            name = one.collection.name.partition("/")[2]
            assert found[(name, *way)] == pytest.approx(scores["ndcg@10"], abs=1e-6), way


def test_what_is_projected_out_is_gone_and_the_rest_stays() -> None:
    vectors = np.random.default_rng(0).normal(size=(20, 5))
    directions = np.linalg.qr(np.random.default_rng(1).normal(size=(5, 2)))[0].T
    left = training_free._without(directions)(vectors)
    assert np.allclose(left @ directions.T, 0)
    assert np.allclose(training_free._without(directions)(left), left)


def test_principal_directions_keep_most_of_a_sample() -> None:
    sample = np.random.default_rng(0).normal(size=(200, 5)) * [1, 8, 1, 4, 1]
    kept = training_free._onto(sample, 2)(sample)
    assert np.allclose((kept**2).sum(), (sample[:, [1, 3]] ** 2).sum(), rtol=0.02)


def test_the_largest_direction_s_share_is_of_the_variance() -> None:
    sample = np.random.default_rng(0).normal(size=(4000, 3)) * [3, 1, 1] + 7
    assert training_free._largest_share(sample) == pytest.approx(9 / 11, abs=0.02)

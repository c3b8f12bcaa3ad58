"""Adapting an encoder to a corpus: what a shift leaves as it was, and what a reader learns."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.linear_model import Ridge

from cde.adaptation import (
    AdaptedEncoder,
    LinearReader,
    Shift,
    adapted,
    linear_reader,
    tempered,
    unit,
)
from cde_studies.motivation.linear_readers import fit_reader, save_reader


class Fixed:
    """An encoder whose vectors depend on the text's hash alone, with a mean of its own."""

    fingerprint = "fixed"

    def _vectors(self, texts: list[str], lean: float) -> NDArray[np.float32]:
        rows = [np.random.default_rng(list(text.encode())).normal(size=6) for text in texts]
        return unit(np.array(rows) + lean)

    def encode_queries(self, texts: list[str]) -> NDArray[np.float32]:
        return self._vectors(texts, 0.5)

    def encode_documents(self, texts: list[str]) -> NDArray[np.float32]:
        return self._vectors(texts, 1.0)


CORPUS = [f"document {number}" for number in range(40)]
ASKED = [f"query {number}" for number in range(12)]


def test_what_is_taken_off_is_the_mean_of_each_side() -> None:
    encoder = adapted(Fixed(), CORPUS, ASKED, strength=0)
    documents, queries = Fixed().encode_documents(CORPUS), Fixed().encode_queries(ASKED)
    assert np.allclose(
        encoder.encode_documents(CORPUS), unit(documents - documents.mean(0)), atol=1e-6
    )
    assert np.allclose(encoder.encode_queries(ASKED), unit(queries - queries.mean(0)), atol=1e-6)


def test_a_text_that_is_the_mean_itself_can_still_be_searched() -> None:
    encoder = adapted(Fixed(), CORPUS, ASKED[:1], strength=0)
    assert np.allclose(encoder.encode_queries(ASKED[:1]), Fixed().encode_queries(ASKED[:1]))


@given(st.integers(2, 6), st.floats(0, 2), st.floats(0, 1), st.integers(0, 1000))
def test_tempering_turns_with_the_vectors_and_keeps_no_unit(
    dim: int, strength: float, shrunk: float, seed: int
) -> None:
    """Rankings depend neither on the axes in which vectors are written nor on their unit."""
    generator = np.random.default_rng(seed)
    sample = generator.normal(size=(40, dim)) * np.arange(1, dim + 1)
    turn = np.linalg.qr(generator.normal(size=(dim, dim)))[0]
    plain = tempered(sample, strength=strength, shrunk=shrunk)
    turned = tempered(sample @ turn, strength=strength, shrunk=shrunk)
    assert np.allclose(turned, turn.T @ plain @ turn, atol=1e-4)
    larger = tempered(3 * sample, strength=strength, shrunk=shrunk)
    assert np.allclose(unit(sample @ larger), unit(sample @ plain), atol=1e-4)


def test_strength_1_whitens_and_0_changes_nothing() -> None:
    sample = np.random.default_rng(0).normal(size=(500, 4)) * [8, 4, 2, 1]
    whitened = sample @ tempered(sample, strength=1, shrunk=0)
    assert np.allclose(np.cov(whitened.T, bias=True), np.eye(4), atol=1e-3)
    half = sample @ tempered(sample, shrunk=0)
    assert np.allclose(half.var(axis=0), sample.std(axis=0), rtol=0.1)
    assert np.allclose(tempered(sample, strength=0), np.eye(4), atol=1e-6)
    assert np.allclose(tempered(sample[:1]), np.eye(4))  # one vector has no spread


def test_covariances_of_samples_are_added_each_about_its_own_mean() -> None:
    first, second = np.random.default_rng(0).normal(size=(2, 30, 3))
    assert np.allclose(tempered(first, second), tempered(first + 5, second - 1), atol=1e-5)
    assert np.allclose(tempered(first, first), 2**-0.25 * tempered(first), atol=1e-5)


def test_another_strength_or_corpus_is_another_encoder() -> None:
    made = {adapted(Fixed(), CORPUS, ASKED, strength=one).fingerprint for one in (0, 0.5, 1)}
    made.add(adapted(Fixed(), CORPUS[:20], ASKED, strength=0).fingerprint)
    assert len(made) == 4


def test_directions_are_those_of_documents_and_of_queries_where_there_are_some() -> None:
    documents, queries = Fixed().encode_documents(CORPUS), Fixed().encode_queries(ASKED)
    reader = fit_reader(np.eye(6), np.eye(6))
    asked, unasked = adapted(Fixed(), CORPUS, ASKED), adapted(Fixed(), CORPUS, reader=reader)
    assert np.allclose(asked.shift.weights, tempered(documents, queries), atol=1e-5)
    assert np.allclose(unasked.shift.weights, tempered(documents), atol=1e-5)


def test_of_a_large_corpus_a_sample_is_read_that_the_seed_draws() -> None:
    vectors = Fixed().encode_documents(CORPUS)
    means = [adapted(Fixed(), CORPUS, ASKED, sample=5, seed=n).shift.documents for n in range(4)]
    assert len({one.tobytes() for one in means}) == 4
    rows = np.random.default_rng(2).permutation(40)[:5]
    assert np.allclose(means[2], vectors[rows].mean(axis=0))


@given(st.integers(3, 30), st.integers(2, 12), st.floats(1e-3, 10), st.integers(0, 1000))
def test_the_reader_is_ridge_regression(corpora: int, dim: int, ridge: float, seed: int) -> None:
    """As scikit-learn's, with fewer corpora than dimensions and with more."""
    generator = np.random.default_rng(seed)
    documents, queries = generator.normal(size=(2, corpora, dim))
    ours = fit_reader(documents, queries, ridge).predict(documents)
    assert np.allclose(ours, Ridge(ridge).fit(documents, queries).predict(documents), atol=1e-3)


def test_a_corpus_unlike_the_reader_s_own_leaves_the_encoder_as_it_is() -> None:
    mean = Fixed().encode_documents(CORPUS).mean(axis=0)
    near, far = np.eye(6)[:5] * 0.1 + mean, np.eye(6)[:5] * 0.1 - mean
    used = [
        replace(fit_reader(known, known), documents=np.zeros(6, np.float32), least_near=0.5)
        for known in (near, far)
    ]
    assert used[0].nearness(mean) > 0.9 > -0.5 > used[1].nearness(mean)
    assert not np.allclose(
        adapted(Fixed(), CORPUS, reader=used[0]).encode_queries(ASKED),
        Fixed().encode_queries(ASKED),
    )
    with pytest.warns(UserWarning, match="left as it is"):
        left = adapted(Fixed(), CORPUS, reader=used[1])
    assert np.allclose(left.encode_queries(ASKED), Fixed().encode_queries(ASKED), atol=1e-6)
    plain = Fixed().encode_documents(CORPUS)
    assert np.allclose(left.encode_documents(CORPUS), plain, atol=1e-6)
    assert left.expected.startswith("none: ")


def test_the_nearest_corpora_are_those_of_the_same_direction() -> None:
    """Nearness does not depend on how far a corpus is from the mean of all, and is 1 for one's own."""
    known = np.random.default_rng(0).normal(size=(10, 5))
    reader = fit_reader(known, known)
    away = known[3] - known.mean(axis=0)
    one, two = (reader.nearness(known.mean(axis=0) + length * away) for length in (0.5, 2.0))
    assert one == pytest.approx(two, abs=1e-5)
    assert replace(reader, corpora=reader.corpora[3:4]).nearness(known[3]) == pytest.approx(
        1, abs=1e-5
    )


def test_nearness_is_to_the_ten_nearest_of_many_corpora() -> None:
    generator = np.random.default_rng(0)
    near, far = (generator.normal(size=(n, 5)) * 0.01 + lean for n, lean in ((10, 1), (30, -1)))
    reader = fit_reader(np.concatenate([near, far]), np.zeros((40, 5)))
    assert reader.nearness(near[0]) > 0.99


def test_a_gain_is_expected_where_the_corpus_is_near_manuals_and_the_encoder_is_minilm() -> None:
    reader = linear_reader()
    manual, minilm = reader.corpora[0], SimpleNamespace(name=reader.encoder)
    opposite = 2 * reader.documents - manual
    said = [
        AdaptedEncoder(encoder, Shift(manual, documents)).expected
        for encoder, documents in ((minilm, manual), (minilm, opposite), (Fixed(), manual))
    ]
    assert [one.partition(" on ")[0] for one in said[:2]] == ["a gain was seen", "no gain was seen"]
    assert said[2].startswith("no gain was measured with this encoder")


def test_a_saved_reader_is_read_back_in_half_precision(tmp_path: Path) -> None:
    documents, queries = np.random.default_rng(0).normal(size=(2, 20, 5))
    reader = replace(fit_reader(documents, queries), encoder="fixed", least_near=0.25)
    save_reader(reader, tmp_path / "reader.safetensors")
    back = LinearReader.load(tmp_path / "reader.safetensors")
    assert (back.encoder, back.least_near) == ("fixed", 0.25)
    assert np.allclose(back.weights, reader.weights, rtol=1e-3, atol=1e-4)


def test_a_reader_of_another_encoder_and_an_empty_corpus_are_refused() -> None:
    reader = replace(fit_reader(np.eye(6), np.eye(6)), encoder="another")
    for corpus, said in ((CORPUS, "give sample queries"), ([], "documents must be one or more")):
        with pytest.raises(ValueError, match=said):
            adapted(Fixed(), corpus, reader=reader)


def test_an_adapted_encoder_says_which_side_a_text_is_of() -> None:
    encoder = adapted(Fixed(), CORPUS, ASKED)
    assert np.array_equal(encoder.encode_query(ASKED), encoder.encode_queries(ASKED))
    with pytest.raises(ValueError, match="encode_query or encode_document"):
        encoder.encode(ASKED)
    with pytest.raises(TypeError, match="must be a list of strings; it is 'one query"):
        encoder.encode_queries("one query, not its letters")

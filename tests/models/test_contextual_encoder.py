"""The contextual encoder from texts to vectors: which documents are its context, and what is kept
of it on disk.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from safetensors.torch import load_file
from tiny_encoders import (
    BACKBONES,
    CORPUS,
    TEXTS,
    backbone_folder,
    bi_encoder,
    contextual,
    one_by_one,
    tokenizer,
)
from tiny_models import in_one_pass
from torch import Tensor
from transformers import AutoConfig, AutoTokenizer

import cde
import cde.models.encoder
from cde.data import RetrievalSet
from cde.models import ContextualConfig, ContextualEncoder, CorpusEncoder
from cde.models.contextual import draw_context
from cde.surrogate import minilm_folder
from cde_studies.encoder.untrained import on_purpose

Vectors = NDArray[np.float32]

FAMILIES = list(BACKBONES)

pytestmark = pytest.mark.usefixtures("one_thread")
ATTENTION = ["full", "cached"]
EVERYTHING = {
    "vectors_per_document": 2,
    "soft_prompt_tokens": 3,
    "first_stage_mlp": True,
    "output_projection": True,
}
PREFIXES = {"query_prefix": "query: ", "document_prefix": "text: "}

each_family = pytest.mark.parametrize("family", FAMILIES)
each_attention = pytest.mark.parametrize("attention", ATTENTION)


def load(folder: Path, kind: Any = ContextualEncoder, **options: Any) -> Any:
    return kind.from_pretrained(folder, device="cpu", precision="float32", **options)


def rows_of(encoder: CorpusEncoder, model: ContextualEncoder, corpus: list[str]) -> list[int]:
    """Which documents of the corpus the context vectors are."""
    held = torch.from_numpy(model.embed_context(corpus))
    assert encoder.context is not None
    distance = (encoder.context[:, None] - held[None]).abs().amax(-1)
    assert (distance.min(1).values < 1e-5).all()
    return distance.argmin(1).tolist()  # type: ignore[no-any-return]


# --- the draw


@given(
    st.integers(1, 40),
    st.integers(1, 50),
    st.integers(0, 5),
    st.sampled_from([None, "shorter", "null", "repeat"]),
)
def test_the_draw_is_without_replacement_and_of_the_size_asked_for(
    count: int, size: int, seed: int, fill: str | None
) -> None:
    """From texts and from vectors alike; documents are repeated only once all that were asked for
    are there.
    """
    texts = [f"text {i}" for i in range(count)]
    config = ContextualConfig(context_size=30)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        drawn, said = draw_context(config, 1, texts, size, seed, fill)
        rows, _ = draw_context(config, 1, np.arange(count)[:, None], size, seed, fill)
        again, _ = draw_context(config, 1, texts, size, seed, fill)
    taken = min(size, count)
    assert len(set(drawn[:taken])) == taken
    assert set(drawn) <= set(texts)
    assert set(drawn) == set(drawn[:taken])
    assert len(drawn) == (max(taken, 30) if fill == "repeat" else taken)
    assert [f"text {row}" for row in np.ravel(rows)] == list(drawn) == list(again)
    assert said.startswith(
        f"{taken} of {count} texts, seed {seed}" if taken < count else f"all {count} texts"
    )
    assert said.endswith(f", {30 - taken} repeated") is (fill == "repeat" and taken < 30)


def test_every_document_is_drawn_about_equally_often() -> None:
    """3 of 7 in 2,000 draws: 857 each, and within 6 standard deviations of it."""
    texts, config = [str(i) for i in range(7)], ContextualConfig(context_size=3)
    drawn = [
        text for seed in range(2000) for text in draw_context(config, 1, texts, None, seed, None)[0]
    ]
    counts = np.bincount([int(text) for text in drawn], minlength=7)
    assert np.abs(counts - 6000 / 7).max() < 6 * (2000 * 3 / 7 * 4 / 7) ** 0.5


def test_the_same_seed_draws_the_same_and_another_seed_another() -> None:
    model = contextual()
    one, two, other = (model.with_context(CORPUS, size=3, seed=seed) for seed in (5, 5, 6))
    assert len(set(rows_of(one, model, CORPUS))) == 3
    assert rows_of(one, model, CORPUS) == rows_of(two, model, CORPUS)
    assert rows_of(one, model, CORPUS) != rows_of(other, model, CORPUS)
    np.testing.assert_array_equal(one.encode_documents(TEXTS), two.encode_documents(TEXTS))
    assert np.abs(one.encode_documents(TEXTS) - other.encode_documents(TEXTS)).max() > 1e-3


def test_an_encoder_says_what_it_drew() -> None:
    model = contextual(attention="cached")
    end = "; 32 dimensions, attention cached)"
    vectors = model.embed_context(CORPUS)
    assert (
        repr(model.with_context(CORPUS, size=3, seed=5))
        == f"CorpusEncoder(3 of 7 texts, seed 5{end}"
    )
    assert repr(model.with_context(CORPUS)) == f"CorpusEncoder(4 of 7 texts, seed 0{end}"
    assert repr(model.with_context(CORPUS, size=9)) == f"CorpusEncoder(all 7 texts{end}"
    assert repr(model.with_context(vectors)) == f"CorpusEncoder(all 7 vectors{end}"
    assert repr(model.with_context(vectors, size=2)) == f"CorpusEncoder(2 of 7 vectors, seed 0{end}"
    assert repr(model.with_context(None)) == f"CorpusEncoder(null context{end}"
    assert (
        repr(model.with_context(CORPUS[:3], fill="null"))
        == f"CorpusEncoder(all 3 texts, filled with 1 null tokens{end}"
    )
    assert (
        repr(model.with_context(CORPUS[:2], fill="repeat"))
        == f"CorpusEncoder(all 2 texts, 2 repeated{end}"
    )


@pytest.mark.parametrize("settings", [{}, EVERYTHING], ids=["plain", "everything"])
@each_family
def test_the_context_of_texts_is_their_first_stage_vectors(
    family: str, settings: dict[str, Any]
) -> None:
    """In the order of the corpus, with the prefix of documents, not normalised; and vectors do as
    well as texts.
    """
    model = contextual(family, **settings, **PREFIXES)
    vectors = model.embed_context(CORPUS)
    with torch.no_grad():
        ids = [torch.tensor([model.tokenizer("text: " + text)["input_ids"]]) for text in CORPUS]
        expected = torch.cat([model.first_stage(row) for row in ids]).numpy()
    np.testing.assert_allclose(vectors, expected, atol=1e-5)
    by_texts, by_vectors = model.with_context(CORPUS, size=7), model.with_context(vectors)
    np.testing.assert_array_equal(np.asarray(by_texts.context), vectors)
    np.testing.assert_array_equal(np.asarray(by_vectors.context), vectors)
    np.testing.assert_array_equal(
        by_texts.encode_documents(TEXTS), by_vectors.encode_documents(TEXTS)
    )
    tensor = model.with_context(torch.from_numpy(vectors))
    np.testing.assert_array_equal(
        tensor.encode_documents(TEXTS), by_vectors.encode_documents(TEXTS)
    )


def test_texts_and_vectors_of_one_seed_draw_the_same_documents() -> None:
    model = contextual()
    texts, vectors = (
        model.with_context(CORPUS, 3, seed=8),
        model.with_context(model.embed_context(CORPUS), 3, seed=8),
    )
    np.testing.assert_allclose(np.asarray(texts.context), np.asarray(vectors.context), atol=1e-5)


# --- too few documents


@each_attention
@pytest.mark.parametrize("settings", [{}, EVERYTHING], ids=["plain", "everything"])
def test_a_context_that_is_too_small_is_left_so_or_filled_with_null_tokens_or_repeats(
    attention: str, settings: dict[str, Any]
) -> None:
    """Three documents for a model made for five: against the second stage, called by hand."""
    model = contextual(attention=attention, context_size=5, **settings)
    documents = CORPUS[:3]
    vectors = torch.from_numpy(model.embed_context(documents))
    null = model.second_stage.null_embedding.detach().expand(2, *vectors.shape[1:])
    encoders = {
        fill: model.with_context(documents, fill=fill)
        for fill in (None, "shorter", "null", "repeat")
    }
    repeated = vectors[rows_of_any(encoders["repeat"], vectors)]
    torch.testing.assert_close(repeated[:3], vectors)
    expected = {
        None: vectors,
        "shorter": vectors,
        "null": torch.cat([vectors, null]),
        "repeat": repeated,
    }
    for fill, encoder in encoders.items():
        assert encoder.context is not None
        assert len(encoder.context) == {None: 3, "shorter": 3, "null": 5, "repeat": 5}[fill]
        by_hand = one_by_one(
            model, TEXTS, lambda ids, mask, c=expected[fill]: model.second_stage(ids, mask, c)
        )
        np.testing.assert_allclose(encoder.encode_documents(TEXTS), by_hand, atol=1e-5)
    short, filled, twice = (
        encoders[fill].encode_documents(TEXTS) for fill in ("shorter", "null", "repeat")
    )
    assert (
        min(np.abs(short - filled).max(), np.abs(short - twice).max(), np.abs(filled - twice).max())
        > 1e-4
    )


def test_documents_that_fill_a_context_up_are_drawn_by_the_seed() -> None:
    model = contextual(context_size=60)
    vectors = torch.from_numpy(model.embed_context(CORPUS[:3]))
    rows = [
        rows_of_any(model.with_context(CORPUS[:3], seed=seed, fill="repeat"), vectors)
        for seed in (0, 0, 1)
    ]
    assert rows[0] == rows[1] != rows[2]
    assert rows[0][:3] == rows[2][:3] == [0, 1, 2]
    assert all(10 <= one[3:].count(row) <= 28 for one in rows for row in range(3))


def rows_of_any(encoder: CorpusEncoder, vectors: Tensor) -> list[int]:
    assert encoder.context is not None
    distance = (encoder.context[:, None] - vectors[None]).flatten(2).abs().amax(-1)
    assert (distance.min(1).values < 1e-5).all()
    return distance.argmin(1).tolist()  # type: ignore[no-any-return]


def test_a_size_below_the_models_own_is_filled_up_to_it() -> None:
    model = contextual(context_size=5)
    lengths = {
        fill: len(model.with_context(CORPUS, size=2, fill=fill).context)  # type: ignore[arg-type]
        for fill in ("shorter", "null", "repeat")
    }
    assert lengths == {"shorter": 2, "null": 5, "repeat": 5}


def test_more_documents_than_the_model_was_made_for_are_all_taken() -> None:
    """There is no upper end to the paper's form, and every document of it counts."""
    model = contextual(context_size=2)
    seven, six = model.with_context(CORPUS, size=7), model.with_context(CORPUS[:6], size=7)
    assert (len(seven.context), len(six.context)) == (7, 6)  # type: ignore[arg-type]
    assert np.abs(seven.encode_documents(TEXTS) - six.encode_documents(TEXTS)).max() > 1e-4


@pytest.mark.parametrize("variant", ["hub", "train", "v2"])
def test_a_published_variant_refuses_more_and_repeats_documents_where_there_are_fewer(
    variant: str,
) -> None:
    family = "modernbert" if variant == "v2" else "nomic_bert"
    unrotated = 0 if variant == "v2" else 4
    model = contextual(family, variant=variant, soft_prompt_tokens=2, unrotated=unrotated)
    for context in (CORPUS, model.embed_context(CORPUS)):
        with pytest.raises(
            ValueError, match=f"context of 5 documents does not fit.*{variant!r} reads 4"
        ):
            model.with_context(context, size=5)
    with pytest.raises(ValueError, match="context of 7 documents does not fit"):
        model.with_context(model.embed_context(CORPUS))
    repeated = model.with_context(CORPUS[:3], seed=1)
    assert "all 3 texts, 1 repeated" in repr(repeated)
    assert sorted(set(rows_of(repeated, model, CORPUS))) == [0, 1, 2]
    assert len(repeated.context) == 4  # type: ignore[arg-type]
    expected = one_by_one(
        model, TEXTS, lambda ids, mask: model.second_stage(ids, mask, repeated.context)
    )
    np.testing.assert_allclose(repeated.encode_documents(TEXTS), expected, atol=1e-5)


# --- warnings and errors


def test_a_context_of_one_document_or_of_duplicates_warns_where_it_was_asked_for() -> None:
    model = contextual()
    vectors = model.embed_context(CORPUS[:1])
    for one in (["tides"], vectors):
        with pytest.warns(UserWarning, match="a single document") as caught:
            model.with_context(one)
        assert [warning.filename for warning in caught] == [__file__]
    with pytest.warns(UserWarning, match="2 of 4 context documents are duplicates") as caught:
        model.with_context(["tides", "ropes", "tides", "tides"])
    assert [warning.filename for warning in caught] == [__file__]
    with pytest.warns(UserWarning, match="3 of 4 context documents are duplicates"):
        model.with_context(np.repeat(vectors, 4, axis=0))


def test_a_context_that_is_varied_or_filled_up_on_purpose_does_not_warn() -> None:
    model = contextual()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for fill in ("shorter", "null", "repeat"):
            model.with_context(CORPUS[:2], fill=fill)
        model.with_context(None)
        model.with_context(
            CORPUS + CORPUS[:1], size=4, seed=0
        )  # the duplicates are not drawn together
    drawn = draw_context(model.config, 1, CORPUS + CORPUS[:1], 4, 0, None)[0]
    assert len(set(drawn)) == 4


def test_duplicates_among_the_context_count_each() -> None:
    """They say nothing new, and are there all the same: twice the weight of one."""
    model = contextual()
    documents = ["tides", "ropes", "tides"]
    with pytest.warns(UserWarning, match="duplicates"):
        encoder = model.with_context(documents, size=3)
    assert rows_of(encoder, model, ["tides", "ropes"]) == [0, 1, 0]


@pytest.mark.parametrize(
    ("context", "options", "kind", "message"),
    [
        (
            [],
            {},
            ValueError,
            "the context is empty; with_context\\(None\\) embeds without a corpus",
        ),
        (np.zeros((0, 32), np.float32), {}, ValueError, "the context is empty"),
        (CORPUS, {"size": 0}, ValueError, "size must be 1 or more; it is 0"),
        (CORPUS, {"size": -1}, ValueError, "size must be 1 or more; it is -1"),
        (
            CORPUS,
            {"fill": "zeros"},
            ValueError,
            "fill must be 'shorter', 'null' or 'repeat'; it is 'zeros'",
        ),
        ("tides", {}, TypeError, "one string was given: put it in a list"),
        (["tides", 3], {}, TypeError, "item 1 is of type int"),
        (np.full((3, 32), np.nan), {}, ValueError, "NaN or infinite"),
        (np.full((3, 32), -np.inf), {}, ValueError, "NaN or infinite"),
        (torch.full((3, 32), torch.nan), {}, ValueError, "NaN or infinite"),
    ],
)
def test_what_is_no_context_is_refused(
    context: Any, options: dict[str, Any], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        contextual().with_context(context, **options)


@pytest.mark.parametrize("shape", [(3, 5), (32,), (3, 2, 32), (2, 1, 3, 32)])
@each_attention
def test_vectors_that_the_model_cannot_read_are_refused_when_it_is_bound(
    shape: tuple[int, ...], attention: str
) -> None:
    """As `with_context` documents, and not only when the first text comes."""
    vectors = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    with pytest.raises(ValueError, match="32"):
        contextual(attention=attention).with_context(vectors)


@pytest.mark.parametrize("shape", [(3, 32), (3, 3, 32), (3, 2, 16)])
@pytest.mark.parametrize("fill", [None, "null"])
def test_vectors_of_another_number_a_document_are_refused_when_the_model_is_bound(
    shape: tuple[int, ...], fill: str | None
) -> None:
    vectors = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    with pytest.raises(ValueError, match="2"):
        contextual(vectors_per_document=2).with_context(vectors, fill=fill)


def test_a_model_without_a_null_token_says_so_when_one_is_needed() -> None:
    model = contextual(null_token=False, sequence_dropout=0.0)
    with pytest.raises(ValueError, match="no null token"):
        model.with_context(CORPUS[:2], fill="null")
    with pytest.raises(ValueError, match="no null token"):
        model.with_context(None).encode_documents(TEXTS)
    assert model.with_context(CORPUS).encode_documents(TEXTS).shape == (5, 32)


def test_texts_longer_than_the_learned_positions_are_cut_or_refused_in_words() -> None:
    """BERT has a vector for each of 128 positions, and none for more."""
    model = contextual("bert")
    try:
        vectors = model.with_context(["boat " * 100, "tides"]).encode_documents(["boat " * 100])
    except ValueError as error:
        assert "128" in str(error)
    else:
        assert np.isfinite(vectors).all()


# --- the bound encoder


@each_attention
@each_family
@pytest.mark.parametrize("settings", [{}, EVERYTHING], ids=["plain", "everything"])
def test_a_bound_encoder_is_the_second_stage_normalised(
    family: str, attention: str, settings: dict[str, Any]
) -> None:
    """Against the second stage called directly, each text alone; texts with prefixes, in small
    batches as well.
    """
    model = contextual(family, attention=attention, **settings, **PREFIXES)
    encoder = model.with_context(CORPUS, size=6)

    def second(ids: Tensor, mask: Tensor | None) -> Tensor:
        embedded: Tensor = model.second_stage(ids, mask, encoder.context)
        return embedded

    for encode, prefix in (
        (encoder.encode_documents, "text: "),
        (encoder.encode_queries, "query: "),
    ):
        vectors, expected = encode([*TEXTS, *TEXTS[:2]]), one_by_one(model, TEXTS, second, prefix)
        assert vectors.dtype == np.float32
        np.testing.assert_allclose(vectors, [*expected, *expected[:2]], atol=1e-5)
        np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(cde.models.encoder, "tokens_at_once", lambda *_: 60)
            np.testing.assert_allclose(encode(TEXTS[::-1]), expected[::-1], atol=1e-5)
    assert encoder.encode_queries([]).shape == (0, 32)


@each_attention
@each_family
def test_the_context_changes_the_embedding(family: str, attention: str) -> None:
    """Two corpora and none: three embeddings of one text. The corpus's order is not one more."""
    model = contextual(family, attention=attention)
    sea, land = CORPUS[:4], ["ploughs", "barley and rye", "a green field", "oxen"]
    vectors = [model.with_context(context).encode_documents(TEXTS) for context in (sea, land, None)]
    for first, second in ((0, 1), (0, 2), (1, 2)):
        assert np.abs(vectors[first] - vectors[second]).max(axis=1).min() > 1e-3
    np.testing.assert_allclose(
        model.with_context(sea[::-1]).encode_documents(TEXTS), vectors[0], atol=1e-5
    )


@each_attention
@pytest.mark.parametrize("settings", [{}, EVERYTHING], ids=["plain", "everything"])
def test_no_context_is_null_tokens_in_the_place_of_one(
    attention: str, settings: dict[str, Any]
) -> None:
    """As many as the model was made for: four, or eight where a document has two vectors."""
    model = contextual(attention=attention, **settings)
    vectors = model.with_context(None).encode_documents(TEXTS)
    some = torch.from_numpy(model.embed_context(CORPUS[:4]))
    null = model.second_stage.null_embedding.detach().expand(some.shape)
    stage = model.second_stage
    for forward in (
        lambda ids, mask: stage(ids, mask, some, null_context=True),
        lambda ids, mask: stage(ids, mask, null),
        lambda ids, mask: model(ids, mask, context=some, null_context=True),
    ):
        np.testing.assert_allclose(vectors, one_by_one(model, TEXTS, forward), atol=1e-5)
    assert np.abs(vectors - model.with_context(CORPUS[:4]).encode_documents(TEXTS)).max() > 1e-3


@each_attention
def test_several_encoders_of_one_model_keep_their_own_context(attention: str) -> None:
    """In turn, over and over: none reads what was computed for another."""
    model = contextual(attention=attention)
    contexts = [CORPUS[:3], CORPUS[3:6], None]
    expected = [model.with_context(context).encode_documents(TEXTS) for context in contexts]
    encoders = [model.with_context(context) for context in contexts]
    for _ in range(2):
        for encoder, vectors in zip(encoders, expected, strict=True):
            np.testing.assert_array_equal(encoder.encode_documents(TEXTS), vectors)
            np.testing.assert_array_equal(encoder.encode_queries(TEXTS), vectors)


def test_a_cached_context_is_computed_once_for_all_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A property of the cost: J tokens of work in all, not J a text."""
    model = contextual(attention="cached")
    compute, calls = model.second_stage.cache_context, []

    def counted(context: Any, *arguments: Any) -> Any:
        calls.append(context)
        return compute(context, *arguments)

    monkeypatch.setattr(model.second_stage, "cache_context", counted)
    # each text in a batch of its own
    monkeypatch.setattr(cde.models.encoder, "tokens_at_once", lambda *_: 1)
    encoder = model.with_context(CORPUS)
    encoder.encode_documents(TEXTS)
    encoder.encode_queries(TEXTS)
    assert len(calls) == 1


def test_a_float32_encoder_does_not_read_what_bfloat16_cached() -> None:
    model = contextual(attention="cached")
    expected = model.with_context(CORPUS).encode_documents(TEXTS)
    encoder = model.with_context(model.embed_context(CORPUS), size=4)
    model.precision = "bfloat16"
    half = encoder.encode_documents(TEXTS)
    model.precision = "float32"
    np.testing.assert_allclose(encoder.encode_documents(TEXTS), expected, atol=1e-5)
    assert 1e-5 < np.abs(half - expected).max() < 0.1


@each_attention
def test_encoding_is_without_dropout_and_restores_the_training_mode(attention: str) -> None:
    model = contextual(attention=attention, dropout=0.4, sequence_dropout=0.9)
    still = model.with_context(CORPUS).encode_documents(TEXTS)
    model.train()
    np.testing.assert_array_equal(model.with_context(CORPUS).encode_documents(TEXTS), still)
    assert all(module.training for module in model.modules())


def test_a_stage_that_was_frozen_is_frozen_after_encoding() -> None:
    model = contextual()
    model.train()
    model.first_stage.eval()
    model.with_context(CORPUS).encode_documents(TEXTS)
    assert model.second_stage.training
    assert not model.first_stage.training


# --- search


class OnePass:
    """The bound encoder again, in one masked pass over context and text, each text alone."""

    def __init__(self, encoder: CorpusEncoder) -> None:
        self.encoder = encoder

    def encode_documents(self, texts: list[str]) -> Vectors:
        model, context = self.encoder.model, self.encoder.context
        return one_by_one(
            model, texts, lambda ids, mask: in_one_pass(model.second_stage, ids, mask, context)
        )

    encode_queries = encode_documents


def test_a_retrieval_set_is_scored_alike_by_cached_keys_and_by_one_pass() -> None:
    """And the whole path ranks as it should: each query is a document but for its end."""
    pairs = [(f"d{i}", text) for i, text in enumerate(CORPUS)]
    ids, documents = [d for d, _ in pairs], [f"{text} and so on" for _, text in pairs]
    queries = [f"q{i}" for i in range(len(pairs))]
    qrels = {query: {document: 1} for query, document in zip(queries, ids, strict=True)}
    small = RetrievalSet(ids, documents, queries, CORPUS, qrels)
    model = on_purpose(
        ContextualEncoder.from_backbone(
            "minilm", 2, attention="cached", precision="float32", device="cpu"
        )
    )
    encoder = model.with_context(documents)
    metrics = ("ndcg@10", "mrr@5")
    scores = cde.evaluate(encoder, small, metrics)
    assert scores == pytest.approx(cde.evaluate(OnePass(encoder), small, metrics), abs=1e-9)
    assert scores["ndcg@10"] > 0.9


# --- pretrained backbones


def test_both_stages_start_from_the_pretrained_weights_and_share_none() -> None:
    """Without a context and without tokens in its place, both are the bi-encoder of the same
    layers.
    """
    model = ContextualEncoder.from_backbone("minilm", 2, precision="float32", device="cpu")
    plain = cde.BiEncoder.from_backbone("minilm", 2, precision="float32", device="cpu")
    first = model.embed_context(TEXTS)
    np.testing.assert_allclose(
        first / np.linalg.norm(first, axis=1, keepdims=True), plain.encode_queries(TEXTS), atol=1e-5
    )
    nothing = torch.zeros(0, 384)
    alone = one_by_one(model, TEXTS, lambda ids, mask: model.second_stage(ids, mask, nothing))
    np.testing.assert_allclose(alone, plain.encode_queries(TEXTS), atol=1e-5)
    shared = {id(p) for p in model.first_stage.parameters()} & {
        id(p) for p in model.second_stage.parameters()
    }
    assert not shared


def test_the_stages_may_have_different_depths(tmp_path: Path) -> None:
    model = ContextualEncoder.from_backbone(
        "minilm", 2, first_stage_layers=1, precision="float32", device="cpu"
    )
    one, two = (
        cde.BiEncoder.from_backbone("minilm", n, precision="float32", device="cpu") for n in (1, 2)
    )
    first = model.embed_context(TEXTS)
    np.testing.assert_allclose(
        first / np.linalg.norm(first, axis=1, keepdims=True), one.encode_queries(TEXTS), atol=1e-5
    )
    alone = one_by_one(
        model, TEXTS, lambda ids, mask: model.second_stage(ids, mask, torch.zeros(0, 384))
    )
    np.testing.assert_allclose(alone, two.encode_queries(TEXTS), atol=1e-5)
    model.save_pretrained(tmp_path)
    np.testing.assert_array_equal(load(tmp_path).embed_context(TEXTS), first)


@pytest.mark.parametrize("layers", [-1, 3])
def test_a_first_stage_of_too_few_layers_or_too_many_is_refused(
    layers: int, tmp_path: Path
) -> None:
    folder = backbone_folder(tmp_path, "bert")
    with pytest.raises(ValueError, match=f"2 layers; {layers} were asked for"):
        ContextualEncoder.from_backbone(folder, first_stage_layers=layers)


def test_backbones_of_two_sizes_need_the_mlp_between_them() -> None:
    wide = {**BACKBONES["bert"], "hidden_size": 48}
    with pytest.raises(
        ValueError, match="vectors of 48 dimensions and the second reads 32.*first_stage_mlp=True"
    ):
        contextual(first_backbone=wide)
    model = contextual(first_backbone=wide, first_stage_mlp=True)
    assert model.embed_context(CORPUS).shape == (7, 32)
    assert model.dim == model.with_context(CORPUS).encode_documents(TEXTS).shape[1] == 32


def test_stages_of_two_families_work_together(tmp_path: Path) -> None:
    model = contextual("modernbert", first_backbone=BACKBONES["nomic_bert"])
    model.save_pretrained(tmp_path)
    encoder, again = model.with_context(CORPUS), load(tmp_path).with_context(CORPUS)
    np.testing.assert_array_equal(again.encode_documents(TEXTS), encoder.encode_documents(TEXTS))


def test_tied_embeddings_need_one_vocabulary_and_one_size() -> None:
    for other in ({"hidden_size": 48}, {"vocab_size": 70}):
        with pytest.raises(
            ValueError, match="tie_token_embeddings needs stages with one vocabulary and one size"
        ):
            contextual(
                first_backbone={**BACKBONES["bert"], **other},
                first_stage_mlp=True,
                tie_token_embeddings=True,
            )


# --- folders


@each_attention
@each_family
@pytest.mark.parametrize(
    "settings",
    [{}, {**EVERYTHING, **PREFIXES, "tie_token_embeddings": True}],
    ids=["plain", "everything"],
)
def test_a_saved_model_gives_the_same_vectors_to_the_bit(
    family: str, attention: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    model = contextual(family, attention=attention, **settings)
    model.save_pretrained(tmp_path)
    again = load(tmp_path)
    assert again.config.attention == attention
    np.testing.assert_array_equal(again.embed_context(CORPUS), model.embed_context(CORPUS))
    for context in (CORPUS, None):
        one, two = model.with_context(context), again.with_context(context)
        np.testing.assert_array_equal(two.encode_documents(TEXTS), one.encode_documents(TEXTS))
        np.testing.assert_array_equal(two.encode_queries(TEXTS), one.encode_queries(TEXTS))


@each_family
def test_tied_embeddings_stay_tied(family: str, tmp_path: Path) -> None:
    contextual(family, tie_token_embeddings=True).save_pretrained(tmp_path)
    model = load(tmp_path)
    first, second = (
        stage.backbone.get_input_embeddings().weight
        for stage in (model.first_stage, model.second_stage)
    )
    assert first is second
    untied = contextual(family)
    separate = sum(p.numel() for p in untied.parameters()) - sum(
        p.numel() for p in model.parameters()
    )
    assert separate == first.numel()


@each_attention
@each_family
@pytest.mark.parametrize(
    "settings", [{}, {**EVERYTHING, "tie_token_embeddings": True}], ids=["plain", "everything"]
)
def test_an_encoder_saved_with_its_context_needs_no_first_stage(
    family: str, attention: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    model = contextual(family, attention=attention, **settings)
    encoder = model.with_context(CORPUS, size=3, seed=2, fill="null")
    encoder.save_pretrained(tmp_path)
    stored = load_file(tmp_path / "model.safetensors")
    assert {name.split(".")[0] for name in stored} == {"second_stage", "context"}
    assert encoder.context is not None
    assert stored["context"].shape == encoder.context.shape
    again = load(tmp_path, CorpusEncoder)
    assert repr(again) == repr(encoder)
    np.testing.assert_array_equal(again.encode_documents(TEXTS), encoder.encode_documents(TEXTS))
    np.testing.assert_array_equal(again.encode_queries(TEXTS), encoder.encode_queries(TEXTS))
    with pytest.raises(
        ValueError,
        match="saved with its context and without its first stage.*or pass context vectors",
    ):
        again.model.with_context(CORPUS)
    other = model.embed_context(CORPUS[3:])
    expected = model.with_context(other).encode_documents(TEXTS)
    np.testing.assert_array_equal(again.model.with_context(other).encode_documents(TEXTS), expected)


def test_an_encoder_saved_with_its_first_stage_can_be_bound_anew(tmp_path: Path) -> None:
    model = contextual()
    encoder = model.with_context(CORPUS, size=3)
    encoder.save_pretrained(tmp_path, first_stage=True)
    again = load(tmp_path, CorpusEncoder)
    np.testing.assert_array_equal(again.encode_documents(TEXTS), encoder.encode_documents(TEXTS))
    bound, expected = again.model.with_context(CORPUS[3:]), model.with_context(CORPUS[3:])
    np.testing.assert_array_equal(bound.encode_documents(TEXTS), expected.encode_documents(TEXTS))
    np.testing.assert_array_equal(load(tmp_path).embed_context(CORPUS), model.embed_context(CORPUS))


def test_saving_with_a_context_leaves_the_encoder_and_its_model_as_they_were(
    tmp_path: Path,
) -> None:
    model = contextual()
    encoder = model.with_context(CORPUS, size=3)
    before = encoder.encode_documents(TEXTS)
    encoder.save_pretrained(tmp_path / "bound")
    np.testing.assert_array_equal(encoder.encode_documents(TEXTS), before)
    model.save_pretrained(tmp_path / "whole")
    np.testing.assert_array_equal(
        load(tmp_path / "whole").embed_context(CORPUS), model.embed_context(CORPUS)
    )
    with pytest.raises(
        ValueError, match="holds a model without a context: ContextualEncoder.from_pretrained"
    ):
        load(tmp_path / "whole", CorpusEncoder)


@pytest.mark.parametrize("first_stage", [True, False])
def test_a_model_that_was_loaded_from_a_bound_folder_is_saved_without_the_context(
    first_stage: bool, tmp_path: Path
) -> None:
    """Its folder must not say '3 of 7 texts' and embed without a context."""
    contextual().with_context(CORPUS, size=3).save_pretrained(
        tmp_path / "bound", first_stage=first_stage
    )
    load(tmp_path / "bound").save_pretrained(tmp_path / "model")
    with pytest.raises(ValueError, match="without a context"):
        load(tmp_path / "model", CorpusEncoder)


def test_the_null_context_is_saved_as_such(tmp_path: Path) -> None:
    encoder = contextual().with_context(None)
    encoder.save_pretrained(tmp_path)
    again = load(tmp_path, CorpusEncoder)
    assert repr(again) == repr(encoder)
    np.testing.assert_array_equal(again.encode_documents(TEXTS), encoder.encode_documents(TEXTS))


def test_the_tokenizer_and_the_type_are_saved_along(tmp_path: Path) -> None:
    contextual().with_context(CORPUS).save_pretrained(tmp_path)
    assert (
        AutoTokenizer.from_pretrained(tmp_path)("ab c")["input_ids"]
        == tokenizer()("ab c")["input_ids"]
    )
    assert isinstance(AutoConfig.from_pretrained(tmp_path), ContextualConfig)


def test_another_tokenizer_may_be_given(tmp_path: Path) -> None:
    contextual().save_pretrained(tmp_path / "model")
    other = tokenizer()
    assert load(tmp_path / "model", tokenizer=other).tokenizer is other
    other.save_pretrained(tmp_path / "tokens")
    ids = load(tmp_path / "model", tokenizer=tmp_path / "tokens").tokenizer("ab c")["input_ids"]
    assert ids == other("ab c")["input_ids"]


def test_a_folder_of_another_type_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match="of type 'bert', neither saved by ContextualEncoder nor.*from_backbone"
    ):
        ContextualEncoder.from_pretrained(minilm_folder())
    bi_encoder().save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="of type 'cde-bi-encoder', neither"):
        ContextualEncoder.from_pretrained(tmp_path)


def _without_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()


def _cut_short(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:5000])


def _of_another_depth(folder: Path) -> None:
    values = json.loads((folder / "config.json").read_text())
    values["second_backbone"]["num_hidden_layers"] = 3
    (folder / "config.json").write_text(json.dumps(values))


@pytest.mark.parametrize(
    ("damage", "kind", "message"),
    [
        (_without_weights, FileNotFoundError, "holds no weights"),
        (_cut_short, ValueError, "cut short or damaged"),
        (_of_another_depth, ValueError, "missing: second_stage.backbone.encoder.layer.2."),
    ],
)
def test_a_damaged_folder_is_refused(
    damage: Callable[[Path], None], kind: type[Exception], message: str, tmp_path: Path
) -> None:
    contextual().with_context(CORPUS).save_pretrained(tmp_path)
    damage(tmp_path)
    with pytest.raises(kind, match=message):
        load(tmp_path, CorpusEncoder)


def test_an_interrupted_save_leaves_the_old_encoder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = contextual().with_context(CORPUS)
    encoder.save_pretrained(tmp_path)

    def fails(*_: Any, **__: Any) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(cde.models.encoder, "save_file", fails)
    with pytest.raises(OSError, match="no space left"):
        contextual(seed=1).with_context(CORPUS[:2]).save_pretrained(tmp_path)
    again = load(tmp_path, CorpusEncoder)
    assert repr(again) == repr(encoder)
    np.testing.assert_array_equal(again.encode_documents(TEXTS), encoder.encode_documents(TEXTS))


# --- settings


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"context_size": 0}, "context_size must be 1 or more; it is 0"),
        ({"context_size": 2.5}, "context_size must be a whole number; it is 2.5"),
        ({"context_size": "3"}, "context_size must be a whole number; it is '3'"),
        ({"vectors_per_document": 0}, "vectors_per_document must be 1 or more"),
        ({"soft_prompt_tokens": -1}, "soft_prompt_tokens must be 0 or more"),
        ({"unrotated": -1}, "unrotated must be 0 or more; it is -1"),
        ({"sequence_dropout": 1.0}, "sequence_dropout must be below 1; it is 1.0"),
        ({"null_token": False}, "sequence dropout needs the null token"),
        ({"pool": "last"}, "pool must be one of text, all; it is 'last'"),
        ({"pool": "all"}, "pool='all' and skip_instruction_until are for published"),
        ({"variant": "v3"}, "variant must be one of paper, hub, train, v2; it is 'v3'"),
        ({"variant": "hub", "attention": "cached"}, "'hub' was trained with attention 'full'"),
        ({"first_backbone": {"hidden_size": 3}}, "first_backbone has the model_type None"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(
    settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        ContextualConfig(**settings)

"""From texts to vectors: which documents are the context, and what is kept of it on disk."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from tiny_encoders import BACKBONES, CORPUS, TEXTS, contextual, load, one_by_one, unit
from torch import Tensor

import cde
import cde.models.encoder
from cde.models import ContextualConfig, ContextualEncoder, CorpusEncoder
from cde.models.contextual import draw_context

EVERYTHING = {
    "vectors_per_document": 2,
    "soft_prompt_tokens": 3,
    "first_stage_mlp": True,
    "output_projection": True,
}
PREFIXES = {"query_prefix": "query: ", "document_prefix": "text: "}

each_family = pytest.mark.parametrize("family", BACKBONES)
each_attention = pytest.mark.parametrize("attention", ["full", "cached"])


def rows_of(encoder: CorpusEncoder, corpus: list[str]) -> list[int]:
    """Which documents of the corpus the context vectors are."""
    held = torch.from_numpy(encoder.model.embed_context(corpus))
    assert encoder.context is not None
    distance = (encoder.context[:, None] - held[None]).flatten(2).abs().amax(-1)
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
    """From texts and vectors alike; nothing is repeated before all that was asked for is there."""
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
    assert len(set(rows_of(one, CORPUS))) == 3
    assert rows_of(one, CORPUS) == rows_of(two, CORPUS)
    assert rows_of(one, CORPUS) != rows_of(other, CORPUS)
    np.testing.assert_array_equal(one.encode_documents(TEXTS), two.encode_documents(TEXTS))
    assert np.abs(one.encode_documents(TEXTS) - other.encode_documents(TEXTS)).max() > 1e-3


@pytest.mark.parametrize("settings", [{}, EVERYTHING], ids=["plain", "everything"])
@each_family
def test_the_context_of_texts_is_their_first_stage_vectors(
    family: str, settings: dict[str, Any]
) -> None:
    """In the corpus's order, with the prefix, not normalised; vectors do as well as texts."""
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
    repeated = vectors[rows_of(encoders["repeat"], documents)]
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
    model, few = contextual(context_size=60), CORPUS[:3]
    rows = [rows_of(model.with_context(few, seed=seed, fill="repeat"), few) for seed in (0, 0, 1)]
    assert rows[0] == rows[1] != rows[2]
    assert rows[0][:3] == rows[2][:3] == [0, 1, 2]
    assert all(10 <= one[3:].count(row) <= 28 for one in rows for row in range(3))


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
    assert sorted(set(rows_of(repeated, CORPUS))) == [0, 1, 2]
    assert len(repeated.context) == 4  # type: ignore[arg-type]
    expected = one_by_one(
        model, TEXTS, lambda ids, mask: model.second_stage(ids, mask, repeated.context)
    )
    np.testing.assert_allclose(repeated.encode_documents(TEXTS), expected, atol=1e-5)


# --- warnings and errors


def test_a_context_of_one_document_or_of_duplicates_warns_where_it_was_asked_for() -> None:
    """Duplicates count each all the same."""
    model = contextual()
    vectors = model.embed_context(CORPUS[:1])
    for one in (["tides"], vectors):
        with pytest.warns(UserWarning, match="a single document") as caught:
            model.with_context(one)
        assert [warning.filename for warning in caught] == [__file__]
    with pytest.warns(UserWarning, match="2 of 4 context documents are duplicates") as caught:
        encoder = model.with_context(["tides", "ropes", "tides", "tides"])
    assert [warning.filename for warning in caught] == [__file__]
    assert rows_of(encoder, ["tides", "ropes"]) == [0, 1, 0, 0]
    with pytest.warns(UserWarning, match="3 of 4 context documents are duplicates"):
        model.with_context(np.repeat(vectors, 4, axis=0))


@pytest.mark.parametrize(
    ("context", "message"),
    [
        ([], r"the context is empty; with_context\(None\) embeds without a corpus"),
        ("tides", "context must be a list of strings; it is 'tides'"),
        (np.full((3, 32), -np.inf), "NaN or infinite"),
        (torch.full((3, 32), torch.nan), "NaN or infinite"),
    ],
)
def test_what_is_no_context_is_refused(context: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        contextual().with_context(context)


@pytest.mark.parametrize(
    ("per_document", "shape"),
    [(1, (3, 5)), (1, (32,)), (1, (3, 2, 32)), (2, (3, 32)), (2, (3, 3, 32)), (2, (3, 2, 16))],
)
def test_vectors_that_the_model_cannot_read_are_refused_when_it_is_bound(
    per_document: int, shape: tuple[int, ...]
) -> None:
    """As `with_context` documents, and not only when the first text comes."""
    vectors = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    wanted = "32," if per_document == 1 else "2, 32"
    with pytest.raises(ValueError, match=rf"of shape \({wanted}\) for each document"):
        contextual(vectors_per_document=per_document).with_context(vectors)


# --- the bound encoder


@each_attention
@each_family
@pytest.mark.parametrize("settings", [{}, EVERYTHING], ids=["plain", "everything"])
def test_a_bound_encoder_is_the_second_stage_normalised(
    family: str, attention: str, settings: dict[str, Any]
) -> None:
    """Against the second stage called directly, each text alone; texts with prefixes."""
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
    assert encoder.encode_queries([]).shape == (0, 32)


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


@each_attention
def test_encoding_is_without_dropout_and_restores_the_training_mode(attention: str) -> None:
    """Of each stage: one that was frozen stays so."""
    model = contextual(attention=attention, dropout=0.4, sequence_dropout=0.9)
    still = model.with_context(CORPUS).encode_documents(TEXTS)
    model.train()
    np.testing.assert_array_equal(model.with_context(CORPUS).encode_documents(TEXTS), still)
    assert all(module.training for module in model.modules())
    model.first_stage.eval()
    model.with_context(CORPUS).encode_documents(TEXTS)
    with pytest.raises(TypeError):
        model.with_context(None).encode_documents([None])  # type: ignore[list-item]
    assert all(module.training for module in model.second_stage.modules())
    assert not any(module.training for module in model.first_stage.modules())


# --- pretrained backbones


@pytest.mark.parametrize("first_layers", [None, 1, 0])
def test_both_stages_start_from_the_pretrained_weights(
    first_layers: int | None, tmp_path: Path
) -> None:
    """Without a context and without tokens in its place, each is the bi-encoder of its layers."""
    options: dict[str, Any] = {"precision": "float32", "device": "cpu"}
    model = ContextualEncoder.from_backbone("minilm", 2, first_stage_layers=first_layers, **options)
    shallow, deep = (
        cde.BiEncoder.from_backbone("minilm", layers, **options).encode_queries(TEXTS)
        for layers in (2 if first_layers is None else first_layers, 2)
    )
    first = model.embed_context(TEXTS)
    np.testing.assert_allclose(unit(torch.from_numpy(first)), shallow, atol=1e-5)
    nothing = torch.zeros(0, 384)
    alone = one_by_one(model, TEXTS, lambda ids, mask: model.second_stage(ids, mask, nothing))
    np.testing.assert_allclose(alone, deep, atol=1e-5)
    model.save_pretrained(tmp_path)
    np.testing.assert_array_equal(load(tmp_path).embed_context(TEXTS), first)


# --- folders


@each_attention
@each_family
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {**EVERYTHING, **PREFIXES, "tie_token_embeddings": True},
        {"first_backbone": BACKBONES["nomic_bert"]},
    ],
    ids=["plain", "everything", "two families"],
)
def test_a_saved_model_gives_the_same_vectors_to_the_bit(
    family: str, attention: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    model = contextual(family, attention=attention, **settings)
    model.save_pretrained(tmp_path)
    again = load(tmp_path)
    assert again.config.attention == attention
    first, second = (
        stage.backbone.get_input_embeddings().weight
        for stage in (again.first_stage, again.second_stage)
    )
    assert (first is second) == model.config.tie_token_embeddings
    np.testing.assert_array_equal(again.embed_context(CORPUS), model.embed_context(CORPUS))
    for context in (CORPUS, None):
        one, two = model.with_context(context), again.with_context(context)
        np.testing.assert_array_equal(two.encode_documents(TEXTS), one.encode_documents(TEXTS))
        np.testing.assert_array_equal(two.encode_queries(TEXTS), one.encode_queries(TEXTS))


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


def test_weights_without_the_context_are_not_taken_for_those_of_the_null_context(
    tmp_path: Path,
) -> None:
    contextual().with_context(CORPUS, size=3).save_pretrained(tmp_path)
    stored = load_file(tmp_path / "model.safetensors")
    del stored["context"]
    save_file(stored, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match="lack the tensor 'context'"):
        load(tmp_path, CorpusEncoder)


def test_an_encoder_saved_with_its_first_stage_can_be_bound_anew(tmp_path: Path) -> None:
    model = contextual()
    encoder = model.with_context(CORPUS, size=3)
    before = encoder.encode_documents(TEXTS)
    encoder.save_pretrained(tmp_path / "without")  # which leaves encoder and model as they were
    encoder.save_pretrained(tmp_path, first_stage=True)
    again = load(tmp_path, CorpusEncoder)
    np.testing.assert_array_equal(again.encode_documents(TEXTS), before)
    np.testing.assert_array_equal(encoder.encode_documents(TEXTS), before)
    bound, expected = again.model.with_context(CORPUS[3:]), model.with_context(CORPUS[3:])
    np.testing.assert_array_equal(bound.encode_documents(TEXTS), expected.encode_documents(TEXTS))
    np.testing.assert_array_equal(load(tmp_path).embed_context(CORPUS), model.embed_context(CORPUS))


@pytest.mark.parametrize("first_stage", [True, False])
def test_a_model_that_was_loaded_from_a_bound_folder_is_saved_without_the_context(
    first_stage: bool, tmp_path: Path
) -> None:
    """Its folder must not say '3 of 7 texts' and embed without a context."""
    contextual().with_context(CORPUS, size=3).save_pretrained(
        tmp_path / "bound", first_stage=first_stage
    )
    load(tmp_path / "bound").save_pretrained(tmp_path / "model")
    with pytest.raises(
        ValueError, match="holds a model without a context: ContextualEncoder.from_pretrained"
    ):
        load(tmp_path / "model", CorpusEncoder)

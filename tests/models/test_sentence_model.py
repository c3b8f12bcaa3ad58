"""A saved encoder is a model of sentence-transformers, with the same vectors, and comes back whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from tiny_encoders import BACKBONES, CORPUS, TEXTS, bi_encoder, contextual, load
from transformers import AutoModel

PREFIXES = {"query_prefix": "query: ", "document_prefix": "text: "}
KINDS: dict[str, Any] = {
    "bi-encoder": lambda family: bi_encoder(family, **PREFIXES),
    "first token": lambda family: bi_encoder(family, pooling="cls", max_tokens=8),
    "full": lambda family: contextual(family, **PREFIXES).with_context(CORPUS, size=3),
    "cached": lambda family: contextual(family, attention="cached").with_context(CORPUS, size=3),
    "gated": lambda family: contextual(family, attention="gated", **PREFIXES).with_context(CORPUS),
    "null": lambda family: contextual(family).with_context(None),
    "soft prompt": lambda family: contextual(family, soft_prompt_tokens=2).with_context(CORPUS),
}


def saved(encoder: Any, folder: Path) -> SentenceTransformer:
    encoder.save_pretrained(folder)
    return SentenceTransformer(str(folder), device="cpu", trust_remote_code=False)


@pytest.mark.parametrize("family", BACKBONES)
@pytest.mark.parametrize("kind", KINDS)
def test_vectors_are_those_of_the_encoder_here_and_after_a_round_trip(
    kind: str, family: str, tmp_path: Path
) -> None:
    encoder = KINDS[kind](family)
    queries, documents = encoder.encode_queries(TEXTS), encoder.encode_documents(TEXTS)
    model = saved(encoder, tmp_path / "ours")
    np.testing.assert_allclose(model.encode_query(TEXTS), queries, atol=1e-5)
    np.testing.assert_allclose(model.encode_document(TEXTS, batch_size=2), documents, atol=1e-5)
    np.testing.assert_allclose(model.encode(TEXTS), encoder.encode(TEXTS), atol=1e-5)
    assert model.get_embedding_dimension() == encoder.dim
    model.save_pretrained(str(tmp_path / "theirs"))
    back = type(encoder).from_pretrained(tmp_path / "theirs", device="cpu", precision="float32")
    np.testing.assert_allclose(back.encode_queries(TEXTS), queries, atol=1e-6)
    again = SentenceTransformer(str(tmp_path / "theirs"), device="cpu")
    np.testing.assert_allclose(again.encode_document(TEXTS), documents, atol=1e-5)


def test_an_encoder_that_is_bound_to_no_corpus_embeds_in_the_null_context(tmp_path: Path) -> None:
    model = contextual()
    unbound = saved(model, tmp_path).encode(TEXTS)
    np.testing.assert_allclose(unbound, model.with_context(None).encode(TEXTS), atol=1e-5)


def test_prompts_that_were_changed_there_are_kept_there(tmp_path: Path) -> None:
    model = saved(bi_encoder(**PREFIXES), tmp_path / "ours")
    assert model.prompts == {"query": "query: ", "document": "text: "}
    model.prompts["query"] = "question: "
    model.save_pretrained(str(tmp_path / "theirs"))
    again = SentenceTransformer(str(tmp_path / "theirs"), device="cpu")
    assert again.prompts == {"query": "question: ", "document": "text: "}


def test_both_stages_are_kept_where_there_are_both(tmp_path: Path) -> None:
    model = contextual()
    saved(model, tmp_path / "ours").save_pretrained(str(tmp_path / "theirs"))
    back = load(tmp_path / "theirs")
    expected = model.with_context(CORPUS, size=3).encode_queries(TEXTS)
    np.testing.assert_allclose(
        back.with_context(CORPUS, size=3).encode_queries(TEXTS), expected, atol=1e-6
    )
    model.with_context(CORPUS).save_pretrained(tmp_path / "whole", first_stage=True)
    SentenceTransformer(str(tmp_path / "whole"), device="cpu").save_pretrained(
        str(tmp_path / "again")
    )
    rebound = load(tmp_path / "again")
    np.testing.assert_allclose(
        rebound.embed_context(CORPUS), model.embed_context(CORPUS), atol=1e-6
    )


def test_settings_of_the_library_reach_the_encoder_and_unknown_ones_are_refused(
    tmp_path: Path,
) -> None:
    contextual().with_context(CORPUS).save_pretrained(tmp_path)
    settings = {"attn_implementation": "eager", "dtype": torch.bfloat16}
    model = SentenceTransformer(str(tmp_path), device="cpu", model_kwargs=settings)
    assert model.dtype == torch.bfloat16
    assert model[0].model.encoder.second_stage.attention["implementation"] == "eager"
    assert model.encode(TEXTS).shape == (5, 32)
    with pytest.raises(
        ValueError, match=r"no setting attn_implementatoin \(attn_implementation\?\)"
    ):
        AutoModel.from_pretrained(tmp_path, attn_implementatoin="eager")


def test_in_training_a_pass_without_gradients_reads_the_context_anew(tmp_path: Path) -> None:
    """As that with them does, which follows it: a cached context would be of another draw."""
    encoder = contextual(attention="cached", sequence_dropout=0.5).with_context(CORPUS, size=6)
    model = saved(encoder, tmp_path / "saved").train()
    passes = []
    for gradients in (False, True):
        embedded = []
        for seed in (3, 4):  # a small batch each
            torch.manual_seed(seed)
            tokens = torch.arange(5 * seed, 5 * seed + 12).reshape(2, 6)
            told = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}
            with torch.set_grad_enabled(gradients):
                embedded.append(model[0](told)["sentence_embedding"].detach())
        passes.append(torch.cat(embedded))
    torch.testing.assert_close(*passes)


@pytest.mark.parametrize("fused", [True, False])
def test_after_a_step_of_an_optimiser_texts_are_embedded_with_its_weights(fused: bool) -> None:
    """A fused one changes weights without a trace in PyTorch's own count of changes."""
    model = contextual(attention="cached")
    bound = model.with_context(CORPUS, size=3)
    before = bound.encode_documents(TEXTS)
    optimiser = torch.optim.AdamW(model.second_stage.parameters(), lr=0.05, fused=fused)
    for weight in model.second_stage.parameters():
        weight.grad = torch.randn_like(weight)
    optimiser.step()
    after = bound.encode_documents(TEXTS)
    assert np.abs(after - before).max() > 0.01
    fresh = model.with_context(CORPUS, size=3).encode_documents(TEXTS)
    np.testing.assert_allclose(after, fresh, atol=1e-6)

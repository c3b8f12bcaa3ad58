"""The gated reader: its equation, what it leaves alone, and what a matched start knows."""

from __future__ import annotations

import math

import pytest
import torch
from tiny_models import BACKBONES, FAMILIES, new_model, random_context

from cde.models import BiEncoder, BiEncoderConfig, ContextualEncoder
from cde.models.stages import ContextReader

TEXTS = torch.tensor([[5, 6, 7, 8], [9, 10, 11, 12]])
PLAIN = {"first_stage_mlp": False, "output_projection": False, "sequence_dropout": 0.0}


def opened(family: str = "bert", **settings: object) -> ContextualEncoder:
    """A model with random weights, whose reader starts as usual with its gate open."""
    model = new_model(family, "gated", **{**PLAIN, **settings})
    reader, fresh = model.second_stage.reader, ContextReader(model.dim)
    assert reader is not None
    for name in ("scale", "nothing", "direction"):
        getattr(reader, name).data.copy_(getattr(fresh, name).data)
    reader.gate.data.fill_(0.03)
    return model


def random_reader(seed: int = 0) -> ContextReader:
    torch.manual_seed(seed)
    reader = ContextReader(12).double()
    reader.gate.data.fill_(0.03)
    return reader


def test_it_computes_its_equation() -> None:
    reader = random_reader()
    text, context = torch.randn(3, 4, 12).double(), torch.randn(1, 5, 12).double()
    expected = text.clone()
    for row in range(3):
        for place in range(4):
            asked = reader.query(text[row, place])
            weights = [
                torch.exp(
                    32 * reader.scale * torch.cosine_similarity(asked, reader.key(vector), dim=0)
                )
                for vector in context[0]
            ]
            below = sum(weights) + 5 * torch.exp(32 * reader.nothing)
            for weight, vector in zip(weights, context[0], strict=True):
                read = reader.value(vector) + 32 * reader.direction
                expected[row, place] += 32 * reader.gate * weight / below * read
    # scores are taken in float32
    torch.testing.assert_close(reader(text, context), expected, atol=1e-5, rtol=0)


def test_dropped_vectors_are_not_read() -> None:
    reader = random_reader()
    text, context = torch.randn(2, 3, 12).double(), torch.randn(1, 5, 12).double()
    moved, dropped = context.clone(), torch.tensor([[False, True, False, False, True]])
    moved[:, [1, 4]] = 9.0
    assert torch.equal(reader(text, context, dropped), reader(text, moved, dropped))
    assert torch.equal(reader(text, context, torch.ones(1, 5, dtype=torch.bool)), text)


def test_a_matched_reader_whitens() -> None:
    torch.manual_seed(0)
    words = torch.randn(500, 12) @ torch.randn(12, 12) + 3
    reader = ContextReader(12)
    reader.match(words)
    torch.testing.assert_close(
        torch.cov(reader.query(words).detach().T), torch.eye(12), atol=1e-3, rtol=0
    )
    for part in (reader.query, reader.key):
        mean = part(words).detach().mean(dim=0)
        torch.testing.assert_close(mean, torch.zeros(12), atol=1e-3, rtol=0)
    assert torch.equal(reader.query.weight, reader.key.weight)


@pytest.mark.parametrize("matched", [True, False])
def test_queries_and_keys_of_a_reader_start_alike_if_they_are_matched(matched: bool) -> None:
    settings = {"first_stage_layers": 0, "attention": "gated", "matched": matched}
    reader = ContextualEncoder.from_backbone("minilm", 1, **settings).second_stage.reader
    assert reader is not None
    assert torch.equal(reader.query.weight, reader.key.weight) == matched


def test_a_matched_start_tells_how_many_documents_hold_a_word() -> None:
    settings = {"first_stage_layers": 0, "attention": "gated", "tie_token_embeddings": True}
    model = ContextualEncoder.from_backbone("minilm", 1, vectors_per_document=6, **settings)
    stage = model.eval().second_stage
    reader = stage.reader
    assert reader is not None
    reader.value.weight.data.zero_()  # what is left is the direction, times the share that was read
    reader.gate.data.fill_(1 / 32)
    filler = "the tide turned while seven grey herons slept beside a wooden jetty near some town"
    first = ["boats"] * 24 + ["tree"] * 3 + ["hill"] * 21
    ids = torch.tensor(model.tokenizer([f"{one} {filler}" for one in first])["input_ids"])
    asked = torch.tensor([model.tokenizer("boats tree algebra")["input_ids"]])
    with torch.no_grad():
        context = model.first_stage(ids).reshape(1, -1, model.dim)
        text = stage.family.embed(stage.backbone, asked, torch.arange(asked.shape[1])[None])
        states = stage.family.normalise(stage.backbone, text)
        added = (reader(states, context) - states)[0]
    direction = 32 * reader.direction
    shares = (added @ direction / direction.square().sum()).tolist()[1:-1]
    often, seldom, never = shares
    assert 1 > often > seldom + 0.1 > never + 0.3 > 0.3


@pytest.mark.parametrize("family", FAMILIES)
def test_untrained_it_is_the_plain_transformer(family: str) -> None:
    torch.manual_seed(0)
    model = opened(family)
    assert model.second_stage.reader is not None
    model.second_stage.reader.gate.data.zero_()
    plain = BiEncoder(BiEncoderConfig(backbone=BACKBONES[family])).eval()
    plain.backbone.load_state_dict(model.second_stage.backbone.state_dict())
    expected = plain(TEXTS)
    for context in (None, random_context(4)):
        torch.testing.assert_close(model(TEXTS, context=context), expected)


@pytest.mark.parametrize("family", FAMILIES)
def test_an_open_gate_reads_every_document_in_any_order(family: str) -> None:
    model, context = opened(family), random_context(4)
    read = model(TEXTS, context=context)
    torch.testing.assert_close(model(TEXTS, context=context.flip(0)), read, atol=2e-5, rtol=0)
    for one in range(4):
        other = context.clone()
        other[one] += 1.0
        assert (model(TEXTS, context=other) - read).abs().max() > 1e-3
    null = model(TEXTS)
    assert (null - read).abs().max() > 1e-3
    assert torch.equal(model(TEXTS, context=context, null_context=True), null)


def test_one_context_a_text_is_each_text_in_its_own() -> None:
    model, contexts = opened(), random_context(4, batch=2)
    both = model(TEXTS, context=contexts)
    for row in range(2):
        alone = model(TEXTS[row : row + 1], context=contexts[row])
        torch.testing.assert_close(both[row : row + 1], alone, atol=1e-5, rtol=0)


def test_the_gate_has_a_gradient_before_it_opens() -> None:
    model = opened()
    assert model.second_stage.reader is not None
    model.second_stage.reader.gate.data.zero_()
    model(TEXTS, context=random_context(4)).square().sum().backward()
    gradient = model.second_stage.reader.gate.grad
    assert gradient is not None
    assert math.isfinite(float(gradient))
    assert abs(float(gradient)) > 1e-3


def test_almost_certain_dropout_is_no_context_in_training_alone() -> None:
    model, context = opened(sequence_dropout=0.999999), random_context(4)
    read, null = model(TEXTS, context=context), model(TEXTS)
    assert torch.equal(model.train()(TEXTS, context=context), null)
    assert not torch.equal(read, null)


def test_what_a_reader_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="need attention 'full' or 'cached'"):
        opened(soft_prompt_tokens=2)
    with pytest.raises(ValueError, match="are for attention .cached.; this model.s is .gated."):
        opened().second_stage.cache_context(random_context(4))
    with pytest.raises(ValueError, match="'gated' has no null tokens"):
        opened().with_context(random_context(2), fill="null")

"""The encoder–decoder is T5, or rotary where it says so, and sees a text the same in any batch."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import T5Config, T5ForConditionalGeneration
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from cde.models.encoder import load_tokenizer
from cde.training.loss import contrastive_loss
from cde.training.step import BatchTexts, backward
from cde_studies.dwell.encoder_decoder import (
    EncoderDecoder,
    EncoderDecoderConfig,
    Rotation,
    rotary_frequencies,
)

SMALL = T5Config(
    vocab_size=200, d_model=32, d_kv=8, num_heads=4, d_ff=64, num_layers=2, num_decoder_layers=2,
    dropout_rate=0.0, decoder_start_token_id=0, pad_token_id=0,
)  # fmt: skip


def tiny(**settings: object) -> EncoderDecoder:
    torch.manual_seed(0)
    model = EncoderDecoder(EncoderDecoderConfig(backbone=SMALL.to_dict(), **settings))
    # T5's own initialisation is so small for tiny layers that attention is nearly uniform
    with torch.no_grad():
        for name, value in model.named_parameters():
            if value.ndim == 2:
                value.copy_(torch.randn(value.shape) * (0.4 if "shared" not in name else 1.0))
    model.tokenizer = SimpleNamespace(pad_token_id=0)
    return model.eval()


@pytest.mark.parametrize("length", [100, 512, 513, 2000])
def test_frequencies_are_those_of_transformers_with_dynamic_ntk(length: int) -> None:
    config = SimpleNamespace(
        rope_parameters={"rope_type": "dynamic", "rope_theta": 10_000.0, "factor": 1.0},
        max_position_embeddings=512,
        head_dim=64,
        hidden_size=256,
        num_attention_heads=4,
        standardize_rope_params=lambda: None,
    )
    expected, _ = ROPE_INIT_FUNCTIONS["dynamic"](config, torch.device("cpu"), seq_len=length)
    frequencies = rotary_frequencies(64, torch.tensor([length]), 10_000.0, 512)[0]
    torch.testing.assert_close(frequencies, expected)


def test_scores_of_turned_vectors_depend_on_their_distance_alone() -> None:
    rotation = Rotation(8, 100.0, 64)
    rotation.set(torch.tensor([20]), 20)
    query, key = torch.randn(2, 1, 1, 1, 8).expand(2, 1, 1, 20, 8)
    turned_query, turned_key = rotation(query, key)
    scores = (turned_query @ turned_key.transpose(2, 3))[0, 0]
    for distance in range(-5, 6):
        along = scores.diagonal(distance)
        torch.testing.assert_close(along, along[:1].expand_as(along), atol=1e-4, rtol=1e-4)
    assert abs(float(scores[0, 1] - scores[0, 5])) > 1e-3


def test_with_relative_positions_it_is_t5() -> None:
    torch.manual_seed(1)
    reference = T5ForConditionalGeneration(SMALL).eval()
    model = EncoderDecoder(
        EncoderDecoderConfig(backbone=SMALL.to_dict(), positions="relative", pooling="decoder")
    ).eval()
    model.model.load_state_dict(reference.state_dict())
    ids = torch.tensor([[5, 6, 7, 8], [9, 10, 0, 0]])
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])
    labels = torch.tensor([[3, 4], [5, -100]])
    expected = reference(input_ids=ids, attention_mask=mask, labels=labels).logits
    torch.testing.assert_close(model.restore(ids, mask, labels), expected)
    start = torch.zeros(2, 1, dtype=torch.long)
    pooled = reference(
        input_ids=ids, attention_mask=mask, decoder_input_ids=start, output_hidden_states=True
    ).decoder_hidden_states[-1][:, 0]
    torch.testing.assert_close(model(ids, mask), pooled)


@pytest.mark.parametrize("pooling", ["decoder", "mean"])
@pytest.mark.parametrize("trained", [4, 512])
def test_a_text_is_embedded_alike_alone_and_beside_a_longer_one(pooling: str, trained: int) -> None:
    """With trained=4, dynamic NTK would turn by the batch's longest text."""
    model = tiny(pooling=pooling, trained_tokens=trained)
    short, long = torch.tensor([[5, 6, 7, 8, 9]]), torch.arange(10, 21)[None]
    batch = torch.zeros(2, 11, dtype=torch.long)
    batch[0, :5], batch[1] = short, long
    together = model(batch, batch != 0)
    torch.testing.assert_close(together[:1], model(short), atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(together[1:], model(long), atol=1e-5, rtol=1e-4)
    left = torch.roll(batch[:1], 6, dims=1)
    torch.testing.assert_close(model(left, left != 0), model(short), atol=1e-5, rtol=1e-4)


def test_order_counts_through_the_rotation_and_through_nothing_else() -> None:
    model = tiny()
    ids, turned = torch.tensor([[5, 6, 7, 8, 9]]), torch.tensor([[9, 8, 7, 6, 5]])
    assert float((model(ids) - model(turned)).detach().abs().max()) > 1e-2
    for rotation in model.stacks.values():
        rotation.set = lambda *_: None  # type: ignore[method-assign]
        rotation.cosine, rotation.sine = torch.ones(1, 1, 8), torch.zeros(1, 1, 8)
    torch.testing.assert_close(model(ids), model(turned), atol=1e-5, rtol=1e-4)


def test_a_target_token_sees_no_later_one() -> None:
    model = tiny()
    ids = torch.tensor([[5, 6, 7, 8]])
    one = model.restore(ids, None, torch.tensor([[3, 4, 5, 6]]))
    other = model.restore(ids, None, torch.tensor([[3, 4, 9, 9]]))
    torch.testing.assert_close(one[:, :3], other[:, :3])
    assert float((one[:, 3] - other[:, 3]).abs().max()) > 1e-3


@pytest.mark.parametrize("pooling", ["decoder", "mean"])
def test_the_gradient_through_the_cache_is_the_gradient(pooling: str) -> None:
    model = tiny(pooling=pooling, trained_tokens=6).train()
    generator = np.random.default_rng(0)
    texts = [generator.integers(1, 200, size) for size in generator.integers(3, 12, 12)]

    def gradients(cache: bool) -> dict[str, torch.Tensor]:
        model.zero_grad()
        backward(
            model,
            BatchTexts(texts),
            lambda rows: contrastive_loss(rows[:6], rows[6:], 0.1),
            chunk_tokens=24,
            cache=cache,
        )
        return {
            name: value.grad.clone()
            for name, value in model.named_parameters()
            if value.grad is not None
        }

    whole, cached = gradients(False), gradients(True)
    assert whole.keys() == cached.keys()
    used = {name for name in whole if float(whole[name].abs().max()) > 0}
    assert any("encoder" in name for name in used)
    assert any("decoder" in name for name in used) == (pooling == "decoder")
    for name in whole:
        scale = float(whole[name].abs().max())
        torch.testing.assert_close(
            cached[name], whole[name], atol=1e-5 * max(scale, 1e-3), rtol=1e-3
        )


def test_a_saved_model_is_the_same_model(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = EncoderDecoder.small(
        layers=1, pooling="mean", trained_tokens=8, max_tokens=16, query_prefix="q: "
    )
    model.save_pretrained(tmp_path)
    again = EncoderDecoder.from_pretrained(tmp_path)
    texts = ["red boats", "a longer text about scarlet ships and the wind in their sails"]
    np.testing.assert_array_equal(model.encode_queries(texts), again.encode_queries(texts))
    assert again.config.trained_tokens == 8
    # the word embeddings are both stacks' and the language model's, and are stored once
    stored = sum(value.numel() for value in load_file(tmp_path / "model.safetensors").values())
    assert stored == sum(value.numel() for value in model.parameters())


def test_it_starts_from_a_t5_of_transformers_and_from_nothing_else(tmp_path: Path) -> None:
    torch.manual_seed(2)
    config = T5Config(**{**SMALL.to_dict(), "vocab_size": 30522})
    T5ForConditionalGeneration(config).save_pretrained(tmp_path)
    load_tokenizer("minilm").save_pretrained(tmp_path)
    rotary = EncoderDecoder.from_backbone(tmp_path)
    relative = EncoderDecoder.from_backbone(tmp_path, positions="relative")
    names = dict(rotary.model.named_parameters())
    assert not any("relative_attention_bias" in name for name in names)
    for name, value in relative.model.named_parameters():
        if "relative_attention_bias" not in name:
            torch.testing.assert_close(names[name], value)
    with pytest.raises(ValueError, match="a t5 is needed"):
        EncoderDecoder.from_backbone("minilm")

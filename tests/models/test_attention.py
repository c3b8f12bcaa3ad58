"""Attention between context and text: cached against one masked pass, kernels, who sees whom."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import (
    BACKBONES,
    FAMILIES,
    PATTERNS,
    in_one_pass,
    new_model,
    padded,
    random_context,
    shared_model,
)
from torch import Tensor
from transformers import AutoConfig, AutoModel

import cde.models.attention as attention_module
from cde.models import BiEncoder, BiEncoderConfig, ContextualEncoder
from cde.models.attention import ALL_ATTENTION_FUNCTIONS, ATTENTION_NAME, visibility
from cde.models.published import turned_by_head
from cde.models.sentence_model import SentenceContextualEncoder

TEXTS = [
    [5, 9, 10, 33, 7, 41, 10, 2, 60, 3],
    [8, 61, 20, 3, 4, 15],
    [11],
    [44, 45, 46, 47, 48, 49, 50, 51, 52],
]

Forward = Callable[[ContextualEncoder], Tensor]


def gradients(
    model: ContextualEncoder, embed: Forward, context: Tensor
) -> tuple[Tensor, dict[str, Tensor]]:
    """Embeddings, and gradients of a sum that weighs every coordinate differently."""
    model.zero_grad()
    context.grad = None
    embeddings = embed(model)
    weights = torch.randn(embeddings.shape, generator=torch.Generator().manual_seed(9))
    (embeddings * weights).sum().backward()
    of_parameters = {
        name: part.grad.clone() for name, part in model.named_parameters() if part.grad is not None
    }
    assert context.grad is not None
    return embeddings.detach(), {**of_parameters, "context": context.grad.clone()}


def assert_same(model: ContextualEncoder, one: Forward, other: Forward, context: Tensor) -> None:
    """The same embeddings, and the same gradients in units of all of them together."""
    context.retain_grad()
    (expected, wanted), (embeddings, gradient) = (
        gradients(model, embed, context) for embed in (one, other)
    )
    torch.testing.assert_close(embeddings, expected, rtol=0, atol=1e-5)
    assert set(gradient) == set(wanted)
    total = float(torch.stack([tensor.norm() for tensor in wanted.values()]).norm())
    # BERT's key biases move nothing: their gradient is zero but for rounding
    still = {name for name, tensor in wanted.items() if tensor.norm() < 1e-6 * total}
    assert all(name.endswith("key.bias") for name in still)
    for name, tensor in wanted.items():
        difference = float((gradient[name] - tensor).norm())
        assert difference <= 1e-5 * (
            total if name in still else max(float(tensor.norm()), 1e-2 * total)
        ), name


def context_of(kind: str) -> Tensor:
    context = random_context(5, batch=len(TEXTS) if kind == "per text" else None)
    return context.requires_grad_()


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("prompt", [0, 3])
@pytest.mark.parametrize("kind", ["shared", "per text"])
@pytest.mark.parametrize("made", ["by the pass", "ahead"])
def test_cached_attention_is_one_masked_pass_forward_and_backward(
    family: str, prompt: int, kind: str, made: str
) -> None:
    model = shared_model(family, "cached", soft_prompt_tokens=prompt)
    ids, mask = padded(TEXTS)
    context = context_of(kind)
    second = model.second_stage

    def cached(_: ContextualEncoder) -> Tensor:
        return second(ids, mask, second.cache_context(context) if made == "ahead" else context)

    assert_same(model, lambda _: in_one_pass(second, ids, mask, context), cached, context)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("attention", PATTERNS)
@pytest.mark.parametrize("text", TEXTS, ids=len)
def test_without_a_context_the_second_stage_is_transformers_own_model(
    family: str, attention: str, text: list[int]
) -> None:
    """And the first stage always is; windows and both bases of the rotation included."""
    model = shared_model(family, attention, output_projection=False, first_stage_mlp=False)
    ids = torch.tensor([text])
    for stage, embeddings in (
        (model.second_stage, model.second_stage(ids, None, random_context(0))),
        (model.first_stage, model.first_stage(ids)),
    ):
        options = {"add_pooling_layer": False} if family == "bert" else {}
        plain = AutoModel.from_config(
            AutoConfig.for_model(**stage.backbone.config.to_dict()),
            attn_implementation="eager",
            **options,
        )
        plain.load_state_dict(stage.backbone.state_dict())
        expected = plain.eval()(input_ids=ids).last_hidden_state.mean(dim=1)
        torch.testing.assert_close(embeddings, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_context_enters_as_embeddings_would_enter_transformers_own_model(family: str) -> None:
    """Before the embedding norm, at position 0 (rotary) or without one (learned)."""
    wide = (
        {"second_backbone": {**BACKBONES[family], "local_attention": 60}}
        if family == "modernbert"
        else {}
    )
    model = new_model(family, output_projection=False, **wide)
    backbone = model.second_stage.backbone
    options = {"add_pooling_layer": False} if family == "bert" else {}
    config = AutoConfig.for_model(**backbone.config.to_dict())
    plain = AutoModel.from_config(config, attn_implementation="eager", **options).eval()
    plain.load_state_dict(backbone.state_dict())
    ids, context = torch.tensor([TEXTS[0]]), random_context(5)
    words = plain.get_input_embeddings()(ids)[0]
    places = torch.tensor([[0] * 5 + list(range(len(TEXTS[0])))])
    if (
        family != "modernbert"
    ):  # their models add the type to all that comes in, BERT's also a position
        context = context - plain.embeddings.token_type_embeddings.weight[0]
    if family == "bert":
        context = context - plain.embeddings.position_embeddings.weight[0]
    hidden = plain(
        inputs_embeds=torch.cat([context, words])[None], position_ids=places
    ).last_hidden_state
    embeddings = model.second_stage(ids, None, random_context(5))
    torch.testing.assert_close(embeddings, hidden[:, 5:].mean(dim=1), rtol=0, atol=2e-5)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("attention", PATTERNS)
@pytest.mark.parametrize("kind", ["shared", "per text"])
def test_sdpa_is_eager_forward_and_backward(family: str, attention: str, kind: str) -> None:
    model = new_model(family, attention, soft_prompt_tokens=2)
    ids, mask = padded(TEXTS)
    context = context_of(kind)

    def with_kernel(kernel: str) -> Forward:
        def embed(model: ContextualEncoder) -> Tensor:
            model.set_attention(kernel)
            return model.second_stage(ids, mask, context)

        return embed

    assert_same(model, with_kernel("eager"), with_kernel("sdpa"), context)
    embeddings = []
    for kernel in ("eager", "sdpa"):
        model.set_attention(kernel)
        embeddings.append(model.first_stage(ids, mask))
    torch.testing.assert_close(*embeddings, rtol=0, atol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("attention", PATTERNS)
def test_layers_that_are_computed_again_for_the_backward_pass_give_the_same_gradients(
    family: str, attention: str
) -> None:
    """Gradient checkpointing, which the encoders say they support."""
    model = new_model(family, attention, soft_prompt_tokens=2, sequence_dropout=0.0).train()
    ids, mask = padded(TEXTS)
    context = context_of("shared")

    def embed(model: ContextualEncoder) -> Tensor:
        return model.second_stage(ids, mask, context)

    def embed_again(model: ContextualEncoder) -> Tensor:
        model.activation_checkpointing_enable()
        return embed(model)

    assert_same(model, embed, embed_again, context)


# --- caches


def test_a_cache_that_does_not_fit_is_refused() -> None:
    one, other, whole = (new_model("bert", kind) for kind in ("cached", "cached", "full"))
    texts, context = padded(TEXTS), random_context(5)
    cache = one.second_stage.cache_context(context)
    with pytest.raises(ValueError, match="another model"):
        other.second_stage(*texts, cache)
    with pytest.raises(ValueError, match="give null_context=True to cache_context"):
        one.second_stage(*texts, cache, null_context=True)
    with pytest.raises(ValueError, match="3 .*4"):
        one.second_stage(*texts, one.second_stage.cache_context(random_context(5, batch=3)))
    for use in (
        lambda: whole.second_stage(*texts, cache),
        lambda: whole.second_stage.cache_context(context),
    ):
        with pytest.raises(ValueError, match="'full'"):
            use()


# --- flash kernels


@pytest.fixture
def flash_calls(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """A stand-in for transformers' flash attention: it takes which keys are real, and a window."""
    calls: list[dict[str, Any]] = []
    signature = inspect.signature(attention_module._flash_attention_forward)

    def attend(
        query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, **options: Any
    ) -> Tensor:
        signature.bind(query, key, value, mask, **options)  # what transformers would take
        assert query.dtype == torch.bfloat16 and not options["is_causal"]
        assert mask is None or (mask.shape == key.shape[:2] and mask.dtype == torch.bool)
        calls.append(options)
        seen = torch.ones(query.shape[1], key.shape[1], dtype=torch.bool)
        if options["sliding_window"] is not None:
            # transformers hands the kernel one less on either side
            places = torch.arange(key.shape[1])
            seen = (places[:, None] - places[None]).abs() <= options["sliding_window"] - 1
        seen = seen[None, None] if mask is None else seen[None, None] & mask[:, None, None]
        heads = (states.transpose(1, 2) for states in (query, key, value))
        scaled = torch.nn.functional.scaled_dot_product_attention
        return scaled(*heads, attn_mask=seen, scale=options["softmax_scale"]).transpose(1, 2)

    monkeypatch.setattr(attention_module, "_flash_attention_forward", attend)
    monkeypatch.setattr("cde.models.encoder.is_flash_attn_2_available", lambda: True)
    return calls


@pytest.mark.parametrize("family", ["bert", "nomic_bert"])
@pytest.mark.parametrize("attention", PATTERNS)
def test_flash_attention_is_told_which_keys_are_real(
    family: str, attention: str, flash_calls: list[Any]
) -> None:
    model = new_model(family, attention, soft_prompt_tokens=2)
    ids, mask = padded(TEXTS)
    with torch.autocast("cpu", torch.bfloat16):
        expected, first = (
            model.second_stage(ids, mask, random_context(5)),
            model.first_stage(ids, mask),
        )
        model.set_attention("flash_attention_2")
        embeddings = model.second_stage(ids, mask, random_context(5))
        torch.testing.assert_close(embeddings, expected, rtol=0, atol=0.05)
        torch.testing.assert_close(model.first_stage(ids, mask), first, rtol=0, atol=0.05)
    assert {call["attn_implementation"] for call in flash_calls} == {"flash_attention_2"}
    assert {call["sliding_window"] for call in flash_calls} == {None}


def test_flash_attention_has_windows_of_its_own_where_no_context_must_be_spared(
    flash_calls: list[Any],
) -> None:
    model = BiEncoder(BiEncoderConfig(backbone=BACKBONES["modernbert"])).eval()
    ids, mask = padded(TEXTS)
    with torch.autocast("cpu", torch.bfloat16):
        expected = model(ids, mask)
        model.set_attention("flash_attention_2")
        torch.testing.assert_close(model(ids, mask), expected, rtol=0, atol=0.05)
    assert {call["sliding_window"] for call in flash_calls} == {None, 3}


def test_flash_attention_is_refused_in_float32_and_where_windows_must_spare_a_context(
    flash_calls: list[Any],
) -> None:
    for attention in PATTERNS:
        with pytest.raises(ValueError, match="attn_implementation='sdpa'"):
            new_model("modernbert", attention).set_attention("flash_attention_2")
    model = new_model("bert")
    model.set_attention("flash_attention_2")
    with pytest.raises(ValueError, match="half precision"):
        model.first_stage(*padded(TEXTS))


def test_the_setter_of_transformers_leaves_the_context_in() -> None:
    model = new_model("bert", "cached")
    ids, mask = padded(TEXTS)
    expected = model.second_stage(ids, mask, random_context(5))
    model.set_attn_implementation("sdpa")
    torch.testing.assert_close(model.second_stage(ids, mask, random_context(5)), expected)


def test_recomputation_that_would_lose_gradients_is_refused() -> None:
    with pytest.raises(ValueError, match="use_reentrant"):
        new_model("bert", "cached").activation_checkpointing_enable({"use_reentrant": True})
    with pytest.raises(ValueError, match="use_reentrant"):
        model = SentenceContextualEncoder(new_model("bert", "cached"))
        model.activation_checkpointing_enable({"use_reentrant": True})


# --- visibility


@st.composite
def masks(draw: st.DrawFn) -> dict[str, Any]:
    """Arguments of `visibility`; masks of any shape, also with holes."""
    length, context = draw(st.integers(0, 5)), draw(st.integers(0, 4))
    batch = draw(st.integers(1, 3))
    rows = st.lists(st.booleans(), min_size=length, max_size=length)
    mask = draw(st.none() | st.lists(rows, min_size=batch, max_size=batch))
    return {
        "text_mask": None
        if mask is None
        else torch.tensor(mask, dtype=torch.bool).reshape(batch, length),
        "text_length": length,
        "query_context": draw(st.sampled_from([0, context])),
        "key_context": context,
        "context_sees_text": draw(st.booleans()),
        "window": draw(st.none() | st.integers(0, 4)),
        "window_spares_context": draw(st.booleans()),
    }


@settings(max_examples=300)
@given(masks())
def test_visibility_is_that_of_a_loop_over_pairs_of_tokens(arguments: dict[str, Any]) -> None:
    mask, length, window = (arguments[name] for name in ("text_mask", "text_length", "window"))
    query_context, context = arguments["query_context"], arguments["key_context"]

    def sees(row: int, query: int, key: int) -> bool:
        """Of a text, by the places in the whole sequence."""
        if key >= context and mask is not None and not mask[row, key - context]:
            return False
        if query < context <= key and not arguments["context_sees_text"]:
            return False
        beside_context = query < context or key < context
        if window is not None and not (beside_context and arguments["window_spares_context"]):
            return abs(query - key) <= window
        return True

    batch = 1 if mask is None else len(mask)
    queries, keys = range(context - query_context, context + length), range(context + length)
    expected = torch.tensor(
        [[[sees(row, query, key) for key in keys] for query in queries] for row in range(batch)],
        dtype=torch.bool,
    ).reshape(batch, 1, len(queries), len(keys))
    visible = visibility(**arguments)
    if visible is None:
        assert expected.all()
        return
    assert visible.dtype == torch.bool
    assert visible.shape[-1] == len(keys)
    assert torch.equal(visible.expand(expected.shape), expected)


@given(st.integers(1, 6), st.integers(0, 7), st.integers(1, 4))
def test_a_rotation_by_head_turns_pairs_half_a_head_apart_from_its_start_on(
    heads: int, start: int, half: int
) -> None:
    generator = torch.Generator().manual_seed(heads)
    states = torch.randn(2, heads, 6, 2 * half, generator=generator)
    frequencies = torch.randn(half, generator=generator)
    angles = torch.arange(heads)[:, None] * frequencies
    rotated = turned_by_head(states, start, frequencies)
    first, second = states.chunk(2, dim=-1)
    expected = torch.complex(first, second) * torch.polar(torch.ones_like(angles), angles)[:, None]
    wanted = torch.cat([expected.real, expected.imag], dim=-1)
    torch.testing.assert_close(rotated[:, :, start:], wanted[:, :, start:])
    assert torch.equal(rotated[:, :, :start], states[:, :, :start])


@pytest.mark.parametrize("training", [True, False])
def test_in_training_attention_is_computed_in_float32(training: bool) -> None:
    """On a CPU: torch's backward pass is slow in bfloat16. The result is the float32 one, rounded."""
    torch.manual_seed(0)
    states = [torch.randn(2, 3, 7, 16).bfloat16() for _ in range(3)]
    mask = torch.rand(2, 1, 1, 7) < 0.7
    mask[..., 0] = True
    module = torch.nn.Module().train(training)
    with torch.autocast("cpu", torch.bfloat16):
        attended, _ = ALL_ATTENTION_FUNCTIONS[ATTENTION_NAME](module, *states, mask, scaling=0.3)
    expected = torch.nn.functional.scaled_dot_product_attention(
        *(one.float() for one in states), mask, scale=0.3
    )
    exact = torch.equal(attended, expected.transpose(1, 2).bfloat16())
    assert attended.dtype == torch.bfloat16
    assert exact == training

"""Gradients of the two-stage cache equal those of the whole graph, parameter by parameter."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from tiny_models import BACKBONES

from cde.models import BiEncoder, BiEncoderConfig, ContextualConfig, ContextualEncoder
from cde.training.loss import contrastive_loss
from cde.training.step import (
    BatchTexts,
    RandomState,
    backward,
    cached_backward,
    sorted_chunks,
    tokens_in,
)


def batch(queries: int, hard: int, context: int, seed: int = 0) -> BatchTexts:
    generator = np.random.default_rng(seed)

    def rows(count: int) -> list[np.ndarray]:
        return [
            generator.integers(3, 60, generator.integers(2, 9)).astype(np.int32)
            for _ in range(count)
        ]

    return BatchTexts(rows(queries * (2 + hard)), rows(context))


def contextual(family: str, **settings: Any) -> ContextualEncoder:
    """An encoder for seven context documents, in training."""
    backbones = {"first_backbone": BACKBONES[family], "second_backbone": BACKBONES[family]}
    return ContextualEncoder(ContextualConfig(**backbones, context_size=7, **settings)).train()


def gradients(
    model: Any, texts: BatchTexts, queries: int, masked: torch.Tensor, **options: Any
) -> dict[str, Any]:
    model.zero_grad()
    torch.manual_seed(5)

    def loss(embeddings: torch.Tensor) -> Any:
        return contrastive_loss(embeddings[:queries], embeddings[queries:], 0.1, masked)

    contrastive = backward(model, texts, loss, **options)
    grads = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    return {"loss": contrastive.loss, **grads}


def assert_equal_gradients(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert one.keys() == other.keys()
    total = torch.stack([grad.norm() for grad in other.values()]).norm()
    for name, expected in other.items():
        # BERT's key biases have no gradient but rounding: measured against the whole gradient
        assert (one[name] - expected).norm() <= 1e-5 * expected.norm() + 1e-7 * total, name


def test_rows_of_sorted_chunks_come_back_in_the_order_of_their_texts() -> None:
    generator = np.random.default_rng(0)
    rows = [np.full(size, size * 100 + place) for place, size in enumerate([3, 9, 1, 9, 4, 7, 2])]
    for tokens in (1, 12, 20, 1000):
        shuffled = [rows[row].astype(np.int32) for row in generator.permutation(len(rows))]
        chunks, place = sorted_chunks(shuffled, tokens, 0, torch.device("cpu"))
        firsts = torch.cat([ids[:, 0] for ids, _ in chunks])
        assert firsts[place].tolist() == [row[0] for row in shuffled]


@pytest.mark.parametrize(
    ("family", "attention", "per_document"),
    [
        *itertools.product(BACKBONES, ("full", "cached", "gated"), (1,)),
        ("bert", "full", 2),
        ("bert", "gated", 2),
    ],
)
def test_two_stages_three_chunks_and_more_of_unequal_size(
    family: str, attention: str, per_document: int
) -> None:
    torch.manual_seed(0)
    model = contextual(
        family,
        attention=attention,
        vectors_per_document=per_document,
        soft_prompt_tokens=0 if attention == "gated" else 2,
        first_stage_mlp=True,
        output_projection=True,
        sequence_dropout=0.0,
    )
    if model.second_stage.reader is not None:  # closed, its gate keeps gradients from the context
        model.second_stage.reader.gate.data.fill_(0.1)
    texts, masked = batch(queries=5, hard=1, context=7), torch.rand(5, 10) < 0.3
    sizes = [len(chunk[0]) for chunk in sorted_chunks(texts.context, 20, 0, torch.device("cpu"))[0]]
    assert len(sizes) >= 3 and len(set(sizes)) > 1
    whole = gradients(model, texts, 5, masked, chunk_tokens=10_000, cache=False)
    cached = gradients(model, texts, 5, masked, chunk_tokens=20, cache=True)
    assert any(name.startswith("first_stage") for name in whole)
    assert_equal_gradients(cached, whole)
    uncached_in_chunks = gradients(model, texts, 5, masked, chunk_tokens=40, cache=False)
    assert_equal_gradients(uncached_in_chunks, whole)


@pytest.mark.parametrize("cache", [True, False])
def test_gradients_are_those_of_plain_autograd_text_by_text(cache: bool) -> None:
    """Dense ones, after a step and after a loss that is not finite."""
    torch.manual_seed(0)
    model = BiEncoder(BiEncoderConfig(backbone=BACKBONES["bert"])).train()
    texts, masked = batch(queries=5, hard=0, context=0), torch.zeros(5, 5, dtype=torch.bool)
    stepped = gradients(model, texts, 5, masked, chunk_tokens=20, cache=cache)

    def fail(embeddings: torch.Tensor) -> Any:
        return contrastive_loss(embeddings[:5] * torch.nan, embeddings[5:], 0.1, masked)

    model.zero_grad()
    with pytest.raises(FloatingPointError):
        backward(model, texts, fail, chunk_tokens=20, cache=cache)
    rows = torch.cat([model(torch.as_tensor(row).long()[None]) for row in texts.texts])
    plain = contrastive_loss(rows[:5], rows[5:], 0.1, masked)
    plain.loss.backward()
    alone = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    assert not any(grad.is_sparse for grad in alone.values())
    assert_equal_gradients(stepped, {"loss": plain.loss.detach(), **alone})


@pytest.mark.parametrize("attention", ["full", "cached"])
def test_dropout_falls_the_same_way_when_a_chunk_runs_again(attention: str) -> None:
    """The uncached computation of the same chunks in the same order draws the same numbers."""
    torch.manual_seed(0)
    model = contextual("bert", attention=attention, dropout=0.2, sequence_dropout=0.3)
    texts, masked = batch(queries=4, hard=1, context=7), torch.zeros(4, 8, dtype=torch.bool)
    cached = gradients(model, texts, 4, masked, chunk_tokens=24, cache=True)

    model.zero_grad()
    torch.manual_seed(5)
    device = torch.device("cpu")
    chunks, place = sorted_chunks(
        texts.texts, 24, 0, device, extra=7 if attention == "full" else 7 // 4
    )
    context_chunks, back = sorted_chunks(texts.context, 24, 0, device)
    context = torch.cat([model.first_stage(*chunk) for chunk in context_chunks])[back]
    embeddings = torch.cat([model.second_stage(*chunk, context) for chunk in chunks])[place]
    value = contrastive_loss(embeddings[:4], embeddings[4:], 0.1, masked)
    value.loss.backward()
    expected = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    assert_equal_gradients(cached, {"loss": value.loss.detach(), **expected})
    other = gradients(model, texts, 4, masked, chunk_tokens=40, cache=True)
    assert not torch.allclose(
        other["loss"], cached["loss"]
    )  # other chunks draw other numbers: dropout is on


@pytest.mark.parametrize(
    ("attention", "carried"), [("full", 7 * 2 + 3), ("cached", (7 * 2 + 3) // 4)]
)
def test_the_work_of_a_step_counts_what_each_text_carries_of_the_context(
    attention: str, carried: int
) -> None:
    model = contextual("bert", attention=attention, vectors_per_document=2, soft_prompt_tokens=3)
    texts = batch(queries=4, hard=1, context=5)
    own = sum(map(len, texts.texts)) + sum(map(len, texts.context))
    assert tokens_in(model, texts) == own + 12 * carried


def test_only_one_chunk_is_in_memory_at_a_time() -> None:
    alive: list[int] = []
    graphs = 0

    class Counted(torch.autograd.Function):
        @staticmethod
        def forward(context: Any, rows: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
            nonlocal graphs
            graphs += 1
            alive.append(graphs)
            context.save_for_backward(rows)
            return rows * weight

        @staticmethod
        def backward(context: Any, gradient: torch.Tensor) -> Any:
            nonlocal graphs
            graphs -= 1
            (rows,) = context.saved_tensors
            return gradient, (gradient * rows).sum(0)

    weight = torch.ones(2, requires_grad=True)

    def second(chunk: torch.Tensor, _: Any) -> torch.Tensor:
        return Counted.apply(chunk, weight) if torch.is_grad_enabled() else chunk * weight

    cached_backward(torch.randn(9, 2).split(2), second, lambda rows: rows.square().sum())
    assert alive == [1] * 5 and graphs == 0


@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
def test_a_loss_that_is_no_number_touches_no_parameter(value: str) -> None:
    layer = torch.nn.Linear(2, 2)
    with pytest.raises(FloatingPointError, match=f"the loss is {value}"):
        cached_backward(
            [torch.randn(2, 2)],
            lambda chunk, _: layer(chunk),
            lambda rows: rows.sum() * 0 + float(value),
        )
    assert layer.weight.grad is None


def test_gradients_add_to_those_that_are_there() -> None:
    layer = torch.nn.Linear(2, 1)
    texts = torch.randn(4, 2)
    for _ in range(2):
        cached_backward(texts.split(3), lambda chunk, _: layer(chunk), lambda rows: rows.sum())
    torch.testing.assert_close(layer.weight.grad, 2 * texts.sum(0, keepdim=True))


def test_the_generators_go_on_from_where_they_were() -> None:
    torch.manual_seed(1)
    state = RandomState(torch.device("cpu"))
    first, second = torch.rand(2), torch.rand(2)
    torch.manual_seed(1)
    torch.rand(2)
    # whatever is drawn inside, and however much of it
    with state.again():
        torch.testing.assert_close(torch.rand(2), first)
        torch.rand(5)
    torch.testing.assert_close(torch.rand(2), second)

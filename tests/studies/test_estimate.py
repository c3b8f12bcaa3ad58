"""Estimates of a run's cost, against what torch counts and what the paper reports."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from cde.models import BiEncoder
from cde.training import TrainConfig, build_model
from cde.training.loss import contrastive_loss
from cde.training.step import BatchTexts, backward
from cde_studies.estimate import estimate
from cde_studies.recipes import recipe


@pytest.mark.parametrize("attention", ["full", "cached", "gated", None])
@pytest.mark.parametrize("cached", [True, False])
@pytest.mark.parametrize("depth", [0, 1, None])
@pytest.mark.slow
def test_operations_are_those_that_torch_counts(
    attention: str | None, cached: bool, depth: int | None
) -> None:
    config = TrainConfig(
        architecture="contextual" if attention else "bi-encoder", attention=attention or "full",
        layers=2, first_stage_layers=depth, batch_size=8, context_size=8, steps=1, query_tokens=32,
        document_tokens=32, context_tokens=32, uncached_tokens=0 if cached else 10**6,
        precision="float32",
    )  # fmt: skip
    model = build_model(config).train()

    def texts(count: int) -> list[np.ndarray]:
        return [np.full(32, 2000 + number, np.int32) for number in range(count)]

    batch = BatchTexts(texts(16), texts(8) if attention else ())
    # eager attention: torch counts no operations of its fused kernel on a CPU
    with (
        FlopCounterMode(display=False) as counter,
        torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH),
    ):
        backward(
            model,
            batch,
            lambda rows: contrastive_loss(rows[:8], rows[8:]),
            chunk_tokens=10**6,
            cache=cached,
        )
    assert estimate(config).operations == pytest.approx(counter.get_total_flops(), rel=0.03)


def test_parameters_are_the_models_but_for_biases_norms_and_positions() -> None:
    parameters = estimate(TrainConfig(architecture="bi-encoder")).parameters
    assert parameters == pytest.approx(
        sum(p.numel() for p in BiEncoder.from_backbone().parameters()), rel=0.02
    )


@pytest.mark.parametrize(("architecture", "days"), [("bi-encoder", 1), ("contextual", 2)])
def test_the_papers_epoch_takes_about_as_long_as_the_paper_says(
    architecture: str, days: float
) -> None:
    """§10.1: 235M pairs on 8 H100 GPUs take about one day, and about two with context."""
    config = replace(
        recipe("paper", data="pairs/*").base, architecture=architecture, steps=235_000_000 // 512
    )
    assert 0.5 < estimate(config).gpu_hours / 8 / 24 / days < 2


def test_memory_follows_the_chunk_and_not_the_batch_once_gradients_are_cached() -> None:
    config = TrainConfig(batch_size=4096)
    doubled = replace(config, batch_size=8192)
    assert estimate(config).memory == estimate(doubled).memory
    assert estimate(doubled).operations == pytest.approx(2 * estimate(config).operations, rel=0.01)
    more = replace(config, chunk_tokens=65_536)
    assert estimate(more).memory > estimate(config).memory

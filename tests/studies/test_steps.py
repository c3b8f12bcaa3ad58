"""A random step says the same twice; steps to be timed read the same pairs in every encoder."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cde.models import ContextualEncoder
from cde.training.loss import contrastive_loss
from cde.training.step import BatchTexts, backward
from cde_studies.encoder.steps import context_steps, random_step, step_in_contexts, steps_to_time
from cde_studies.recipes import recipe

ENCODERS = {
    "single": {"architecture": "bi-encoder"},
    "full": {"architecture": "contextual", "attention": "full"},
}
SMALL = {"layers": 1, "tokens": 4, "context_size": 2}


def test_a_step_has_the_same_loss_each_time_and_leaves_gradients() -> None:
    model, step = random_step(3, seed=1, dropout=0.1, hard=1, **SMALL)
    first = float(step(64, cache=True, half=False).loss)
    assert float(step(64, cache=True, half=False).loss) == first
    assert any(parameter.grad is not None for parameter in model.parameters())
    torch.manual_seed(5)
    _, again = random_step(3, seed=1, dropout=0.1, hard=1, **SMALL)
    assert float(again(64, cache=True, half=False).loss) == first


def test_jobs_give_their_loss_leave_no_gradient_and_read_the_same_pairs_and_contexts() -> None:
    jobs = steps_to_time(recipe("smoke"), ENCODERS, [4, 8], 2, 0)
    assert list(jobs) == ["single", "full", "4 tokens", "8 tokens"]
    for job in jobs.values():
        model = job.args[0]  # type: ignore[attr-defined]
        assert 0 < job() < 100
        assert all(weights.grad is None for weights in model.parameters())
    single, full = (jobs[name].args[1] for name in ENCODERS)  # type: ignore[attr-defined]
    assert [row.tolist() for row in single.texts] == [row.tolist() for row in full.texts]
    half = len(full.texts) // 2
    first = full.texts[half : half + len(full.context)]
    assert [row.tolist() for row in full.context] == [row.tolist() for row in first]
    assert not single.context


def test_texts_with_one_context_for_all_or_an_equal_one_each_take_the_batch_step(
    small_start: str,
) -> None:
    model = ContextualEncoder.from_backbone(small_start, 1, context_size=3, sequence_dropout=0.0)
    random = np.random.default_rng(0)
    texts, context = (
        [random.integers(1000, 20000, length).astype(np.int32) for length in lengths]
        for lengths in ((3, 5, 4, 2), (6, 2, 4))
    )

    def gradient() -> torch.Tensor:
        return torch.cat([w.grad.flatten() for w in model.parameters() if w.grad is not None])

    def loss(vectors: torch.Tensor):
        return contrastive_loss(vectors[:2], vectors[2:])

    whole = backward(model.train(), BatchTexts(texts, context), loss, chunk_tokens=64)
    expected = gradient()
    for contexts in ([context], [context] * 4):
        found = step_in_contexts(model, texts, contexts, 8)
        assert found == pytest.approx(float(whole.loss), rel=1e-4)
        assert torch.allclose(gradient(), expected, atol=1e-4 * float(expected.norm()))


def test_a_text_reads_its_own_context() -> None:
    jobs = context_steps(2, [1, 2], 64, 0, layers=1, tokens=4)
    assert list(jobs) == ["one, 1", "own, 1", "one, 2", "own, 2"]
    losses = {name: job() for name, job in jobs.items()}
    assert losses["one, 2"] != losses["own, 2"]
    assert jobs["own, 2"]() == losses["own, 2"]

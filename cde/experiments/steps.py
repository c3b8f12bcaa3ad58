"""A training step on random words, to be timed and weighed: neither depends on which words.

It ends with the gradients; the optimiser's memory and work do not depend on the batch.

Cost: that of a step.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cde.experiments.timing import peak_memory
from cde.hardware import half_precision
from cde.models import ContextualEncoder
from cde.training.loss import ContrastiveLoss, contrastive_loss
from cde.training.step import BatchTexts, backward

__all__ = ["Step", "random_step", "step_memory"]


class Step(Protocol):
    """One step; its gradients are in the model's parameters afterwards."""

    def __call__(self, chunk_tokens: int, cache: bool, half: bool | None = None) -> ContrastiveLoss:
        """The loss, detached.

        Args:
            chunk_tokens, cache: see `cde.training.step.backward`.
            half: in bfloat16; by default where it is fast.
        """


def random_step(
    pairs: int,
    seed: int = 0,
    *,
    layers: int,
    tokens: int,
    context_size: int,
    hard: int = 0,
    **options: Any,
) -> tuple[ContextualEncoder, Step]:
    """A contextual encoder of MiniLM's first layers, and one step of it on random texts.

    The filter leaves out one negative in twenty, at random. Dropout falls the same way in each
    step.

    Args:
        pairs: of the batch.
        seed: of texts, filter, dropout, and of the weights that MiniLM does not have.
        layers: of each stage.
        tokens: of the longest text; the shortest has half as many.
        context_size: context documents.
        hard: negatives besides, for each query.
        options: of `ContextualEncoder.from_backbone`, such as attention or dropout.

    Raises:
        ValueError: options that do not fit each other.

    Used by the chapter `gradient_caching`.

    Example:
        >>> model, step = random_step(2, layers=1, tokens=4, context_size=2)
        >>> bool(torch.isfinite(step(64, cache=True).loss))
        True
    """
    torch.manual_seed(seed)  # of what MiniLM has no weights for
    model = ContextualEncoder.from_backbone("minilm", layers, context_size=context_size, **options)
    model.train()
    random = np.random.default_rng(seed)

    def texts(count: int) -> list[NDArray[np.int32]]:
        lengths = random.integers(max(2, tokens // 2), tokens + 1, count)
        return [random.integers(1000, 20000, n).astype(np.int32) for n in lengths]

    batch = BatchTexts(texts(pairs * (2 + hard)), texts(context_size))
    left_out = random.random((pairs, pairs * (1 + hard)), dtype=np.float32) < 0.05
    masked = torch.from_numpy(left_out).to(model.device)

    def loss(embeddings: Tensor) -> ContrastiveLoss:
        return contrastive_loss(embeddings[:pairs], embeddings[pairs:], masked=masked)

    def step(chunk_tokens: int, cache: bool, half: bool | None = None) -> ContrastiveLoss:
        torch.manual_seed(seed)  # of dropout
        model.zero_grad()
        half = half_precision("auto") if half is None else half
        return backward(model, batch, loss, chunk_tokens=chunk_tokens, half=half, cache=cache)

    return model, step


def step_memory(
    pairs: int, seed: int, cache: bool, chunk_tokens: int, options: Mapping[str, Any]
) -> dict[str, float]:
    """What one step of `random_step` holds at the highest, on one thread.

    For a clean number, call it in a process of its own
    (`cde.experiments.timing.in_own_processes`).

    Args:
        pairs, seed, options: of `random_step`.
        cache, chunk_tokens: of the step.

    Returns:
        above: MiB at the highest above the loaded model and its texts; process: MiB in all; loss.

    Raises:
        OSError: a machine that does not tell.

    Used by the chapter `gradient_caching`.
    """
    torch.set_num_threads(1)
    _, step = random_step(pairs, seed, **options)
    above, process, result = peak_memory(lambda: step(chunk_tokens, cache))
    return {"above": above, "process": process, "loss": float(result.loss)}

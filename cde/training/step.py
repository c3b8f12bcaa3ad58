"""One training step: the texts of a batch, their context, the loss, and gradients, cached or not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cde.models import BiEncoder, ContextualEncoder
from cde.models.encoding import padded
from cde.training.gradient_cache import cached_backward
from cde.training.loss import ContrastiveLoss

__all__ = ["BatchTexts", "backward", "sorted_chunks"]

Ids = NDArray[np.int32]
Chunk = tuple[Tensor, "Tensor | None"]


@dataclass(frozen=True)
class BatchTexts:
    """Token ids of one process's part of a batch.

    Attributes:
        texts: queries, then their documents, then hard negatives, query after query.
        context: of the whole batch's context documents, the same in every process.
    """

    texts: Sequence[Ids]
    context: Sequence[Ids] = ()


def sorted_chunks(rows: Sequence[Ids], size: int, padding: int, device: torch.device) -> tuple[list[Chunk], Tensor]:
    """Texts in chunks of one size (the last may be shorter), sorted by length so that little is padding.

    Args:
        rows: token ids of each text.
        size: texts a chunk.
        padding: the tokenizer's padding id.
        device: of the chunks.

    Returns:
        Chunks `(ids, mask or None)`, and `(n,)` int64: where each text's row is in the chunks laid end to end.

    Example:
        >>> chunks, place = sorted_chunks([np.array([5]), np.array([6, 7])], 2, 0, torch.device("cpu"))
        >>> chunks[0][0].tolist(), place.tolist()
        ([[6, 7], [5, 0]], [1, 0])
    """
    order = sorted(range(len(rows)), key=lambda row: -len(rows[row]))
    chunks = [
        padded([rows[row] for row in order[start : start + size]], padding, device)
        for start in range(0, len(order), size)
    ]
    place = torch.empty(len(rows), dtype=torch.long, device=device)
    place[torch.tensor(order, device=device)] = torch.arange(len(rows), device=device)
    return chunks, place


def backward(
    model: BiEncoder | ContextualEncoder,
    batch: BatchTexts,
    loss: Callable[[Tensor], ContrastiveLoss],
    *,
    chunk_size: int,
    half: bool = False,
    cache: bool | None = None,
) -> ContrastiveLoss:
    """Add the gradient of a batch's loss to the model's parameters.

    Args:
        model: either encoder, on its device, in training mode.
        batch: the texts; a `ContextualEncoder` without context documents reads null tokens.
        loss: of the embeddings `(texts, dim)`, in the order of `batch.texts`.
        chunk_size: texts, or context documents, in memory at once.
        half: multiply in bfloat16 under autocast.
        cache: go through the gradient cache; by default if there are more texts than `chunk_size`.

    Returns:
        The loss, detached, with what goes with it.

    Raises:
        FloatingPointError: a loss that is not finite; no parameter has been touched.
    """
    device, padding = model.device, getattr(model.tokenizer, "pad_token_id", 0) or 0
    chunks, place = sorted_chunks(batch.texts, chunk_size, padding, device)
    context_chunks: list[Chunk] = []
    back = torch.empty(0, dtype=torch.long)
    if batch.context:
        context_chunks, back = sorted_chunks(batch.context, chunk_size, padding, device)
    autocast = torch.autocast(device.type, torch.bfloat16, enabled=half)

    def first(chunk: Chunk) -> Tensor:
        with autocast:
            vectors: Tensor = model.first_stage(*chunk)
            return vectors

    def second(chunk: Chunk, context: Any) -> Tensor:
        with autocast:
            if isinstance(model, BiEncoder):
                vectors: Tensor = model(*chunk)
                return vectors
            context = context[back] if isinstance(context, Tensor) else context
            vectors = model.second_stage(*chunk, context)
            return vectors

    found: list[ContrastiveLoss] = []

    def value(embeddings: Tensor) -> Tensor:
        found.append(loss(embeddings[place]))
        return found[-1].loss

    if cache if cache is not None else len(chunks) > 1:
        cached_backward(chunks, second, value, context_chunks, first if context_chunks else None, device)
    else:
        context: Any = torch.cat([first(chunk) for chunk in context_chunks]) if context_chunks else None
        if isinstance(model, ContextualEncoder) and model.config.attention == "cached" and len(chunks) > 1:
            with autocast:
                context = model.second_stage.cache_context(None if context is None else context[back])
        total = value(torch.cat([second(chunk, context) for chunk in chunks]))
        if not bool(torch.isfinite(total.detach())):
            raise FloatingPointError(f"the loss is {float(total.detach())}")
        total.backward()  # type: ignore[no-untyped-call]
    (one,) = found
    return ContrastiveLoss(one.loss.detach(), one.accuracy, one.masked)

"""One training step: the texts of a batch, their context, loss and gradients, cached or not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cde.models.encoder import Encoder, padded, token_batches
from cde.training.gradient_cache import cached_backward
from cde.training.loss import ContrastiveLoss

__all__ = ["BatchTexts", "backward", "sorted_chunks", "tokens_in"]

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


def sorted_chunks(
    rows: Sequence[Ids], tokens: int, padding: int, device: torch.device, extra: int = 0
) -> tuple[list[Chunk], Tensor]:
    """Texts in chunks of about equal work, longest first, so that little is padding.

    Returns:
        Chunks `(ids, mask or None)`, and `(n,)` int64: where each text's row is in the chunks laid
        end to end.
    """
    batches = token_batches([len(row) for row in rows], tokens, extra)
    chunks = [padded([rows[row] for row in batch], padding, device) for batch in batches]
    place = torch.empty(len(rows), dtype=torch.long)
    place[torch.tensor([row for batch in batches for row in batch])] = torch.arange(len(rows))
    return chunks, place.to(device)


def tokens_in(model: Encoder, batch: BatchTexts) -> int:
    """Tokens that a step computes: of texts with what they carry of the context, and of context
    documents.
    """
    carried = model.carried_tokens()
    return sum(len(row) + carried for row in batch.texts) + sum(len(row) for row in batch.context)


def backward(
    model: Encoder,
    batch: BatchTexts,
    loss: Callable[[Tensor], ContrastiveLoss],
    *,
    chunk_tokens: int,
    half: bool = False,
    cache: bool = True,
) -> ContrastiveLoss:
    """Add the gradient of a batch's loss to the model's parameters.

    Args:
        model: any encoder, on its device, in training mode.
        batch: the texts; a `ContextualEncoder` without context documents reads null tokens.
        loss: of the embeddings `(texts, dim)`, in the order of `batch.texts`.
        chunk_tokens: of texts, or context documents, computed at once; padding included, and the
            context that stands before each text in attention `full`.
        half: multiply in bfloat16 under autocast.
        cache: hold the graph of one chunk at a time (`cached_backward`); else that of all.

    Returns:
        The loss, detached, with what goes with it.

    Raises:
        FloatingPointError: a loss that is not finite; no parameter has been touched.
    """
    device, padding = model.device, getattr(model.tokenizer, "pad_token_id", 0) or 0
    chunks, place = sorted_chunks(
        batch.texts, chunk_tokens, padding, device, model.carried_tokens()
    )
    context_chunks: list[Chunk] = []
    back = torch.empty(0, dtype=torch.long)
    if batch.context:
        context_chunks, back = sorted_chunks(batch.context, chunk_tokens, padding, device)
    autocast = torch.autocast(device.type, torch.bfloat16, enabled=half)

    def in_order(context: Any) -> Any:
        return context[back] if isinstance(context, Tensor) else context

    def first(chunk: Chunk) -> Tensor:
        with autocast:
            vectors: Tensor = model.first_stage(*chunk)
            return vectors

    def embed(chunk: Chunk, context: Any) -> Tensor:
        with autocast:
            return model.embed_batch(*chunk, context)

    def second(chunk: Chunk, context: Any) -> Tensor:
        return embed(chunk, in_order(context))

    losses: list[ContrastiveLoss] = []

    def value(embeddings: Tensor) -> Tensor:
        one = loss(embeddings)
        losses.append(ContrastiveLoss(one.loss.detach(), one.accuracy, one.masked))
        return one.loss

    if cache:
        cached_backward(
            chunks, second, value, context_chunks, first if context_chunks else None, device, place
        )
    else:
        context: Any = (
            torch.cat([first(chunk) for chunk in context_chunks]) if context_chunks else None
        )
        with autocast:
            context = model.share_context(in_order(context), len(chunks))
        total = value(torch.cat([embed(chunk, context) for chunk in chunks])[place])
        if not bool(torch.isfinite(total.detach())):
            raise FloatingPointError(f"the loss is {float(total.detach())}")
        total.backward()  # type: ignore[no-untyped-call]
    return losses[0]

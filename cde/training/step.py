"""One training step: the texts of a batch, their context, loss and gradients.

`backward` makes the gradients, by gradient caching in two stages where a batch is too large for one
graph: large batches in the memory of a small one (CDE §4.2; GradCache).

The contrastive loss couples all texts of a batch, so its graph holds every activation of every
text. Instead:

1. The first stage embeds the context in chunks, without a graph.
2. The second stage embeds the texts in chunks, without a graph.
3. The loss is computed on the embeddings alone, which gives the gradient of each embedding.
4. Each chunk of texts runs again, with a graph, and its gradient flows into the second stage's
   parameters and is collected on the context vectors.
5. Each chunk of the context runs again, and the collected gradient flows into the first stage.

The gradients are those of the whole graph, since the chain rule is applied to the same numbers. The
state of the random generators is kept with each chunk, so that dropout falls the same way twice.
Every chunk must be run again in step 5, the last, shorter one included: the authors' code loses all
but the first under data parallelism.

Cost: one more forward pass of both stages (about 4/3 of the work); memory of one chunk's graph, and
of the embeddings. A bi-encoder is the case without a context.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cde.models.encoder import Encoder, padded, token_batches
from cde.training.loss import ContrastiveLoss

__all__ = ["BatchTexts", "RandomState", "backward", "cached_backward", "sorted_chunks", "tokens_in"]

Ids = NDArray[np.int32]
Chunk = tuple[Tensor, "Tensor | None"]
Part = TypeVar("Part")
Context = TypeVar("Context")


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


class RandomState:
    """The state of torch's random generators at one moment: of the CPU, and of each CUDA device in
    use.

    Example:
        >>> state = RandomState(torch.device("cpu"))
        >>> first = torch.rand(1)
        >>> with state.again():
        ...     bool(torch.rand(1) == first)
        True
    """

    def __init__(self, device: torch.device) -> None:
        self.devices = [device] if device.type == "cuda" else []
        self.cpu = torch.get_rng_state()
        self.cuda = [torch.cuda.get_rng_state(one) for one in self.devices]

    @contextlib.contextmanager
    def again(self) -> Iterator[None]:
        """Draw the same numbers once more; afterwards the generators go on from where they were."""
        with torch.random.fork_rng(devices=self.devices):
            torch.set_rng_state(self.cpu)
            for one, state in zip(self.devices, self.cuda, strict=True):
                torch.cuda.set_rng_state(state, one)
            yield


def cached_backward(
    chunks: Sequence[Part],
    second_stage: Callable[[Part, Tensor | None], Tensor],
    loss: Callable[[Tensor], Tensor],
    context_chunks: Sequence[Context] = (),
    first_stage: Callable[[Context], Tensor] | None = None,
    device: torch.device | None = None,
    order: Tensor | None = None,
) -> Tensor:
    """Add the gradient of a loss over all embeddings to the parameters, chunk by chunk.

    Args:
        chunks: of texts, whatever `second_stage` takes; of any sizes.
        second_stage: embeds a chunk in a context: `(rows, dim)`. Called twice a chunk.
        loss: of all embeddings, in the order of the chunks or in `order`; a scalar. Called once.
        context_chunks: of context documents; none for a bi-encoder, whose context is None.
        first_stage: embeds a chunk of the context; called twice a chunk.
        device: whose random numbers the stages draw; by default the CPU's.
        order: `(n,)` int64, a permutation: row i of what `loss` gets is row `order[i]` of the
            chunks laid end to end.

    Returns:
        The loss, detached.

    Raises:
        ValueError: no chunks, or context chunks without a first stage.
        FloatingPointError: a loss that is not finite; no parameter has been touched.

    Example:
        >>> layer = torch.nn.Linear(2, 2)
        >>> texts = torch.randn(5, 2)
        >>> _ = cached_backward(texts.split(2), lambda chunk, _: layer(chunk),
        ...     lambda all: all.square().sum())
        >>> cached = layer.weight.grad.clone()
        >>> layer.zero_grad(); layer(texts).square().sum().backward()
        >>> torch.allclose(cached, layer.weight.grad)
        True
    """
    if not chunks:
        raise ValueError("there are no texts: chunks is empty")
    if context_chunks and first_stage is None:
        raise ValueError("context_chunks need a first_stage that embeds them")
    device = device or torch.device("cpu")
    context: Tensor | None = None
    context_states: list[RandomState] = []
    parts: list[Tensor] = []
    with torch.no_grad():
        if first_stage is not None and context_chunks:
            for documents in context_chunks:
                context_states.append(RandomState(device))
                parts.append(first_stage(documents))
            context = torch.cat(parts)
        states, embedded = [], []
        for chunk in chunks:
            states.append(RandomState(device))
            embedded.append(second_stage(chunk, context))
    sizes = [len(rows) for rows in embedded]
    embeddings = torch.cat(embedded)
    del embedded
    # put in order before the graph begins: in the graph it would hold two more copies of all
    # embeddings
    embeddings = (embeddings if order is None else embeddings[order]).requires_grad_()
    value = loss(embeddings)
    if not bool(torch.isfinite(value.detach())):
        raise FloatingPointError(f"the loss is {float(value.detach())}")
    (gradient,) = torch.autograd.grad(value, embeddings)
    value = value.detach()  # lets go of the loss's graph, which holds copies of the embeddings
    del embeddings
    if order is not None:
        gradient = torch.empty_like(gradient).index_copy_(0, order, gradient)
    if context is not None:
        context.requires_grad_()
    for chunk, state, rows in zip(chunks, states, torch.split(gradient, sizes), strict=True):
        with state.again():
            again = second_stage(chunk, context)
        again.backward(rows.to(again.dtype))  # type: ignore[no-untyped-call]
    # no gradient arrives where nothing looks at the context (every token dropped, or a null
    # context)
    if context is not None and context.grad is not None and first_stage is not None:
        collected = torch.split(context.grad, [len(part) for part in parts])
        for documents, state, rows in zip(context_chunks, context_states, collected, strict=True):
            with state.again():
                again = first_stage(documents)
            if again.requires_grad:  # a first stage may be frozen
                again.backward(rows.to(again.dtype))  # type: ignore[no-untyped-call]
    return value

"""One training step: the texts of a batch, their context, loss and gradients.

`backward` makes the gradients, by gradient caching in two stages where a batch is too large for one
graph (CDE §4.2; GradCache). The contrastive loss couples all texts of a batch, so its graph holds
every activation of every text. Instead:

1. The first stage embeds the context in chunks, without a graph.
2. The second stage embeds the texts in chunks, without a graph.
3. The loss is computed on the embeddings alone, which gives the gradient of each embedding.
4. Each chunk of texts runs again, with a graph, and its gradient flows into the second stage's
   parameters and is collected on the context vectors.
5. Each chunk of the context runs again, and the collected gradient flows into the first stage.

The gradients are those of the whole graph, and the state of the random generators is kept with each
chunk. Every chunk must be run again in step 5, the last, shorter one included: the authors' code
loses all but the first under data parallelism. The cost is one more forward pass of both stages;
the memory that of one chunk's graph, and of the embeddings.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from cde.models.encoder import Encoder, padded, token_batches
from cde.training.loss import ContrastiveLoss

Ids = NDArray[np.int32]
Chunk = tuple[Tensor, "Tensor | None"]
Part = TypeVar("Part")
Context = TypeVar("Context")


@dataclass(frozen=True)
class BatchTexts:
    """Token ids of one process's part of a batch."""

    #: queries, then their documents, then hard negatives, query after query
    texts: Sequence[Ids]
    #: of the whole batch's context documents, the same in every process
    context: Sequence[Ids] = ()


def sorted_chunks(
    rows: Sequence[Ids], tokens: int, padding: int, device: torch.device, extra: int = 0
) -> tuple[list[Chunk], Tensor]:
    """Texts in chunks of equal work, and where each one's row is in the chunks laid end to end."""
    batches = token_batches([len(row) for row in rows], tokens, extra)
    chunks = [padded([rows[row] for row in batch], padding, device) for batch in batches]
    laid = torch.tensor([row for batch in batches for row in batch], dtype=torch.long)
    return chunks, torch.argsort(laid).to(device)


def tokens_in(model: Encoder, batch: BatchTexts) -> int:
    """Tokens that a step computes: of texts with what they carry, and of context documents."""
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
        chunk_tokens: of texts, or context documents, computed at once, padding included.
        half: multiply in bfloat16 under autocast.
        cache: hold the graph of one chunk at a time (`cached_backward`); else that of all.

    Returns:
        The loss, detached; a `FloatingPointError` for one that is not finite leaves all as it was.
    """
    device, padding = model.device, getattr(model.tokenizer, "pad_token_id", 0) or 0
    carried = model.carried_tokens()
    chunks, place = sorted_chunks(batch.texts, chunk_tokens, padding, device, carried)
    context_chunks, back = sorted_chunks(batch.context, chunk_tokens, padding, device)
    autocast = torch.autocast(device.type, torch.bfloat16, enabled=half)

    def first(chunk: Chunk) -> Any:
        with autocast:
            return model.first_stage(*chunk)

    def embed(chunk: Chunk, context: Any) -> Tensor:
        with autocast:
            return model.embed_batch(*chunk, context)

    def second(chunk: Chunk, context: Tensor | None) -> Tensor:
        return embed(chunk, None if context is None else context[back])

    losses: list[ContrastiveLoss] = []

    def value(embeddings: Tensor) -> Tensor:
        found = loss(embeddings)
        losses.append(ContrastiveLoss(found.loss.detach(), found.accuracy, found.masked))
        return found.loss

    with _rows_of_words(model):
        if cache:
            cached_backward(chunks, second, value, context_chunks, first, device, place)
            return losses[0]
        parts = [first(chunk) for chunk in context_chunks]
        whole = torch.cat(parts)[back] if parts else None
        with autocast:
            context = model.share_context(whole, len(chunks))
        total = value(torch.cat([embed(chunk, context) for chunk in chunks])[place])
        if not bool(torch.isfinite(total.detach())):
            raise FloatingPointError(f"the loss is {float(total.detach())}")
        total.backward()  # type: ignore[no-untyped-call]
    return losses[0]


@contextlib.contextmanager
def _rows_of_words(model: Encoder) -> Iterator[None]:
    """On a CPU, gradients of word embeddings as rows of each chunk's own words until all are added:
    a whole table a chunk, mostly zeros, is up to a tenth of a step of two layers.
    """
    tables = [one for one in model.modules() if isinstance(one, nn.Embedding) and not one.sparse]
    tables = tables if model.device.type == "cpu" else []
    for table in tables:
        table.sparse = True
    try:
        yield
    finally:
        for table in tables:
            table.sparse = False
            if table.weight.grad is not None and table.weight.grad.is_sparse:
                table.weight.grad = table.weight.grad.to_dense()


class RandomState:
    """The state of torch's random generators at one moment: the CPU's, and a CUDA device's."""

    def __init__(self, device: torch.device) -> None:
        self.devices = [device] if device.type == "cuda" else []
        self.cpu = torch.get_rng_state()
        self.cuda = [torch.cuda.get_rng_state(device) for device in self.devices]

    @contextlib.contextmanager
    def again(self) -> Iterator[None]:
        """Draw the same numbers once more; afterwards the generators go on from where they were."""
        with torch.random.fork_rng(devices=self.devices):
            torch.set_rng_state(self.cpu)
            for device, state in zip(self.devices, self.cuda, strict=True):
                torch.cuda.set_rng_state(state, device)
            yield


def _no_first_stage(_: Any) -> Tensor:
    raise ValueError("context_chunks need a first_stage that embeds them")


def cached_backward(
    chunks: Sequence[Part],
    second_stage: Callable[[Part, Tensor | None], Tensor],
    loss: Callable[[Tensor], Tensor],
    context_chunks: Sequence[Context] = (),
    first_stage: Callable[[Context], Tensor] = _no_first_stage,
    device: torch.device = torch.device("cpu"),  # noqa: B008
    order: Tensor | None = None,
) -> Tensor:
    """Add the gradient of a loss over all embeddings to the parameters, chunk by chunk.

    `second_stage` embeds a chunk of texts, of whatever kind, in a context, and `first_stage` a
    chunk of the context's documents; both are called twice a chunk. Row i of what `loss` gets is
    row `order[i]` of the chunks laid end to end.
    """
    context_states: list[RandomState] = []
    parts: list[Tensor] = []
    with torch.no_grad():
        for documents in context_chunks:
            context_states.append(RandomState(device))
            parts.append(first_stage(documents))
        # the gradients of all chunks are added up in its precision
        context = torch.cat(parts) if parts else None
        if context is not None and context.dtype.itemsize < 4:
            context = context.float()
        states, embedded = [], []
        for chunk in chunks:
            states.append(RandomState(device))
            embedded.append(second_stage(chunk, context))
    sizes = [len(rows) for rows in embedded]
    embeddings = torch.cat(embedded)
    del embedded
    # put in order before the graph begins, which would hold two more copies of all embeddings
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
    # no gradient arrives where nothing looks at the context: every token is dropped, or null
    if context is not None and context.grad is not None:
        collected = torch.split(context.grad, [len(part) for part in parts])
        for documents, state, rows in zip(context_chunks, context_states, collected, strict=True):
            with state.again():
                again = first_stage(documents)
            if again.requires_grad:  # a first stage may be frozen
                again.backward(rows.to(again.dtype))  # type: ignore[no-untyped-call]
    return value

"""Gradient caching in two stages: large batches in the memory of a small one (CDE §4.2; GradCache).

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
from typing import TypeVar

import torch
from torch import Tensor

__all__ = ["RandomState", "cached_backward"]

Chunk = TypeVar("Chunk")
Context = TypeVar("Context")


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
    chunks: Sequence[Chunk],
    second_stage: Callable[[Chunk, Tensor | None], Tensor],
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

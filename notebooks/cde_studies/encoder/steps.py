"""Single training steps, to be timed and weighed: on random words, with each encoder, and with a
context for each text.

A step ends with the gradients; the optimiser's memory and work do not depend on the batch. Time and
memory do not depend on which words a text has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cde.hardware import half_precision
from cde.models import BiEncoder, ContextualEncoder
from cde.models.encoder import padded, tokenise
from cde.training.loss import ContrastiveLoss, contrastive_loss
from cde.training.step import BatchTexts, backward, cached_backward, sorted_chunks
from cde_studies.encoder.timing import peak_memory
from cde_studies.recipes import Recipe

Texts = list[NDArray[np.int32]]


#: of `chunk_tokens`, `cache` and `half`, the loss; gradients are in the parameters afterwards
Step = Callable[..., ContrastiveLoss]


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

    The filter leaves out one negative in twenty. Dropout falls the same way in each step.
    """
    torch.manual_seed(seed)  # of what MiniLM has no weights for
    model = ContextualEncoder.from_backbone("minilm", layers, context_size=context_size, **options)
    model.train()
    random = np.random.default_rng(seed)
    texts = _random_texts(random, pairs * (2 + hard), tokens)
    batch = BatchTexts(texts, _random_texts(random, context_size, tokens))
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


def _random_texts(random: np.random.Generator, count: int, tokens: int) -> Texts:
    """Random words, between half and all of so many tokens a text."""
    lengths = random.integers(max(2, tokens // 2), tokens + 1, count)
    return [random.integers(1000, 20000, n).astype(np.int32) for n in lengths]


def step_in_contexts(
    model: ContextualEncoder, texts: Texts, contexts: Sequence[Texts], chunk_tokens: int
) -> float:
    """The loss of one step on texts (queries, then their documents) that read a context each, or
    all the only one, text by text; its gradients are in the model's parameters afterwards.
    """
    documents = [document for context in contexts for document in context]
    chunks, place = sorted_chunks(documents, chunk_tokens, 0, model.device)
    read = [*torch.split(place, [len(context) for context in contexts])]
    rows = [
        (padded([text], 0, model.device), own)
        for text, own in zip(texts, read * (len(texts) // len(read)), strict=True)
    ]
    half = len(texts) // 2

    def second(row: tuple[Any, Tensor], context: Tensor | None) -> Tensor:
        assert context is not None
        (ids, mask), own = row
        return model.embed_batch(ids, mask, context[own])

    def loss(vectors: Tensor) -> Tensor:
        return contrastive_loss(vectors[:half], vectors[half:]).loss

    def first(chunk: Any) -> Any:
        return model.first_stage(*chunk)

    model.train().zero_grad()
    torch.manual_seed(0)  # of dropout: each round has the same loss
    return float(cached_backward(rows, second, loss, chunks, first, model.device))


def context_steps(
    pairs: int, sizes: Sequence[int], chunk_tokens: int, seed: int, *, layers: int, tokens: int
) -> dict[str, Callable[[], float]]:
    """Steps on random texts with attention `full`, for each size of a context one in which all
    texts read one context ("one, 16") and one in which each reads its own ("own, 16"): name → a job
    of `cde_studies.encoder.timing.in_turns` that returns its loss.
    """
    random = np.random.default_rng(seed)
    jobs: dict[str, Callable[[], float]] = {}
    texts = _random_texts(random, 2 * pairs, tokens)
    for size in sizes:
        torch.manual_seed(seed)  # of what MiniLM has no weights for
        model = ContextualEncoder.from_backbone("minilm", layers, context_size=size)
        contexts = [_random_texts(random, size, tokens) for _ in texts]
        for name, some in (("one", contexts[:1]), ("own", contexts)):
            jobs[f"{name}, {size}"] = partial(step_in_contexts, model, texts, some, chunk_tokens)
    return jobs


def step_memory(
    pairs: int, seed: int, cache: bool, chunk_tokens: int, options: Mapping[str, Any]
) -> dict[str, float]:
    """What one step of `random_step` holds at the highest, on one thread: MiB above the loaded
    model and its texts (above) and in all (process); and loss. For a clean number, call it in a
    process of its own (`cde_studies.encoder.timing.in_own_processes`).
    """
    torch.set_num_threads(1)
    _, step = random_step(pairs, seed, **options)
    above, process, result = peak_memory(lambda: step(chunk_tokens, cache))
    return {"above": above, "process": process, "loss": float(result.loss)}


def gradients(model: BiEncoder | ContextualEncoder, batch: BatchTexts) -> float:
    """The loss of one step without gradient caching; its gradients are made and thrown away."""
    count = len(batch.texts) // 2
    torch.manual_seed(0)  # of dropout: each round has the same loss
    result = backward(
        model.train(),
        batch,
        lambda vectors: contrastive_loss(vectors[:count], vectors[count:]),
        chunk_tokens=8192,
        half=half_precision("auto"),
        cache=False,
    )
    model.zero_grad(set_to_none=True)
    return float(result.loss)


def steps_to_time(
    recipe: Recipe,
    encoders: Mapping[str, Mapping[str, Any]],
    lengths: Sequence[int],
    pairs: int,
    seed: int,
) -> dict[str, Callable[[], float]]:
    """One step of a recipe with each encoder, on the same pairs, and steps on texts of each length
    ("64 tokens"): name → a job of `cde_studies.encoder.timing.in_turns` that returns its loss.
    """
    base, generator = recipe.base, np.random.default_rng(seed)
    torch.manual_seed(seed)  # of what MiniLM does not have: the null token, …
    single = BiEncoder.from_backbone("minilm", base.layers)
    some = recipe.pairs.sample(base.batch_size, seed)
    queries = tokenise(single.tokenizer, list(some.queries), base.query_tokens)
    documents = tokenise(single.tokenizer, list(some.documents), base.document_tokens)
    texts, context = [*queries, *documents], documents[: base.context_size]
    jobs: dict[str, Callable[[], float]] = {}
    for name, encoder in encoders.items():
        if encoder["architecture"] == "bi-encoder":
            jobs[name] = partial(gradients, single, BatchTexts(texts))
            continue
        model = ContextualEncoder.from_backbone(
            "minilm",
            base.layers,
            first_stage_layers=base.first_stage_layers,
            attention=encoder["attention"],
            context_size=base.context_size,
        )
        jobs[name] = partial(gradients, model, BatchTexts(texts, context))
    for length in lengths:
        drawn = list(generator.integers(1000, 20000, (2 * pairs, length)))
        jobs[f"{length} tokens"] = partial(gradients, single, BatchTexts(drawn))
    return jobs

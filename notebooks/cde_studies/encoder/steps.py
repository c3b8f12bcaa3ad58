"""Single training steps, to be timed and weighed: on random words, or with each encoder.

A step ends with the gradients; the optimiser's memory and work do not depend on the batch. Time and
memory do not depend on which words a text has.

Cost: that of the steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cde.hardware import half_precision
from cde.models import BiEncoder, ContextualEncoder
from cde.models.encoding import tokenise
from cde.training.loss import ContrastiveLoss, contrastive_loss
from cde.training.step import BatchTexts, backward
from cde_studies.encoder.timing import peak_memory
from cde_studies.recipes import Recipe

__all__ = ["Step", "gradients", "random_step", "step_memory", "steps_to_time"]


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
        pairs: pairs of the batch.
        seed: seed of texts, filter, dropout, and of the weights that MiniLM does not have.
        layers: layers of each stage.
        tokens: length of the longest text; the shortest has half as many.
        context_size: context documents.
        hard: hard negatives besides, for each query.
        options: those of `ContextualEncoder.from_backbone`, such as attention or dropout.

    Raises:
        ValueError: options that do not fit each other.

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
    (`cde_studies.encoder.timing.in_own_processes`).

    Args:
        pairs, seed, options: as in `random_step`.
        cache, chunk_tokens: as in a `Step`.

    Returns:
        above: MiB at the highest above the loaded model and its texts; process: MiB in all; loss.

    Raises:
        OSError: a machine that does not tell.
    """
    torch.set_num_threads(1)
    _, step = random_step(pairs, seed, **options)
    above, process, result = peak_memory(lambda: step(chunk_tokens, cache))
    return {"above": above, "process": process, "loss": float(result.loss)}


def gradients(model: BiEncoder | ContextualEncoder, batch: BatchTexts) -> float:
    """The loss of one step without gradient caching; its gradients are made and thrown away.

    Args:
        model: either encoder.
        batch: queries, then as many documents; a context, where the encoder reads one.

    Raises:
        FloatingPointError: a loss that is not finite.

    Example:
        >>> words = (2417, 2630, 2417, 2630)
        >>> texts = [np.array([101, word, 102], dtype=np.int32) for word in words]
        >>> gradients(BiEncoder.from_backbone(layers=1), BatchTexts(texts)) < 0.01
        True
    """
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
    """One step of a recipe with each encoder, on the same pairs, and steps on texts of each length.

    Args:
        recipe: its layers and sizes, and a batch of its pairs; all encoders are MiniLM's.
        encoders: name → settings (architecture, attention).
        lengths: lengths in tokens of texts drawn at random, which a bi-encoder reads.
        pairs: pairs of such texts, for each length.
        seed: seed of the draws.

    Returns:
        name → a job of `cde_studies.encoder.timing.in_turns` that returns its loss. Those of
        lengths have names such as "64 tokens".

    Example:
        >>> from cde_studies.recipes import recipe
        >>> encoders = {"one": {"architecture": "bi-encoder"}}
        >>> jobs = steps_to_time(recipe("smoke"), encoders, [4], 2, 0)
        >>> list(jobs), jobs["4 tokens"]() > 0
        (['one', '4 tokens'], True)
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

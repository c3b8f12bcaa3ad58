"""Single training steps of a recipe, to be timed: with each encoder, and on texts of each length.

Cost: that of the steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from cde.experiments.recipes import Recipe
from cde.hardware import half_precision
from cde.models import BiEncoder, ContextualEncoder
from cde.models.encoding import tokenise
from cde.training.loss import contrastive_loss
from cde.training.step import BatchTexts, backward

__all__ = ["gradients", "steps_to_time"]


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
        lengths: in tokens, of texts drawn at random, which a bi-encoder reads.
        pairs: of such texts, of each length.
        seed: of the draws.

    Returns:
        name → a job of `cde.experiments.timing.in_turns` that returns its loss. Those of lengths
        have names such as "64 tokens".

    Used by the chapter `table1`.

    Example:
        >>> from cde.experiments.recipes import recipe
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

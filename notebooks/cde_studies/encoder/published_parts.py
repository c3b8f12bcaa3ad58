"""The forward passes of the authors' code, and what changes their vectors.

`pass_changes` tries one of them on texts.

Cost: that of a few texts in context, once for each pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from cde.models import ContextualEncoder
from cde_studies.encoder.properties import Tokens, exchanged, largest_change
from cde_studies.encoder.untrained import untrained_published


def published_passes(
    folder: str, context_size: int, seed: int = 0
) -> Iterator[tuple[str, ContextualEncoder]]:
    """The published forward passes: variant and encoder, in evaluation mode."""
    variants = ["hub", "train", "v2"]
    if folder:
        own = ContextualEncoder.from_pretrained(folder).config.variant
        variants = ["v2"] if own == "v2" else ["hub", "train"]
    for variant in variants:
        if folder:
            options: dict[str, Any] = {"variant": variant, "precision": "float32"}
            yield variant, ContextualEncoder.from_pretrained(folder, **options)
        else:
            yield variant, untrained_published(variant, context_size, seed)


def pass_changes(
    model: ContextualEncoder, text: Tokens, context: Tokens
) -> tuple[dict[str, float], Tensor]:
    """What changes the vectors of a published forward pass ("context reversed", "two text tokens
    exchanged", "half of the context": NaN where the pass refuses a shorter one), and the vectors.
    """
    ids, mask = text
    with torch.inference_mode():
        size = model.config.context_size
        vectors = model.first_stage(*context)
        vectors = vectors[torch.arange(size) % len(vectors)]
        embedded = model.second_stage(ids, mask, vectors)
        changes = {
            "context reversed": model.second_stage(ids, mask, vectors.flip(0)),
            "two text tokens exchanged": model.second_stage(exchanged(ids), mask, vectors),
        }
        largest = {name: largest_change(embedded, other) for name, other in changes.items()}
        try:
            half = model.second_stage(ids, mask, vectors[: size // 2])
            largest["half of the context"] = largest_change(embedded, half)
        except ValueError:
            largest["half of the context"] = float("nan")
    return largest, embedded

"""The forward passes of the authors' code, and what changes their vectors.

`pass_changes` tries one of them on texts.
"""

from __future__ import annotations

import torch
from torch import Tensor

from cde.models import ContextualEncoder
from cde_studies.encoder.properties import Tokens, exchanged, largest_change


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

"""Tiny contextual encoders of each family, with weights so large that everything matters."""

from __future__ import annotations

import copy
import math
from functools import cache
from typing import Any

import tiny_encoders
import torch
from torch import Tensor

from cde.models import ContextualConfig, ContextualEncoder
from cde.models.backbones import to_the_left
from cde.models.stages import SecondStage

DIM, VOCABULARY = 32, 64

BACKBONES: dict[str, dict[str, Any]] = {
    family: {**shape, "max_position_embeddings": 64}
    for family, shape in tiny_encoders.BACKBONES.items()
}
# text sees two tokens to either side in the layers 1 and 2 of four
BACKBONES["modernbert"]["local_attention"] = 4
FAMILIES = tuple(BACKBONES)
PATTERNS = ("full", "cached")


def new_model(
    family: str, attention: str = "full", seed: int = 0, **settings: Any
) -> ContextualEncoder:
    """A model of its own, in evaluation mode; random tensors by name: patterns share them."""
    settings = {"first_stage_mlp": True, "output_projection": True, "context_size": 4, **settings}
    first = copy.deepcopy(settings.pop("first_backbone", BACKBONES[family]))
    second = copy.deepcopy(settings.pop("second_backbone", BACKBONES[family]))
    model = ContextualEncoder(
        ContextualConfig(
            first_backbone=first, second_backbone=second, attention=attention, **settings
        )
    )
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            values = torch.randn(parameter.shape, generator=generator)
            if "embeddings" in name and parameter.ndim == 2:
                parameter.copy_(values)
            elif parameter.ndim == 2:
                parameter.copy_(values * 1.2 / math.sqrt(parameter.shape[1]))
            else:
                about = 1.0 if "norm" in name.lower() and name.endswith("weight") else 0.0
                parameter.copy_(about + values * (1.0 if "null" in name else 0.2))
    return model.eval()


@cache
def shared_model(family: str, attention: str = "full", **settings: Any) -> ContextualEncoder:
    """The same model for all tests that leave it as it is."""
    return new_model(family, attention, **settings)


def in_one_pass(stage: SecondStage, ids: Tensor, mask: Tensor | None, context: Tensor) -> Tensor:
    """What the second stage gives with its context in the sequence, whatever its pattern."""
    ids, mask = to_the_left(ids, mask)
    tokens = stage.context_tokens(context, False, len(ids))
    return stage.project(stage.pool(ids, mask, *stage.in_sequence(tokens, ids, mask)))


def random_context(documents: int, seed: int = 0, batch: int | None = None) -> Tensor:
    shape = (documents, DIM) if batch is None else (batch, documents, DIM)
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def padded(texts: list[list[int]], left: bool = False, extra: int = 0) -> tuple[Tensor, Tensor]:
    """Token ids and mask of texts; padding holds any token, since none may be read."""
    length = max(map(len, texts)) + extra
    ids, mask = (
        torch.full((len(texts), length), 7),
        torch.zeros(len(texts), length, dtype=torch.long),
    )
    for row, text in enumerate(texts):
        place = slice(length - len(text), length) if left else slice(0, len(text))
        ids[row, place] = torch.tensor(text, dtype=torch.long)
        mask[row, place] = 1
    return ids, mask

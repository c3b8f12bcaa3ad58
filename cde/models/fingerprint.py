"""A hash of all that an encoder's vectors depend on: settings, weights, and a bound context.

Cost: a pass over the weights, 0.1 s for MiniLM.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from inspect import signature
from typing import Any

import torch
from torch import nn

from cde.hardware import chosen_precision
from cde.models.corpus import CorpusEncoder
from cde.models.encoder import kinds
from cde.storage import content_hash

__all__ = ["fingerprint"]


def fingerprint(encoder: Any) -> str | None:
    """Hash of an encoder of `cde.models` (16 hexadecimal digits); None for any other object.

    Attention kernel and precision have no part in it, but for int8, whose vectors are told apart.

    Used for saved indexes (`cde.Index`) and for results of `cde mteb`.
    """
    bound = encoder if type(encoder) is CorpusEncoder else None
    model: Any = encoder.model if isinstance(encoder, CorpusEncoder) else encoder
    if kinds.get(getattr(getattr(model, "config", None), "model_type", "")) is not type(model):
        return None
    return content_hash(_parts(model, bound))


def _parts(model: Any, bound: CorpusEncoder | None) -> Iterator[str | bytes]:
    config = model.config
    settings = {
        name: getattr(config, name)
        for name in signature(type(config).__init__).parameters
        if not name.endswith("backbone") and hasattr(config, name)
    }
    yield json.dumps(settings, sort_keys=True)
    if chosen_precision(model.precision) == "int8":
        yield "int8"
    # the first stage has done its work once the context is embedded, and is not saved
    weights: nn.Module = model if bound is None else model.second_stage
    tensors = dict(weights.state_dict())
    if bound is not None and bound.context is not None:
        tensors["context"] = bound.context
    for name, tensor in sorted(tensors.items()):
        yield f"{name} {tensor.dtype} {tuple(tensor.shape)}"
        yield tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes()

"""MiniLM with a reader of the corpus, trained once on docstrings and kept.

MiniLM is frozen, and a gated reader (`cde.models.stages`) is trained, some minutes on two cores:
batches of one package, context drawn from the batch. Without context the encoder is MiniLM, to the
bit.

Against harm on text unlike docstrings, training is short, and what the reader adds is multiplied by
`GATE` afterwards, which was chosen on validation text before any test collection was searched. That
does not rule out a harm of 0.3 points on every collection (the chapter `taught_to_read`), so the
library does not offer it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from cde.data import Pairs
from cde.models import ContextualEncoder
from cde.training import TrainConfig, build_model
from cde.training.runs import train
from cde_studies.collections.pydocs import TRAINING
from cde_studies.collections.pydocs import load_pairs as load_docstrings
from cde_studies.encoder.boilerplate import GATED

#: what the reader adds is multiplied by this after training
GATE = 0.25
#: packages on which `GATE` was chosen; the reader has not seen them
VALIDATION = ("matplotlib", "tornado")
#: sources of pairs of `$CDE_DATA` on which it was chosen, too
VALIDATION_SOURCES = ("stackexchange-beer", "wordnet-definitions", "scitldr", "medquad-medical")
#: gates that there were to choose from
GATES = (0.5, 0.25)

_CONFIG = TrainConfig(
    **GATED,
    trains="reader",
    cluster_size=128,
    surrogate_tokens=48,
    batch_size=64,
    uncached_tokens=65536,
    learning_rate=1e-3,
    steps=100,
    query_tokens=20,
    document_tokens=48,
    context_tokens=48,
)
_MINIATURE: dict[str, Any] = {
    "layers": 1,
    "context_size": 8,
    "cluster_size": 16,
    "surrogate_tokens": 12,
    "batch_size": 8,
    "uncached_tokens": TrainConfig().uncached_tokens,
    "steps": 3,
    "query_tokens": 8,
    "document_tokens": 12,
    "context_tokens": 12,
}


def reader_config(profile: str) -> TrainConfig:
    """How the reader is trained: the same at every profile, but for `smoke`, in miniature."""
    return replace(_CONFIG, **_MINIATURE) if profile == "smoke" else _CONFIG


def reading_pairs() -> Pairs:
    """The docstrings that the reader is trained on: no package that it is tested or tuned on."""
    return load_docstrings([name for name in TRAINING if name not in VALIDATION], "train")


def with_trained_reader(
    config: TrainConfig, pairs: Pairs, gate: float, max_tokens: int
) -> ContextualEncoder:
    """The encoder of a config with its reader, trained or read from the store."""
    trained = train(config, pairs).model().get_submodule("second_stage.reader")
    model = build_model(replace(config, model={**config.model, "max_tokens": max_tokens}))
    reader = model.get_submodule("second_stage.reader")
    reader.load_state_dict(trained.state_dict())
    with torch.no_grad():
        reader.get_parameter("gate").mul_(gate)
    return model

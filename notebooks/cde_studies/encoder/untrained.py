"""Small contextual encoders with random weights: for properties that training does not change.

Whether the order of the context matters, or whether two forward passes differ, is decided by the
architecture. A small model of each family shows it without any download. Weights are drawn ten
times as wide as usual, so that everything in them matters.
"""

from __future__ import annotations

from typing import Any

import torch

from cde.hardware import compute_device
from cde.models.configuration import ContextualConfig
from cde.models.contextual import ContextualEncoder
from cde.models.published import published_config

_SMALL = {
    "vocab_size": 30528,  # of bert-base-uncased, so that MiniLM's tokenizer fits
    "hidden_size": 64,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "num_hidden_layers": 4,
    "pad_token_id": 0,
    "initializer_range": 0.2,
}
_MARKS = {"bos_token_id": 101, "eos_token_id": 102, "cls_token_id": 101, "sep_token_id": 102}

#: family → config of a small backbone
UNTRAINED_FAMILIES: dict[str, dict[str, Any]] = {
    "NomicBERT": {"model_type": "nomic_bert", **_SMALL},
    "ModernBERT": {"model_type": "modernbert", **_SMALL, **_MARKS, "local_attention": 16},
}

# the same NomicBERT, in the keys of the published config, with a wider inner layer
_PUBLISHED_NOMIC = {
    "vocab_size": 30528,
    "n_embd": 64,
    "n_head": 4,
    "n_layer": 4,
    "n_inner": 256,
    "n_positions": 2048,
    "activation_function": "swiglu",
    "rotary_emb_base": 1000,
    "rotary_emb_fraction": 1.0,
    "pad_token_id": 0,
    "initializer_range": 0.2,
}


def untrained_encoder(family: str, seed: int = 0, **settings: Any) -> ContextualEncoder:
    """A small encoder of a family, both stages alike, in evaluation mode."""
    backbone = UNTRAINED_FAMILIES[family]
    torch.manual_seed(seed)
    config = ContextualConfig(
        first_backbone=dict(backbone), second_backbone=dict(backbone), **settings
    )
    return ContextualEncoder(config).eval().to(compute_device())  # type: ignore[no-any-return]


def on_purpose(model: ContextualEncoder) -> ContextualEncoder:
    """The same encoder, of which `with_context` no longer warns that it is untrained."""
    model._untrained = None
    return model


def untrained_arms(context_size: int, seed: int = 0) -> dict[tuple[str, str], ContextualEncoder]:
    """A small encoder of each family in each attention pattern: (family, pattern) → encoder."""
    return {
        (family, pattern): untrained_encoder(
            family, seed, attention=pattern, context_size=context_size
        )
        for family in UNTRAINED_FAMILIES
        for pattern in ("full", "cached")
    }


def untrained_published(variant: str, context_size: int, seed: int = 0) -> ContextualEncoder:
    """A small encoder that runs one of the published forward passes, in evaluation mode."""
    described = {
        "embedder": "nomic-ai/nomic-bert-2048",
        "transductive_corpus_size": context_size,
        "transductive_sequence_dropout_prob": 0.005,
    }
    backbone = UNTRAINED_FAMILIES["ModernBERT"] if variant == "v2" else _PUBLISHED_NOMIC
    torch.manual_seed(seed)
    model = ContextualEncoder(published_config(described, backbone, variant))
    return model.eval().to(compute_device())  # type: ignore[no-any-return]

"""A finished encoder that is given a reader of its corpus: nothing else is trained.

Without context the encoder is what it was, to the bit. So whatever it gains with one is the
reader's, and with another corpus' context one sees how much of that is the corpus'.

Cost: that of the runs.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from cde_studies.recipes import Recipe, profile_values, recipe

__all__ = ["PARAMETERS", "with_reader"]

#: what each profile trains a reader with
READER_PROFILES = Path(__file__).with_suffix(".yml")
#: settings that a chapter's parameters of the same name replace
PARAMETERS = ("layers", "pairs", "steps", "batch_size", "context_size", "learning_rate")
_READER: dict[str, Any] = {
    "architecture": "contextual",
    "attention": "gated",
    "layers": None,
    "first_stage_layers": 0,
    "vectors_per_document": 6,
    "model": {"tie_token_embeddings": True},
    "trains": "reader",
    "batches": "domain",
    "filter_epsilon": None,
    "temperature": 0.05,
    "warmup_steps": None,
    "checkpoint_every": 0,
}


def with_reader(profile: str, settings: Any = None) -> Recipe:
    """The recipe of a profile, with MiniLM frozen and a gated reader to train."""
    values = profile_values(READER_PROFILES, profile)
    given = {name: getattr(settings, name, None) for name in PARAMETERS}
    given = {name: value for name, value in given.items() if value is not None}
    of = recipe(profile)
    base = replace(of.base, **{**_READER, **values["first"], **given})
    return replace(of, base=base, sizes=tuple(values["sizes"]))

"""What holds of a contextual encoder before any training: the order of the context, no context, and
what context costs.

Each function takes encoders that are there and gives a table of numbers; nothing is trained. A
change is the largest absolute difference of any coordinate of any text, of vectors brought to
length 1.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from cde.models import BiEncoder, ContextualEncoder
from cde.progress import progress
from cde_studies.encoder.timing import in_turns, ratios
from cde_studies.encoder.untrained import on_purpose

Tokens = tuple[Tensor, Tensor]
Arms = Mapping[tuple[str, str], ContextualEncoder]

_ARM = ["backbone", "attention"]


def minilm_encoders(
    context_size: int, seed: int = 0, **settings: Any
) -> tuple[BiEncoder, dict[str, ContextualEncoder]]:
    """MiniLM without context, and as both stages of a contextual encoder in each attention pattern:
    the bi-encoder, and attention pattern → contextual encoder.
    """
    torch.manual_seed(seed)
    bare = BiEncoder.from_backbone("minilm", **settings)
    full, cached = (
        on_purpose(
            ContextualEncoder.from_backbone(
                "minilm", attention=pattern, context_size=context_size, **settings
            )
        )
        for pattern in ("full", "cached")
    )
    cached.second_stage.null_embedding = copy.deepcopy(full.second_stage.null_embedding)
    return bare, {"full": full, "cached": cached}


def parameter_counts(bare: BiEncoder, model: ContextualEncoder) -> pd.DataFrame:
    """How many numbers an encoder holds, and each stage of one with context; how often it runs."""
    parts = {
        "bi-encoder": (bare, "once a text"),
        "first stage": (model.first_stage, "once a context document"),
        "second stage (with the null token)": (model.second_stage, "once a text"),
    }
    rows = {
        name: (sum(parameter.numel() for parameter in module.parameters()), runs)
        for name, (module, runs) in parts.items()
    }
    return pd.DataFrame.from_dict(rows, "index", columns=["parameters", "runs"])


def token_ids(encoder: Any, texts: Sequence[str], like: Any = None) -> Tokens:
    """Token ids of texts, padded to one length, and their mask: `(texts, T)` int64 each."""
    tokenizer = getattr(like, "tokenizer", None) or encoder.tokenizer
    limits = {"padding": True, "truncation": True, "max_length": encoder.config.max_tokens}
    encoded = tokenizer(list(texts), return_tensors="pt", **limits)
    return encoded["input_ids"].to(encoder.device), encoded["attention_mask"].to(encoder.device)


def largest_change(first: Tensor, second: Tensor) -> float:
    """The largest absolute difference of a coordinate, of vectors brought to length 1."""
    unit = torch.nn.functional.normalize
    return float((unit(first, dim=-1) - unit(second, dim=-1)).abs().max())


def exchanged(ids: Tensor) -> Tensor:
    """Token ids in which the first two tokens of each text, behind its mark, changed places."""
    swapped = ids.clone()
    swapped[:, [1, 2]] = ids[:, [2, 1]]
    return swapped


def order_changes(
    arms: Arms, text: Tokens, context: Tokens, draws: int, generator: np.random.Generator
) -> pd.DataFrame:
    """What permuting the context changes; as a control, what exchanging two tokens of a text does.
    A row for each draw, indexed by arm (backbone, attention): "context permuted", and "two text
    tokens exchanged", the same in all draws of an arm.
    """
    (ids, mask), rows = text, []
    with torch.inference_mode():
        shown = progress(arms.items(), "permuting the context", unit="encoders")
        for (backbone, attention), model in shown:
            vectors = model.first_stage(*context)
            embedded = model.second_stage(ids, mask, vectors)
            control = model.second_stage(exchanged(ids), mask, vectors)
            moved = largest_change(embedded, control)
            for _ in range(draws):
                order = torch.from_numpy(generator.permutation(len(vectors)))
                permuted = model.second_stage(ids, mask, vectors[order])
                rows.append((backbone, attention, largest_change(embedded, permuted), moved))
    columns = [*_ARM, "context permuted", "two text tokens exchanged"]
    return pd.DataFrame(rows, columns=columns).set_index(_ARM)


def null_changes(arms: Arms, text: Tokens, contexts: Mapping[str, Tokens]) -> pd.DataFrame:
    """What a context changes that null tokens replace, against no context at all: a row for each
    corpus, indexed by arm (backbone, attention): corpus, change.
    """
    rows = []
    with torch.inference_mode():
        shown = progress(arms.items(), "replacing the context", unit="encoders")
        for (backbone, attention), model in shown:
            alone = model.second_stage(*text, None)
            for corpus, context in contexts.items():
                real = model.first_stage(*context)
                replaced = model.second_stage(*text, real, null_context=True)
                rows.append((backbone, attention, corpus, largest_change(alone, replaced)))
    return pd.DataFrame(rows, columns=[*_ARM, "corpus", "change"]).set_index(_ARM)


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


def relative_times(
    bare: BiEncoder, models: Mapping[str, ContextualEncoder], context: Tensor, ids: Tensor
) -> pd.DataFrame:
    """How many times as long as without context one batch takes through the second stage: a row for
    each round with "without context" (1), "full", "cached".
    """
    full, cached = (models[attention].second_stage for attention in ("full", "cached"))
    with torch.inference_mode():
        cache = cached.cache_context(context)
        jobs = {
            "without context": lambda: bare(ids),
            "full": lambda: full(ids, None, context),
            "cached": lambda: cached(ids, None, cache),
        }
        times = in_turns(jobs, 7)
    return pd.DataFrame({name: ratios(times, name, "without context") for name in jobs})

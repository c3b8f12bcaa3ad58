"""The parts of the authors' code that the paper does not mention, and their forward passes, before
any training.

`part_scores` adds freshly initialised parts to a pretrained model and searches with it;
`pass_changes` tries one of the published forward passes on texts. `checkpoints` are the published
models, or miniatures of them.

Cost: that of embedding the collection, once for each part.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from cde.data import RetrievalSet
from cde.models import BiEncoder, ContextualEncoder
from cde.models.encoder import load_tokenizer
from cde.models.stages import through
from cde_studies.encoder.properties import Tokens, exchanged, largest_change, parameter_count
from cde_studies.encoder.untrained import on_purpose, untrained_published
from cde_studies.sweeps import ndcg_by_query


def part_scores(
    parts: Mapping[str, Mapping[str, Any]],
    collection: RetrievalSet,
    context: Sequence[str],
    context_size: int,
    seed: int = 0,
    **settings: Any,
) -> tuple[pd.DataFrame, dict[str, int]]:
    """NDCG@10 of MiniLM with parts added that are freshly initialised and not trained, `(queries,
    parts)`; and how many parameters a contextual encoder has with each part that it does not have
    without (0 for the bi-encoder).
    """
    scores, added = {}, {}
    contextual: dict[str, Any] = {**settings, "context_size": context_size}
    plain = parameter_count(ContextualEncoder.from_backbone("minilm", **contextual))
    for name, part in parts.items():
        own = dict(part)
        bound = None if own.pop("null_context", False) else context
        residual = own.pop("residual", True)
        torch.manual_seed(seed)
        encoder: Any
        if own.pop("bi_encoder", False):
            encoder, added[name] = BiEncoder.from_backbone("minilm", **settings), 0
        else:
            model = on_purpose(ContextualEncoder.from_backbone("minilm", **contextual, **own))
            if not residual:
                stage: Any = model.second_stage
                stage.project = partial(through, stage.output_projection)
            encoder = model.with_context(bound, seed=seed)
            added[name] = parameter_count(model) - plain
        scores[name] = ndcg_by_query(encoder, collection, depth=10)
    return pd.DataFrame(scores), added


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


def checkpoints(sources: Sequence[str], seed: int = 0) -> Iterator[tuple[str, ContextualEncoder]]:
    """Published models from folders or repositories, those of the file `hub` also with the forward
    pass `train`; without any, a small random model of each pass. Each has a name.
    """
    for name in sources:
        model = ContextualEncoder.from_pretrained(name)
        yield name, model
        if model.config.variant == "hub":
            yield f"{name}, train", ContextualEncoder.from_pretrained(name, variant="train")
    for variant, model in [] if sources else published_passes("", context_size=16, seed=seed):
        model.config.max_tokens = 64
        model.set_up(load_tokenizer("minilm"), "eager", None, "float32")
        yield f"random weights, {variant}", model


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

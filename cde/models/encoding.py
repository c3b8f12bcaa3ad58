"""Many texts to unit vectors, quickly: sorted by length, little padding, bfloat16 where it is fast.

Texts are tokenised in portions, sorted by their number of tokens and cut into batches of about
equal work, so that a batch holds texts of nearly one length. Equal texts are embedded once. Matrix
products run in bfloat16 under autocast where that is faster than float32; weights, pooling and
normalisation stay in float32. `benchmarks/encode.py` measures it against a plain loop. Where int8
is asked for, linear layers multiply whole numbers (`cde.hardware.quantised`).

In float32 a text's vector does not depend on its batch beyond 1e-6; in bfloat16 it moves in the
fourth decimal with the padding and the shape of the batch, in int8 in the third.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cde.hardware import Precision
from cde.hardware.quantised import multiplying
from cde.progress import progress
from cde.validation.texts import encodable

__all__ = ["encode_texts", "padded", "token_batches", "tokenise"]

Vectors = NDArray[np.float32]
Forward = Callable[[Tensor, "Tensor | None"], Tensor]

_PORTION = 20_000  # texts tokenised at once


def tokenise(tokenizer: Any, texts: list[str], max_tokens: int) -> list[NDArray[np.int32]]:
    """Token ids of each text, special tokens included, cut to `max_tokens`."""
    ids: list[NDArray[np.int32]] = []
    for start in range(0, len(texts), _PORTION):
        encoded = tokenizer(
            texts[start : start + _PORTION],
            truncation=True,
            max_length=max_tokens,
            return_attention_mask=False,
            return_token_type_ids=False,
        )
        ids.extend(np.array(row, dtype=np.int32) for row in encoded["input_ids"])
    return ids


def token_batches(
    lengths: Sequence[int], work: int, extra: int = 0, most: int | None = None
) -> list[list[int]]:
    """Indices of texts in batches of about equal work, longest first."""
    order = sorted(range(len(lengths)), key=lambda index: -lengths[index])
    batches: list[list[int]] = []
    room = 0
    for index in order:
        if not batches or len(batches[-1]) >= room:
            batches.append([])
            room = max(1, work // max(1, lengths[index] + extra))
            room = room if most is None else min(room, most)
        batches[-1].append(index)
    return batches


def padded(
    rows: Sequence[NDArray[np.int32]], padding: int, device: torch.device
) -> tuple[Tensor, Tensor | None]:
    """Token ids of texts as one batch, padded on the right: `(n, T)` int64 and the bool mask, None
    where full.
    """
    length = max(len(row) for row in rows)
    ids = np.full((len(rows), length), padding, dtype=np.int64)
    for place, row in zip(ids, rows, strict=True):
        place[: len(row)] = row
    on_device = torch.from_numpy(ids).to(device)
    if all(len(row) == length for row in rows):
        return on_device, None
    lengths = torch.tensor([len(row) for row in rows], device=device)
    return on_device, torch.arange(length, device=device)[None] < lengths[:, None]


def encode_texts(
    texts: Sequence[str],
    tokenizer: Any,
    forward: Forward,
    *,
    shape: tuple[int, ...],
    max_tokens: int,
    device: torch.device,
    prefix: str = "",
    precision: Precision = "auto",
    work: int = 4096,
    extra: int = 0,
    most: int | None = None,
    normalise: bool = True,
    description: str = "embedding",
) -> Vectors:
    """Vectors of texts, in their order.

    Returns:
        `(n, …, dim)` float32.
    """
    wanted = [prefix + text for text in encodable(texts)]
    if tokenizer is None:
        raise ValueError(
            "the encoder has no tokenizer: set encoder.tokenizer, or pass token ids to its stages"
        )
    if not wanted:
        return np.zeros((0, *shape), np.float32)
    distinct = list(dict.fromkeys(wanted))
    rows = tokenise(tokenizer, distinct, max_tokens)
    batches = token_batches([len(row) for row in rows], work, extra, most)
    padding = tokenizer.pad_token_id or 0
    by_batch: list[Tensor] = []
    with torch.inference_mode(), multiplying(precision, device):
        for batch in progress(batches, f"{description} {len(distinct):,} texts", unit="batches"):
            vectors = forward(*padded([rows[index] for index in batch], padding, device)).float()
            by_batch.append(
                (torch.nn.functional.normalize(vectors, dim=-1) if normalise else vectors).cpu()
            )
    in_order = torch.cat(by_batch).numpy()
    if not np.isfinite(in_order).all():
        raise ValueError(
            "the model gave vectors that are not finite; check its weights, or take "
            "precision='float32'"
        )
    result = np.empty_like(in_order)
    result[np.concatenate([np.array(batch) for batch in batches])] = in_order
    places = {text: place for place, text in enumerate(distinct)}
    return np.asarray(result[[places[text] for text in wanted]], dtype=np.float32)

"""Padding and pooling: where real tokens stand in a batch, and means over them.

Texts may be padded on any side. Rows are moved to the left first, so that positions count real
tokens and nothing else. Means are taken in float32, whatever the layers computed in.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

__all__ = [
    "first_token",
    "mean_of_chunks",
    "mean_of_parts",
    "mean_of_tokens",
    "mean_of_unit_parts",
    "pooled",
    "to_the_left",
]

#: parts of a text that `mean_of_unit_parts` weighs alike
PARTS = 8


def to_the_left(input_ids: Tensor, attention_mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Real tokens first, padding after them: `(batch, T)` ids and bool mask, None where nothing is
    padded.
    """
    if input_ids.ndim != 2:
        raise ValueError(
            f"input_ids must be of shape (batch, tokens); they are {tuple(input_ids.shape)}"
        )
    if 0 in input_ids.shape:
        raise ValueError(
            f"there is nothing to embed: input_ids are of shape {tuple(input_ids.shape)}"
        )
    if attention_mask is None:
        return input_ids, None
    if attention_mask.shape != input_ids.shape:
        raise ValueError(
            f"attention_mask must have the shape of input_ids, {tuple(input_ids.shape)}; it is "
            f"{tuple(attention_mask.shape)}"
        )
    mask = attention_mask.bool()
    if bool(mask.all()):
        return input_ids, None
    if bool((mask[:, 1:] & ~mask[:, :-1]).any()):
        order = mask.int().argsort(dim=1, descending=True, stable=True)
        input_ids, mask = input_ids.gather(1, order), mask.gather(1, order)
    return input_ids, mask


def _precise(hidden: Tensor) -> Tensor:
    return hidden if hidden.dtype == torch.float64 else hidden.float()


def first_token(hidden: Tensor) -> Tensor:
    """The vector of each text's first token, [CLS], in float32: `(batch, T, dim)` to `(batch,
    dim)`.

    Rows must be those of `to_the_left`: the first token is then no padding.
    """
    return _precise(hidden)[:, 0]


def mean_of_tokens(hidden: Tensor, mask: Tensor | None) -> Tensor:
    """Mean over the tokens that `mask` keeps, in float32: `(batch, T, dim)` to `(batch, dim)`."""
    hidden = _precise(hidden)
    if mask is None:
        return hidden.mean(dim=1)
    kept = mask.unsqueeze(-1)
    # not a product with 0, which would keep a NaN on padding
    return hidden.masked_fill(~kept, 0).sum(dim=1) / kept.to(hidden.dtype).sum(dim=1).clamp(
        min=1e-20
    )


def mean_of_parts(hidden: Tensor, mask: Tensor | None, parts: int) -> Tensor:
    """Means over `parts` contiguous, nearly equal parts of each text's own tokens; `(n, parts,
    dim)`.

    A part without a token (a text of fewer tokens than parts) is the mean of the whole text.
    """
    tokens, length, _ = hidden.shape
    mask = (
        torch.ones(tokens, length, dtype=torch.bool, device=hidden.device) if mask is None else mask
    )
    place = torch.arange(length, device=hidden.device)[None]
    part = place * parts // mask.sum(dim=1, keepdim=True).clamp(min=1)
    inside = (part[:, None] == torch.arange(parts, device=hidden.device)[:, None]) & mask[:, None]
    inside = torch.where(inside.any(dim=-1, keepdim=True), inside, mask[:, None])
    hidden = _precise(hidden)
    weights = inside.to(hidden.dtype)
    return weights @ hidden / weights.sum(dim=-1, keepdim=True).clamp(min=1e-20)


def mean_of_unit_parts(hidden: Tensor, mask: Tensor | None, parts: int = PARTS) -> Tensor:
    """Mean of the directions of a text's parts: `(batch, T, dim)` to `(batch, dim)` float32.

    Each of `parts` nearly equal runs of tokens counts as much as another, however long its vectors
    are. The chapter `cure_for_dwelling` uses it.
    """
    means = mean_of_parts(hidden, mask, parts)
    return nn.functional.normalize(means, dim=-1).mean(dim=1)


def pooled(hidden: Tensor, mask: Tensor | None, how: str) -> Tensor:
    """The vector of each text by the name of its pooling: "mean", "cls" or "chunks"."""
    if how == "cls":
        return first_token(hidden)
    return mean_of_unit_parts(hidden, mask) if how == "chunks" else mean_of_tokens(hidden, mask)


def mean_of_chunks(hidden: Tensor, mask: Tensor | None, parts: int) -> Tensor:
    """The published way: the padded length is cut into equal chunks, so a text depends on its
    padding.

    A chunk without a real token is the mean of the whole row, padding included.
    """
    hidden = _precise(hidden)
    mask = hidden.new_ones(hidden.shape[:2]) if mask is None else mask.to(hidden.dtype)
    missing = -hidden.shape[1] % parts
    hidden = nn.functional.pad(hidden, (0, 0, 0, missing))
    mask = nn.functional.pad(mask, (0, missing))
    chunks = hidden.reshape(len(hidden), parts, -1, hidden.shape[-1])
    weights = mask.reshape(len(mask), parts, -1, 1)
    means = (chunks * weights).sum(dim=2) / (weights.sum(dim=2) + 1e-9)
    empty = weights.sum(dim=2) == 0
    return torch.where(empty, hidden.mean(dim=1, keepdim=True), means)

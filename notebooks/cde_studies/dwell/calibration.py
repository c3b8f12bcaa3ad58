"""Cures for a trained encoder: attention that is spread evenly over a text, and two orders of the
same text. Neither of them trains.

- `calibrated`: in the second half of the layers, attention is evened out over baskets of
  neighbouring tokens (arXiv 2606.02737): of a head's weights w, the basket with the share m of all
  weight is multiplied by (1 - s) + s / (b m), for b baskets and a strength s. At s = 1 every basket
  gets 1 / b. Its authors even out the row of the token that is pooled; with mean pooling every row
  is pooled, and all are evened out here.
- `BothOrders`: a document's vector and that of the document with its halves exchanged, added.

Cost: `calibrated` writes all scores down, about twice the time of fused attention; `BothOrders`
embeds documents twice. (A third cure, pooling in chunks, is `pooling="chunks"` of a bi-encoder.)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from cde.models import BiEncoder
from cde.retrieval import Encoder
from cde_studies.dwell.substrings import segments

_NAME = "evened out"


def even_out(weights: Tensor, mask: Tensor | None, basket: int, strength: float) -> Tensor:
    """Attention weights `(batch, heads, queries, keys)` with every basket of keys drawn towards the
    same share; rows sum to 1.
    """
    keys = weights.shape[-1]
    of_basket = torch.arange(keys, device=weights.device) // basket
    member = nn.functional.one_hot(of_basket).to(weights.dtype)  # (keys, baskets)
    seen = torch.ones_like(weights[:1, :1, :1]) if mask is None else mask.to(weights.dtype)
    tokens = seen @ member
    wanted = tokens / tokens.sum(dim=-1, keepdim=True)
    has = weights @ member
    factor = (1 - strength) + strength * wanted / has.clamp(min=1e-12)
    changed = weights * (factor @ member.T)
    return changed / changed.sum(dim=-1, keepdim=True).clamp(min=1e-12)


def _attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    basket: int = 0,
    strength: float = 0.0,
    layers: frozenset[nn.Module] = frozenset(),
    **_: Any,
) -> tuple[Tensor, Tensor | None]:
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    scores = (query @ key.transpose(-2, -1)).float() * scale
    if attention_mask is not None:
        scores = scores.masked_fill(~attention_mask, torch.finfo(scores.dtype).min)
    weights = scores.softmax(dim=-1)
    if module in layers:
        weights = even_out(weights, attention_mask, basket, strength)
    return (weights.to(value.dtype) @ value).transpose(1, 2).contiguous(), weights


ALL_ATTENTION_FUNCTIONS.register(_NAME, _attend)


@contextmanager
def calibrated(encoder: BiEncoder, basket: int, strength: float) -> Iterator[BiEncoder]:
    """An encoder whose attention is evened out over baskets of tokens, as long as it is used."""
    own: Any = encoder.backbone.get_submodule(encoder.family.layers)
    later = list(own)[len(own) // 2 :]
    before = encoder.attention
    encoder.attention = {
        "implementation": _NAME,
        "basket": basket,
        "strength": strength,
        "layers": frozenset(part for layer in later for part in layer.modules()),
    }
    try:
        yield encoder
    finally:
        encoder.attention = before


class BothOrders:
    """An encoder that reads each document as it is and with its second half first, and adds the
    vectors: what stood late stands early in one of them.
    """

    def __init__(self, encoder: Encoder, tokenizer: Any) -> None:
        self.encoder = encoder
        self.tokenizer = tokenizer

    def encode_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return self.encoder.encode_queries(texts)

    def encode_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Unit vectors of documents, `(n, dim)`; a document of one word is read once."""
        vectors = self.encoder.encode_documents([*texts, *map(self._turned, texts)])
        both = vectors[: len(texts)] + vectors[len(texts) :]
        return np.asarray(both / np.linalg.norm(both, axis=1, keepdims=True), dtype=np.float32)

    def _turned(self, text: str) -> str:
        parts = segments(text, self.tokenizer, 2)
        return text if isinstance(parts, str) else f"{parts[1].strip()} {parts[0].strip()}"

"""Attention between context and text: who may see whom, and keys and values that are computed once.

Two patterns (CDE §4.2; the second is ours). J context tokens stand before T text tokens:

- `full`, the paper's: everything attends to everything. The context is carried through all layers
  once per text: (J + T) / T of a plain encoder's work, and (J + T)² / T² of its scores.
- `cached`: context tokens attend to context tokens alone, texts to both. So each layer's keys and
  values of the context are computed once (J tokens in all), and every text reads them. A text costs
  T tokens of work and (J + T) T scores.

Both run on the layers of `transformers` as they are. The attention function registered here under
the name `cde` gets the queries, keys and values of a layer, stores or prepends the context's, and
hands over to one of torch or `transformers` (for long texts in bfloat16 on a CPU without AMX to
`attend_in_blocks`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from transformers.modeling_flash_attention_utils import _flash_attention_forward
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from cde.hardware import has_amx

#: name under which `transformers` finds the function of this module
ATTENTION_NAME = "cde"


@dataclass
class ContextCache:
    """Keys and values of contexts in every layer, `(contexts, heads, J, head_dim)`."""

    length: int
    contexts: int = 1
    layers: dict[nn.Module, tuple[Tensor, Tensor]] = field(default_factory=dict)

    def record(self, layer: nn.Module, key: Tensor, value: Tensor) -> None:
        """Keep a layer's keys and values; not those of a recomputation in a backward pass."""
        self.layers.setdefault(layer, (key, value))

    def extend(self, layer: nn.Module, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values that a text's queries may see in a layer: the context's, then its own."""
        if layer not in self.layers:
            raise ValueError(
                "these keys and values were computed by another model: bind the context to this one"
            )
        context_key, context_value = self.layers[layer]
        shape = (key.shape[0], -1, -1, -1)
        return (
            torch.cat([context_key.expand(shape).to(key.dtype), key], dim=2),
            torch.cat([context_value.expand(shape).to(value.dtype), value], dim=2),
        )


def _attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    context_cache: ContextCache | None = None,
    record_context: ContextCache | None = None,
    turned: Callable[[Tensor], Tensor] | None = None,
    implementation: str = "sdpa",
    sliding_window: int | None = None,
    **options: Any,
) -> tuple[Tensor, Tensor | None]:
    if turned is not None:
        query, key = turned(query), turned(key)
    if record_context is not None:
        record_context.record(module, key, value)
    if context_cache is not None:
        key, value = context_cache.extend(module, key, value)
    if implementation.startswith("flash"):
        return _flash(query, key, value, attention_mask, sliding_window, implementation, **options)
    # never in training: passes without a gradient come before those with one, and must be the same
    alone = implementation == "sdpa" and not module.training
    if alone and blocks_are_faster(query, key, attention_mask):
        return attend_in_blocks(query, key, value, attention_mask, options.get("scaling")), None
    # for the other kernels the window is in the mask, where it can spare the context tokens
    attend: Callable[..., tuple[Tensor, Tensor | None]] = ALL_ATTENTION_FUNCTIONS.get_interface(
        implementation, _eager
    )
    computed, device = value.dtype, query.device.type  # a rotation may be in float32
    if not (computed == torch.bfloat16 and module.training and device == "cpu"):
        return attend(module, query, key, value, attention_mask, **options)
    # torch's backward pass takes two to four times as long in bfloat16 on a CPU
    with torch.autocast(device, enabled=False):
        attended, weights = attend(
            module, query.float(), key.float(), value.float(), attention_mask, **options
        )
    return attended.to(computed), weights


def _flash(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    window: int | None,
    implementation: str,
    dropout: float = 0.0,
    scaling: float | None = None,
    deterministic: bool | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Flash attention through `transformers`, which unpads by the mask of real keys."""
    # not by its own attention function, which reads the kernel's name where ours stands
    device = query.device.type
    if torch.is_autocast_enabled(device):  # rotation leaves queries and keys in float32
        query, key, value = (
            states.to(torch.get_autocast_dtype(device)) for states in (query, key, value)
        )
    if query.dtype == torch.float32:
        raise ValueError(
            f"{implementation} computes in half precision: take precision='bfloat16', or 'sdpa'"
        )
    if mask is not None and mask.shape[2] != 1:
        raise ValueError(
            f"{implementation} cannot mask pairs of tokens: take attn_implementation='sdpa'"
        )
    attended = _flash_attention_forward(
        *(states.transpose(1, 2) for states in (query, key, value)),
        None if mask is None else mask[:, 0, 0],
        query_length=query.shape[2],
        is_causal=False,
        dropout=dropout,
        softmax_scale=scaling,
        sliding_window=window,
        deterministic=deterministic,
        attn_implementation=implementation,
    )
    return attended, None


def _eager(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **_: Any,
) -> tuple[Tensor, Tensor]:
    # what the eager functions of transformers, one in each model's file, have in common
    scaling = query.shape[-1] ** -0.5 if scaling is None else scaling
    scores = query @ key.transpose(-2, -1) * scaling
    if attention_mask is not None:
        scores = scores.masked_fill(~attention_mask, torch.finfo(scores.dtype).min)
    weights = nn.functional.dropout(scores.softmax(dim=-1), p=dropout, training=module.training)
    return (weights @ value).transpose(1, 2).contiguous(), weights


ALL_ATTENTION_FUNCTIONS.register(ATTENTION_NAME, _attend)


def visibility(
    text_mask: Tensor | None,
    text_length: int,
    query_context: int,
    key_context: int,
    *,
    context_sees_text: bool = True,
    window: int | None = None,
    window_spares_context: bool = True,
    device: torch.device | None = None,
) -> Tensor | None:
    """Which key each query may attend to, `(batch or 1, 1, queries or 1, keys)`; None for all."""
    device = text_mask.device if text_mask is not None else device
    allowed: Tensor | None = None
    if text_mask is not None:
        seen = text_mask.new_ones(len(text_mask), key_context)
        allowed = torch.cat([seen, text_mask], dim=1)[:, None, None, :]
    if window is None and (context_sees_text or not query_context):
        return allowed
    # places in the sequence: queries are its last tokens when the context is cached
    places = torch.arange(key_context + text_length, device=device)
    queries = places[key_context - query_context :, None]
    keys = places[None, :]
    pairs = torch.ones(len(queries), len(places), dtype=torch.bool, device=device)
    if window is not None:
        pairs = (queries - keys).abs() <= window
        if window_spares_context:
            pairs = pairs | (queries < key_context) | (keys < key_context)
    if not context_sees_text:
        pairs = pairs & ((queries >= key_context) | (keys < key_context))
    pairs = pairs[None, None]
    return pairs if allowed is None else allowed & pairs


#: from so many keys on; shorter texts, and so the numbers of all chapters, stay with torch's kernel
_LEAST_KEYS = 256
_QUERIES = 128  # in one block


def blocks_are_faster(query: Tensor, key: Tensor, mask: Tensor | None) -> bool:
    """Whether a call has many keys, in bfloat16, on a CPU without AMX (with it, torch's kernel is
    two to six times as fast), without a gradient, and a mask that hides keys from queries alike.
    """
    if query.device.type != "cpu" or key.shape[2] < _LEAST_KEYS or torch.is_grad_enabled():
        return False
    if has_amx():
        return False
    autocast = torch.is_autocast_enabled("cpu")
    computed = torch.get_autocast_dtype("cpu") if autocast else query.dtype
    alike = mask is None or (mask.dtype == torch.bool and mask.shape[2] == 1)
    return computed == torch.bfloat16 and alike


def attend_in_blocks(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scaling: float | None
) -> Tensor:
    """Scaled dot product attention in bfloat16, `(batch, n, heads, head_dim)`, without a gradient;
    zeros for queries that the mask hides as keys.
    """
    query, key, value = (states.to(torch.bfloat16) for states in (query, key, value))
    batch, heads, count, head_dim = query.shape
    scaling = head_dim**-0.5 if scaling is None else scaling
    attended = query.new_zeros(batch, count, heads, head_dim)
    for text in range(batch):
        queries, keys, values = query[text], key[text], value[text]
        own: Tensor | slice = slice(None)
        seen = None if mask is None else mask[text if len(mask) > 1 else 0, 0, 0]
        if seen is not None and not bool(seen.all()):
            keys, values = keys[:, seen], values[:, seen]
            own = seen[len(seen) - count :].nonzero().flatten()
            queries = queries[:, own]
        turned = keys.transpose(1, 2)
        blocks = [
            torch.bmm(
                torch.softmax(
                    torch.baddbmm(queries.new_empty(1), block, turned, beta=0, alpha=scaling),
                    dim=-1,
                ),
                values,
            )
            for block in torch.split(queries, _QUERIES, dim=1)
        ]
        attended[text, own] = torch.cat(blocks, dim=1).transpose(0, 1)
    return attended

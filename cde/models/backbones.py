"""Transformers of three families under one interface, from token ids to the mean of their states.

The layers are those of `transformers`. A `Family` only opens a model at two places that its own
`forward` keeps closed: between the token embeddings and the layers (where context vectors enter the
sequence), and at the positions. BERT and MiniLM (`bert`) add learned positions to the token
embeddings, and none to context tokens. In `nomic_bert` and `modernbert` context tokens have the
rotary position 0, the identity, and stand outside of ModernBERT's local windows.

Texts may be padded on any side: rows are moved to the left first. Means are taken in float32.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, normalize
from transformers import AutoConfig, AutoModel, PreTrainedConfig, PreTrainedModel

from cde.models.attention import ATTENTION_NAME, visibility
from cde.products import gelu_of_linear
from cde.validation import checked_whole, shown


class LinearGelu(nn.Module):
    """BERT's feed-forward layer and GELU, under the names of `transformers`."""

    def __init__(self, dense: nn.Linear) -> None:
        super().__init__()
        self.dense = dense

    def forward(self, hidden: Tensor) -> Tensor:
        """`(…, dim)` to `(…, inner)`."""
        if type(self.dense) is not nn.Linear:  # someone's own, in its place
            return gelu(self.dense(hidden))
        return gelu_of_linear(hidden, self.dense.weight, self.dense.bias)


#: one mask for all layers (`full`), and one for those that see a window (`window`, ModernBERT)
Masks = dict[str, Tensor | None]


class Family(ABC):
    """What the encoders need of a backbone; one object a family, without state."""

    layers = "layers"
    words = "embeddings.word_embeddings"

    @abstractmethod
    def embed(self, model: Any, input_ids: Tensor, places: Tensor) -> Tensor:
        """Token vectors `(batch, T, dim)` before normalisation; learned positions are added."""

    def normalise(self, model: Any, hidden: Tensor) -> Tensor:
        """The normalisation and dropout that stand between the embeddings and the first layer."""
        return model.embeddings.dropout(model.embeddings.LayerNorm(hidden))  # type: ignore[no-any-return]

    @abstractmethod
    def run(self, model: Any, hidden: Tensor, masks: Masks, places: Tensor, **how: Any) -> Tensor:
        """All layers, `(batch, S, dim)` to the same; rotary families turn by `places`, `(1, S)`."""

    def window(self, model: Any) -> int | None:
        """How far tokens see in the layers that see a window only; None where there are none."""
        return None

    def longest(self, model: Any) -> int | None:
        """Most text tokens that the positions allow for; None where they are rotary and go on."""
        return None


class Bert(Family):
    """BERT and MiniLM: learned positions, post-norm."""

    layers = "encoder.layer"

    def embed(self, model: Any, input_ids: Tensor, places: Tensor) -> Tensor:
        longest = model.config.max_position_embeddings
        if (tokens := input_ids.shape[1]) > longest:
            raise ValueError(f"the backbone has {longest} positions; a text has {tokens} tokens")
        parts = model.embeddings
        types = parts.token_type_embeddings.weight[0]
        return parts.word_embeddings(input_ids) + types + parts.position_embeddings(places)  # type: ignore[no-any-return]

    def run(self, model: Any, hidden: Tensor, masks: Masks, places: Tensor, **how: Any) -> Tensor:
        for layer in model.encoder.layer:
            hidden = layer(hidden, masks["full"], **how)
        return hidden

    def longest(self, model: Any) -> int | None:
        return int(model.config.max_position_embeddings)


class NomicBert(Family):
    """NomicBERT: rotary positions, gated linear units, post-norm, no biases."""

    def embed(self, model: Any, input_ids: Tensor, places: Tensor) -> Tensor:
        parts = model.embeddings
        return parts.word_embeddings(input_ids) + parts.token_type_embeddings.weight[0]  # type: ignore[no-any-return]

    def run(self, model: Any, hidden: Tensor, masks: Masks, places: Tensor, **how: Any) -> Tensor:
        rotary = model.rotary_emb(hidden, places)
        for layer in model.layers:
            hidden = layer(hidden, attention_mask=masks["full"], position_embeddings=rotary, **how)
        return hidden


class ModernBert(Family):
    """ModernBERT: rotary positions, pre-norm, two layers in three with a local window."""

    words = "embeddings.tok_embeddings"

    def embed(self, model: Any, input_ids: Tensor, places: Tensor) -> Tensor:
        return model.embeddings.tok_embeddings(input_ids)  # type: ignore[no-any-return]

    def normalise(self, model: Any, hidden: Tensor) -> Tensor:
        return model.embeddings.drop(model.embeddings.norm(hidden))  # type: ignore[no-any-return]

    def run(self, model: Any, hidden: Tensor, masks: Masks, places: Tensor, **how: Any) -> Tensor:
        # the base of the rotation differs by kind of layer
        kinds = {layer.attention_type for layer in model.layers}
        rotary = {kind: model.rotary_emb(hidden, places, kind) for kind in kinds}
        for layer in model.layers:
            kind = layer.attention_type
            mask = masks["window" if kind == "sliding_attention" else "full"]
            hidden = layer(hidden, attention_mask=mask, position_embeddings=rotary[kind], **how)
        return model.final_norm(hidden)  # type: ignore[no-any-return]

    def window(self, model: Any) -> int | None:
        return int(model.config.sliding_window)  # half of its width: 64 in the base model


#: `model_type` of a config → how its layers are opened
FAMILIES: dict[str, Family] = {
    "bert": Bert(),
    "nomic_bert": NomicBert(),
    "modernbert": ModernBert(),
}


def masks_of(
    family: Family, model: Any, kernel: str, *shape: Any, spares: bool = True, **options: Any
) -> Masks:
    """The masks of both kinds of layers, as `visibility` makes them from `shape` and `options`."""
    masks = {"full": visibility(*shape, **options)}
    window = family.window(model)
    if window is not None and kernel.startswith("flash"):
        masks["window"] = masks["full"]
    elif window is not None:
        masks["window"] = visibility(*shape, window=window, window_spares_context=spares, **options)
    return masks


def family_of(model_type: Any) -> Family:
    if model_type not in FAMILIES:
        others = ", ".join(FAMILIES)
        raise ValueError(f"a backbone may be of type {others}; this is of {shown(model_type)}")
    return FAMILIES[model_type]


def build_backbone(values: dict[str, Any] | None, dropout: float) -> tuple[Family, PreTrainedModel]:
    """A backbone's family, and its model with random weights and the attention of this package."""
    values = values or {}
    family = family_of(values.get("model_type"))
    config: PreTrainedConfig = AutoConfig.for_model(**values)
    kinds = ("attention_dropout", "embedding_dropout", "mlp_dropout")
    for name in ("hidden_dropout_prob", "attention_probs_dropout_prob", *kinds):
        if hasattr(config, name):
            setattr(config, name, dropout)
    options: dict[str, Any] = {"attn_implementation": ATTENTION_NAME}
    options |= {"add_pooling_layer": False} if config.model_type == "bert" else {}
    model: PreTrainedModel = AutoModel.from_config(config, **options)
    if config.model_type == "bert" and config.hidden_act == "gelu":
        for layer in model.get_submodule(family.layers):
            dense = layer.get_submodule("intermediate.dense")
            layer.set_submodule("intermediate", LinearGelu(dense))
    for name in getattr(config, "linear_biases", ()):
        for layer in model.get_submodule("layers"):
            linear = layer.get_submodule(name)
            biased = nn.Linear(linear.in_features, linear.out_features)
            nn.init.zeros_(biased.bias)
            layer.set_submodule(name, biased)
    if getattr(config, "rotary_fraction", 1.0) != 1.0:
        _rotate_partly(model, config)
    return family, model


def _rotate_partly(model: PreTrainedModel, config: Any) -> None:
    """Leave part of each head unturned: frequency 0 turns by nothing, wherever the token stands."""
    rotary: Any = model.get_submodule("rotary_emb")
    rotated = int(config.head_dim * config.rotary_fraction)
    base = config.rope_parameters["rope_theta"]
    frequencies = torch.zeros(config.head_dim // 2)
    frequencies[: rotated // 2] = base ** (-torch.arange(0, rotated, 2).float() / rotated)
    rotary.inv_freq = rotary.original_inv_freq = frequencies


def truncate(values: dict[str, Any], layers: int | None, least: int = 1) -> dict[str, Any]:
    """A backbone's config dictionary with its first `layers` layers alone (None: all)."""
    if layers is None:
        return dict(values)
    there, layers = int(values["num_hidden_layers"]), checked_whole(layers, "layers", None)
    if not least <= layers <= there:
        raise ValueError(f"layers must be {least} to {there} for this backbone; they are {layers}")
    shortened = {**values, "num_hidden_layers": layers}
    if values.get("layer_types"):
        shortened["layer_types"] = list(values["layer_types"])[:layers]
    return shortened


def token_states(
    model: PreTrainedModel,
    input_ids: Tensor,
    mask: Tensor | None,
    attention: dict[str, Any],
    turned_by: Callable[[Tensor], Tensor] = lambda places: places,
) -> Tensor:
    """Last hidden states `(n, T, dim)` of texts whose padding, if any, stands on the right."""
    family = family_of(model.config.model_type)
    places = torch.arange(input_ids.shape[1], device=input_ids.device)[None]
    masks = masks_of(
        *(family, model, attention["implementation"], mask, places.shape[1], 0, 0),
        device=places.device,
    )
    hidden = family.normalise(model, family.embed(model, input_ids, places))
    return family.run(model, hidden, masks, turned_by(places), **attention)


def to_the_left(input_ids: Tensor, attention_mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Ids `(batch, T)` with real tokens first, and their mask; None where nothing is padded."""
    shape = tuple(input_ids.shape)
    if len(shape) != 2 or 0 in shape:
        raise ValueError(f"input_ids must be (batch, tokens), 1 or more each; they are {shape}")
    if attention_mask is None:
        return input_ids, None
    if (other := tuple(attention_mask.shape)) != shape:
        raise ValueError(f"attention_mask must have the shape of input_ids, {shape}; it is {other}")
    mask = attention_mask.bool()
    if bool(mask.all()):
        return input_ids, None
    if bool((mask[:, 1:] & ~mask[:, :-1]).any()):
        order = mask.int().argsort(dim=1, descending=True, stable=True)
        input_ids, mask = input_ids.gather(1, order), mask.gather(1, order)
    return input_ids, mask


def _precise(hidden: Tensor) -> Tensor:
    return hidden if hidden.dtype == torch.float64 else hidden.float()


def mean_of_tokens(hidden: Tensor, mask: Tensor | None) -> Tensor:
    """Mean over the tokens that `mask` keeps, in float32: `(batch, T, dim)` to `(batch, dim)`."""
    hidden = _precise(hidden)
    if mask is None:
        return hidden.mean(dim=1)
    kept = mask.unsqueeze(-1)
    # not a product with 0, which would keep a NaN on padding
    counts = kept.to(hidden.dtype).sum(dim=1).clamp(min=1e-20)
    return hidden.masked_fill(~kept, 0).sum(dim=1) / counts


def mean_of_parts(hidden: Tensor, mask: Tensor | None, parts: int) -> Tensor:
    """Means over `parts` nearly equal runs of each text's own tokens, `(n, parts, dim)`; a part
    without a token is the mean of the whole text.
    """
    length = hidden.shape[1]
    mask = hidden.new_ones(hidden.shape[:2], dtype=torch.bool) if mask is None else mask
    place = torch.arange(length, device=hidden.device)[None]
    part = place * parts // mask.sum(dim=1, keepdim=True).clamp(min=1)
    inside = (part[:, None] == torch.arange(parts, device=hidden.device)[:, None]) & mask[:, None]
    inside = torch.where(inside.any(dim=-1, keepdim=True), inside, mask[:, None])
    hidden = _precise(hidden)
    weights = inside.to(hidden.dtype)
    return weights @ hidden / weights.sum(dim=-1, keepdim=True).clamp(min=1e-20)


def mean_of_unit_parts(hidden: Tensor, mask: Tensor | None, parts: int = 8) -> Tensor:
    """Mean of the directions of `parts` nearly equal runs of a text's tokens, `(batch, dim)`."""
    return normalize(mean_of_parts(hidden, mask, parts), dim=-1).mean(dim=1)


def pooled(hidden: Tensor, mask: Tensor | None, how: str) -> Tensor:
    """The vector of each text by the name of its pooling: "mean", "cls" or "chunks"."""
    if how == "cls":
        return _precise(hidden)[:, 0]
    return mean_of_unit_parts(hidden, mask) if how == "chunks" else mean_of_tokens(hidden, mask)


def mean_of_chunks(hidden: Tensor, mask: Tensor | None, parts: int) -> Tensor:
    """The published way: the padded length is cut into equal chunks, so that a text depends on its
    padding; a chunk without a real token is the mean of the whole row.
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

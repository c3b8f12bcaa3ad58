"""Transformers of three families under one interface: embed tokens, normalise, run the layers.

The layers are those of `transformers`, loaded by its names; nothing of them is written again. An
adapter only opens the model at two places that its own `forward` keeps closed: between the token
embeddings and the layers (where context vectors enter the sequence), and at the positions.

===============  ============================================  =================================
family           positions                                     context tokens get
===============  ============================================  =================================
`bert` (MiniLM)  learned, added to the token embeddings        no position embedding
`nomic_bert`     rotary, every layer                           rotary position 0: the identity
`modernbert`     rotary; two of three layers see a window      position 0, outside every window
===============  ============================================  =================================

Cost: none of its own. Which family to take is read from the config's `model_type`.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, PreTrainedConfig, PreTrainedModel

from cde.models.attention import ATTENTION_NAME, visibility

__all__ = [
    "FAMILIES",
    "Family",
    "Masks",
    "build_backbone",
    "config_from_dict",
    "family_of",
    "masks_of",
    "truncate",
]

#: one mask for all layers (`full`), and one for those that see a window (`window`, ModernBERT)
Masks = dict[str, Tensor | None]


class Family(Protocol):
    """What the two stages need of a backbone; one object a family, without state."""

    layers: str

    def embed(self, model: Any, input_ids: Tensor, position_ids: Tensor) -> Tensor:
        """Token vectors `(batch, T, dim)` before normalisation; positions added where they are
        learned.
        """
        ...

    def normalise(self, model: Any, hidden: Tensor) -> Tensor:
        """The normalisation and dropout that stand between the embeddings and the first layer."""
        ...

    def run(
        self, model: Any, hidden: Tensor, masks: Masks, position_ids: Tensor, **attention: Any
    ) -> Tensor:
        """All layers: `(batch, S, dim)` to the same; `position_ids` is `(1, S)`, for rotary
        families.
        """
        ...

    def window(self, model: Any) -> int | None:
        """How far text tokens see in the layers that see a window only; None where all see
        everything.
        """
        ...

    def longest(self, model: Any) -> int | None:
        """Most text tokens that the positions allow for; None where they are rotary and go on."""
        ...


class Bert:
    """BERT and MiniLM: learned positions, post-norm."""

    layers = "encoder.layer"

    def embed(self, model: Any, input_ids: Tensor, position_ids: Tensor) -> Tensor:
        """Word, position and type embeddings."""
        longest = model.config.max_position_embeddings
        if input_ids.shape[1] > longest:
            raise ValueError(
                f"the backbone has {longest} learned positions; a text has {input_ids.shape[1]} "
                "tokens"
            )
        parts = model.embeddings
        types = parts.token_type_embeddings.weight[0]
        return parts.word_embeddings(input_ids) + types + parts.position_embeddings(position_ids)  # type: ignore[no-any-return]

    def normalise(self, model: Any, hidden: Tensor) -> Tensor:
        """Layer norm and dropout."""
        return model.embeddings.dropout(model.embeddings.LayerNorm(hidden))  # type: ignore[no-any-return]

    def run(
        self, model: Any, hidden: Tensor, masks: Masks, position_ids: Tensor, **attention: Any
    ) -> Tensor:
        """The layers; positions are in the embeddings already."""
        for layer in model.encoder.layer:
            hidden = layer(hidden, masks["full"], **attention)
        return hidden

    def window(self, model: Any) -> int | None:
        """None: every layer sees everything."""
        return None

    def longest(self, model: Any) -> int | None:
        """The number of learned positions."""
        return int(model.config.max_position_embeddings)


class NomicBert:
    """NomicBERT: rotary positions, gated linear units, post-norm, no biases."""

    layers = "layers"

    def embed(self, model: Any, input_ids: Tensor, position_ids: Tensor) -> Tensor:
        """Word and type embeddings."""
        parts = model.embeddings
        return parts.word_embeddings(input_ids) + parts.token_type_embeddings.weight[0]  # type: ignore[no-any-return]

    def normalise(self, model: Any, hidden: Tensor) -> Tensor:
        """Layer norm and dropout."""
        return model.embeddings.dropout(model.embeddings.LayerNorm(hidden))  # type: ignore[no-any-return]

    def run(
        self, model: Any, hidden: Tensor, masks: Masks, position_ids: Tensor, **attention: Any
    ) -> Tensor:
        """The layers, turned by `position_ids`."""
        rotary = model.rotary_emb(hidden, position_ids)
        for layer in model.layers:
            hidden = layer(
                hidden, attention_mask=masks["full"], position_embeddings=rotary, **attention
            )
        return hidden

    def window(self, model: Any) -> int | None:
        """None: every layer sees everything."""
        return None

    def longest(self, model: Any) -> int | None:
        """None: rotary positions go on beyond the length that it was trained for."""
        return None


class ModernBert:
    """ModernBERT: rotary positions, pre-norm, two layers in three with a local window."""

    layers = "layers"

    def embed(self, model: Any, input_ids: Tensor, position_ids: Tensor) -> Tensor:
        """Word embeddings."""
        return model.embeddings.tok_embeddings(input_ids)  # type: ignore[no-any-return]

    def normalise(self, model: Any, hidden: Tensor) -> Tensor:
        """Layer norm and dropout."""
        return model.embeddings.drop(model.embeddings.norm(hidden))  # type: ignore[no-any-return]

    def run(
        self, model: Any, hidden: Tensor, masks: Masks, position_ids: Tensor, **attention: Any
    ) -> Tensor:
        """The layers and the norm after them; the base of the rotation differs by kind of layer."""
        kinds = {layer.attention_type for layer in model.layers}
        rotary = {kind: model.rotary_emb(hidden, position_ids, kind) for kind in kinds}
        for layer in model.layers:
            kind = layer.attention_type
            mask = masks["window" if kind == "sliding_attention" else "full"]
            hidden = layer(
                hidden, attention_mask=mask, position_embeddings=rotary[kind], **attention
            )
        return model.final_norm(hidden)  # type: ignore[no-any-return]

    def window(self, model: Any) -> int | None:
        """Half of the window's width: 64 in the base model."""
        return int(model.config.sliding_window)

    def longest(self, model: Any) -> int | None:
        """None: rotary positions go on beyond the length that it was trained for."""
        return None


#: `model_type` of a config → how its layers are opened
FAMILIES: dict[str, Family] = {
    "bert": Bert(),
    "nomic_bert": NomicBert(),
    "modernbert": ModernBert(),
}


def masks_of(
    family: Family, model: Any, kernel: str, *shape: Any, spares: bool = True, **options: Any
) -> Masks:
    """The masks of both kinds of layers, as `visibility` makes them from `shape` and `options`.

    Flash attention takes the window as an option of its own, so that only padding is left for the
    mask.
    """
    masks = {"full": visibility(*shape, **options)}
    window = family.window(model)
    if window is not None and kernel.startswith("flash"):
        masks["window"] = masks["full"]
    elif window is not None:
        masks["window"] = visibility(*shape, window=window, window_spares_context=spares, **options)
    return masks


def family_of(config: PreTrainedConfig) -> Family:
    """The adapter of a backbone's family."""
    check_family(config.model_type)
    return FAMILIES[config.model_type]


def check_family(model_type: Any) -> None:
    """Refuse a backbone whose family the encoders do not know, before anything of it is loaded."""
    if model_type not in FAMILIES:
        raise ValueError(
            f"backbones of type {model_type!r} are not supported; those of type "
            f"{', '.join(FAMILIES)} are"
        )


def config_from_dict(values: dict[str, Any]) -> PreTrainedConfig:
    """The backbone config of `transformers` from its dictionary, as a `config.json` holds it."""
    values = dict(values)
    model_type = values.pop("model_type", None)
    if model_type not in FAMILIES:
        raise ValueError(
            f"the backbone's config names the model_type {model_type!r}; accepted are "
            f"{', '.join(FAMILIES)}"
        )
    config: PreTrainedConfig = AutoConfig.for_model(model_type, **values)
    return config


def build_backbone(config: PreTrainedConfig, dropout: float | None = None) -> PreTrainedModel:
    """A backbone with random weights, on the attention function of `cde.models.attention`."""
    family_of(config)
    if dropout is not None:
        for name in (
            "hidden_dropout_prob",
            "attention_probs_dropout_prob",
            "attention_dropout",
            "embedding_dropout",
        ):
            if hasattr(config, name):
                setattr(config, name, dropout)
        if hasattr(config, "mlp_dropout"):
            config.mlp_dropout = dropout
    options = {"add_pooling_layer": False} if config.model_type == "bert" else {}
    model: PreTrainedModel = AutoModel.from_config(
        config, attn_implementation=ATTENTION_NAME, **options
    )
    for name in getattr(config, "linear_biases", ()):
        for layer in model.get_submodule("layers"):
            linear = layer.get_submodule(name)
            biased = nn.Linear(linear.in_features, linear.out_features)
            nn.init.zeros_(biased.bias)
            layer.set_submodule(name, biased)
    if getattr(config, "rotary_fraction", 1.0) != 1.0:
        _rotate_partly(model, config)
    return model


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
    there = int(values["num_hidden_layers"])
    if layers is None:
        return dict(values)
    if not least <= layers <= there:
        raise ValueError(
            f"the backbone has {there} layers; {layers} were asked for, accepted are {least} to "
            f"{there}"
        )
    shortened = {**values, "num_hidden_layers": layers}
    if values.get("layer_types"):
        shortened["layer_types"] = list(values["layer_types"])[:layers]
    return shortened

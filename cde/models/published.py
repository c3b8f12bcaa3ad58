"""Checkpoints as the authors published them: configs and weights, by name, into
`ContextualEncoder`.

cde-small-v1 is NomicBERT, cde-small-v2 ModernBERT. Nothing is fetched and no code of a checkpoint
is run. The settings are read from its `config.json`, and the dimensions of the backbones it names
are known here. Every tensor has to find its place by name and shape, or an error lists those that
do not.

The published names differ from those of `transformers`: queries, keys and values lie in one matrix
`Wqkv`, the linear layers of NomicBERT are `fc11`, `fc12`, `fc2`. NomicBERT may also rotate a part
of each head or rotate neighbouring dimensions. Both become the layout of `transformers` by an order
of the rows of `Wq` and `Wk`, which no product of queries and keys notices.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from cde.models.backbones import truncate
from cde.models.configuration import TASK_PREFIXES, ContextualConfig

__all__ = ["BACKBONE_DIMENSIONS", "Layout", "published_config"]

_NOMIC = {
    "vocab_size": 30528,
    "n_positions": 2048,
    "n_embd": 768,
    "n_head": 12,
    "n_layer": 12,
    "n_inner": 3072,
    "activation_function": "swiglu",
    "layer_norm_epsilon": 1e-12,
    "rotary_emb_fraction": 1.0,
    "rotary_emb_base": 1000,
    "rotary_emb_interleaved": False,
    "type_vocab_size": 2,
    "pad_token_id": 0,
    "pad_vocab_size_multiple": 64,
}
_MODERN_BASE = {
    "model_type": "modernbert"
}  # the defaults of transformers are those of the base model
_MODERN_LARGE = {
    "model_type": "modernbert",
    "hidden_size": 1024,
    "intermediate_size": 2624,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
}

#: backbone configs, for the names that occur in published configs
BACKBONE_DIMENSIONS: dict[str, dict[str, Any]] = {
    "nomic-ai/nomic-bert-2048": _NOMIC,
    "nomic-ai/nomic-embed-text-v1": _NOMIC,
    "nomic-ai/nomic-embed-text-v1-unsupervised": _NOMIC,
    "nomic-ai/nomic-embed-text-v1.5": _NOMIC,
    "answerdotai/ModernBERT-base": _MODERN_BASE,
    "answerdotai/ModernBERT-large": _MODERN_LARGE,
}

_COLON_IDS = {"nomic_bert": 1024, "modernbert": 27}  # ":" in the tokenisers of BERT and ModernBERT
_NOT_SHAPE = ("reference_compile", "architectures", "dtype", "torch_dtype", "transformers_version")
_GATES = {"swiglu": "silu", "geglu": "gelu", "glu": "sigmoid"}


def _refuse(condition: Any, message: str) -> None:
    if condition:
        raise ValueError(message)


def _nomic_config(values: Mapping[str, Any], layers: int | None) -> dict[str, Any]:
    """The config dictionary of `transformers`' NomicBERT from a published one."""
    gate = str(values.get("activation_function", "swiglu"))
    _refuse(
        gate not in _GATES,
        f"activation_function {gate!r} is not supported; accepted: {', '.join(_GATES)}",
    )
    _refuse(
        values.get("prenorm"), "prenorm=true is not supported: the published NomicBERT is post-norm"
    )
    _refuse(
        values.get("use_rms_norm"),
        "use_rms_norm=true is not supported: the published NomicBERT has LayerNorm",
    )
    _refuse(values.get("rotary_emb_scale_base"), "rotary_emb_scale_base (xPos) is not supported")
    _refuse(
        values.get("parallel_block"),
        "parallel_block=true is not supported: attention and MLP follow each other",
    )
    _refuse(
        values.get("causal"), "causal=true is not supported: the encoders attend in both directions"
    )
    dim, heads = int(values["n_embd"]), int(values["n_head"])
    multiple = int(values.get("pad_vocab_size_multiple") or 1)
    biases = ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"]
    biases = biases if values.get("qkv_proj_bias") else []
    biases += ["mlp.up_proj", "mlp.gate_proj"] if values.get("mlp_fc1_bias") else []
    biases += ["mlp.down_proj"] if values.get("mlp_fc2_bias") else []
    there = int(values["n_layer"])
    return {
        "model_type": "nomic_bert",
        "vocab_size": -(-int(values["vocab_size"]) // multiple) * multiple,
        "hidden_size": dim,
        "num_hidden_layers": min(layers or there, there),
        "num_attention_heads": heads,
        "head_dim": dim // heads,
        "intermediate_size": -(-int(values.get("n_inner") or 4 * dim) // 256) * 256,
        "hidden_act": _GATES[gate],
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "max_position_embeddings": int(values.get("n_positions") or 2048),
        "type_vocab_size": int(values.get("type_vocab_size") or 2),
        "layer_norm_eps": float(values.get("layer_norm_epsilon") or 1e-12),
        "pad_token_id": values.get("pad_token_id"),
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": float(values.get("rotary_emb_base") or 10000),
        },
        "initializer_range": float(values.get("initializer_range") or 0.02),
        "linear_biases": biases,
        "rotary_fraction": float(
            1.0 if values.get("rotary_emb_fraction") is None else values["rotary_emb_fraction"]
        ),
        "rotary_interleaved": bool(values.get("rotary_emb_interleaved", False)),
    }


def _modern_config(values: Mapping[str, Any], layers: int | None) -> dict[str, Any]:
    config = {key: value for key, value in values.items() if key not in _NOT_SHAPE}
    config["model_type"] = "modernbert"
    there = int(config.setdefault("num_hidden_layers", 22))
    return truncate(config, min(layers or there, there))


def _backbone(values: Mapping[str, Any], variant: str, layers: Any) -> dict[str, Any]:
    nomic = "n_embd" in values
    _refuse(
        nomic == (variant == "v2"),
        f"variant {variant!r} runs on {'ModernBERT' if variant == 'v2' else 'NomicBERT'}, and the "
        "backbone's config is "
        f"that of {'NomicBERT (n_embd, n_layer, …)' if nomic else 'ModernBERT'}: "
        f"take variant={'hub or train' if nomic else 'v2'}",
    )
    limit = int(layers or 0)  # 0 is no limit, as in the authors' code
    _refuse(
        limit < 0, f"a limit of {limit} layers leaves no backbone: give 1 or more, or null for all"
    )
    return (_nomic_config if nomic else _modern_config)(values, limit or None)


def published_config(
    contextual: Mapping[str, Any],
    backbone: Mapping[str, Any] | None = None,
    variant: str = "hub",
    first_backbone: Mapping[str, Any] | None = None,
    colon_token_id: int | None = None,
) -> ContextualConfig:
    """Our config from a published one."""
    accepted = ("hub", "train", "v2")
    _refuse(
        variant not in accepted, f"variant must be one of {', '.join(accepted)}; it is {variant!r}"
    )
    get = contextual.get
    architecture = get("architecture") or "transductive"
    _refuse(
        architecture not in ("transductive", "contextual"),
        f"the checkpoint's architecture is {architecture!r}; a contextual encoder says "
        "'transductive'",
    )
    _refuse(
        get("autoregressive_backbone"),
        "autoregressive backbones are not supported: CDE's encoders are bidirectional",
    )
    _refuse(
        get("pooling_strategy", "mean") != "mean",
        f"pooling_strategy {get('pooling_strategy')!r}: only 'mean' exists",
    )
    first_name = get("embedder")
    second_name = get("dataset_backbone") or first_name
    if backbone is None:
        backbone = _known(second_name)
        first_backbone = first_backbone if first_backbone is not None else _known(first_name)
    first = _backbone(
        first_backbone if first_backbone is not None else backbone,
        variant,
        get("limit_layers_first_stage"),
    )
    second = _backbone(backbone, variant, get("limit_layers"))
    dropout = float(get("transductive_sequence_dropout_prob") or 0.0)
    size = int(get("transductive_corpus_size") or 1)
    per_document = int(get("transductive_tokens_per_document") or 1)
    agnostic = bool(get("disable_transductive_rotary_embedding", True)) and variant != "v2"
    instruction = None
    if variant != "hub" and get("pool_ignore_instruction_tokens"):
        marks = (colon_token_id, get("colon_token_id"), _COLON_IDS[second["model_type"]])
        instruction = next(int(mark) for mark in marks if mark is not None)
        size_of_vocabulary = int(second.get("vocab_size", 50368))
        _refuse(
            instruction >= size_of_vocabulary,
            f"pool_ignore_instruction_tokens looks for the token {instruction} (a colon), and the "
            "vocabulary has "
            f"{size_of_vocabulary}: give colon_token_id",
        )
    pool = "text" if variant == "hub" or get("pool_ignore_contextual_tokens", True) else "all"
    return ContextualConfig(
        first_backbone=first,
        second_backbone=second,
        context_size=size,
        vectors_per_document=per_document,
        first_stage_mlp=True,
        soft_prompt_tokens=8,
        output_projection=True,
        sequence_dropout=dropout,
        null_token=dropout > 0,
        tie_token_embeddings=bool(get("transductive_tie_token_embeddings", False)),
        pool=pool,
        variant=variant,
        unrotated=size * per_document if agnostic else 0,
        skip_instruction_until=instruction,
        max_tokens=int(get("max_seq_length") or 512),
        query_prefix=TASK_PREFIXES["retrieval"]["query_prefix"],
        document_prefix=TASK_PREFIXES["retrieval"]["document_prefix"],
    )


def _known(name: Any) -> dict[str, Any]:
    _refuse(
        name not in BACKBONE_DIMENSIONS,
        f"the dimensions of the backbone {name!r} are not known here; give backbone_config. "
        f"Known are {', '.join(BACKBONE_DIMENSIONS)}",
    )
    return BACKBONE_DIMENSIONS[name]


@dataclass(frozen=True)
class _Place:
    """Where a published tensor goes: one tensor of ours, or the rows of several in turn."""

    ours: tuple[str, ...]
    rows: Tensor | None = None  # the order of the rows of queries and keys


#: published name, ours; a {} is the number of a layer
_HEADS = (
    ("first_stage_model.mlp.", "first_stage.mlp."),
    ("second_stage_model.prompt_projection.", "second_stage.prompt_projection."),
    ("second_stage_model.output_projection.", "second_stage.output_projection."),
    ("second_stage_model.sequence_dropout_null_embedding", "second_stage.null_embedding"),
)
_STAGES = (
    ("first_stage_model.embedder.", "first_stage.backbone."),
    ("second_stage_model.backbone.", "second_stage.backbone."),
)
_NOMIC_NAMES = (
    ("embeddings.word_embeddings.", "embeddings.word_embeddings."),
    ("embeddings.token_type_embeddings.", "embeddings.token_type_embeddings."),
    ("emb_ln.", "embeddings.LayerNorm."),
    ("encoder.layers.{}.attn.Wqkv.", "layers.{}.self_attn.q_proj."),
    ("encoder.layers.{}.attn.Wqkv.", "layers.{}.self_attn.k_proj."),
    ("encoder.layers.{}.attn.Wqkv.", "layers.{}.self_attn.v_proj."),
    ("encoder.layers.{}.attn.out_proj.", "layers.{}.self_attn.o_proj."),
    ("encoder.layers.{}.mlp.fc11.", "layers.{}.mlp.up_proj."),
    ("encoder.layers.{}.mlp.fc12.", "layers.{}.mlp.gate_proj."),
    ("encoder.layers.{}.mlp.fc2.", "layers.{}.mlp.down_proj."),
    ("encoder.layers.{}.norm1.", "layers.{}.post_attention_layernorm."),
    ("encoder.layers.{}.norm2.", "layers.{}.post_mlp_layernorm."),
)


def _renamed(name: str, template: str, replacement: str) -> str | None:
    """The name with the start that `template` describes replaced; None if it starts otherwise."""
    match = re.match(re.escape(template).replace(r"\{\}", r"(\d+)"), name)
    return replacement.format(*match.groups()) + name[match.end() :] if match else None


class Layout:
    """Published names of a model's tensors, and the way there and back."""

    def __init__(self, config: ContextualConfig) -> None:
        self.backbones = {
            "first_stage.backbone.": config.first_backbone,
            "second_stage.backbone.": config.second_backbone,
        }

    def place(self, published: str) -> _Place | None:
        """Where the published tensor of this name goes; None if no such name is known."""
        for template, replacement in _HEADS:
            ours = _renamed(published, template, replacement)
            if ours is not None:
                return _Place((ours,))
        for prefix, stage in _STAGES:
            backbone = self.backbones[stage]
            if not published.startswith(prefix) or backbone is None:
                continue
            rest = published.removeprefix(prefix)
            if backbone["model_type"] == "modernbert":
                return _Place((stage + rest,))
            renamed = (
                _renamed(rest, template, replacement) for template, replacement in _NOMIC_NAMES
            )
            names = tuple(stage + name for name in renamed if name is not None)
            return (
                _Place(names, _row_order(backbone) if len(names) == 3 else None) if names else None
            )
        return None

    def published_names(self, ours: list[str]) -> dict[str, str]:
        """What the published layout calls tensors of ours, for messages."""
        names = {}
        for name in ours:
            candidates = [_renamed(name, own, published) for published, own in _HEADS]
            for prefix, stage in _STAGES:
                backbone = self.backbones[stage]
                if name.startswith(stage) and backbone is not None:
                    rest = name.removeprefix(stage)
                    nomic = backbone["model_type"] == "nomic_bert"
                    renamed = (
                        [_renamed(rest, own, published) for published, own in _NOMIC_NAMES]
                        if nomic
                        else [rest]
                    )
                    candidates += [prefix + one for one in renamed if one is not None]
            names[name] = next((one for one in candidates if one is not None), name)
        return names

    def to_ours(self, published: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], list[str]]:
        """Tensors under our names, and the published names that have no place."""
        tensors, unexpected = {}, []
        for name, tensor in published.items():
            place = self.place(name)
            if place is None:
                unexpected.append(name)
            elif len(place.ours) == 1:
                tensors[place.ours[0]] = tensor
            else:
                parts = (
                    list(tensor.chunk(3, dim=0))
                    if tensor.ndim and tensor.shape[0] % 3 == 0
                    else [tensor] * 3
                )
                if place.rows is not None and tensor.ndim and len(parts[0]) == len(place.rows):
                    parts[:2] = [part[place.rows] for part in parts[:2]]
                tensors.update(zip(place.ours, parts, strict=True))
        return tensors, unexpected

    def to_published(
        self, ours: Mapping[str, Tensor | None], names: list[str]
    ) -> dict[str, Tensor | None]:
        """Tensors of ours (weights, or gradients) under the published names that are asked for."""
        result: dict[str, Tensor | None] = {}
        for name in names:
            place = self.place(name)
            if place is None:
                raise KeyError(f"{name!r} is not the name of a tensor of this model")
            parts = [ours.get(one) for one in place.ours]
            whole = [part for part in parts if part is not None]
            if len(whole) < len(parts):
                result[name] = None
                continue
            if place.rows is not None:
                back = place.rows.argsort()
                whole[:2] = [part[back] for part in whole[:2]]
            result[name] = torch.cat(whole) if len(whole) > 1 else whole[0]
        return result


def _row_order(backbone: Mapping[str, Any]) -> Tensor | None:
    """The order of rows of queries and keys in which pairs to be rotated lie half a head apart."""
    fraction, interleaved = backbone["rotary_fraction"], backbone["rotary_interleaved"]
    if fraction == 1.0 and not interleaved:
        return None
    head = int(backbone["head_dim"])
    rotated = int(head * fraction)
    inside = torch.arange(rotated)
    first, second = (inside[0::2], inside[1::2]) if interleaved else inside.chunk(2)
    rest_first, rest_second = torch.arange(rotated, head).chunk(2)
    order = torch.cat([first, rest_first, second, rest_second])
    return torch.cat(
        [order + number * head for number in range(int(backbone["num_attention_heads"]))]
    )

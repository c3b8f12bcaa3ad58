"""Checkpoints as the authors published them, by name, and the forward passes that run them.

cde-small-v1 is NomicBERT, cde-small-v2 ModernBERT. Nothing is fetched and no code of a checkpoint
is run. The settings are read from its `config.json`, the dimensions of the backbones it names are
known here, and every tensor has to find its place by name and shape.

The published names differ from those of `transformers`: queries, keys and values lie in one matrix
`Wqkv`, the linear layers of NomicBERT are `fc11`, `fc12`, `fc2`. NomicBERT may also rotate a part
of each head or rotate neighbouring dimensions. Both become the layout of `transformers` by an order
of the rows of `Wq` and `Wk`, which no product of queries and keys notices.

The authors' programs run them in three forward passes. `VARIANTS` says how these differ from this
book's, and the classes below replace the methods of `cde.models.stages` by that table.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from cde.models.backbones import mean_of_chunks, truncate
from cde.models.configuration import TASK_PREFIXES, ContextualConfig
from cde.models.stages import FirstStage, SecondStage, through
from cde.validation import shown

__all__ = ["VARIANTS", "Variant"]

# what is left out here is the default of `_nomic_config`
_NOMIC = {
    "vocab_size": 30528,
    "n_embd": 768,
    "n_head": 12,
    "n_layer": 12,
    "rotary_emb_base": 1000,
    "pad_token_id": 0,
    "pad_vocab_size_multiple": 64,
}

#: backbone configs, for the names that occur in published configs
BACKBONE_DIMENSIONS: dict[str, dict[str, Any]] = {
    "nomic-ai/nomic-bert-2048": _NOMIC,
    "nomic-ai/nomic-embed-text-v1": _NOMIC,
    "nomic-ai/nomic-embed-text-v1-unsupervised": _NOMIC,
    "nomic-ai/nomic-embed-text-v1.5": _NOMIC,
    "answerdotai/ModernBERT-base": {},  # whose dimensions are the defaults of transformers
}

_COLON_IDS = {"nomic_bert": 1024, "modernbert": 27}  # ":" in the tokenisers of BERT and ModernBERT
_NOT_SHAPE = ("reference_compile", "architectures", "dtype", "torch_dtype", "transformers_version")
_GATES = {"swiglu": "silu", "geglu": "gelu", "glu": "sigmoid"}
#: what these settings may be, where a config has them: there are no checkpoints of other encoders
_OF_NOMIC: dict[str, tuple[Any, ...]] = {
    "activation_function": tuple(_GATES),
    "prenorm": (False,),
    "use_rms_norm": (False,),
    "rotary_emb_scale_base": (None,),
    "parallel_block": (False,),
    "causal": (False,),
}
_OF_BOTH: dict[str, tuple[Any, ...]] = {
    "architecture": ("transductive", "contextual"),
    "autoregressive_backbone": (False,),
    "pooling_strategy": ("mean",),
}


def _refuse(condition: Any, message: str) -> None:
    if condition:
        raise ValueError(message)


def _refuse_others(values: Mapping[str, Any], accepted: Mapping[str, tuple[Any, ...]]) -> None:
    for name, fine in accepted.items():
        given = values.get(name) or fine[0]
        said = f"{name}={shown(given)} is not supported; accepted: {', '.join(map(str, fine))}"
        _refuse(given not in fine, said)


def _nomic_config(values: Mapping[str, Any]) -> dict[str, Any]:
    """The config dictionary of `transformers`' NomicBERT from a published one."""
    _refuse_others(values, _OF_NOMIC)
    dim, heads = int(values["n_embd"]), int(values["n_head"])
    multiple = int(values.get("pad_vocab_size_multiple") or 1)
    biases = ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"]
    biases = biases if values.get("qkv_proj_bias") else []
    biases += ["mlp.up_proj", "mlp.gate_proj"] if values.get("mlp_fc1_bias") else []
    biases += ["mlp.down_proj"] if values.get("mlp_fc2_bias") else []
    fraction = values.get("rotary_emb_fraction")
    return {
        "model_type": "nomic_bert",
        "vocab_size": -(-int(values["vocab_size"]) // multiple) * multiple,
        "hidden_size": dim,
        "num_hidden_layers": int(values["n_layer"]),
        "num_attention_heads": heads,
        "head_dim": dim // heads,
        "intermediate_size": -(-int(values.get("n_inner") or 4 * dim) // 256) * 256,
        "hidden_act": _GATES[values.get("activation_function") or "swiglu"],
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
        "rotary_fraction": 1.0 if fraction is None else float(fraction),
        "rotary_interleaved": bool(values.get("rotary_emb_interleaved", False)),
    }


def _backbone(values: Mapping[str, Any], variant: str, layers: Any) -> dict[str, Any]:
    nomic = "n_embd" in values
    own = "NomicBERT: take variant=hub or train" if nomic else "ModernBERT: take variant=v2"
    _refuse(
        nomic == (variant == "v2"),
        f"variant {shown(variant)} runs on {'ModernBERT' if variant == 'v2' else 'NomicBERT'}, and "
        f"the backbone's config is that of {own}",
    )
    limit = int(layers or 0)  # 0 means no limit, as in the authors' code
    if nomic:
        config = _nomic_config(values)
    else:
        shape = {key: value for key, value in values.items() if key not in _NOT_SHAPE}
        config = {"num_hidden_layers": 22, **shape, "model_type": "modernbert"}
    there = int(config["num_hidden_layers"])
    return truncate(config, min(limit or there, there))


def published_config(
    contextual: Mapping[str, Any],
    backbone: Mapping[str, Any] | None = None,
    variant: str = "hub",
    first_backbone: Mapping[str, Any] | None = None,
) -> ContextualConfig:
    """Our config from a published one."""
    if variant not in (accepted := ("hub", "train", "v2")):
        raise ValueError(f"variant must be one of {', '.join(accepted)}; it is {shown(variant)}")
    get = contextual.get
    _refuse_others(contextual, _OF_BOTH)
    if backbone is None:
        backbone = _known(get("dataset_backbone") or get("embedder"))
        first_backbone = _known(get("embedder")) if first_backbone is None else first_backbone
    first_backbone = backbone if first_backbone is None else first_backbone
    first = _backbone(first_backbone, variant, get("limit_layers_first_stage"))
    second = _backbone(backbone, variant, get("limit_layers"))
    dropout = float(get("transductive_sequence_dropout_prob") or 0.0)
    size = int(get("transductive_corpus_size") or 1)
    per_document = int(get("transductive_tokens_per_document") or 1)
    agnostic = bool(get("disable_transductive_rotary_embedding", True)) and variant != "v2"
    instruction = None
    if variant != "hub" and get("pool_ignore_instruction_tokens"):
        own = get("colon_token_id")
        instruction = int(_COLON_IDS[second["model_type"]] if own is None else own)
        words = int(second.get("vocab_size", 50368))
        said = f"the colon {instruction} is not in the vocabulary of {words}: give colon_token_id"
        _refuse(instruction >= words, said)  # else all tokens would be pooled, in silence
    pool = "text" if variant == "hub" or get("pool_ignore_contextual_tokens", True) else "all"
    config: ContextualConfig = ContextualConfig(
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
        **TASK_PREFIXES["retrieval"],
    )
    return config


def _known(name: Any) -> dict[str, Any]:
    _refuse(
        name not in BACKBONE_DIMENSIONS,
        f"the dimensions of the backbone {shown(name)} are not known here; give backbone_config. "
        f"Known are {', '.join(BACKBONE_DIMENSIONS)}",
    )
    return BACKBONE_DIMENSIONS[name]


#: parts of our names, and what stands in their place in the published ones
_PARTS = {
    "first_stage.backbone.": "first_stage_model.embedder.",
    "first_stage.": "first_stage_model.",
    "second_stage.null_embedding": "second_stage_model.sequence_dropout_null_embedding",
    "second_stage.": "second_stage_model.",
}
_NOMIC_PARTS = {
    "embeddings.LayerNorm.": "emb_ln.",
    ".layers.": ".encoder.layers.",
    "self_attn.q_proj.": "attn.Wqkv.",
    "self_attn.k_proj.": "attn.Wqkv.",
    "self_attn.v_proj.": "attn.Wqkv.",
    "self_attn.o_proj.": "attn.out_proj.",
    "mlp.up_proj.": "mlp.fc11.",
    "mlp.gate_proj.": "mlp.fc12.",
    "mlp.down_proj.": "mlp.fc2.",
    "post_attention_layernorm.": "norm1.",
    "post_mlp_layernorm.": "norm2.",
}


def published_names(config: ContextualConfig, ours: Iterable[str]) -> dict[str, str]:
    """What the published layout calls tensors of ours."""
    parts = _PARTS if config.variant == "v2" else _PARTS | _NOMIC_PARTS
    names = {name: name for name in ours}
    for name in names:
        for own, theirs in parts.items():
            names[name] = names[name].replace(own, theirs)
    return names


def to_ours(
    config: ContextualConfig, names: Mapping[str, str], published: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Published tensors under our names, of those that are there; `names` are `published_names`."""
    tensors = {}
    for name, theirs in names.items():
        if theirs not in published:
            continue
        tensor = published[theirs]
        third = re.search(r"self_attn\.([qkv])_proj\.", name)
        if third and tensor.ndim and len(tensor) % 3 == 0:
            tensor = tensor.chunk(3)["qkv".index(third[1])]
            order = row_order(config, name)
            tensor = tensor[order] if order is not None and len(order) == len(tensor) else tensor
        tensors[name] = tensor
    return tensors


def row_order(config: ContextualConfig, name: str) -> Tensor | None:
    """The order of published rows of queries or keys in which pairs to be rotated lie half a head
    apart; None for other tensors, and where they do.
    """
    if "self_attn.q_proj." not in name and "self_attn.k_proj." not in name:
        return None
    in_first = name.startswith("first_stage.")
    backbone: Any = config.first_backbone if in_first else config.second_backbone
    fraction, interleaved = backbone["rotary_fraction"], backbone["rotary_interleaved"]
    if fraction == 1.0 and not interleaved:
        return None
    head = int(backbone["head_dim"])
    rotated = int(head * fraction)
    inside = torch.arange(rotated)
    first, second = (inside[0::2], inside[1::2]) if interleaved else inside.chunk(2)
    rest_first, rest_second = torch.arange(rotated, head).chunk(2)
    order = torch.cat([first, rest_first, second, rest_second])
    heads = range(int(backbone["num_attention_heads"]))
    return torch.cat([order + number * head for number in heads])


# --- the authors' forward passes


@dataclass(frozen=True)
class Variant:
    """How one forward pass of the second stage differs from the others.

    What the authors' programs do in training mode alone (the Hub's file shuffles the context,
    several vectors a document are drawn with replacement) is not among it: training follows this
    book's way.

    Attributes:
        rotary: what tokens are turned by. For "text", text tokens turn by their place in the text
            and context tokens by nothing. For "sequence", tokens turn by the place in the whole
            sequence, those before `unrotated` by nothing. For "head", they turn by the index of the
            attention head; "plain" is the backbone's own way.
        token_type_twice: the token type embedding is added to every token once more.
        embedding_norm_twice: text passes the embedding norm before the whole sequence does.
        window_spares_context: local windows (ModernBERT) count no places from text to context.
        residual: the output projection is added to what it projects, instead of replacing it.
    """

    rotary: Literal["text", "sequence", "head", "plain"]
    token_type_twice: bool = False
    embedding_norm_twice: bool = False
    window_spares_context: bool = True
    residual: bool = True


#: the published forward passes and this book's, by name
VARIANTS = {
    #: this book's pass: the paper's description, one embedding norm, context without positions in
    #: every family
    "paper": Variant(rotary="text"),
    #: the authors' self-contained file hf_model.py, which `trust_remote_code` runs for cde-small-v1
    "hub": Variant(
        rotary="head", token_type_twice=True, window_spares_context=False, residual=False
    ),
    #: the authors' training code over NomicBERT
    "train": Variant(rotary="sequence", window_spares_context=False),
    #: the same over ModernBERT: cde-small-v2
    "v2": Variant(rotary="plain", embedding_norm_twice=True, window_spares_context=False),
}


def turned_by_head(states: Tensor, start: int, frequencies: Tensor) -> Tensor:
    """The rotation of the published file `hf_model.py`, of `(batch, heads, tokens, head_dim)`:
    every token from `start` on is turned by its head's index, not by its own.
    """
    heads = torch.arange(states.shape[1], device=frequencies.device)
    angles = (heads[:, None].float() * frequencies).repeat(1, 2)[:, None]
    before, turned = states[:, :, :start], states[:, :, start:]
    first, second = turned.chunk(2, dim=-1)
    halves = torch.cat([-second, first], dim=-1)
    turned = turned * angles.cos().to(states.dtype) + halves * angles.sin().to(states.dtype)
    return torch.cat([before, turned], dim=2)


class PublishedFirstStage(FirstStage):
    """M1 as the authors' programs run it."""

    def __init__(self, config: ContextualConfig, dim: int) -> None:
        super().__init__(config, dim)
        self.variant = VARIANTS[config.variant]

    def positions(self, places: Tensor) -> Tensor:
        """None for `rotary` "head": what turns all tokens alike leaves products as they are."""
        return torch.zeros_like(places) if self.variant.rotary == "head" else places

    def hidden_states(self, input_ids: Tensor, mask: Tensor | None) -> Tensor:
        """With `rotary` "sequence" padding has none, as after unpadding."""
        hidden = super().hidden_states(input_ids, mask)
        if self.variant.rotary == "sequence" and mask is not None:
            hidden = hidden * mask.unsqueeze(-1)
        return hidden

    def pool(self, hidden: Tensor, mask: Tensor | None) -> Tensor:
        if self.parts == 1:
            return super().pool(hidden, mask)
        return mean_of_chunks(hidden, mask, self.parts)


class PublishedSecondStage(SecondStage):
    """M2 as the authors' programs run it."""

    def __init__(self, config: ContextualConfig) -> None:
        super().__init__(config)
        self.variant = VARIANTS[config.variant]
        self.window_spares_context = self.variant.window_spares_context

    def context_tokens(self, context: Tensor | None, null_context: bool, batch: int) -> Tensor:
        """The context as tokens of M2, cut to what the model was made for; fewer are refused."""
        if context is not None:
            per_document, wanted = self.config.vectors_per_document, self.config.context_tokens
            tokens = self.as_tokens(context, batch)
            count = tokens.shape[1]
            few = self.config.variant == "hub" and count < wanted
            _refuse(
                few or (per_document > 1 and count != wanted),
                f"the published variant {self.config.variant!r} reads {self.config.context_size} "
                f"context documents{' or more' if per_document == 1 else ''}; "
                f"{count // per_document} were given. with_context(texts) repeats documents where "
                "there are fewer",
            )
            context = tokens[:, :wanted] if per_document == 1 else context
        return super().context_tokens(context, null_context, batch)

    def embed(self, input_ids: Tensor) -> Tensor:
        hidden = super().embed(input_ids)
        return super().normalise(hidden) if self.variant.embedding_norm_twice else hidden

    def normalise(self, hidden: Tensor) -> Tensor:
        if self.variant.token_type_twice:
            hidden = hidden + self.backbone.embeddings.token_type_embeddings.weight[0]
        return super().normalise(hidden)

    def layers(self, hidden: Tensor, mask: Tensor | None, *shape: Any, **options: Any) -> Tensor:
        start = self.config.unrotated
        if self.variant.rotary == "head" and start:
            rotary: Any = self.backbone.get_submodule("rotary_emb")
            options["turned"] = partial(turned_by_head, start=start, frequencies=rotary.inv_freq)
        return super().layers(hidden, mask, *shape, **options)

    def positions(self, places: Tensor, before: int) -> Tensor:
        return {
            "text": super().positions(places, before),
            "sequence": places.masked_fill(places < self.config.unrotated, 0),
            "head": torch.zeros_like(places),
            "plain": places,
        }[self.variant.rotary]

    def pool(self, input_ids: Tensor, mask: Tensor | None, text: Tensor, before: Tensor) -> Tensor:
        mask = self._behind_instruction(input_ids, mask)
        if self.config.pool == "all":
            text = torch.cat([before, text], dim=1)
            if mask is not None:
                mask = nn.functional.pad(mask, (before.shape[1], 0), value=True)
        return super().pool(input_ids, mask, text, before)

    def _behind_instruction(self, input_ids: Tensor, mask: Tensor | None) -> Tensor | None:
        if self.config.skip_instruction_until is None:
            return mask
        marks: Tensor = input_ids == self.config.skip_instruction_until
        marks[:, 0] = False
        found = marks.any(dim=1, keepdim=True)
        place = torch.arange(input_ids.shape[1], device=input_ids.device)[None]
        after = ~found | (place > marks.int().argmax(dim=1, keepdim=True))
        return after if mask is None else after & mask

    def project(self, pooled: Tensor) -> Tensor:
        if self.variant.residual or self.output_projection is None:
            return super().project(pooled)
        return through(self.output_projection, pooled)

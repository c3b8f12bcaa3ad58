"""Configurations of the encoders: what is saved in `config.json`, checked on construction.

The contextual encoder has one config for our own models and for the published ones. `variant` says
which of four forward passes it runs; their differences are spelled out in `VARIANTS`, rather than
spread over four implementations.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from transformers import AutoConfig, PreTrainedConfig

from cde.models.backbones import FAMILIES
from cde.validation import (
    checked_number,
    checked_switch,
    checked_text,
    checked_whole,
    shown,
    unknown,
)

__all__ = [
    "TASK_PREFIXES",
    "VARIANTS",
    "BiEncoderConfig",
    "ContextualConfig",
    "Variant",
    "check_settings",
]


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
        embedding_norm_twice: text passes the backbone's embedding norm before the whole sequence
            does.
        window_spares_context: local attention (ModernBERT) counts no places between text and
            context.
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


#: what stands before texts in the published models, by kind of task (§10.7 and the authors'
#: evaluation); settings of both configs: `ContextualEncoder.from_backbone("minilm",
#: **TASK_PREFIXES["retrieval"])`
TASK_PREFIXES = {
    "retrieval": {"query_prefix": "search_query: ", "document_prefix": "search_document: "},
    "question retrieval": {"query_prefix": "search_query: ", "document_prefix": "search_query: "},
    "clustering": {"query_prefix": "clustering: ", "document_prefix": "clustering: "},
    "classification": {"query_prefix": "classification: ", "document_prefix": "classification: "},
}


def check_settings(
    config: type[PreTrainedConfig], names: Iterable[str], besides: Iterable[str] = ()
) -> None:
    """Refuse names that a config does not have: `transformers` would take and forget them."""
    own = set(inspect.signature(config.__init__).parameters) - {"self", "kwargs"}
    known = {name for name in own if not name.endswith("backbone")}
    if strange := set(names) - known:
        raise ValueError(unknown(strange, known | set(besides)))


def _probability(value: Any, name: str) -> float:
    number = checked_number(value, name)
    _require(0 <= number < 1, f"{name} must be a probability below 1; it is {shown(value)}")
    return number


def _among(value: Any, accepted: Iterable[str]) -> bool:
    return isinstance(value, str) and value in accepted


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)


def _check_backbone(values: Any, name: str) -> None:
    _require(
        isinstance(values, dict),
        f"{name} must be a backbone's config as a dictionary; it is {shown(values)}",
    )
    kind = values.get("model_type")
    _require(
        _among(kind, FAMILIES),
        f"{name} has the model_type {shown(kind)}; accepted are {', '.join(FAMILIES)}",
    )


class BiEncoderConfig(PreTrainedConfig):  # type: ignore[misc]
    """Config of `BiEncoder`.

    Args:
        backbone: config dictionary of the transformer, with its `model_type`.
        query_prefix, document_prefix: text put before every query and every document (§10.7).
        max_tokens: texts are cut to so many tokens.
        dropout: dropout of the whole backbone, in training.
        pooling: "mean" over tokens; "cls", the first token's vector (clustering paper §3.2); or
            "chunks", the mean over eight chunks of a text, each brought to unit length.

    Raises:
        ValueError: a setting outside what is accepted.

    Example:
        >>> BiEncoderConfig(max_tokens=64).max_tokens
        64
    """

    model_type = "cde-bi-encoder"

    def __init__(
        self,
        backbone: dict[str, Any] | None = None,
        query_prefix: str = "",
        document_prefix: str = "",
        max_tokens: int = 512,
        dropout: float = 0.0,
        pooling: Literal["mean", "cls", "chunks"] = "mean",
        **kwargs: Any,
    ) -> None:
        if backbone is not None:
            _check_backbone(backbone, "backbone")
        _require(
            _among(pooling, ("mean", "cls", "chunks")),
            f"pooling must be 'mean', 'cls' or 'chunks'; it is {shown(pooling)}",
        )
        self.backbone = backbone
        self.pooling = pooling
        self.query_prefix = checked_text(query_prefix, "query_prefix")
        self.document_prefix = checked_text(document_prefix, "document_prefix")
        self.max_tokens = checked_whole(max_tokens, "max_tokens", 2)
        self.dropout = _probability(dropout, "dropout")
        super().__init__(**kwargs)

    @property
    def hidden_size(self) -> int:
        """Length of the vectors, under the name that `transformers` has for it."""
        return int((self.backbone or {})["hidden_size"])


class ContextualConfig(PreTrainedConfig):  # type: ignore[misc]
    """Config of `ContextualEncoder`.

    Args:
        first_backbone: config dictionary of M1; None for an encoder saved without its first stage.
        second_backbone: config dictionary of M2.
        context_size: J, the number of context documents that it is made for, 1 or more; it can be
            bound to any other number, and to none (published variants: as far as the authors' code
            accepts it).
        vectors_per_document: context vectors per context document (§10.11).
        attention: "full" or "cached", as `cde.models.attention` describes them; or "gated": text
            tokens read the context once, before the first layer (`cde.models.reader`).
        first_stage_mlp: two linear layers after M1's pooling, in the published models (not in the
            paper).
        soft_prompt_tokens: learned tokens between context and text (8 in the published models).
        output_projection: two linear layers after M2's pooling, in the published models.
        sequence_dropout: probability p of replacing a context token by the null token in training
            (§4.2: 0.005).
        null_token: whether the model has v∅ at all; published models trained without dropout lack
            it.
        tie_token_embeddings: M1 and M2 share their word embeddings.
        matched: with attention "gated", start with queries that fit keys.
        pool: "text" averages text tokens alone (§4.2), "all" also the context and the soft prompt.
        variant: which forward pass, a key of `VARIANTS`.
        unrotated: so many tokens at the start of the sequence are not turned (variants "hub",
            "train").
        skip_instruction_until: leave tokens up to the first of this id out of the pooling
            (published models with `pool_ignore_instruction_tokens`); None pools all text tokens.
        query_prefix, document_prefix: text put before every query and every document (§10.7).
        max_tokens: texts are cut to so many tokens.
        dropout: dropout of both backbones, in training.

    Raises:
        ValueError: a setting outside what is accepted.

    Example:
        >>> ContextualConfig(context_size=64, vectors_per_document=2).context_tokens
        128
        >>> ContextualConfig(attention="sparse")
        Traceback (most recent call last):
        ValueError: attention must be 'full', 'cached' or 'gated'; it is 'sparse'
    """

    model_type = "cde-contextual-encoder"

    def __init__(
        self,
        first_backbone: dict[str, Any] | None = None,
        second_backbone: dict[str, Any] | None = None,
        context_size: int = 64,
        vectors_per_document: int = 1,
        attention: str = "full",
        first_stage_mlp: bool = False,
        soft_prompt_tokens: int = 0,
        output_projection: bool = False,
        sequence_dropout: float = 0.005,
        null_token: bool = True,
        tie_token_embeddings: bool = False,
        matched: bool = True,
        pool: str = "text",
        variant: str = "paper",
        unrotated: int = 0,
        skip_instruction_until: int | None = None,
        query_prefix: str = "",
        document_prefix: str = "",
        max_tokens: int = 512,
        dropout: float = 0.0,
        **kwargs: Any,
    ) -> None:
        for values, name in (
            (first_backbone, "first_backbone"),
            (second_backbone, "second_backbone"),
        ):
            if values is not None:
                _check_backbone(values, name)
        _require(
            _among(variant, VARIANTS),
            f"variant must be one of {', '.join(VARIANTS)}; it is {shown(variant)}",
        )
        _require(
            _among(attention, ("full", "cached", "gated")),
            f"attention must be 'full', 'cached' or 'gated'; it is {shown(attention)}",
        )
        _require(
            variant == "paper" or attention == "full",
            f"the published variant {variant!r} was trained with attention 'full'; {attention!r} "
            "is for variant 'paper'",
        )
        _require(
            _among(pool, ("text", "all")), f"pool must be 'text' or 'all'; it is {shown(pool)}"
        )
        _require(
            not (pool == "all" and attention != "full"),
            "pool='all' needs the context in every text: 'full'",
        )
        _require(
            not (
                checked_whole(soft_prompt_tokens, "soft_prompt_tokens", 0) and attention == "gated"
            ),
            "soft_prompt_tokens stand in the sequence, where attention 'gated' puts nothing: take "
            "'full' or 'cached'",
        )
        sequence_dropout = _probability(sequence_dropout, "sequence_dropout")
        null_token = checked_switch(null_token, "null_token")
        _require(
            null_token or sequence_dropout == 0 or attention == "gated",
            "sequence dropout needs the null token: null_token must be True",
        )
        self.first_backbone = first_backbone
        self.second_backbone = second_backbone
        self.context_size = checked_whole(context_size, "context_size")
        self.vectors_per_document = checked_whole(vectors_per_document, "vectors_per_document")
        self.attention = attention
        self.first_stage_mlp = checked_switch(first_stage_mlp, "first_stage_mlp")
        self.soft_prompt_tokens = checked_whole(soft_prompt_tokens, "soft_prompt_tokens", 0)
        self.output_projection = checked_switch(output_projection, "output_projection")
        self.sequence_dropout = sequence_dropout
        self.null_token = null_token
        self.tie_token_embeddings = checked_switch(tie_token_embeddings, "tie_token_embeddings")
        self.matched = checked_switch(matched, "matched")
        self.pool = pool
        self.variant = variant
        self.unrotated = checked_whole(unrotated, "unrotated", 0)
        self.skip_instruction_until = (
            None
            if skip_instruction_until is None
            else checked_whole(skip_instruction_until, "skip_instruction_until", 0)
        )
        self.query_prefix = checked_text(query_prefix, "query_prefix")
        self.document_prefix = checked_text(document_prefix, "document_prefix")
        self.max_tokens = checked_whole(max_tokens, "max_tokens", 2)
        self.dropout = _probability(dropout, "dropout")
        super().__init__(**kwargs)

    @property
    def hidden_size(self) -> int:
        """Length of the vectors, under the name that `transformers` has for it."""
        return int((self.second_backbone or {})["hidden_size"])

    @property
    def context_tokens(self) -> int:
        """Context tokens that the model is made for: documents times vectors a document."""
        return self.context_size * self.vectors_per_document

    def carried(self, tokens: int) -> int:
        """What so many context tokens weigh beside each text, in tokens of the text.

        In the pattern "cached" a text's copy of their keys and values weighs about a quarter.

        Example:
            >>> ContextualConfig(attention="cached").carried(64)
            16
        """
        return (
            tokens // {"full": 1, "cached": 4}[self.attention] if self.attention != "gated" else 0
        )


# so that AutoConfig and AutoTokenizer know a saved folder's model_type
AutoConfig.register(BiEncoderConfig.model_type, BiEncoderConfig, exist_ok=True)
AutoConfig.register(ContextualConfig.model_type, ContextualConfig, exist_ok=True)

"""Configurations of the encoders: what is saved in `config.json`, checked on construction."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator
from transformers import AutoConfig, PreTrainedConfig

from cde.models.backbones import FAMILIES
from cde.validation import Number, Switch, Text, Whole, declared, shown, unknown

__all__ = ["TASK_PREFIXES", "BiEncoderConfig", "ContextualConfig"]

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


def _backbone(values: Any) -> Any:
    if not isinstance(values, dict):
        raise ValueError("must be a backbone's config as a dictionary")
    kind = values.get("model_type")
    if not isinstance(kind, str) or kind not in FAMILIES:
        raise ValueError(f"has the model_type {shown(kind)}; accepted are {', '.join(FAMILIES)}")
    return values


_Backbone = Annotated[dict[str, Any], BeforeValidator(_backbone)]
_Count = Annotated[Whole, Field(ge=1, le=1_000_000)]
_CountOrZero = Annotated[Whole, Field(ge=0, le=1_000_000)]
_Probability = Annotated[Number, Field(ge=0, lt=1)]


def _filled_from(settings: type) -> Callable[..., None]:
    """The constructor of a config that has these settings, with their names in its signature."""
    own = inspect.signature(settings).parameters

    def fill(self: Any, **values: Any) -> None:
        given = {name: values.pop(name) for name in own if name in values}
        checked = settings(**given)
        for name in own:
            setattr(self, name, getattr(checked, name))
        PreTrainedConfig.__init__(self, **values)

    this = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    fill.__signature__ = inspect.Signature([this, *own.values()])  # type: ignore[attr-defined]
    return fill


@declared
class _BiEncoder:
    backbone: _Backbone | None = None
    query_prefix: Text = ""
    document_prefix: Text = ""
    max_tokens: Annotated[Whole, Field(ge=2, le=1_000_000)] = 512
    dropout: _Probability = 0.0
    pooling: Literal["mean", "cls", "chunks"] = "mean"


class BiEncoderConfig(PreTrainedConfig):  # type: ignore[misc]
    """Config of `BiEncoder`.

    Args:
        backbone: config dictionary of the transformer, with its `model_type`.
        query_prefix, document_prefix: text put before every query and every document (§10.7).
        max_tokens: texts are cut to so many tokens, and to as many as the backbone has positions.
        dropout: dropout of the whole backbone, in training.
        pooling: "mean" over tokens; "cls", the first token's vector (clustering paper §3.2); or
            "chunks", the mean over eight chunks of a text, each brought to unit length.

    Example:
        >>> BiEncoderConfig(max_tokens=64).max_tokens
        64
    """

    model_type = "cde-bi-encoder"
    __init__ = _filled_from(_BiEncoder)

    @property
    def hidden_size(self) -> int:
        """Length of the vectors, under the name that `transformers` has for it."""
        return int((self.backbone or {})["hidden_size"])


@declared
class _Contextual:
    first_backbone: _Backbone | None = None
    second_backbone: _Backbone | None = None
    context_size: _Count = 64
    vectors_per_document: Annotated[Whole, Field(ge=1, le=1000)] = 1  # each has its own matrix
    attention: Literal["full", "cached", "gated"] = "full"
    first_stage_mlp: Switch = False
    soft_prompt_tokens: Annotated[Whole, Field(ge=0, le=1000)] = 0  # and so has each of these
    output_projection: Switch = False
    sequence_dropout: _Probability = 0.005
    null_token: Switch = True
    tie_token_embeddings: Switch = False
    matched: Switch = True
    pool: Literal["text", "all"] = "text"
    variant: Literal["paper", "hub", "train", "v2"] = "paper"
    unrotated: _CountOrZero = 0
    skip_instruction_until: _CountOrZero | None = None
    query_prefix: Text = ""
    document_prefix: Text = ""
    max_tokens: Annotated[Whole, Field(ge=2, le=1_000_000)] = 512
    dropout: _Probability = 0.0

    @model_validator(mode="after")
    def _fits_together(self) -> _Contextual:
        if self.variant != "paper" and self.attention != "full":
            raise ValueError(
                f"variant {self.variant!r} has attention 'full', others are for 'paper'"
            )
        pooling = (self.pool, self.skip_instruction_until)
        if self.variant == "paper" and pooling != ("text", None):
            raise ValueError("pool='all' and skip_instruction_until are for published checkpoints")
        if self.soft_prompt_tokens and self.attention == "gated":
            raise ValueError("soft_prompt_tokens need attention 'full' or 'cached'")
        if self.sequence_dropout and not self.null_token and self.attention != "gated":
            raise ValueError("sequence dropout needs the null token: null_token must be True")
        return self


class ContextualConfig(PreTrainedConfig):  # type: ignore[misc]
    """Config of `ContextualEncoder`, of our own models and of the published ones.

    Args:
        first_backbone: config dictionary of M1; None for an encoder saved without its first stage.
        second_backbone: config dictionary of M2.
        context_size: J, the number of context documents that it is made for, 1 or more; it can be
            bound to any other number, and to none (published variants: as far as the authors' code
            accepts it).
        vectors_per_document: context vectors per context document (§10.11).
        attention: "full" or "cached", as `cde.models.attention` describes them; or "gated": text
            tokens read the context once, before the first layer (`cde.models.stages`).
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
        pool: "text" averages text tokens alone (§4.2); "all", which published checkpoints may ask
            for, also the context and the soft prompt.
        variant: which forward pass: "paper" is this book's, "hub", "train" and "v2" are the
            authors' (`cde.models.VARIANTS`).
        unrotated: so many tokens at the start of the sequence are not turned (variants "hub",
            "train").
        skip_instruction_until: leave tokens up to the first of this id out of the pooling
            (published models with `pool_ignore_instruction_tokens`); None pools all text tokens.
        query_prefix, document_prefix: text put before every query and every document (§10.7).
        max_tokens: texts are cut to so many tokens, and to as many as the backbone has positions.
        dropout: dropout of both backbones, in training.

    Example:
        >>> ContextualConfig(context_size=64, vectors_per_document=2).context_tokens
        128
        >>> ContextualConfig(attention="sparse")
        Traceback (most recent call last):
        ValueError: attention must be one of full, cached, gated; it is 'sparse'
    """

    model_type = "cde-contextual-encoder"
    __init__ = _filled_from(_Contextual)

    @property
    def hidden_size(self) -> int:
        """Length of the vectors, under the name that `transformers` has for it."""
        return int((self.second_backbone or {})["hidden_size"])

    @property
    def context_tokens(self) -> int:
        """Context tokens that the model is made for: documents times vectors a document."""
        return int(self.context_size * self.vectors_per_document)

    def carried(self, tokens: int) -> int:
        """What so many context tokens weigh with each text; keys and values alone a quarter."""
        return {"full": tokens, "cached": tokens // 4, "gated": 0}[self.attention]


# so that AutoConfig and AutoTokenizer know a saved folder's model_type
AutoConfig.register(BiEncoderConfig.model_type, BiEncoderConfig, exist_ok=True)
AutoConfig.register(ContextualConfig.model_type, ContextualConfig, exist_ok=True)

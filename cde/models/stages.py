"""The two stages of the contextual encoder: M1 makes context vectors, M2 reads them.

M1 (`FirstStage`): backbone, mean over tokens, optionally two linear layers. One vector a document,
or several, from contiguous parts of it (§10.11).

M2 (`SecondStage`, Eqs. 5 and 6): the sequence [context | soft prompt | text] through the backbone,
mean over text tokens, optionally two linear layers. The authors' programs differ in details, which
`cde.models.published` puts in the place of methods.

With attention "gated" (ours), text tokens read the context once instead, before the first layer. A
`ContextReader` lets a token x_i ask the J context vectors c_j how common it is among them::

    s_ij = β cos(W_q x_i + b_q, W_k c_j + b_k)
    a_ij = exp(s_ij) / (J exp(σ) + Σ_j exp(s_ij))
    x_i  ← x_i + γ Σ_j a_ij (W_v c_j + u)

The place σ takes what fits nothing. So Σ_j a_ij is a soft document frequency, whatever J is. γ
starts at zero: an untrained encoder is the plain transformer. W_q and W_k start equal, and whiten
the embeddings of words: a token fits the context vectors that hold its word. This asks for context
vectors made of word embeddings, as the chapter `context_required` shows.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from cde.models.attention import ContextCache
from cde.models.backbones import (
    Masks,
    build_backbone,
    masks_of,
    mean_of_parts,
    mean_of_tokens,
    to_the_left,
    token_states,
)
from cde.models.configuration import ContextualConfig

__all__ = ["FirstStage", "SecondStage"]

#: Adam's steps do not grow with what they change: γ, u, β and σ are multiples of their parameters,
#: so that the gate opens within a hundred steps
_PACE = 32.0
_WIDTH = 128
_BETA, _SIGMA = 10.0, 1.5


class ContextReader(nn.Module):
    """Reads context vectors into text tokens, through a gate that starts at zero."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        width = min(_WIDTH, dim)
        self.query, self.key = nn.Linear(dim, width), nn.Linear(dim, width)
        self.value = nn.Linear(dim, dim, bias=False)
        self.direction = nn.Parameter(torch.randn(dim) / 2 / _PACE)
        self.scale = nn.Parameter(torch.tensor(_BETA / _PACE))
        self.nothing = nn.Parameter(torch.tensor(_SIGMA / _PACE))
        self.gate = nn.Parameter(torch.zeros(()))

    @torch.no_grad()
    def match(self, words: Tensor) -> None:
        """Let queries and keys whiten these vectors, in their first principal components."""
        words = words.float()
        mean = words.mean(dim=0)
        variances, directions = torch.linalg.eigh(torch.cov(words.T))
        kept = slice(-self.query.out_features, None)
        # a component without variance tells no words apart
        scales = variances[kept].clamp(min=1e-6 * float(variances[-1])).rsqrt()
        whitening = scales[:, None] * directions[:, kept].T
        for part in (self.query, self.key):
            part.weight.copy_(whitening)
            part.bias.copy_(-whitening @ mean)

    def shares(self, text: Tensor, context: Tensor, dropped: Tensor | None = None) -> Tensor:
        """The share a_ij of each context vector in what each token reads, `(batch, T, J)`."""
        asked, keys = normalize(self.query(text), dim=-1), normalize(self.key(context), dim=-1)
        scores = _PACE * self.scale * (asked @ keys.transpose(1, 2)).float()
        if dropped is not None:
            scores = scores.masked_fill(dropped[:, None], -torch.inf)
        nothing = _PACE * self.nothing + math.log(max(1, context.shape[1]))
        nowhere = nothing.expand(*scores.shape[:2], 1)
        return torch.cat([scores, nowhere], dim=-1).softmax(dim=-1)[..., :-1]

    def forward(self, text: Tensor, context: Tensor, dropped: Tensor | None = None) -> Tensor:
        """Text tokens that have read the context, `(batch, T, dim)`."""
        context = context.to(text.dtype)
        shares = self.shares(text, context, dropped).to(text.dtype)
        values = self.value(context) + _PACE * self.direction
        added: Tensor = _PACE * self.gate * (shares @ values.expand(len(text), -1, -1))
        return text + added.to(text.dtype)


def _check_contexts(count: int, batch: int) -> None:
    if count not in (1, batch):
        raise ValueError(
            f"{count} contexts for a batch of {batch} texts: give one each, or one for all"
        )


def _two_layers(inner: int, outer: int, activation: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inner, inner), activation, nn.Linear(inner, outer))


def through(layers: nn.Module, pooled: Tensor) -> Tensor:
    """Layers behind the pooling, in the precision of their weights (pooling gives float32)."""
    weight = next(layers.parameters(), None)
    projected: Tensor = layers(pooled if weight is None else pooled.to(weight.dtype))
    return projected


class FirstStage(nn.Module):
    """M1: texts to context vectors, not normalised."""

    def __init__(self, config: ContextualConfig, dim: int) -> None:
        super().__init__()
        self.parts = config.vectors_per_document
        self.family, self.backbone = build_backbone(config.first_backbone, config.dropout)
        inner = self.backbone.config.hidden_size
        if config.first_stage_mlp:
            self.mlp: nn.Module = _two_layers(inner, dim, nn.GELU())
        elif inner != dim:
            raise ValueError(
                f"the first stage makes vectors of {inner} dimensions and the second reads {dim}: "
                "take backbones of one size, or first_stage_mlp=True"
            )
        else:
            self.mlp = nn.Identity()
        self.attention = {"implementation": "sdpa"}

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Context vectors of texts."""
        input_ids, mask = to_the_left(input_ids, attention_mask)
        return through(self.mlp, self.pool(self.hidden_states(input_ids, mask), mask))

    def hidden_states(self, input_ids: Tensor, mask: Tensor | None) -> Tensor:
        """Last hidden states `(n, T, dim)` of texts whose padding stands on the right."""
        return token_states(self.backbone, input_ids, mask, self.attention, self.positions)

    def positions(self, places: Tensor) -> Tensor:
        """What rotary layers turn tokens by, `(1, T)`: their places in the text."""
        return places

    def pool(self, hidden: Tensor, mask: Tensor | None) -> Tensor:
        """Means over each text's tokens, `(n, dim)`, or over its parts, `(n, parts, dim)`."""
        if self.parts == 1:
            return mean_of_tokens(hidden, mask)
        return mean_of_parts(hidden, mask, self.parts)


class NoFirstStage(nn.Module):
    """In the place of M1 in an encoder saved with its context and without its first stage."""

    def forward(self, *_: Any, **__: Any) -> Tensor:
        raise ValueError(
            "this encoder was saved with its context and without its first stage, so it cannot "
            "embed another context: load the whole model, or pass context vectors"
        )


class SecondStage(nn.Module):
    """M2: texts and context vectors to embeddings, before normalisation."""

    #: local windows (ModernBERT) count no places between text and context
    window_spares_context = True

    def __init__(self, config: ContextualConfig) -> None:
        super().__init__()
        self.config = config
        self.family, self.backbone = build_backbone(config.second_backbone, config.dropout)
        self.dim = dim = int(self.backbone.config.hidden_size)
        self.prompt_projection: nn.Module | None = None
        if config.soft_prompt_tokens:
            self.prompt_projection = _two_layers(dim, dim * config.soft_prompt_tokens, nn.ReLU())
        self.output_projection = (
            _two_layers(dim, dim, nn.ReLU()) if config.output_projection else None
        )
        gated = config.attention == "gated"
        self.reader = ContextReader(dim) if gated else None
        null = config.null_token and not gated  # a gated reader has nothing to read there
        self.null_embedding = nn.Parameter(torch.empty(dim).normal_(std=0.02)) if null else None
        self.attention: dict[str, Any] = {"implementation": "sdpa"}

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        context: Tensor | ContextCache | None = None,
        null_context: bool = False,
    ) -> Tensor:
        """Embeddings of texts in a context, before normalisation."""
        input_ids, mask = to_the_left(input_ids, attention_mask)
        text, before = self.hidden_states(input_ids, mask, context, null_context)
        return self.project(self.pool(input_ids, mask, text, before))

    def hidden_states(
        self,
        input_ids: Tensor,
        mask: Tensor | None,
        context: Tensor | ContextCache | None,
        null_context: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """Last hidden states of text, `(batch, T, dim)`, and of what stands before it."""
        cache, vectors = (context, None) if isinstance(context, ContextCache) else (None, context)
        batch = len(input_ids)
        if cache is not None:
            self._require_cached()
            if null_context:
                raise ValueError("a cache is as it is: give null_context=True to cache_context")
        if self.config.attention == "full":
            tokens = self.context_tokens(vectors, null_context, batch)
            return self.in_sequence(tokens, input_ids, mask)
        if self.config.attention == "cached":  # the text stands alone, with keys and values
            cache = self.cache_context(vectors, null_context) if cache is None else cache
            _check_contexts(cache.contexts, batch)
        hidden = self.normalise(self.embed(input_ids))
        if self.reader is not None and vectors is not None and not null_context:
            tokens = self.as_tokens(vectors, batch)
            hidden = self.reader(hidden, tokens, self._dropped(tokens))
        text = self.layers(hidden, mask, cache=cache)
        return text, text[:, :0]

    def in_sequence(
        self, context: Tensor, input_ids: Tensor, mask: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """[context | soft prompt | text] through all layers."""
        batch, prompt, text = len(input_ids), self.soft_prompt()[None], self.embed(input_ids)
        before = [part.expand(batch, -1, -1).to(text.dtype) for part in (context, prompt)]
        hidden = self.normalise(torch.cat([*before, text], dim=1))
        count = hidden.shape[1] - text.shape[1]
        hidden = self.layers(hidden, mask, count)
        return hidden[:, count:], hidden[:, :count]

    def embed(self, input_ids: Tensor) -> Tensor:
        """Token vectors of texts, `(batch, T, dim)`, positions added where they are learned."""
        places = torch.arange(input_ids.shape[1], device=input_ids.device)[None]
        return self.family.embed(self.backbone, input_ids, places)

    def normalise(self, hidden: Tensor) -> Tensor:
        """What stands between the embeddings and the first layer."""
        return self.family.normalise(self.backbone, hidden)

    def layers(
        self,
        hidden: Tensor,
        mask: Tensor | None,
        before: int = 0,
        cache: ContextCache | None = None,
        **options: Any,
    ) -> Tensor:
        """All layers over texts behind `before` tokens, or with a context's keys and values."""
        places = torch.arange(hidden.shape[1], device=hidden.device)[None]
        context = before
        if cache is not None and cache.length:
            context, options["context_cache"] = cache.length, cache
        masks = masks_of(
            self.family,
            self.backbone,
            self.attention["implementation"],
            *(mask, places.shape[1] - before, before, context),
            spares=self.window_spares_context,
            context_sees_text=self.config.attention == "full",
            device=hidden.device,
        )
        options |= self.attention
        positions = self.positions(places, before)
        return self.family.run(self.backbone, hidden, masks, positions, **options)

    def positions(self, places: Tensor, before: int) -> Tensor:
        """Rotary places, `(1, S)`: a text's own from 0 on, and 0 for what stands before it."""
        return (places - before).clamp(min=0)

    def pool(self, input_ids: Tensor, mask: Tensor | None, text: Tensor, before: Tensor) -> Tensor:
        """The mean over a text's own tokens, `(batch, dim)` float32."""
        return mean_of_tokens(text, mask)

    def project(self, pooled: Tensor) -> Tensor:
        """An output projection is added to a pooled vector."""
        if self.output_projection is None:
            return pooled
        return through(self.output_projection, pooled) + pooled

    # --- the context

    def as_tokens(self, context: Tensor, batch: int) -> Tensor:
        """Context vectors as tokens, `(1, J, dim)` if texts share them, else `(batch, J, dim)`."""
        per_document = self.config.vectors_per_document
        each = (self.dim,) if per_document == 1 else (per_document, self.dim)
        shared = context.ndim == 1 + len(each)
        if not (shared or context.ndim == 2 + len(each)) or context.shape[-len(each) :] != each:
            each_text = ", ".join(map(str, each))
            raise ValueError(
                f"the context must be of shape (documents, {each_text}), or (batch, documents, "
                f"{each_text}) with one context a text; it is of shape {tuple(context.shape)}"
            )
        tokens = (context[None] if shared else context).flatten(1, -2)
        _check_contexts(len(tokens), batch)
        return tokens

    def context_tokens(self, context: Tensor | None, null_context: bool, batch: int) -> Tensor:
        """The context as tokens of M2, checked, with sequence dropout in training."""
        if context is None:
            return self.null_tokens(self.config.context_tokens)[None]
        tokens = self.as_tokens(context, batch).to(self.backbone.dtype)
        if null_context:
            return self.null_tokens(tokens.shape[1])[None]
        # each text draws its own; a cache that texts share shares its draw
        each = tokens.expand(batch, -1, -1) if self.config.attention == "full" else tokens
        dropped = self._dropped(each)
        if dropped is None:
            return tokens
        return torch.where(dropped[..., None], self.null_tokens(1), each)

    def _dropped(self, tokens: Tensor) -> Tensor | None:
        """Which context tokens sequence dropout takes away, bool; None where there is none."""
        if not self.training or self.config.sequence_dropout == 0:
            return None
        drawn = torch.rand(tokens.shape[:2], device=tokens.device)
        dropped: Tensor = drawn < self.config.sequence_dropout
        return dropped

    def null_tokens(self, count: int) -> Tensor:
        """The null token v∅, `(count, dim)`."""
        if self.null_embedding is None:
            raise ValueError("this model has no null token, so it cannot do without a context")
        return self.null_embedding.expand(count, -1)

    def soft_prompt(self) -> Tensor:
        """The learned tokens between context and text, `(soft_prompt_tokens, dim)`."""
        one = torch.ones(1, self.dim, dtype=self.backbone.dtype, device=self.backbone.device)
        if self.prompt_projection is None:
            return one[:0]
        prompt: Tensor = self.prompt_projection(one)
        return prompt.reshape(-1, self.dim)

    def cache_context(self, context: Tensor | None, null_context: bool = False) -> ContextCache:
        """The context's keys and values in every layer, for the pattern `cached`; computed once."""
        self._require_cached()
        contexts = 1 if context is None else context.shape[:1].numel()
        tokens = self.context_tokens(context, null_context, contexts)
        prompt = self.soft_prompt()[None].expand(len(tokens), -1, -1)
        hidden = self.normalise(torch.cat([tokens, prompt], dim=1))
        cache = ContextCache(hidden.shape[1], len(tokens))
        if cache.length:
            # among themselves, context tokens see everything and have no places
            masks: Masks = {"full": None, "window": None}
            positions = torch.zeros(1, cache.length, dtype=torch.long, device=hidden.device)
            options = {"record_context": cache, **self.attention}
            self.family.run(self.backbone, hidden, masks, positions, **options)
        return cache

    def _require_cached(self) -> None:
        if (own := self.config.attention) != "cached":
            raise ValueError(f"cached contexts are for attention 'cached'; this model's is {own!r}")

    def match_reader(self) -> None:
        """Fit a gated reader's queries and keys to the backbone's word embeddings of now."""
        if self.reader is not None and self.config.matched:
            words = self.backbone.config.vocab_size
            every = torch.arange(words, device=self.backbone.device)[:, None]
            with torch.no_grad():
                self.reader.match(self.normalise(self.embed(every))[:, 0])

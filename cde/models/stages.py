"""The two stages of the contextual encoder as modules: M1 makes context vectors, M2 reads them.

M1 (`FirstStage`): backbone, mean over tokens, optionally two linear layers. One vector a document,
or several, from contiguous parts of it (§10.11).

M2 (`SecondStage`, Eqs. 5 and 6): the sequence [context | soft prompt | text] through the backbone,
mean over text tokens, optionally two linear layers. Cost per text: `cde.models.attention`.

A text's result depends on no other text of its batch, beyond the rounding of other matrix shapes.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from cde.models.attention import ContextCache, HeadRotation
from cde.models.backbones import Masks, build_backbone, config_from_dict, family_of, masks_of
from cde.models.configuration import VARIANTS, ContextualConfig
from cde.models.pooling import mean_of_chunks, mean_of_parts, mean_of_tokens, to_the_left
from cde.models.reader import ContextReader, context_as_tokens

__all__ = ["FirstStage", "NoFirstStage", "SecondStage"]


def _two_layers(inner: int, outer: int, activation: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inner, inner), activation, nn.Linear(inner, outer))


def _project(layers: nn.Module, pooled: Tensor) -> Tensor:
    """Layers behind the pooling, in the precision of their weights (pooling gives float32)."""
    weight = next(layers.parameters(), None)
    projected: Tensor = layers(pooled if weight is None else pooled.to(weight.dtype))
    return projected


class FirstStage(nn.Module):
    """M1: texts to context vectors, not normalised."""

    def __init__(self, config: ContextualConfig, dim: int) -> None:
        super().__init__()
        backbone = config_from_dict(config.first_backbone or {})
        self.variant = VARIANTS[config.variant]
        self.published = config.variant != "paper"
        self.parts = config.vectors_per_document
        self.family = family_of(backbone)
        self.backbone = build_backbone(backbone, config.dropout)
        inner = backbone.hidden_size
        if config.first_stage_mlp:
            self.mlp: nn.Module = _two_layers(inner, dim, nn.GELU())
        elif inner != dim:
            raise ValueError(
                f"the first stage makes vectors of {inner} dimensions and the second reads {dim}: "
                "take backbones of "
                "one size, or first_stage_mlp=True"
            )
        else:
            self.mlp = nn.Identity()
        self.attention = {"implementation": "sdpa"}

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Context vectors of texts.

        Returns:
            `(n, dim)`, or `(n, vectors_per_document, dim)` where that is more than one.
        """
        input_ids, mask = to_the_left(input_ids, attention_mask)
        hidden = self.hidden_states(input_ids, mask)
        if self.parts == 1:
            pooled = mean_of_tokens(hidden, mask)
        elif self.published:
            pooled = mean_of_chunks(hidden, mask, self.parts)
        else:
            pooled = mean_of_parts(hidden, mask, self.parts)
        return _project(self.mlp, pooled)

    def hidden_states(self, input_ids: Tensor, mask: Tensor | None) -> Tensor:
        """Last hidden states `(n, T, dim)` of texts whose padding stands on the right."""
        length, device = input_ids.shape[1], input_ids.device
        positions = torch.arange(length, device=device)[None]
        model, family = self.backbone, self.family
        hidden = family.normalise(model, family.embed(model, input_ids, positions))
        masks = masks_of(
            family, model, self.attention["implementation"], mask, length, 0, 0, device=device
        )
        # turned by the head's index alone, queries and keys keep their products: no rotation at all
        positions = torch.zeros_like(positions) if self.variant.rotary == "head" else positions
        hidden = family.run(model, hidden, masks, positions, **self.attention)
        if self.variant.rotary == "sequence" and mask is not None:
            hidden = hidden * mask.unsqueeze(-1)  # as after the unpadding of flash attention
        return hidden


class NoFirstStage(nn.Module):
    """In the place of M1 in an encoder saved with its context and without its first stage."""

    def forward(self, *_: Any, **__: Any) -> Tensor:
        """Refuse: there is nothing to embed a context with."""
        raise ValueError(
            "this encoder was saved with its context and without its first stage, so it cannot "
            "embed another context: load the whole model, or pass context vectors"
        )


class SecondStage(nn.Module):
    """M2: texts and context vectors to embeddings, before normalisation."""

    def __init__(self, config: ContextualConfig) -> None:
        super().__init__()
        backbone = config_from_dict(config.second_backbone or {})
        self.config = config
        self.variant = VARIANTS[config.variant]
        self.family = family_of(backbone)
        self.backbone = build_backbone(backbone, config.dropout)
        self.dim = dim = int(backbone.hidden_size)
        self.prompt_projection: nn.Module | None = None
        if config.soft_prompt_tokens:
            self.prompt_projection = _two_layers(dim, dim * config.soft_prompt_tokens, nn.ReLU())
        self.output_projection = (
            _two_layers(dim, dim, nn.ReLU()) if config.output_projection else None
        )
        gated = config.attention == "gated"
        self.reader = ContextReader(dim, config.matched) if gated else None
        null = config.null_token and not gated  # a gated reader has nothing to read there
        self.null_embedding = nn.Parameter(torch.empty(dim).normal_(std=0.02)) if null else None
        self.attention: dict[str, Any] = {"implementation": "sdpa"}

    def soft_prompt(self) -> Tensor:
        """The learned tokens between context and text, `(soft_prompt_tokens, dim)`; the same for
        every text.
        """
        reference = self._reference()
        if self.prompt_projection is None:
            return reference.new_zeros(0, self.dim)
        prompt: Tensor = self.prompt_projection(reference.new_ones(1, self.dim))
        return prompt.reshape(-1, self.dim)

    def window_beside_context(self) -> bool:
        """Whether local windows have to spare context tokens, which takes a mask over pairs of
        tokens.
        """
        return self.family.window(self.backbone) is not None and self.variant.window_spares_context

    def _reference(self) -> Tensor:
        parameter: Tensor = next(self.backbone.parameters())
        return parameter

    def context_tokens(self, context: Tensor | None, null_context: bool, batch: int) -> Tensor:
        """The context as tokens of M2: checked, cut to what the model takes, with sequence dropout
        in training.

        Returns:
            `(1, J, dim)` where the batch shares it, else `(batch, J, dim)`.
        """
        if context is None:
            return self.null_tokens(self.config.context_tokens)[None]
        tokens = context_as_tokens(context, self.config.vectors_per_document, self.dim, batch)
        if self.config.variant != "paper":
            self._check_published(tokens.shape[1])
            tokens = tokens[:, : self.config.context_tokens]
        tokens = tokens.to(self._reference().dtype)
        if null_context:
            return self.null_tokens(tokens.shape[1])[None]
        if self.training and self.config.sequence_dropout > 0:
            if self.config.attention == "full":
                tokens = tokens.expand(batch, -1, -1)
            tokens = torch.where(self._dropped(tokens)[..., None], self.null_tokens(1), tokens)
        return tokens

    def match_reader(self) -> None:
        """Fit a gated reader's queries and keys to the backbone's word embeddings of now."""
        if self.reader is not None:
            device = self._reference().device
            first = torch.zeros(1, 1, dtype=torch.long, device=device)
            every = torch.arange(self.backbone.config.vocab_size, device=device)[:, None]
            with torch.no_grad():
                states = self.family.embed(self.backbone, every, first)
                self.reader.match(self.family.normalise(self.backbone, states)[:, 0])

    def _dropped(self, tokens: Tensor) -> Tensor:
        drawn = torch.rand(tokens.shape[:2], device=tokens.device)
        return drawn < self.config.sequence_dropout

    def _read(self, reader: ContextReader, text: Tensor, context: Tensor | None) -> Tensor:
        """Text tokens that have read the context through the gate; without one, as they are."""
        if context is None:
            return text
        tokens = context_as_tokens(context, self.config.vectors_per_document, self.dim, len(text))
        drops = self.training and self.config.sequence_dropout > 0
        return reader(text, tokens, self._dropped(tokens) if drops else None)  # type: ignore[no-any-return]

    def _check_published(self, tokens: int) -> None:
        """Refuse what the authors' code refuses: there is no pass to be faithful to."""
        wanted, per_document = self.config.context_tokens, self.config.vectors_per_document
        few = self.config.variant == "hub" and tokens < wanted
        if few or (per_document > 1 and tokens != wanted):
            raise ValueError(
                f"the published variant {self.config.variant!r} reads {self.config.context_size} "
                "context documents"
                f"{' or more' if per_document == 1 else ''}; {tokens // per_document} were given. "
                "with_context(texts) repeats documents where there are fewer"
            )

    def null_tokens(self, count: int) -> Tensor:
        """The null token v∅, `(count, dim)`."""
        if self.null_embedding is None:
            raise ValueError(
                "this model has no null token: it was trained without sequence dropout "
                "(transductive_sequence_dropout_prob = 0), so it cannot do without a context"
            )
        return self.null_embedding.expand(count, -1)

    def _masks(
        self, mask: Tensor | None, length: int, query_context: int, prefix: int, **options: Any
    ) -> Masks:
        device = self._reference().device
        kernel, spares = self.attention["implementation"], self.variant.window_spares_context
        shape = (mask, length, query_context, prefix)
        return masks_of(
            self.family, self.backbone, kernel, *shape, spares=spares, device=device, **options
        )

    def _positions(self, prefix: int, length: int) -> Tensor:
        device = self._reference().device
        place = torch.arange(prefix + length, device=device)[None]
        if self.variant.rotary == "text":
            return (place - prefix).clamp(min=0)
        if self.variant.rotary == "sequence":
            return torch.where(place < self.config.unrotated, 0, place)
        return torch.zeros_like(place) if self.variant.rotary == "head" else place

    def cache_context(self, context: Tensor | None, null_context: bool = False) -> ContextCache:
        """The context's keys and values in every layer, for the pattern `cached`; computed once."""
        if self.config.attention != "cached":
            raise ValueError(
                f"keys and values are for attention 'cached'; with {self.config.attention!r} there "
                "is nothing to cache"
            )
        tokens = self.context_tokens(context, null_context, 1 if context is None else len(context))
        return self._cache(tokens)

    def _cache(self, tokens: Tensor) -> ContextCache:
        prompt = self.soft_prompt()[None].expand(len(tokens), -1, -1)
        prefix = self.family.normalise(self.backbone, torch.cat([tokens, prompt], dim=1))
        cache = ContextCache(prefix.shape[1], len(tokens))
        positions = torch.zeros(1, cache.length, dtype=torch.long, device=prefix.device)
        if cache.length:
            everything: Masks = {
                "full": None,
                "window": None,
            }  # among themselves, context tokens have no places
            self.family.run(
                self.backbone, prefix, everything, positions, record_context=cache, **self.attention
            )
        return cache

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        context: Tensor | ContextCache | None = None,
        null_context: bool = False,
        one_pass: bool = False,
    ) -> Tensor:
        """Embeddings of texts in a context, before normalisation.

        Returns:
            `(batch, dim)`.
        """
        input_ids, mask = to_the_left(input_ids, attention_mask)
        text, prefix = self.hidden_states(input_ids, mask, context, null_context, one_pass)
        pooled_tokens = self._pooled_tokens(input_ids, mask)
        if self.config.pool == "all":
            text = torch.cat([prefix, text], dim=1)
            if pooled_tokens is not None:
                pooled_tokens = nn.functional.pad(pooled_tokens, (prefix.shape[1], 0), value=True)
        pooled = mean_of_tokens(text, pooled_tokens)
        if self.output_projection is None:
            return pooled
        projected = _project(self.output_projection, pooled)
        return projected + pooled if self.variant.residual else projected

    def _pooled_tokens(self, input_ids: Tensor, mask: Tensor | None) -> Tensor | None:
        if self.config.skip_instruction_until is None:
            return mask
        marks = input_ids == self.config.skip_instruction_until
        marks[:, 0] = False
        found = marks.any(dim=1, keepdim=True)
        place = torch.arange(input_ids.shape[1], device=input_ids.device)[None]
        after = ~found | (place > marks.int().argmax(dim=1, keepdim=True))
        return after if mask is None else after & mask

    def hidden_states(
        self,
        input_ids: Tensor,
        mask: Tensor | None,
        context: Tensor | ContextCache | None,
        null_context: bool = False,
        one_pass: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """Last hidden states of text and of what stands before it; texts end padded."""
        model, family = self.backbone, self.family
        batch, length = input_ids.shape
        places = torch.arange(length, device=input_ids.device)[None]
        text = family.embed(model, input_ids, places)
        if isinstance(context, ContextCache) and self.config.attention != "cached":
            raise ValueError(
                "cached keys and values are for attention 'cached'; this model's is "
                f"{self.config.attention!r}"
            )
        if self.reader is not None:
            given: Tensor | None = None if null_context else context  # type: ignore[assignment]
            hidden = self._read(self.reader, family.normalise(model, text), given)
            masks = self._masks(mask, length, 0, 0)
            hidden = family.run(model, hidden, masks, places, **self.attention)
            return hidden, text.new_zeros(batch, 0, self.dim)
        if isinstance(context, ContextCache) or (
            self.config.attention == "cached" and not one_pass
        ):
            if not isinstance(context, ContextCache):
                context = self._cache(self.context_tokens(context, null_context, batch))
            elif null_context:
                raise ValueError(
                    "a cached context is what it is: give null_context=True to cache_context "
                    "instead"
                )
            if context.contexts not in (1, batch):
                raise ValueError(
                    f"{context.contexts} contexts for a batch of {batch} texts: give one each, or "
                    "one for all"
                )
            hidden = family.normalise(model, text)
            masks = self._masks(mask, length, 0, context.length)
            cache = {"context_cache": context} if context.length else {}
            return family.run(
                model, hidden, masks, places, **cache, **self.attention
            ), text.new_zeros(batch, 0, self.dim)
        tokens = self.context_tokens(context, null_context, batch).expand(batch, -1, -1)
        prompt = self.soft_prompt()[None].expand(batch, -1, -1)
        if self.variant.embedding_norm_twice:
            text = family.normalise(model, text)
        hidden = torch.cat([tokens.to(text.dtype), prompt.to(text.dtype), text], dim=1)
        if self.variant.token_type_twice:
            hidden = hidden + model.embeddings.token_type_embeddings.weight[0]
        hidden = family.normalise(model, hidden)
        prefix = hidden.shape[1] - length
        sees_text = self.config.attention == "full"
        masks = self._masks(mask, length, prefix, prefix, context_sees_text=sees_text)
        attention = dict(self.attention)
        if self.variant.rotary == "head" and self.config.unrotated:
            attention["head_rotation"] = self._head_rotation(self.config.unrotated)
        hidden = family.run(model, hidden, masks, self._positions(prefix, length), **attention)
        return hidden[:, prefix:], hidden[:, :prefix]

    def _head_rotation(self, start: int) -> HeadRotation:
        rotary: Any = self.backbone.get_submodule("rotary_emb")
        heads = torch.arange(
            self.backbone.config.num_attention_heads, device=rotary.inv_freq.device
        )
        angles = (heads[:, None].float() * rotary.inv_freq).repeat(1, 2)[:, None]
        return HeadRotation(start, angles.cos(), angles.sin())

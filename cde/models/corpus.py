"""A contextual encoder bound to one corpus: the context drawn, embedded and kept.

What CDE's users ask for: an encoder with `encode_queries` and `encode_documents` like any other,
any number of context documents, and a statement of which ones they are. With attention `cached`,
the context's keys and values are computed when the first text comes, and kept.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Sequence
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from cde.hardware import chosen_precision
from cde.models.attention import ContextCache
from cde.models.configuration import ContextualConfig
from cde.models.encoder import PromptedEncoder, Vectors, encoder_class, prefixed, save_folder
from cde.models.weights import fetch_folder, read_config, read_weights
from cde.quantised import steps_taken
from cde.retrieval.systems import Role
from cde.storage import content_hash
from cde.validation import checked_texts, checked_whole, shown

__all__ = ["CorpusEncoder", "draw_context", "fingerprint", "warn_untrained", "weights_now"]


def draw_context(
    config: ContextualConfig,
    dim: int,
    context: Sequence[str] | np.ndarray[Any, Any] | Tensor,
    size: int | None,
    seed: int,
    fill: str | None,
) -> tuple[list[str] | np.ndarray[Any, Any], str]:
    """Which documents are the context, and a sentence that says so."""
    accepted = (None, "shorter", "null", "repeat")
    if not isinstance(fill, str | None) or fill not in accepted:
        raise ValueError(f"fill must be 'shorter', 'null' or 'repeat'; it is {shown(fill)}")
    seed = checked_whole(seed, "seed", 0)
    if fill == "null" and config.attention == "gated":
        raise ValueError(
            "fill='null' fills a context with null tokens, which attention 'gated' does not have: "
            "take 'shorter' or 'repeat'"
        )
    if isinstance(context, str):
        raise TypeError(
            "the context must be a list of texts; one string was given: put it in a list"
        )
    if size is not None and (isinstance(size, bool) or not isinstance(size, (int, np.integer))):
        raise TypeError(f"size must be a whole number of context documents; it is {size!r}")
    if isinstance(context, np.ndarray) and context.dtype.kind in "UO":
        context = context.tolist()
    if isinstance(context, (np.ndarray, Tensor)):
        documents: list[str] | np.ndarray[Any, Any] = _checked_vectors(
            context, config.vectors_per_document, dim
        )
        vectors = documents
        kind, wanted = "vectors", len(vectors) if size is None else size
    else:
        documents = checked_texts(context, "context")
        kind, wanted = "texts", config.context_size if size is None else size
    count = len(documents)
    if count == 0:
        raise ValueError("the context is empty; with_context(None) embeds without a corpus")
    if wanted < 1:
        raise ValueError(
            f"size must be 1 or more context documents; it is {wanted}. with_context(None) takes "
            "none"
        )
    if config.variant != "paper" and wanted > config.context_size:
        raise ValueError(
            f"a context of {wanted} documents does not fit the model: the published variant "
            f"{config.variant!r} reads "
            f"{config.context_size} and would leave the rest out"
        )
    generator = np.random.default_rng(seed)
    taken = min(wanted, count)
    chosen = (
        np.sort(generator.choice(count, taken, replace=False))
        if taken < count
        else np.arange(count)
    )
    said = (
        f"{taken:,} of {count:,} {kind}, seed {seed}" if taken < count else f"all {count:,} {kind}"
    )
    if fill == "repeat" or (fill is None and config.variant != "paper"):
        missing = config.context_size - taken
        if missing > 0:
            chosen = np.concatenate([chosen, generator.choice(chosen, missing)])
            said += f", {missing:,} repeated"
    drawn = [documents[row] for row in chosen] if isinstance(documents, list) else documents[chosen]
    _warn(drawn, taken)
    return drawn, said


def _checked_vectors(
    context: np.ndarray[Any, Any] | Tensor, parts: int, dim: int
) -> np.ndarray[Any, Any]:
    vectors = np.asarray(context.detach().cpu().float() if isinstance(context, Tensor) else context)
    expected = (dim,) if parts == 1 else (parts, dim)
    if vectors.shape[1:] != expected or vectors.ndim != 1 + len(expected):
        wanted = ", ".join(str(length) for length in expected)
        raise ValueError(
            f"context vectors for this model are of shape (documents, {wanted}), as embed_context "
            "gives; these are "
            f"of shape {vectors.shape}"
        )
    if not np.isfinite(vectors).all():
        raise ValueError("the context vectors hold NaN or infinite numbers")
    return vectors


def _warn(drawn: list[str] | np.ndarray[Any, Any], taken: int) -> None:
    if taken == 1:
        message = (
            "the context is a single document: every embedding will lean towards it; "
            "give a sample of the corpus"
        )
        warnings.warn(message, UserWarning, stacklevel=4)
        return
    rows = drawn[:taken]
    distinct = (
        len(set(rows))
        if isinstance(rows, list)
        else len(np.unique(rows.reshape(taken, -1), axis=0))
    )
    if distinct < taken:
        message = (
            f"{taken - distinct} of {taken} context documents are duplicates of others: "
            "they say nothing new"
        )
        warnings.warn(message, UserWarning, stacklevel=4)


def weights_now(module: nn.Module) -> int:
    """A number that changes when a weight is trained on, loaded or moved, and after any step of an
    optimiser in this process: no pass over weights.
    """
    weights = module.parameters()
    marks = ((p.data_ptr(), 0 if p.is_inference() else p._version) for p in weights)
    return hash((steps_taken(), *marks))


def warn_untrained(model: Any) -> None:
    """Say once of a contextual encoder that it is bound as `from_backbone` left it, untrained.

    Warns:
        UserWarning: the first time.
    """
    begun, model._untrained = model._untrained, None
    if begun is None or begun != weights_now(model.second_stage):
        return
    message = (
        "this encoder comes from a plain transformer, which was never trained to have context "
        "before its text: until it is trained it finds much less than that transformer. Train it "
        "(cde.train(cde.TrainConfig(…)).model()), load a trained one "
        "(cde.ContextualEncoder.from_pretrained, cde.pretrained_reader()), or take "
        "attention='gated', which is the plain transformer until it is trained"
    )
    warnings.warn(message, UserWarning, stacklevel=3)


class CorpusEncoder(PromptedEncoder):
    """An encoder of texts in the context of one corpus, as `ContextualEncoder.with_context` makes
    it.

    Args:
        model: the contextual encoder.
        context: its context vectors, `(J, dim)` or `(J, k, dim)`; None is the null context.
        drawn: which documents they are, in words.

    Example:
        >>> from cde.models import ContextualEncoder
        >>> model = ContextualEncoder.from_backbone("minilm", layers=1, attention="gated")
        >>> encoder = model.with_context(None)
        >>> encoder.encode_queries(["what floats?"]).shape
        (1, 384)
    """

    def __init__(self, model: Any, context: Tensor | None, drawn: str) -> None:
        self.model = model
        self.context = context
        self.drawn = drawn
        self._caches: dict[tuple[str, str, int, int], ContextCache] = {}

    def __repr__(self) -> str:
        attention = self.model.config.attention
        return f"CorpusEncoder({self.drawn}; {self.dim} dimensions, attention {attention})"

    @property
    def dim(self) -> int:
        """Length of the vectors."""
        return int(self.model.dim)

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        device: torch.device = self.model.device
        return device

    def _vectors(
        self,
        texts: Sequence[str],
        role: Role,
        batch_size: int | None = None,
        prefix: str | None = None,
    ) -> Vectors:
        config = self.model.config
        own, description = prefixed(config, role)
        prefix = own if prefix is None else prefix
        vectors: Vectors = self.model.vectors_by(
            self.embed_batch,
            texts,
            prefix,
            extra=config.carried(self._tokens()),
            most=batch_size,
            description=description,
        )
        return vectors

    def _tokens(self) -> int:
        config = self.model.config
        count = config.context_tokens if self.context is None else self.context.shape[:-1].numel()
        return int(count + config.soft_prompt_tokens)

    def embed_batch(self, input_ids: Tensor, attention_mask: Tensor | None) -> Tensor:
        """Vectors of one padded batch before normalisation: `(batch, T)` to `(batch, dim)`.

        Args:
            input_ids, attention_mask: token ids and mask of the texts.
        """
        context: Tensor | ContextCache | None = self.context
        if isinstance(context, Tensor) and context.device != input_ids.device:
            context = self.context = context.to(input_ids.device)
        if self.model.config.attention == "cached":
            # weights that were trained on since need the context's keys anew
            stage = self.model.second_stage
            key = (
                str(input_ids.device),
                chosen_precision(self.model.precision),
                id(context),
                weights_now(stage),
            )
            if key not in self._caches:
                self._caches = {key: stage.cache_context(context)}
            context = self._caches[key]
        embedded: Tensor = self.model.second_stage(input_ids, attention_mask, context)
        return embedded

    def save_pretrained(self, save_directory: str | Path, first_stage: bool = False) -> None:
        """Write the model with its context.

        Once `cde.models` is imported, `SentenceTransformer(folder)` reads it too, and its
        `encode_query` and `encode_document` embed in this context.

        Args:
            save_directory: the folder.
            first_stage: also write M1, so that the folder can be bound to another corpus; without
                it the folder is about half as large.
        """
        model = self.model
        config = model.config.__class__.from_dict(model.config.to_dict())
        tensors = model.state_dict()
        if not first_stage:
            config.first_backbone = None
            tensors = {
                name: tensor
                for name, tensor in tensors.items()
                if not name.startswith("first_stage.")
            }
        config.context_drawn = self.drawn
        if self.context is not None:
            tensors["context"] = self.context
        save_folder(save_directory, config, tensors, model.tokenizer, model.most_tokens)

    @classmethod
    def from_pretrained(cls, path_or_repository: str | Path, **options: Any) -> CorpusEncoder:
        """An encoder and its context, as `save_pretrained` wrote them; options as for
        `ContextualEncoder`.

        Raises:
            ConnectionError: no such model, here or on the Hub.
            ValueError: a model that was saved without a context.
        """
        folder = fetch_folder(path_or_repository, options.get("revision"))
        drawn = read_config(folder).get("context_drawn")
        if drawn is None:
            raise ValueError(
                f"{folder} holds a model without a context: ContextualEncoder.from_pretrained "
                "reads it"
            )
        model = encoder_class(ContextualConfig.model_type).from_pretrained(folder, **options)
        context = read_weights(folder).get("context")
        return cls(model, None if context is None else context.to(model.device), drawn)


def fingerprint(encoder: Any) -> str | None:
    """Hash of an encoder of `cde.models` (16 hexadecimal digits); None for any other object.

    Attention kernel and precision have no part in it, but for int8, whose vectors are told apart.

    Used for saved indexes (`cde.Index`) and for results of `cde mteb`.
    """
    bound = encoder if type(encoder) is CorpusEncoder else None
    model: Any = encoder.model if isinstance(encoder, CorpusEncoder) else encoder
    if encoder_class(getattr(getattr(model, "config", None), "model_type", "")) is not type(model):
        return None
    return content_hash(_fingerprint_parts(model, bound))


def _fingerprint_parts(model: Any, bound: CorpusEncoder | None) -> Iterator[str | bytes]:
    config = model.config
    settings = {
        name: getattr(config, name)
        for name in signature(type(config).__init__).parameters
        if not name.endswith("backbone") and hasattr(config, name)
    }
    yield json.dumps(settings, sort_keys=True)
    if chosen_precision(model.precision) == "int8":
        yield "int8"
    # the first stage has done its work once the context is embedded, and is not saved
    weights: nn.Module = model if bound is None else model.second_stage
    tensors = dict(weights.state_dict())
    if bound is not None and bound.context is not None:
        tensors["context"] = bound.context
    for name, tensor in sorted(tensors.items()):
        yield f"{name} {tensor.dtype} {tuple(tensor.shape)}"
        yield tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes()

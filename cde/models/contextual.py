"""The contextual document encoder (CDE §4.2), and what it is once it is bound to a corpus."""

from __future__ import annotations

import copy
import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from cde.hardware import Precision, chosen_precision
from cde.models.attention import ContextCache
from cde.models.configuration import ContextualConfig, check_settings
from cde.models.encoder import (
    Encoder,
    PromptedEncoder,
    encoder_class,
    load_tokenizer,
    own_tokenizer,
    save_folder,
)
from cde.models.stages import FirstStage, NoFirstStage, SecondStage
from cde.models.weights import backbone_weights, fetch_folder, fill, read_config, read_weights
from cde.products import changes
from cde.storage import content_hash
from cde.validation import Vectors, array_of_numbers, checked_texts, checked_whole, shown

__all__ = ["ContextualEncoder", "CorpusEncoder"]

#: which documents the null context is, in words
NULL_CONTEXT = "null context"


def draw_context(
    config: ContextualConfig,
    dim: int,
    context: Sequence[str] | np.ndarray[Any, Any] | Tensor,
    size: int | None,
    seed: int,
    fill: str | None,
) -> tuple[list[str] | np.ndarray[Any, Any], str]:
    """Which documents are the context, and a sentence that says so."""
    if not isinstance(fill, str | None) or fill not in (None, "shorter", "null", "repeat"):
        raise ValueError(f"fill must be 'shorter', 'null' or 'repeat'; it is {shown(fill)}")
    seed = checked_whole(seed, "seed", 0)
    if fill == "null" and config.attention == "gated":
        raise ValueError("attention 'gated' has no null tokens: fill must be 'shorter' or 'repeat'")
    if isinstance(context, np.ndarray) and context.dtype.kind in "UO":
        context = context.tolist()
    if isinstance(context, np.ndarray | Tensor):
        documents: Any = _checked_vectors(context, config.vectors_per_document, dim)
        kind, wanted = "vectors", len(documents)
    else:
        documents = checked_texts(context, "context")
        kind, wanted = "texts", config.context_size
    wanted = wanted if size is None else checked_whole(size, "size")
    if (count := len(documents)) == 0:
        raise ValueError("the context is empty; with_context(None) embeds without a corpus")
    if config.variant != "paper" and wanted > config.context_size:
        reads = f"the published variant {config.variant!r} reads {config.context_size}"
        raise ValueError(f"a context of {wanted} documents does not fit the model: {reads}")
    generator = np.random.default_rng(seed)
    taken = min(wanted, count)
    chosen, said = np.arange(count), f"all {count:,} {kind}"
    if taken < count:
        chosen = np.sort(generator.choice(count, taken, replace=False))
        said = f"{taken:,} of {count:,} {kind}, seed {seed}"
    if fill == "repeat" or (fill is None and config.variant != "paper"):
        missing = config.context_size - taken
        if missing > 0:
            chosen = np.concatenate([chosen, generator.choice(chosen, missing)])
            said += f", {missing:,} repeated"
    drawn = [documents[row] for row in chosen] if isinstance(documents, list) else documents[chosen]
    distinct = len({row if isinstance(row, str) else row.tobytes() for row in drawn[:taken]})
    if taken == 1:
        leans = "every embedding will lean towards it: give a sample of the corpus"
        warnings.warn(f"the context is a single document; {leans}", stacklevel=3)
    elif distinct < taken:
        copies = f"{taken - distinct} of {taken} context documents are duplicates of others"
        warnings.warn(copies, stacklevel=3)
    return drawn, said


def _checked_vectors(
    context: np.ndarray[Any, Any] | Tensor, parts: int, dim: int
) -> np.ndarray[Any, Any]:
    vectors = array_of_numbers(context, "the context")
    each = (dim,) if parts == 1 else (parts, dim)
    if vectors.shape[1:] != each:
        raise ValueError(
            f"context vectors for this model are of shape {each} for each document, as "
            f"embed_context gives; these are of shape {vectors.shape}"
        )
    if not np.isfinite(vectors).all():
        raise ValueError("the context vectors hold NaN or infinite numbers")
    return vectors


def weights_now(module: nn.Module) -> int:
    """A number that changes with a module's weights, and after any step of an optimiser."""
    return hash(tuple(changes(weight) for weight in module.parameters()))


def warn_untrained(model: Any) -> None:
    """Say once of a contextual encoder that it is bound as `from_backbone` left it, untrained."""
    begun, model._untrained = model._untrained, None
    if begun is None or begun != weights_now(model.second_stage):
        return
    warnings.warn(
        "this encoder comes from a plain transformer, which was never trained to have context "
        "before its text: until it is trained it finds much less than that transformer. Train it "
        "(cde.train(cde.TrainConfig(…)).model()), load a trained one "
        "(cde.ContextualEncoder.from_pretrained), or take attention='gated', which is the plain "
        "transformer until it is trained",
        stacklevel=3,
    )


class ContextualEncoder(Encoder):
    """ϕ(d; D) and ψ(q; D) of Eqs. 5 and 6: embeddings of texts that depend on a corpus.

    M1 (`first_stage`) embeds J context documents once; M2 (`second_stage`) reads their vectors as
    tokens before the tokens of a text. Queries and documents share both; the stages share nothing.

    Args:
        config: its settings; the backbones start from random weights. `from_backbone` takes
            pretrained ones, `from_pretrained` an encoder that was saved or published.

    Example:
        >>> model = ContextualEncoder.from_backbone("minilm", layers=2, attention="gated")
        >>> corpus = ["boats and ships", "harbours of Norway", "knots for sailors", "tides"]
        >>> encoder = model.with_context(corpus, size=3, seed=0)
        >>> encoder
        CorpusEncoder(3 of 4 texts, seed 0; 384 dimensions, attention gated)
        >>> encoder.encode_documents(["a small red boat"]).shape
        (1, 384)
    """

    config_class = ContextualConfig
    reads_context = True

    def __init__(self, config: ContextualConfig) -> None:
        super().__init__(config)
        self._untrained: int | None = None  # the weights' state as `from_backbone` left them
        first, second = FirstStage, SecondStage
        if config.variant != "paper":
            from cde.models.published import PublishedFirstStage, PublishedSecondStage

            first, second = PublishedFirstStage, PublishedSecondStage
        self.second_stage = second(config)
        self.first_stage = (
            first(config, self.second_stage.dim) if config.first_backbone else NoFirstStage()
        )
        if config.tie_token_embeddings and isinstance(self.first_stage, FirstStage):
            shared = self.first_stage.backbone.get_input_embeddings().weight
            own = self.second_stage.backbone.get_input_embeddings()
            if own.weight.shape != shared.shape:
                tables = f"{tuple(shared.shape)} and {tuple(own.weight.shape)}"
                raise ValueError(f"tie_token_embeddings needs tables of one shape, not {tables}")
            own.weight = shared
        self.post_init()

    @classmethod
    def from_backbone(
        cls,
        path_or_repository: str | Path = "minilm",
        layers: int | None = None,
        *,
        first_stage_layers: int | None = None,
        attn_implementation: str = "sdpa",
        device: str | None = None,
        precision: Precision = "auto",
        **settings: Any,
    ) -> ContextualEncoder:
        """An encoder both of whose stages start from the same pretrained transformer.

        It has to be trained. With attention "full" or "cached" it has never seen a context before a
        text, and finds much less than the transformer: `with_context` warns. With "gated" it is the
        plain transformer until its reader is trained, whatever the context: there is no warning.

        Args:
            layers: keep its first so many layers in the second stage.
            first_stage_layers: of the first stage; by default as many; 0 leaves word embeddings.
            settings: of `ContextualConfig`. The others are as for `BiEncoder.from_backbone`.
        """
        besides = ["layers", "first_stage_layers", "attn_implementation", "device", "precision"]
        check_settings(ContextualConfig, settings, besides)
        second, second_weights = first, first_weights = backbone_weights(path_or_repository, layers)
        if first_stage_layers is not None and first_stage_layers != layers:
            first, first_weights = backbone_weights(path_or_repository, first_stage_layers, 0)
        config = ContextualConfig(first_backbone=dict(first), second_backbone=second, **settings)
        model = cls(config)
        if isinstance(model.first_stage, FirstStage):
            fill(model.first_stage.backbone, first_weights, str(path_or_repository))
        fill(model.second_stage.backbone, second_weights, str(path_or_repository))
        model.second_stage.match_reader()
        tokenizer = load_tokenizer(path_or_repository)
        model.set_up(tokenizer, attn_implementation, device, precision)
        if config.attention != "gated":
            model._untrained = weights_now(model.second_stage)
        return model

    @classmethod
    def from_pretrained(
        cls,
        path_or_repository: str | Path,
        *,
        variant: str | None = None,
        tokenizer: Any = None,
        attn_implementation: str = "sdpa",
        device: str | None = None,
        precision: Precision = "auto",
        revision: str | None = None,
    ) -> ContextualEncoder:
        """An encoder that `save_pretrained` wrote, or one in the layout of jxm/cde-small-v1 and
        -v2.

        Args:
            path_or_repository: a folder, or a Hub repository. No code in it is run, and nothing
                else is fetched.
            variant: which forward pass a published checkpoint runs (`cde.models.VARIANTS`). By
                default "v2" over ModernBERT, and "hub" over NomicBERT: the authors' self-contained
                file, so vectors should be those that users of the Hub have (the Hub's copy could
                not be compared); "train" is the pass that the weights were trained with.
            tokenizer: a tokenizer, or where to load one from. By default the folder's own; for a
                NomicBERT checkpoint without one, MiniLM's, whose vocabulary is the same
                (bert-base-uncased).
            attn_implementation, device, precision: as for `BiEncoder.from_backbone`. Vectors of
                published models agree with the authors' to 1e-5 under "eager", 2e-5 under "sdpa".
            revision: of a Hub repository.
        """
        folder = fetch_folder(path_or_repository, revision)
        values = read_config(folder)
        if values.get("model_type") == ContextualConfig.model_type:
            values.pop("context_drawn", None)  # of a CorpusEncoder, as is the tensor below
            config = ContextualConfig.from_dict(values)
            if variant not in (None, config.variant):
                own = f"{folder} was saved with the variant {config.variant!r}"
                raise ValueError(f"{own}; {shown(variant)} was asked for")
            model = cls(config)
            tensors = read_weights(folder)
            tensors.pop("context", None)
            fill(model, model.with_tied(tensors), str(folder))
        elif "embedder" in values or values.get("architecture") == "transductive":
            modern = "ModernBERT" in str(values.get("dataset_backbone") or values.get("embedder"))
            model = load_published(
                read_weights(folder), values, None, variant or ("v2" if modern else "hub")
            )
        else:
            raise ValueError(
                f"{folder} holds a model of type {shown(values.get('model_type'))}, neither saved "
                "by ContextualEncoder nor in the layout of jxm/cde-small-v1: "
                "ContextualEncoder.from_backbone starts from a transformer"
            )
        if isinstance(tokenizer, (str, Path)):
            tokenizer = load_tokenizer(tokenizer)
        if tokenizer is None:
            tokenizer = own_tokenizer(folder)
        if tokenizer is None and model.config.second_backbone["model_type"] == "nomic_bert":
            tokenizer = load_tokenizer("minilm")
        return model.set_up(tokenizer, attn_implementation, device, precision)

    def with_tied(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Tensors with shared word embeddings under both of their names."""
        if self.config.tie_token_embeddings and isinstance(self.first_stage, FirstStage):
            first = f"first_stage.backbone.{self.first_stage.family.words}.weight"
            second = f"second_stage.backbone.{self.second_stage.family.words}.weight"
            # the second stage's win, as when torch fills the authors' model part by part
            shared = tensors.get(second, tensors.get(first))
            if shared is not None:
                tensors |= {first: shared, second: shared}
        return tensors

    @property
    def dim(self) -> int:
        return self.second_stage.dim

    @property
    def longest(self) -> int | None:
        stages: list[Any] = [self.second_stage]
        stages += [self.first_stage] if isinstance(self.first_stage, FirstStage) else []
        limits = [stage.family.longest(stage.backbone) for stage in stages]
        return min((limit for limit in limits if limit is not None), default=None)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        context: Tensor | ContextCache | None = None,
        null_context: bool = False,
    ) -> Tensor:
        """The second stage: embeddings of texts before normalisation, `(batch, dim)`.

        Args:
            input_ids, attention_mask: `(batch, T)`, of the texts.
            context: what `first_stage` gave, or `second_stage.cache_context`.
            null_context: put the null token in the place of every context vector.
        """
        return self.second_stage(input_ids, attention_mask, context, null_context)  # type: ignore[no-any-return]

    def carried_tokens(self) -> int:
        return int(self.config.carried(self.config.context_tokens + self.config.soft_prompt_tokens))

    def share_context(self, context: Tensor | None, batches: int) -> Any:
        """With attention `cached` and several batches, the context's keys and values, made once."""
        if self.config.attention == "cached" and batches > 1:
            return self.second_stage.cache_context(context)
        return context

    def check_attention(self, implementation: str) -> None:
        stage = self.second_stage
        windows = stage.window_spares_context and stage.family.window(stage.backbone) is not None
        if implementation.startswith("flash") and windows:
            raise ValueError(
                "flash_attention_2 cannot leave context tokens out of ModernBERT's local windows: "
                "take attn_implementation='sdpa' for this model"
            )

    def embed_context(self, texts: Sequence[str], prefix: str | None = None) -> Vectors:
        """First-stage vectors of context documents: `(n, dim)` or `(n, k, dim)` float32, not
        normalised. `prefix` takes the place of the config's `document_prefix`.
        """
        prefix = self.config.document_prefix if prefix is None else prefix
        parts = self.config.vectors_per_document
        shape = (self.dim,) if parts == 1 else (parts, self.dim)
        options = {"normalise": False, "description": "embedding the context:"}
        return self.vectors_by(self.first_stage, texts, prefix, shape, **options)

    def with_context(
        self,
        context: Sequence[str] | np.ndarray[Any, Any] | Tensor | None = None,
        size: int | None = None,
        seed: int = 0,
        fill: str | None = None,
    ) -> CorpusEncoder:
        """This model bound to one corpus: an encoder like any other.

        Args:
            context: texts of the corpus, to draw from and embed; or vectors of `embed_context`; or
                None for the null context.
            size: context documents to draw, without replacement. By default as many as the model
                was made for from texts, and all of them from vectors. Fewer are taken where there
                are fewer.
            seed: seed of the draw.
            fill: what to do when there are fewer documents than the model was made for. "shorter"
                leaves the context short, "null" fills it with null tokens, "repeat" with documents
                drawn again. By default "shorter"; "repeat" for published models, as their authors
                do.

        Warns:
            UserWarning: a context of one document, or of duplicates; once, an untrained encoder.
        """
        warn_untrained(self)
        if context is None:
            if self.config.attention != "gated":
                self.second_stage.null_tokens(1)  # raises where there is none
            return CorpusEncoder(self, None, NULL_CONTEXT)
        documents, drawn = draw_context(self.config, self.dim, context, size, seed, fill)
        vectors = self.embed_context(documents) if isinstance(documents, list) else documents
        tokens = torch.as_tensor(vectors, dtype=torch.float32, device=self.device)
        missing = self.config.context_size - len(tokens)
        if fill == "null" and missing > 0:
            parts = self.config.vectors_per_document
            null = self.second_stage.null_tokens(missing * parts).detach()
            tokens = torch.cat([tokens, null.reshape(missing, *tokens.shape[1:])])
            drawn += f", filled with {missing} null tokens" if parts == 1 else ", filled"
        return CorpusEncoder(self, tokens, drawn)


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
        self.model, self.config, self.vectors_by = model, model.config, model.vectors_by
        self.context = context
        self.drawn = drawn
        self._caches: dict[tuple[str, str, int, int], ContextCache] = {}

    def __repr__(self) -> str:
        size = f"{self.dim} dimensions, attention {self.config.attention}"
        return f"CorpusEncoder({self.drawn}; {size})"

    @property
    def dim(self) -> int:
        """Length of the vectors."""
        return int(self.model.dim)

    @property
    def device(self) -> torch.device:
        return self.model.device  # type: ignore[no-any-return]

    def carried_tokens(self) -> int:
        given = self.context
        count = self.config.context_tokens if given is None else given.shape[:-1].numel()
        return int(self.config.carried(count + self.config.soft_prompt_tokens))

    def embed_batch(self, input_ids: Tensor, attention_mask: Tensor | None) -> Tensor:
        context: Tensor | ContextCache | None = self.context
        if isinstance(context, Tensor) and context.device != input_ids.device:
            context = self.context = context.to(input_ids.device)
        if self.config.attention == "cached":
            # the context's keys are computed again for weights that were trained on since
            stage = self.model.second_stage
            computed = chosen_precision(self.model.precision)
            key = (str(input_ids.device), computed, id(context), weights_now(stage))
            if key not in self._caches:
                self._caches = {key: stage.cache_context(context)}
            context = self._caches[key]
        embedded: Tensor = self.model.second_stage(input_ids, attention_mask, context)
        return embedded

    def save_pretrained(self, save_directory: str | Path, first_stage: bool = False) -> None:
        """Write the model with its context; `SentenceTransformer(folder)` reads it too. Without its
        `first_stage` it is half as large, and cannot be bound to another corpus.
        """
        model = self.model
        config = copy.deepcopy(model.config)
        tensors = model.state_dict()
        if not first_stage:
            config.first_backbone = None
            own = [name for name in tensors if not name.startswith("first_stage.")]
            tensors = {name: tensors[name] for name in own}
        config.context_drawn = NULL_CONTEXT if self.context is None else self.drawn
        if self.context is not None:
            tensors["context"] = self.context
        save_folder(save_directory, config, tensors, model.tokenizer, model.most_tokens)

    @classmethod
    def from_pretrained(cls, path_or_repository: str | Path, **options: Any) -> CorpusEncoder:
        """What `save_pretrained` wrote; options as for `ContextualEncoder.from_pretrained`."""
        folder = fetch_folder(path_or_repository, options.get("revision"))
        drawn = read_config(folder).get("context_drawn")
        if drawn is None:
            reads = "ContextualEncoder.from_pretrained reads it"
            raise ValueError(f"{folder} holds a model without a context: {reads}")
        model = ContextualEncoder.from_pretrained(folder, **options)
        context = read_weights(folder).get("context")
        if context is None and drawn != NULL_CONTEXT:
            lacking = f"lack the tensor 'context' ({drawn})"
            raise ValueError(f"the weights in {folder} {lacking}: save the encoder again")
        return cls(model, None if context is None else context.to(model.device), drawn)


def class_of(folder: Path) -> Any:
    """The class that reads the encoder of a folder; None where it is none of this package."""
    values = read_config(folder) if (folder / "config.json").is_file() else {}
    if "embedder" in values or values.get("architecture") == "transductive":
        return ContextualEncoder
    kind = encoder_class(values.get("model_type"))
    return kind if kind is None or values.get("context_drawn") is None else CorpusEncoder


def fingerprint(encoder: Any) -> str | None:
    """Hash of an encoder of `cde.models`, whatever its attention kernel; None for other objects."""
    bound = encoder if type(encoder) is CorpusEncoder else None
    model: Any = encoder.model if isinstance(encoder, CorpusEncoder) else encoder
    if encoder_class(getattr(getattr(model, "config", None), "model_type", "")) is not type(model):
        return None
    config = model.config
    settings = {
        name: getattr(config, name)
        for name in signature(type(config).__init__).parameters
        if not name.endswith("backbone") and hasattr(config, name)
    }
    # the first stage has done its work once the context is embedded
    tensors = (model if bound is None else model.second_stage).state_dict()
    if bound is not None and bound.context is not None:
        tensors["context"] = bound.context

    def parts() -> Iterator[str | bytes]:
        yield json.dumps(settings, sort_keys=True)
        for name, tensor in sorted(tensors.items()):
            yield f"{name} {tensor.dtype} {tuple(tensor.shape)}"
            yield tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes()

    return content_hash(parts())


def load_published(
    state_dict: Mapping[str, Tensor],
    contextual_config: Mapping[str, Any],
    backbone_config: Mapping[str, Any] | None = None,
    variant: str = "hub",
) -> ContextualEncoder:
    """A contextual encoder from published weights and configs, in evaluation mode.

    It computes attention step by step ("eager"), as the authors' code does on a CPU: vectors agree
    to 1e-5. `set_attention("sdpa")` is faster and moves coordinates of size 4 by up to 1.3e-5.

    Args:
        state_dict: tensors under their published names.
        contextual_config: the published `config.json` as a dictionary.
        backbone_config: config of both backbones in published keys; by default what is known of
            the names in `contextual_config`.
        variant: "hub", "train" or "v2": which of the authors' forward passes to run (see
            `cde.models.VARIANTS`).
    """
    from cde.models.published import published_config, published_names, to_ours

    config = published_config(contextual_config, backbone_config, variant)
    model = ContextualEncoder(config)
    names = published_names(config, model.state_dict())
    tensors = model.with_tied(to_ours(config, names, state_dict))
    unexpected = [name for name in state_dict if name not in names.values()]
    fill(model, tensors, "the published checkpoint", names, unexpected)
    model.set_attention("eager")
    model.eval()
    return model

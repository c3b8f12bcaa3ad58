"""The contextual document encoder (CDE §4.2): two stages, published checkpoints, any number of
context documents.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import cde.models.sentence_model  # noqa: F401 - registers with transformers
from cde.hardware import Precision
from cde.models.attention import ContextCache
from cde.models.configuration import ContextualConfig, check_settings
from cde.models.corpus import CorpusEncoder, draw_context, warn_untrained, weights_now
from cde.models.encoder import Encoder, Vectors, load_tokenizer
from cde.models.stages import FirstStage, NoFirstStage, SecondStage
from cde.models.weights import backbone_weights, fetch_folder, fill, read_config, read_weights, tie

__all__ = ["ContextualEncoder", "load_published"]

_BESIDE_SETTINGS = ("layers", "first_stage_layers", "attn_implementation", "device", "precision")


class ContextualEncoder(Encoder):
    """ϕ(d; D) and ψ(q; D) of Eqs. 5 and 6: embeddings of texts that depend on a corpus.

    M1 (`first_stage`) embeds J context documents once; M2 (`second_stage`) reads their vectors as
    tokens before the tokens of a text. Queries and documents share both; the stages share nothing.

    Args:
        config: its settings; the backbones start from random weights. `from_backbone` takes
            pretrained ones, `from_pretrained` an encoder that was saved or published.

    Raises:
        ValueError: backbones of two sizes without `first_stage_mlp`.

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
        if (config.variant, config.pool, config.skip_instruction_until) != ("paper", "text", None):
            from cde.models.published import stages_of  # the authors' models alone ask for these

            first, second = stages_of(config)
        self.second_stage = second(config)
        self.first_stage = (
            first(config, self.second_stage.dim) if config.first_backbone else NoFirstStage()
        )
        if config.tie_token_embeddings and isinstance(self.first_stage, FirstStage):
            shared = self.first_stage.backbone.get_input_embeddings().weight
            own = self.second_stage.backbone.get_input_embeddings()
            if own.weight.shape != shared.shape:
                raise ValueError(
                    f"tie_token_embeddings needs stages with one vocabulary and one size; they are "
                    f"{tuple(shared.shape)} and {tuple(own.weight.shape)}"
                )
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
            path_or_repository: "minilm" (offline), a folder, or a Hub repository.
            layers: keep its first so many layers in the second stage.
            first_stage_layers: of the first stage; by default as many; 0 leaves word embeddings.
            attn_implementation: "sdpa", "eager" or "flash_attention_2".
            device: device to run on; by default CUDA where there is one.
            precision: precision of embedding, not of `forward`.
            settings: settings of `ContextualConfig`.

        Raises:
            ConnectionError: no such model, here or on the Hub.
            ValueError: a family that is not supported, or a setting that is not accepted.
        """
        check_settings(ContextualConfig, settings, _BESIDE_SETTINGS)
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
        model.ready(tokenizer, attn_implementation, device, precision)
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
        prefixes: Mapping[str, str] | None = None,
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
            variant: which forward pass a published checkpoint runs. By default "v2" over
                ModernBERT, and "hub" over NomicBERT. The latter is the self-contained file of the
                authors' repository, written to be run from the Hub. So vectors should be those that
                its users have (the Hub's copy could not be compared). Its rotary embeddings turn by
                the attention head's index; "train" is the pass that the weights were trained with.
            tokenizer: a tokenizer, or where to load one from. By default the folder's own; for a
                NomicBERT checkpoint without one, MiniLM's, whose vocabulary is the same
                (bert-base-uncased).
            prefixes: what stands before queries and documents, in place of the model's own:
                `TASK_PREFIXES["classification"]`, for example.
            attn_implementation: "sdpa", "eager" or "flash_attention_2". Vectors of published models
                agree with the authors' to 1e-5 under "eager", to 2e-5 under "sdpa".
            device: device to run on; by default CUDA where there is one.
            precision: precision of embedding, not of `forward`.
            revision: revision of a Hub repository.

        Raises:
            ConnectionError: no such model, here or on the Hub.
            FileNotFoundError: a folder without a config or weights.
            ValueError: another kind of model, an unknown variant, or weights that do not fit.
        """
        folder = fetch_folder(path_or_repository, revision)
        values = read_config(folder)
        if values.get("model_type") == ContextualConfig.model_type:
            values.pop("context_drawn", None)  # of a CorpusEncoder, as is the tensor below
            config = ContextualConfig.from_dict(values)
            if variant not in (None, config.variant):
                raise ValueError(
                    f"{folder} was saved with the variant {config.variant!r}; {variant!r} was "
                    "asked for"
                )
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
                f"{folder} holds a model of type {values.get('model_type')!r}, neither saved by "
                "ContextualEncoder nor in the layout of jxm/cde-small-v1: "
                "ContextualEncoder.from_backbone starts from a transformer"
            )
        for name, prefix in (prefixes or {}).items():
            if name not in ("query_prefix", "document_prefix"):
                raise ValueError(
                    f"prefixes are query_prefix and document_prefix; {name!r} was given"
                )
            setattr(model.config, name, prefix)
        if isinstance(tokenizer, (str, Path)):
            tokenizer = load_tokenizer(tokenizer)
        if tokenizer is None and any(
            (folder / name).is_file() for name in ("tokenizer.json", "vocab.txt")
        ):
            tokenizer = load_tokenizer(folder)
        if tokenizer is None and model.config.second_backbone["model_type"] == "nomic_bert":
            tokenizer = load_tokenizer("minilm")
        return model.ready(tokenizer, attn_implementation, device, precision)  # type: ignore[no-any-return]

    def with_tied(self, tensors: dict[str, Tensor], second_wins: bool = False) -> dict[str, Tensor]:
        """Tensors with shared word embeddings under both of their names.

        `second_wins`: where both are there and differ, take the second stage's, as torch does when
        it fills the authors' model in the order of its parts.
        """
        if self.config.tie_token_embeddings and isinstance(self.first_stage, FirstStage):
            backbones = self.config.first_backbone, self.config.second_backbone
            tie(tensors, [backbone["model_type"] for backbone in backbones], second_wins)
        return tensors

    @property
    def dim(self) -> int:
        """Length of the vectors: that of the second stage's backbone."""
        return self.second_stage.dim

    @property
    def longest(self) -> int | None:
        """Most tokens that a text can have, where positions are learned; None where they are
        rotary.
        """
        stages = [
            stage
            for stage in (self.first_stage, self.second_stage)
            if not isinstance(stage, NoFirstStage)
        ]
        limits = [stage.family.longest(stage.backbone) for stage in stages]
        return min((limit for limit in limits if limit is not None), default=None)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        context: Tensor | ContextCache | None = None,
        context_input_ids: Tensor | None = None,
        context_attention_mask: Tensor | None = None,
        null_context: bool = False,
    ) -> Tensor:
        """Both stages: embeddings of texts before normalisation, `(batch, dim)`.

        Args:
            input_ids, attention_mask: `(batch, T)`, of the texts.
            context: what `first_stage` gave, or `second_stage.cache_context`.
            context_input_ids, context_attention_mask: `(J, T')`, of context documents to embed
                first.
            null_context: put the null token in the place of every context vector.

        Raises:
            ValueError: both forms of context at once, or shapes that do not fit.
        """
        if context_input_ids is not None:
            if context is not None:
                raise ValueError("give the context as token ids or as vectors, not both")
            context = self.first_stage(context_input_ids, context_attention_mask)
        embedded: Tensor = self.second_stage(input_ids, attention_mask, context, null_context)
        return embedded

    def embed_batch(self, input_ids: Tensor, mask: Tensor | None, context: Any = None) -> Tensor:
        """The second stage: vectors of texts before normalisation, `(batch, dim)`."""
        embedded: Tensor = self.second_stage(input_ids, mask, context)
        return embedded

    def carried_tokens(self) -> int:
        """Context tokens beside each text; cached ones weigh about a quarter: keys are copied."""
        return int(self.config.carried(self.config.context_tokens + self.config.soft_prompt_tokens))

    def share_context(self, context: Tensor | None, batches: int) -> Any:
        """With attention `cached` and several batches, the context's keys and values, made once."""
        if self.config.attention == "cached" and batches > 1:
            return self.second_stage.cache_context(context)
        return context

    def check_attention(self, implementation: str) -> None:
        """Raise a ValueError for flash attention beside ModernBERT's local windows."""
        if implementation.startswith("flash") and self.second_stage.window_beside_context():
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
        return self.vectors_by(
            self.first_stage,
            texts,
            prefix,
            shape=shape,
            normalise=False,
            description="embedding the context:",
        )

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

        Raises:
            TypeError: a context of another kind.
            ValueError: an empty context, one that does not fit the model, or vectors that are not
                finite.

        Warns:
            UserWarning: a context of one document, or of duplicates; once, an untrained encoder.
        """
        warn_untrained(self)
        if context is None:
            if self.config.attention != "gated":
                self.second_stage.null_tokens(1)  # raises where there is none
            return CorpusEncoder(self, None, "null context")
        documents, drawn = draw_context(self.config, self.dim, context, size, seed, fill)
        vectors: Any = documents
        if isinstance(documents, list):
            vectors = self.embed_context(list(dict.fromkeys(documents)))
            place = {text: row for row, text in enumerate(dict.fromkeys(documents))}
            vectors = vectors[[place[text] for text in documents]]
        tokens = torch.as_tensor(np.asarray(vectors), dtype=torch.float32, device=self.device)
        missing = self.config.context_size - len(tokens)
        if fill == "null" and missing > 0:
            null = self.second_stage.null_tokens(
                missing * self.config.vectors_per_document
            ).detach()
            tokens = torch.cat([tokens, null.reshape(missing, *tokens.shape[1:])])
            drawn += (
                f", filled with {missing} null tokens"
                if self.config.vectors_per_document == 1
                else ", filled"
            )
        return CorpusEncoder(self, tokens, drawn)


def load_published(
    state_dict: Mapping[str, Tensor],
    contextual_config: Mapping[str, Any],
    backbone_config: Mapping[str, Any] | None = None,
    variant: str = "hub",
    first_backbone_config: Mapping[str, Any] | None = None,
    colon_token_id: int | None = None,
) -> ContextualEncoder:
    """A contextual encoder from published weights and configs, in evaluation mode.

    It computes attention step by step ("eager"), as the authors' code does on a CPU: vectors agree
    to 1e-5. `set_attention("sdpa")` is faster and moves coordinates of size 4 by up to 1.3e-5.

    Args:
        state_dict: tensors under their published names.
        contextual_config: the published `config.json` as a dictionary.
        backbone_config: config of both backbones, or of the second, in published keys; by default
            what is known of the name in `contextual_config`.
        variant: "hub", "train" or "v2": which of the authors' forward passes to run (see
            `cde.models.VARIANTS`).
        first_backbone_config: config of the first stage, where it differs.
        colon_token_id: id of ":" in the tokenizer, for `pool_ignore_instruction_tokens`.

    Raises:
        ValueError: an unknown variant or setting; tensors that are missing, left over, of another
            shape, or not finite, all listed under their published names.

    Example:
        >>> load_published({}, {"embedder": "elsewhere/unknown"})
        Traceback (most recent call last):
        ValueError: the dimensions of the backbone 'elsewhere/unknown' are not known here; ...
    """
    from cde.models.published import Layout, published_config

    config = published_config(
        contextual_config, backbone_config, variant, first_backbone_config, colon_token_id
    )
    model = ContextualEncoder(config)
    layout = Layout(config)
    ours, unexpected = layout.to_ours(state_dict)
    tensors = model.with_tied(ours, second_wins=True)
    names = layout.published_names([*model.state_dict(), *tensors])
    fill(model, tensors, "the published checkpoint", names, unexpected)
    model.set_attention("eager")
    model.eval()
    return model

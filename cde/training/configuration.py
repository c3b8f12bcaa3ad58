"""What a training run is: every setting that changes its result, checked when it is given."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from cde.hardware import tokens_at_once
from cde.validation import Number, Switch, Text, Whole, declared

__all__ = ["TrainConfig"]

#: what torch and the tokenizers take for a number
_MOST = 2**31 - 1
_Count = Annotated[Whole, Field(ge=1, le=_MOST)]
_CountOrZero = Annotated[Whole, Field(ge=0, le=_MOST)]
_TwoOrMore = Annotated[Whole, Field(ge=2, le=_MOST)]  # a text's two marks; a pair and a negative
_Above0 = Annotated[Number, Field(gt=0)]

#: settings that came after the first records
_LATER: tuple[str, ...] = ("context_from", "null_share", "trains", "cluster_by", "hardness")
_LATER += ("final_rate", "clip_gradients", "evaluate_every", "surrogate", "filter_surrogate")


@declared
class TrainConfig:
    """Settings of one training run; the defaults are the paper's where it names one (§4, §5,
    §10.1).

    Attributes:
        data: a name for `cde.load_pairs`.
        pairs: train on so many of them, drawn with `seed`; None takes all.
        architecture: "bi-encoder" or "contextual".
        start: what the weights start from: "minilm", the folder or Hub name of a transformer, or
            the folder of a trained encoder to go on from (`model` in a run's), for a second phase:
            its settings then hold, not `attention`, `layers`, `first_stage_layers`,
            `vectors_per_document` and `model` here, nor longer texts where it embeds;
            `context_size` must be its own or less.
        layers: keep so many of the transformer's layers; None keeps all. 0 leaves a bi-encoder its
            word embeddings alone.
        first_stage_layers: of a contextual encoder's first stage; None keeps as many as `layers`.
        model: further settings of `BiEncoderConfig` or `ContextualConfig` (`first_stage_mlp`, …).
        attention: of a contextual encoder, "full", "cached" or "gated".
        context_size: context documents, shared by the texts of a batch.
        vectors_per_document: that the second stage reads of each.
        context_from: "batch", as the paper has it (§4.2): the context is drawn from the documents
            of the batch, so that a query's own document may stand in it. "apart": from documents
            of the same cluster or source that no row of the batch has. "fixed": the same documents
            in every batch, drawn once with `seed`. That is a control: all parameters, and no
            corpus.
        null_share: share of the batches whose context is left out.
        trains: "all" weights, or those of the "reader" alone (attention "gated"): without context
            the encoder then stays what it was.
        batches: "random", "domain" (each from one source), "cluster" (of neighbours: clusters laid
            end to end and cut, §4.1), or "stratum" (each from one cluster within a source; clusters
            smaller than a batch are not trained on; clustering paper §2).
        cluster_size: pairs a cluster, on average.
        cluster_by: "pairs" (Eq. 3), or spherical k-means on "documents", "queries" or "both", laid
            side by side (clustering paper §2 and its footnote 2).
        order: of clusters in packing, "tsp" or "random".
        surrogate: whose vectors make clusters, filter and hard negatives: "minilm", or the folder
            or Hub name of a sentence-transformers model (`cde.Surrogate`).
        filter_surrogate: another one for the filter alone, as in the paper, which clusters with GTR
            and filters with nomic-embed; None takes `surrogate`.
        surrogate_tokens: texts are cut there for either surrogate.
        filter_epsilon: ε of Eq. 4; None trains without the filter (hard negatives are then mined
            with ε = 0).
        filter_threshold: an absolute score in its place; `filter_epsilon` is then None.
        hard_negatives: a query, mined with the surrogate within its domain.
        batch_size: pairs a step, over all processes.
        chunk_tokens: computed at once, padding included; None takes 1,024 on a CPU in float32,
            4,096 there in bfloat16, 32,768 on a GPU. Without the cache a CPU takes at most these.
        uncached_tokens: a batch of more tokens goes through the gradient cache (0: every batch);
            None takes 16,384 on a CPU, 32,768 on a GPU.
        share_negatives: between processes.
        temperature: τ.
        symmetric: also from documents to queries.
        hardness: what a negative of cosine 1 gains in the loss, in logits (`contrastive_loss`).
        learning_rate, warmup_steps: linear warm-up to the rate, then linear decay; None warms up
            for a tenth of the steps, and the paper's 1,000 at most.
        final_rate: share of the rate that the decay ends at.
        clip_gradients: longer gradients are cut to this length; None cuts none.
        weight_decay: of AdamW; 0 is Adam.
        steps: of the optimiser.
        query_tokens, document_tokens, context_tokens: texts are cut there.
        precision: "auto" multiplies in bfloat16 where that is fast.
        checkpoint_every: steps between two checkpoints; 0 keeps none before the end.
        evaluate_every: steps between two tests on the way, where tests are given; 0 makes none.
        seed: of everything that is drawn.

    Example:
        >>> config = TrainConfig(steps=10, batch_size=64)
        >>> config, config.temperature
        (TrainConfig(batch_size=64, steps=10), 0.02)
        >>> TrainConfig(batches="clustered")
        Traceback (most recent call last):
        ValueError: batches must be one of random, domain, cluster, stratum; it is 'clustered'
    """

    data: Text = "pydocs"
    pairs: _Count | None = None
    architecture: Literal["bi-encoder", "contextual"] = "contextual"
    start: Text = "minilm"
    layers: _CountOrZero | None = None
    first_stage_layers: _CountOrZero | None = None
    model: dict[str, Any] = Field(default_factory=dict)
    attention: Literal["full", "cached", "gated"] = "full"
    context_size: _Count = 64
    vectors_per_document: _Count = 1
    context_from: Literal["batch", "apart", "fixed"] = "batch"
    null_share: Annotated[Number, Field(ge=0, le=1)] = 0.0
    trains: Literal["all", "reader"] = "all"
    batches: Literal["random", "domain", "cluster", "stratum"] = "cluster"
    cluster_size: _Count = 256
    cluster_by: Literal["pairs", "documents", "queries", "both"] = "pairs"
    order: Literal["random", "tsp"] = "tsp"
    surrogate: Text = "minilm"
    filter_surrogate: Text | None = None
    surrogate_tokens: _TwoOrMore = 64
    filter_epsilon: Number | None = 0.0
    filter_threshold: Number | None = None
    hard_negatives: _CountOrZero = 0
    batch_size: _TwoOrMore = 256
    chunk_tokens: _Count | None = None
    uncached_tokens: _CountOrZero | None = None
    share_negatives: Switch = True
    temperature: _Above0 = 0.02
    symmetric: Switch = False
    hardness: Annotated[Number, Field(ge=0)] = 0.0
    learning_rate: _Above0 = 2e-5
    warmup_steps: _CountOrZero | None = None
    final_rate: Annotated[Number, Field(ge=0, lt=1)] = 0.0
    clip_gradients: _Above0 | None = None
    weight_decay: Annotated[Number, Field(ge=0)] = 0.0
    steps: _Count = 1000
    query_tokens: _TwoOrMore = 64
    document_tokens: _TwoOrMore = 64
    context_tokens: _TwoOrMore = 64
    precision: Literal["auto", "bfloat16", "float32"] = "auto"
    checkpoint_every: _CountOrZero = 100
    evaluate_every: _CountOrZero = 0
    seed: _CountOrZero = 0

    @model_validator(mode="after")
    def _fits_together(self) -> TrainConfig:
        if self.filter_epsilon is not None and self.filter_threshold is not None:
            raise ValueError(
                "of filter_epsilon and filter_threshold set one, and the other to None"
            )
        contextual, reader = self.architecture == "contextual", self.trains == "reader"
        if contextual and self.context_from == "batch" and self.context_size > self.batch_size:
            drawn = f"context_size {self.context_size} is more than batch_size {self.batch_size}"
            raise ValueError(f"{drawn}, of which the context is drawn")
        null = self.model.get("null_token", True) or self.attention == "gated"
        if contextual and self.null_share and not null:
            raise ValueError(
                f"null_share {self.null_share} needs the null token, which model leaves out"
            )
        if reader and (self.architecture, self.attention) != ("contextual", "gated"):
            raise ValueError("trains='reader' needs a contextual encoder with attention='gated'")
        if reader and self.null_share:
            said = f"null_share must be 0; it is {self.null_share}"
            raise ValueError(f"trains='reader' learns nothing from a batch without context: {said}")
        if doubled := sorted({field.name for field in fields(self)} & set(self.model)):
            raise ValueError(f"set {', '.join(doubled)} beside model, not in it")
        if not self.model:
            return self
        from cde.models.configuration import BiEncoderConfig, ContextualConfig, check_settings

        encoder: Any = ContextualConfig if contextual else BiEncoderConfig
        of_both = {"context_size": self.context_size, "attention": self.attention}
        try:
            check_settings(encoder, self.model)
            encoder(**(of_both if contextual else {}) | self.model)
        except ValueError as error:
            raise ValueError(f"model: {error}") from None
        return self

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self._given().items())
        return f"TrainConfig({given})"

    def _given(self) -> dict[str, Any]:
        """The settings that are not at their default."""
        defaults = asdict(type(self)())
        return {name: value for name, value in asdict(self).items() if value != defaults[name]}

    @property
    def warmup(self) -> int:
        return min(1000, self.steps // 10) if self.warmup_steps is None else self.warmup_steps

    def token_limits(self, gpu: bool) -> tuple[int, int]:
        """Tokens of a chunk, and of the largest batch without a gradient cache."""
        near = tokens_at_once("cpu", self.precision)
        chunk, uncached = (32_768, 32_768) if gpu else (near, 16_384)
        return (
            chunk if self.chunk_tokens is None else self.chunk_tokens,
            uncached if self.uncached_tokens is None else self.uncached_tokens,
        )

    def to_dict(self) -> dict[str, Any]:
        """The settings as a dictionary that JSON can hold, those of `_LATER` only where they are
        not at their default: a run is stored under its hash, and stays the run that it was.
        """
        given = self._given()
        return {
            name: value
            for name, value in asdict(self).items()
            if name not in _LATER or name in given
        }

"""What a training run is: every setting that changes its result, checked when it is given."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import Any

__all__ = ["TrainConfig"]

_CHOICES = {
    "architecture": ("bi-encoder", "contextual"),
    "attention": ("full", "cached"),
    "batches": ("random", "domain", "cluster"),
    "order": ("random", "tsp"),
    "precision": ("auto", "bfloat16", "float32"),
}
_POSITIVE = (
    "batch_size",
    "cluster_size",
    "steps",
    "context_size",
    "vectors_per_document",
    "query_tokens",
    "document_tokens",
    "context_tokens",
    "surrogate_tokens",
)


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Settings of one training run; the defaults are the paper's where it names one (§4, §5,
    §10.1).

    Attributes:
        data: a name for `cde.load_pairs`.
        pairs: train on so many of them, drawn with `seed`; None takes all.
        architecture: "bi-encoder" or "contextual".
        start: what the weights start from: "minilm", the folder or Hub name of a transformer, or
            the folder of a run to go on from (a second phase).
        layers: keep so many of the transformer's layers; None keeps all.
        first_stage_layers: of a contextual encoder's first stage; None keeps as many as `layers`.
        model: further settings of `BiEncoderConfig` or `ContextualConfig` (`first_stage_mlp`, …).
        attention: of a contextual encoder, "full" or "cached".
        context_size: context documents, drawn from the batch and shared by its texts.
        batches: "random", "domain" (each from one source) or "cluster" (of neighbours, §4.1).
        cluster_size: pairs a cluster, on average.
        order: of clusters in packing, "tsp" or "random".
        surrogate_tokens: texts are cut there for the surrogate (clusters, filter, hard negatives).
        filter_epsilon: ε of Eq. 4; None trains without the filter.
        filter_threshold: an absolute score in its place, as in the authors' code.
        hard_negatives: a query, mined with the surrogate within its domain.
        batch_size: pairs a step, over all processes.
        chunk_tokens: computed at once, padding included; None takes 4,096 on a CPU, 32,768 on a
            GPU.
        uncached_tokens: a batch of more tokens goes through the gradient cache (0: every batch);
            None takes 16,384 on a CPU, 32,768 on a GPU.
        share_negatives: between processes.
        temperature: τ.
        symmetric: also from documents to queries.
        learning_rate, warmup_steps: linear warm-up to the rate, then linear decay to 0.
        weight_decay: of AdamW; 0 is Adam.
        steps: of the optimiser.
        query_tokens, document_tokens, context_tokens: texts are cut there.
        precision: "auto" multiplies in bfloat16 where that is fast.
        checkpoint_every: steps between two checkpoints; 0 keeps none before the end.
        seed: of everything that is drawn.

    Raises:
        ValueError: naming the setting, what it is and what is accepted.

    Example:
        >>> TrainConfig(steps=10, batch_size=64).temperature
        0.02
        >>> TrainConfig(batches="clustered")
        Traceback (most recent call last):
        ValueError: batches must be one of random, domain, cluster; it is 'clustered'
    """

    data: str = "pydocs"
    pairs: int | None = None
    architecture: str = "contextual"
    start: str = "minilm"
    layers: int | None = None
    first_stage_layers: int | None = None
    model: dict[str, Any] = field(default_factory=dict)
    attention: str = "full"
    context_size: int = 64
    vectors_per_document: int = 1
    batches: str = "cluster"
    cluster_size: int = 256
    order: str = "tsp"
    surrogate_tokens: int = 64
    filter_epsilon: float | None = 0.0
    filter_threshold: float | None = None
    hard_negatives: int = 0
    batch_size: int = 256
    chunk_tokens: int | None = None
    uncached_tokens: int | None = None
    share_negatives: bool = True
    temperature: float = 0.02
    symmetric: bool = False
    learning_rate: float = 2e-5
    warmup_steps: int = 1000
    weight_decay: float = 0.0
    steps: int = 1000
    query_tokens: int = 64
    document_tokens: int = 64
    context_tokens: int = 64
    precision: str = "auto"
    checkpoint_every: int = 100
    seed: int = 0

    def __post_init__(self) -> None:
        for name, accepted in _CHOICES.items():
            value = getattr(self, name)
            if value not in accepted:
                raise ValueError(f"{name} must be one of {', '.join(accepted)}; it is {value!r}")
        for name in _POSITIVE:
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} must be a whole number, 1 or more; it is {value!r}")
        for name in ("warmup_steps", "hard_negatives", "checkpoint_every"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 0:
                raise ValueError(f"{name} must be a whole number, 0 or more; it is {value!r}")
        for name, least in (("chunk_tokens", 1), ("uncached_tokens", 0)):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or value < least):
                raise ValueError(
                    f"{name} must be None or a whole number, {least} or more; it is {value!r}"
                )
        for name in ("temperature", "learning_rate"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be above 0; it is {getattr(self, name)!r}")
        if self.weight_decay < 0:
            raise ValueError(f"weight_decay must be 0 or more; it is {self.weight_decay!r}")
        if self.batch_size < 2:
            raise ValueError(
                f"batch_size must be 2 or more, for a negative; it is {self.batch_size}"
            )
        if self.filter_epsilon is not None and self.filter_threshold is not None:
            raise ValueError(
                "filter_epsilon is relative and filter_threshold absolute: set one, and the other "
                "to None"
            )
        if self.architecture == "contextual" and self.context_size > self.batch_size:
            raise ValueError(
                f"the context is drawn from the batch: context_size {self.context_size} is more "
                "than batch_size "
                f"{self.batch_size}"
            )

    def token_limits(self, gpu: bool) -> tuple[int, int]:
        """Tokens of a chunk, and of the largest batch that needs no gradient cache: as set, or the
        device's default.

        Example:
            >>> TrainConfig(chunk_tokens=512).token_limits(gpu=False)
            (512, 16384)
        """
        chunk, uncached = (32_768, 32_768) if gpu else (4_096, 16_384)
        return (
            chunk if self.chunk_tokens is None else self.chunk_tokens,
            uncached if self.uncached_tokens is None else self.uncached_tokens,
        )

    def to_dict(self) -> dict[str, Any]:
        """The settings as a dictionary that JSON can hold; a run is stored under its hash."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> TrainConfig:
        """The config of a dictionary.

        Raises:
            ValueError: a name that is no setting.
        """
        known = {one.name for one in fields(cls)}
        unknown = sorted(set(values) - known)
        if unknown:
            raise ValueError(
                f"unknown settings {', '.join(unknown)}; known are {', '.join(sorted(known))}"
            )
        return cls(**values)

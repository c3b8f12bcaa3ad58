"""What a run would cost, from its config alone: steps, tokens, memory and GPU hours, before
anything is loaded.

Work is counted as is usual. Forward, it is 2 operations a parameter and token (embeddings left
out), and 4 · keys · dim a layer and token for attention. Backward, it is twice that. Under the
gradient cache the forward pass runs once more. Memory is Adam's 16 bytes a parameter (weights,
gradients, two moments, float32) and the graph of one chunk. Hours suppose a share of the GPU's peak
that such runs reach; texts count at their full length, since a config does not know how long they
are. So an estimate is right within a factor of two or so.
"""

from __future__ import annotations

from dataclasses import dataclass

from cde.training.configuration import TrainConfig

_H100 = 989e12  # dense bfloat16 operations a second, by NVIDIA's data sheet
_REACHED = 0.4  # share of its peak that a GPU reaches in such runs


@dataclass(frozen=True)
class Shape:
    """The sizes of a transformer."""

    dim: int
    layers: int
    intermediate: int
    matrices: int
    vocabulary: int

    def parameters(self, layers: int) -> int:
        """Weights of so many layers, biases and norms left out."""
        return layers * (4 * self.dim**2 + self.matrices * self.dim * self.intermediate)


_SHAPES = {
    "minilm": Shape(384, 6, 1536, 2, 30522),
    "nomic-ai/nomic-bert-2048": Shape(768, 12, 3072, 3, 30528),
}


@dataclass(frozen=True)
class Estimate:
    """What a run would cost."""

    steps: int
    tokens: int
    parameters: int
    operations: float
    memory: float
    gpu_hours: float


def estimate(config: TrainConfig, peak: float = _H100) -> Estimate:
    """The cost of a run on GPUs of so many operations a second at their peak."""
    shape = _SHAPES[config.start]
    layers = config.layers or shape.layers
    texts = config.batch_size * (
        config.query_tokens + config.document_tokens * (1 + config.hard_negatives)
    )
    count = config.batch_size * (2 + config.hard_negatives)
    contextual = config.architecture == "contextual"
    context = config.context_size * config.vectors_per_document if contextual else 0
    carried = context if config.attention == "full" else 0
    second = texts + count * carried
    # attention: each token of a text meets its own text's and the context's
    length = max(config.query_tokens, config.document_tokens)
    forward = (
        2.0 * second * shape.parameters(layers)
        + 4.0 * second * length * shape.dim * layers
        # a gated reader reads the context once
        + 4.0 * second * context * shape.dim * (1 if config.attention == "gated" else layers)
    )
    parameters = shape.parameters(layers) + shape.vocabulary * shape.dim
    tokens = second
    if contextual:
        first = config.context_size * config.context_tokens
        depth = layers if config.first_stage_layers is None else config.first_stage_layers
        forward += (
            2.0 * first * shape.parameters(depth)
            + 4.0 * first * config.context_tokens * shape.dim * depth
        )
        parameters += shape.parameters(depth) + shape.vocabulary * shape.dim
        tokens += first
    # cached keys and values weigh about a quarter, as in `tokens_in`
    copies = count * (context // 4) if contextual and config.attention == "cached" else 0
    work = tokens + copies
    chunk_tokens, uncached_tokens = config.token_limits(gpu=True)
    chunk = min(chunk_tokens, work)
    cached = work > uncached_tokens
    operations = config.steps * forward * (4 if cached else 3)
    # bytes of the graph for a token and layer in bfloat16, flash attention: Korthikanti et al.
    # 2022, Eq. 2, less scores
    graph = 34 * shape.dim * layers * (chunk if cached else work)
    return Estimate(
        steps=config.steps,
        tokens=tokens,
        parameters=parameters,
        operations=operations,
        memory=(16 * parameters + graph) / 2**30,
        gpu_hours=operations / (peak * _REACHED) / 3600,
    )

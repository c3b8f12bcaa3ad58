"""Context documents in the trainer of sentence-transformers (CDE §4.2).

A contextual encoder is trained in the context of its own batch: J of the batch's documents, which
the first stage embeds with a graph. A loss of that library embeds a batch column by column and
knows of no context. So the collator, which makes the tokens of a batch, adds those of the context
documents to each column; the encoder in the model takes them up (`cde.models.sentence_model`).

`MultipleNegativesRankingLoss` gives the gradient of the whole graph, both stages', and so does
`CachedMultipleNegativesRankingLoss`: the context is no tensor of the batch's rows, hence is not cut
into mini-batches, and each of them computes the first stage again, with the graph of its own.

Cost: the first stage embeds J documents for each column, not once a step as in `cde.train`; with a
cached loss twice for each mini-batch. With J far below the batch and large mini-batches that is
little; otherwise `cde.train` is cheaper.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from sentence_transformers.sentence_transformer.data_collator import SentenceTransformerDataCollator

from cde.validation import checked_whole

__all__ = ["ContextualBatches", "contextual_batches"]


@dataclass
class ContextualBatches(SentenceTransformerDataCollator):  # type: ignore[misc]
    """What `contextual_batches` gives: a collator that adds context documents to each column."""

    size: int = 64
    column: str | None = None
    tokens: int | None = None
    seed: int = 0
    own_prompts: tuple[str, str] | None = None

    def __call__(self, features: list[dict[str, Any]]) -> dict[str, Any]:
        """The tokens of a batch: of each column, and of its context under `…context_texts`."""
        labels = {"dataset_name", *self.valid_label_columns}
        columns = [
            name
            for name, value in features[0].items()
            if isinstance(value, str) and name not in labels
        ]
        column = self.column or (columns[1] if len(columns) > 1 else "")
        if column not in columns:
            wanted = f"the column {self.column}" if self.column else "a second column of text"
            raise ValueError(
                f"the context is drawn from {wanted}, and the dataset has "
                f"{', '.join(columns) or 'no text'}: name one as column"
            )
        if self.own_prompts is not None:
            query, document = self.own_prompts
            self.prompts = dict.fromkeys(columns, document) | {columns[0]: query}
        batch: dict[str, Any] = super().__call__(features)
        documents = self.drawn([row[column] for row in features])
        prompts = self.prompts
        prompt = prompts.get(column) if isinstance(prompts, dict) else prompts
        limit = {} if self.tokens is None else {"max_length": self.tokens}
        made = self.preprocess_fn(documents, prompt=prompt, task="document", **limit)
        for name in columns:
            batch[f"{name}_context_texts"] = made["input_ids"], made["attention_mask"]
        return batch

    def drawn(self, documents: list[str]) -> list[str]:
        """The context of a batch: some of its documents.

        Which ones depends on the batch and the seed alone, so that training which goes on after an
        interruption draws the same.
        """
        digest = hashlib.blake2b("\0".join(documents).encode("utf-8", "surrogatepass")).digest()
        generator = np.random.default_rng([self.seed, int.from_bytes(digest[:8], "little")])
        rows = generator.choice(len(documents), min(self.size, len(documents)), replace=False)
        return [documents[row] for row in rows]


def contextual_batches(
    model: Any,
    size: int | None = None,
    column: str | None = None,
    tokens: int | None = None,
    seed: int = 0,
    prompts: Any = None,
) -> ContextualBatches:
    """Train a contextual encoder in the trainer of sentence-transformers, in its batches' context.

    Args:
        model: the `SentenceTransformer` of a folder that `ContextualEncoder.save_pretrained` wrote.
        size: context documents a batch; by default as many as the encoder was made for. A smaller
            batch is its own context, whole.
        column: which column of the dataset they are drawn from; by default the second column of
            text, the documents.
        tokens: of a context document; by default the model's own limit.
        seed: of the draw.
        prompts: as the trainer's; by default the model's own, "query" before the first column and
            "document" before the others.

    Returns:
        What `SentenceTransformerTrainer(data_collator=…)` takes. Several processes have a context
        each, of their own part of the batch.

    Raises:
        TypeError: a model that reads no context.
        ValueError: a model saved without its first stage, which embeds the context; a size below 1.

    With `cde.clustered_batches()` as batch sampler, the documents of a batch are neighbours, as in
    the paper. To train in the context of one fixed corpus, leave this out, and save the encoder
    bound to it (`with_context(corpus).save_pretrained`): its vectors stay, the second stage is
    trained.

    Example:
        >>> import tempfile
        >>> from cde.models import ContextualEncoder
        >>> from sentence_transformers import SentenceTransformer
        >>> folder = tempfile.mkdtemp()
        >>> encoder = ContextualEncoder.from_backbone("minilm", layers=1, context_size=8)
        >>> encoder.save_pretrained(folder)
        >>> collate = contextual_batches(SentenceTransformer(folder), tokens=4)
        >>> ids, _ = collate([{"query": "ships", "document": "red boats"}])["query_context_texts"]
        >>> ids.tolist()
        [[101, 2417, 6242, 102]]
    """
    inner = getattr(model, "transformers_model", None)
    encoder: Any = getattr(inner, "encoder", None)
    if not getattr(encoder, "reads_context", False):
        raise TypeError(
            f"{type(model).__name__} holds no contextual encoder: "
            "SentenceTransformer(folder) of what ContextualEncoder.save_pretrained(folder) wrote"
        )
    if not encoder.config.first_backbone:
        raise ValueError(
            "the encoder was saved without its first stage, which embeds the context: "
            "save_pretrained(folder, first_stage=True)"
        )
    own = (model.prompts.get("query") or "", model.prompts.get("document") or "")
    return ContextualBatches(
        preprocess_fn=model.preprocess,
        prompts=prompts,
        size=checked_whole(encoder.config.context_size if size is None else size, "size"),
        column=column,
        tokens=tokens,
        seed=seed,
        own_prompts=own if prompts is None else None,
    )

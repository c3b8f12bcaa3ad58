"""Clustered batches, and their contexts, in the trainer of sentence-transformers.

`clustered_batches` is for its trainer's `batch_sampler=`: clusters and batches (CDE §4.1) as
`cde.train` makes them, on whatever device and after an interruption. (In several processes only
after one at the end of an epoch: `accelerate` does not tell the sampler of a later one.)

A contextual encoder is trained in the context of its own batch (CDE §4.2): J of the batch's
documents. A loss of that library embeds a batch column by column and knows of no context. So the
collator that `contextual_batches` gives adds the tokens of the context documents to each column,
and the encoder in the model embeds them with a graph. `MultipleNegativesRankingLoss` gives the
gradient of both stages, and so does its cached form.

Cost: an embedding for each text, once. The first stage embeds J documents for each column, not once
a step as in `cde.train`; with a cached loss twice for each mini-batch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.data_collator import SentenceTransformerDataCollator
from sentence_transformers.sentence_transformer.losses import GISTEmbedLoss
from torch.utils.data import BatchSampler as TorchBatchSampler
from torch.utils.data import SequentialSampler

from cde.batching.clustering import cluster_pairs
from cde.batching.packing import BatchSampler, Order
from cde.surrogate import Surrogate, minilm_folder
from cde.validation import checked_number, checked_whole, encoded

__all__ = [
    "ContextualBatches",
    "EpochBatches",
    "clustered_batches",
    "contextual_batches",
    "filtered_loss",
]

#: the default of `TrainConfig.surrogate_tokens`
_TOKENS = 64


class EpochBatches(TorchBatchSampler):
    """A `BatchSampler` as PyTorch's loaders want one: an epoch an iteration, by `set_epoch`."""

    def __init__(self, batches: BatchSampler) -> None:
        self._batches = batches
        pairs: Any = range(batches.batches_per_epoch * batches.batch_size)
        # loaders look at these three; which batches there are, they do not decide
        super().__init__(SequentialSampler(pairs), batches.batch_size, batches.drop_last)

    def set_epoch(self, epoch: int) -> None:
        """Give the batches of this epoch from now on."""
        self._batches.load_state_dict({**self._batches.state_dict(), "epoch": epoch, "position": 0})

    def __iter__(self) -> Iterator[list[int]]:
        self.set_epoch(self._batches.epoch)
        # all of them first: whoever iterates beside this moves the sampler
        epoch = [next(self._batches) for _ in range(self._batches.batches_per_epoch)]
        yield from (batch.tolist() for batch in epoch)

    def __len__(self) -> int:
        return self._batches.batches_per_epoch


@dataclass(frozen=True)
class clustered_batches:
    """Batches of neighbours for the trainer of sentence-transformers (CDE §4.1).

    Copies of a document are neighbours too. `filtered_loss` leaves them, and what else may answer a
    query, out of its negatives.

    Args:
        cluster_size: mean pairs of a cluster; by default a batch's.
        order: which clusters share a batch: "tsp" for neighbours, or "random".
        domains: the source of each row, if there are several in one dataset: no batch mixes them.
            The datasets of a `DatasetDict` are kept apart in any case. An `eval_dataset`, which the
            trainer batches in the same way, must then have as many rows.
        surrogate: what embeds the texts to be clustered; by default MiniLM on their first 64
            tokens, as in `TrainConfig`.
        seed: of clusters and batches; by default the trainer's.

    An instance is what `SentenceTransformerTrainingArguments(batch_sampler=…)` takes, and saves
    with every checkpoint: called with a dataset, it makes the batches of its epochs, from the first
    two columns of text. What does not fill a batch is dropped if `dataloader_drop_last` is set.

    Raises:
        ValueError: a cluster_size below 1, a seed below 0; when training begins, a dataset without
            two columns of text, domains for another number of rows, or too few rows for a batch.

    Example:
        >>> from datasets import Dataset
        >>> rows = Dataset.from_dict({"query": ["boat", "tree", "ship", "leaf"],
        ...     "document": ["boats float", "trees grow", "ships sail", "leaves fall"]})
        >>> batches = clustered_batches()(rows, batch_size=2, drop_last=True, seed=0)
        >>> sorted(sorted(batch) for batch in batches)
        [[0, 2], [1, 3]]
    """

    cluster_size: int | None = None
    order: Order = "tsp"
    domains: Sequence[str] | None = None
    surrogate: Surrogate | None = None
    seed: int | None = None

    def __post_init__(self) -> None:
        if self.cluster_size is not None:
            checked_whole(self.cluster_size, "cluster_size")
        if self.seed is not None:
            checked_whole(self.seed, "seed", 0)

    def __call__(
        self, dataset: Any, batch_size: int, drop_last: bool = False, **trainers: Any
    ) -> EpochBatches:
        seed = (trainers.get("seed") if self.seed is None else self.seed) or 0
        size = batch_size if self.cluster_size is None else self.cluster_size
        queries, documents = _texts(dataset)
        embed = self.surrogate or Surrogate(max_tokens=_TOKENS)
        vectors = encoded(embed, queries, "queries"), encoded(embed, documents, "documents")
        labels = cluster_pairs(*vectors, size, self.domains, seed=seed)
        centroids_of = vectors[1] if self.order == "tsp" else None
        options = self.order, centroids_of, self.domains, seed, drop_last
        return EpochBatches(BatchSampler(labels, batch_size, *options))


def filtered_loss(model: Any, epsilon: float = 0.0, temperature: float = 0.05) -> GISTEmbedLoss:
    """The loss that leaves false negatives out of a batch of neighbours (CDE Eq. 4), beside
    `clustered_batches`.

    It is `GISTEmbedLoss` of sentence-transformers, with MiniLM on the first 64 tokens as its guide
    and documents alone in the denominator: those are left out that the guide finds as good for a
    query as its own, up to ε, hence copies of its own too, which a batch of neighbours may hold.

    Args:
        model: the `SentenceTransformer` that is trained.
        epsilon: ε; above 0 filters less, below 0 more.
        temperature: cosines are divided by it.

    Raises:
        ValueError: an ε or temperature that is not a finite number, or a model without a tokenizer
            of transformers.

    Example:
        >>> from sentence_transformers import SentenceTransformer
        >>> from cde.surrogate import minilm_folder
        >>> filtered_loss(SentenceTransformer(str(minilm_folder()))).contrast_anchors
        False
    """
    guide = SentenceTransformer(str(minilm_folder()), device=str(model.device))
    guide.max_seq_length = _TOKENS
    return GISTEmbedLoss(
        model,
        guide,
        checked_number(temperature, "temperature"),
        # it leaves out what scores more: with the margin also what scores as much, to the last bit
        margin=1e-6 - checked_number(epsilon, "epsilon"),
        contrast_anchors=False,
        contrast_positives=False,
    )


def _texts(dataset: Any) -> tuple[list[str], list[str]]:
    names: list[str] = list(getattr(dataset, "column_names", []))
    first = dataset[0] if names and len(dataset) else {}
    of_text = [name for name in names if isinstance(first.get(name), str)]
    if len(of_text) < 2:
        raise ValueError(
            "clustered_batches needs a column of queries and one of documents, as texts; of "
            f"{', '.join(names) or 'no columns'} {', '.join(of_text) or 'none'} hold text"
        )
    return list(dataset[of_text[0]]), list(dataset[of_text[1]])


@dataclass
class ContextualBatches(SentenceTransformerDataCollator):  # type: ignore[misc]
    """What `contextual_batches` gives: a collator that adds context documents to each column."""

    size: int = 64
    tokens: int | None = None
    seed: int = 0
    own_prompts: tuple[str, str] = ("", "")

    def __call__(self, features: list[dict[str, Any]]) -> dict[str, Any]:
        """The tokens of a batch: of each column, and of its context under `…context_texts`."""
        labels = {"dataset_name", *self.valid_label_columns}
        of_text = [name for name, value in features[0].items() if isinstance(value, str)]
        columns = [name for name in of_text if name not in labels]
        if len(columns) < 2:
            said = f"and the dataset has {', '.join(columns) or 'no text'}"
            raise ValueError(f"the context is drawn from a second column of text, {said}")
        query, prompt = self.own_prompts
        self.prompts = dict.fromkeys(columns, prompt) | {columns[0]: query}
        batch: dict[str, Any] = super().__call__(features)
        documents = self.drawn([row[columns[1]] for row in features])
        limit = {} if self.tokens is None else {"max_length": self.tokens}
        made = self.preprocess_fn(documents, prompt=prompt, task="document", **limit)
        for name in columns:
            batch[f"{name}_context_texts"] = made["input_ids"], made["attention_mask"]
        return batch

    def drawn(self, documents: list[str]) -> list[str]:
        """Some documents of a batch, by its content and the seed, also when training resumes."""
        digest = hashlib.blake2b("\0".join(documents).encode("utf-8", "surrogatepass")).digest()
        generator = np.random.default_rng([self.seed, int.from_bytes(digest[:8], "little")])
        rows = generator.choice(len(documents), min(self.size, len(documents)), replace=False)
        return [documents[row] for row in rows]


def contextual_batches(
    model: Any, size: int | None = None, tokens: int | None = None, seed: int = 0
) -> ContextualBatches:
    """Train a contextual encoder in the trainer of sentence-transformers, in its batches' context.

    Args:
        model: the `SentenceTransformer` of a folder that `ContextualEncoder.save_pretrained` wrote.
        size: context documents a batch, of the dataset's second column of text; by default as many
            as the encoder was made for. A smaller batch is its own context, whole.
        tokens: of a context document; by default the model's own limit.
        seed: of the draw.

    Returns:
        What `SentenceTransformerTrainer(data_collator=…)` takes: the model's prompt "query" stands
        before the first column, "document" before the others. Several processes have a context
        each, of their own part of the batch.

    Raises:
        TypeError: a model that reads no context.
        ValueError: a model saved without its first stage; a size below 1, tokens below the two
            marks of each text, a seed below 0.

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
        how = "save_pretrained(folder, first_stage=True)"
        raise ValueError(f"the encoder was saved without its first stage: {how}")
    own = (model.prompts.get("query") or "", model.prompts.get("document") or "")
    size = checked_whole(encoder.config.context_size if size is None else size, "size")
    tokens = None if tokens is None else checked_whole(tokens, "tokens", 2)
    seed = checked_whole(seed, "seed", 0)
    return ContextualBatches(model.preprocess, size=size, tokens=tokens, seed=seed, own_prompts=own)

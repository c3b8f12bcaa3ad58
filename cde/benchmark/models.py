"""Encoders and rankers of this package as models of mteb (2.26).

Retrieval and reranking go through mteb's `SearchProtocol`: `index` is given the corpus, so the
context is drawn from the corpus that is searched, for each split and subset, and no task is loaded
a second time. All other tasks go through its encoder protocol, which gives one column of texts at a
time and no task: so the model knows the tasks that it will be evaluated on, and draws from their
texts (`cde.benchmark.contexts`). Of a task that it does not know it draws from what it is given
first.

Searching is `cde.retrieval.rank`, or `rerank` where a task brings candidates: scores are those of
`cde.evaluate`.

Cost: that of the encoder; a context is drawn and embedded once for each task, split and subset.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from mteb._create_dataloaders import create_dataloader
from mteb.abstasks import AbsTask
from mteb.abstasks.task_metadata import TaskMetadata
from mteb.models import ModelMeta
from mteb.similarity_functions import cos_sim, pairwise_cos_sim
from mteb.types import PromptType
from numpy.typing import NDArray

from cde.benchmark.contexts import (
    OURS,
    Protocol,
    Source,
    corpus_texts,
    draw,
    is_trained_on,
    random_texts,
    task_texts,
)
from cde.data import RetrievalSet
from cde.lexical import BM25
from cde.models import TASK_PREFIXES
from cde.models.contextual import fingerprint
from cde.retrieval import Encoder, Ranker, SentenceEncoder, as_encoder, rank, rerank
from cde.retrieval.systems import is_ranker
from cde.storage import content_hash
from cde.validation import called, encoded, unknown

__all__ = [
    "SEARCHED",
    "UNKNOWN",
    "BenchmarkEncoder",
    "BenchmarkRanker",
    "benchmark_model",
    "prefixes_of",
]

#: types of tasks that have a corpus to search
SEARCHED = ("Retrieval", "Reranking", "InstructionRetrieval", "InstructionReranking")
_CLASSIFIED = ("Classification", "MultilabelClassification", "Regression")
#: revision of what cannot be told by a hash, such as a class of the user's own
UNKNOWN = "unknown"
_SOURCES = ("own", "other", "random", "null", "none")


def prefixes_of(metadata: TaskMetadata) -> dict[str, str]:
    """The prefixes of the published models for a task: before queries, and before documents.

    By the authors' evaluation: retrieval has two, Quora's questions the query's on both sides,
    clustering its own, and everything else, reranking too, the one of classification (§10.7).
    """
    if metadata.name.startswith("QuoraRetrieval"):
        return dict(TASK_PREFIXES["question retrieval"])
    kind = {"Retrieval": "retrieval", "InstructionRetrieval": "retrieval"}.get(metadata.type)
    kind = kind or ("clustering" if metadata.type == "Clustering" else "classification")
    return dict(TASK_PREFIXES[kind])


class _Searcher:
    """What all models do alike: take a corpus, and rank it for queries."""

    mteb_model_meta: ModelMeta
    _corpus: tuple[list[str], list[str]] | None = None

    @abstractmethod
    def _ranked_by(self, metadata: TaskMetadata, split: str, subset: str) -> Encoder | Ranker:
        """What ranks the corpus for a task."""

    def index(
        self, corpus: Any, *, task_metadata: TaskMetadata, hf_split: str, hf_subset: str, **_: Any
    ) -> None:
        """Take a corpus to search: a dataset of mteb with `id`, `text` and perhaps `title`."""
        self._corpus = list(corpus["id"]), corpus_texts(corpus, task_metadata)

    def search(
        self,
        queries: Any,
        *,
        task_metadata: TaskMetadata,
        hf_split: str,
        hf_subset: str,
        top_k: int,
        top_ranked: Mapping[str, Sequence[str]] | None = None,
        **_: Any,
    ) -> dict[str, dict[str, float]]:
        """Query id → document id → score, of the best `top_k` documents, or of the candidates.

        Raises:
            RuntimeError: no corpus was indexed.
        """
        if self._corpus is None:
            raise RuntimeError("search() needs a corpus: call index(corpus, …) first")
        loader = create_dataloader(
            queries, task_metadata=task_metadata, prompt_type=PromptType.query, batch_size=256
        )
        texts = [text for batch in loader for text in batch["text"]]
        ids, documents = self._corpus
        collection = RetrievalSet(
            ids, documents, list(queries["id"]), texts, {}, name=task_metadata.name
        )
        by = self._ranked_by(task_metadata, hf_split, hf_subset)
        if top_ranked is None:
            found = rank(by, collection, depth=top_k)
        else:
            candidates = {
                query: dict.fromkeys(top_ranked.get(query, ()), 0.0)
                for query in collection.query_ids
            }
            most = max(map(len, candidates.values()), default=0)
            found = rerank(by, collection, candidates, depth=max(1, most))
        return {query: dict(scores) for query, scores in found.items()}


class BenchmarkRanker(_Searcher):
    """A ranker without vectors, such as BM25, as a model of mteb: for retrieval and reranking."""

    def __init__(self, ranker: Ranker, name: str) -> None:
        self.ranker = ranker
        self.mteb_model_meta = _metadata(ranker, name, "sparse")

    def _ranked_by(self, metadata: TaskMetadata, split: str, subset: str) -> Ranker:
        return self.ranker


class BenchmarkEncoder(_Searcher):
    """An encoder as a model of mteb, for every kind of task on text."""

    def __init__(
        self,
        encoder: Any,
        name: str,
        context: Source | None = None,
        seed: int = 0,
        tasks: Sequence[AbsTask] = (),
        protocol: Protocol = OURS,
        prefixes: bool | None = None,
    ) -> None:
        reads, given = bool(getattr(encoder, "reads_context", False)), encoder
        if isinstance(encoder, SentenceEncoder) and not (
            reads or isinstance(encoder, Encoder | str)
        ):
            encoder = as_encoder(encoder)
        if not reads and not isinstance(encoder, Encoder):
            raise TypeError(
                f"{type(encoder).__name__} is no encoder: expected encode_queries and "
                "encode_documents, or a ContextualEncoder"
            )
        if context is not None and context not in _SOURCES:
            raise ValueError(unknown([context], _SOURCES, "context"))
        if (context in (None, "none")) == reads and not (reads and context is None):
            said = "reads a corpus: take own, other, random or null" if reads else "reads no corpus"
            raise ValueError(f"context {context!r} does not fit: {type(encoder).__name__} {said}")
        self.encoder, self.seed, self.protocol = encoder, seed, protocol
        self.context: Source | None = (context or "own") if reads else None
        self.tasks = list(tasks)
        self.drawn: dict[tuple[str, str, str], list[str]] = {}
        self._bound: tuple[Any, Any] | None = None
        own = getattr(getattr(encoder, "config", None), "document_prefix", "")
        published = TASK_PREFIXES["retrieval"]["document_prefix"]
        self.prefixes = own == published if prefixes is None else prefixes
        said_of: dict[str, Any] = {"context": self.context or "none"}
        if self.context not in (None, "null"):
            said_of["seed"] = seed
            if protocol != OURS:
                said_of["protocol"] = ", ".join(map(str, vars(protocol).values()))
        if self.context == "other":  # whose texts these are depends on the tasks beside it
            beside = [(one.metadata.name, one.metadata.dataset["revision"]) for one in self.tasks]
            said_of["tasks"] = content_hash([str(one) for one in beside])
        if self.prefixes:
            said_of["prefixes"] = "of the task"
        self.mteb_model_meta = _metadata(given, name, "dense", said_of)

    def index(
        self, corpus: Any, *, task_metadata: TaskMetadata, hf_split: str, hf_subset: str, **_: Any
    ) -> None:
        """Take a corpus to search, and draw the context from it."""
        super().index(corpus, task_metadata=task_metadata, hf_split=hf_split, hf_subset=hf_subset)
        self._bound = None

    def _ranked_by(self, metadata: TaskMetadata, split: str, subset: str) -> Encoder:
        assert self._corpus is not None
        return self._bind(metadata, split, subset, self._corpus[1])

    def encode(
        self,
        inputs: Any,
        *,
        task_metadata: TaskMetadata,
        hf_split: str,
        hf_subset: str,
        prompt_type: PromptType | None = None,
        **_: Any,
    ) -> NDArray[np.float32]:
        """Vectors `(n, dim)` float32 of a dataloader of mteb; as documents unless it says query."""
        texts = [text for batch in inputs for text in batch["text"]]
        bound = self._bind(task_metadata, hf_split, hf_subset, texts)
        what: Literal["queries", "documents"] = (
            "queries" if prompt_type == PromptType.query else "documents"
        )
        vectors: NDArray[np.float32] = encoded(bound, texts, what)
        return vectors

    def similarity(self, embeddings1: Any, embeddings2: Any) -> Any:
        """Cosines of all pairs."""
        return cos_sim(embeddings1, embeddings2)

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> Any:
        """Cosines row by row."""
        return pairwise_cos_sim(embeddings1, embeddings2)

    def _bind(self, metadata: TaskMetadata, split: str, subset: str, given: list[str]) -> Encoder:
        """The encoder in the context of a task."""
        if metadata.type in _CLASSIFIED:
            split = self._evaluated(metadata, split)
        key = (metadata.name, split, subset)
        if self._bound is None or self._bound[0] != key:
            bound = self.encoder
            if self.context is not None:
                bound = self.encoder.with_context(self._context(metadata, split, subset, given))
            if self.prefixes:
                bound = _Prefixed(bound, prefixes_of(metadata))
            self._bound = key, bound
        encoder: Encoder = self._bound[1]
        return encoder

    def _evaluated(self, metadata: TaskMetadata, split: str) -> str:
        """The split of a classification task that is evaluated: texts to train on share its
        context.
        """
        task = self._known(metadata.name)
        splits = list(task.eval_splits if task else metadata.eval_splits)
        return split if split in splits else splits[0]

    def _known(self, name: str) -> AbsTask | None:
        return next((task for task in self.tasks if task.metadata.name == name), None)

    def _context(
        self, metadata: TaskMetadata, split: str, subset: str, given: list[str]
    ) -> NDArray[np.float32] | None:
        """Vectors of the context documents, or None for null tokens."""
        if self.context == "null":
            return None
        size = self.encoder.config.context_size
        if self.context == "random":
            drawn = random_texts(size, self.seed)
        else:
            texts = (
                self._other_texts(metadata)
                if self.context == "other"
                else self._own_texts(metadata, split, subset, given)
            )
            drawn = draw(texts, size, self.seed, self.protocol.replace)
        self.drawn[metadata.name, split, subset] = drawn
        prefix = None
        if self.prefixes:
            by_task = self.protocol.prefix == "task"
            kind = prefixes_of(metadata) if by_task else TASK_PREFIXES["retrieval"]
            prefix = kind["document_prefix"]
        vectors: NDArray[np.float32] = self.encoder.embed_context(drawn, prefix=prefix)
        return vectors

    def _own_texts(
        self, metadata: TaskMetadata, split: str, subset: str, given: list[str]
    ) -> list[str]:
        task = self._known(metadata.name)
        if task is None or metadata.type in SEARCHED:
            return given  # of retrieval the corpus
        if self.protocol.inputs == "first call" and not is_trained_on(task):
            return given
        return task_texts(task, split, subset, train=self.protocol.split == "train")

    def _other_texts(self, metadata: TaskMetadata) -> list[str]:
        names = [task.metadata.name for task in self.tasks]
        if metadata.name not in names or len(names) < 2:
            raise ValueError(
                "context 'other' takes the texts of the next task: give the model two tasks or "
                f"more, {metadata.name} among them"
            )
        task = self.tasks[(names.index(metadata.name) + 1) % len(names)]
        return [
            text
            for subset in task.hf_subsets
            for text in task_texts(task, task.eval_splits[0], subset)
        ]


class _Prefixed:
    """An encoder with other prefixes than its own."""

    def __init__(self, encoder: Any, prefixes: Mapping[str, str]) -> None:
        self.encoder, self.of = encoder, prefixes

    def __repr__(self) -> str:
        return called(self.encoder)

    def encode_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        vectors: NDArray[np.float32] = self.encoder.encode_queries(
            texts, prefix=self.of["query_prefix"]
        )
        return vectors

    def encode_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        vectors: NDArray[np.float32] = self.encoder.encode_documents(
            texts, prefix=self.of["document_prefix"]
        )
        return vectors


def benchmark_model(encoder: Any, name: str, **options: Any) -> BenchmarkEncoder | BenchmarkRanker:
    """Anything that searches, as a model of mteb."""
    if is_ranker(encoder) and not isinstance(encoder, Encoder):
        if options.get("context") not in (None, "none"):
            raise ValueError(
                f"context {options['context']!r} does not fit: {type(encoder).__name__} ranks "
                "without an encoder"
            )
        return BenchmarkRanker(encoder, name)
    return BenchmarkEncoder(encoder, name, **options)


def _metadata(
    encoder: Any, name: str, kind: str, experiment: dict[str, Any] | None = None
) -> ModelMeta:
    """What mteb keeps beside results. The revision is a hash of the encoder; the experiment's
    settings are a folder of their own.
    """
    revision = getattr(encoder, "fingerprint", None) or fingerprint(encoder) or UNKNOWN
    if revision == UNKNOWN and isinstance(encoder, BM25):
        revision = content_hash([repr(encoder)])
    return ModelMeta.create_empty(
        {
            "name": name if "/" in name else f"cde/{name}",
            "revision": str(revision),
            "embed_dim": getattr(encoder, "dim", None),
            "model_type": [kind],
            "experiment_kwargs": experiment,
        }
    )

"""Any encoder or ranker of this package as a model of mteb (2.26).

CDE §10.12: of a retrieval task the context is drawn from the corpus, and never from the queries; of
any other task from the texts that are evaluated, and never from the labels. The draw is seeded, and
its result is kept.

Retrieval and reranking go through mteb's `SearchProtocol`, whose `index` is given the corpus to
search; scores are those of `cde.evaluate`. All other tasks go through its encoder protocol, which
gives one column of texts at a time and no task: so the model knows the tasks that it will be
evaluated on, and else draws from what it is given first. A result belongs to an encoder's weights,
by their hash.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import mteb
import numpy as np
import pandas as pd
from mteb._create_dataloaders import create_dataloader
from mteb.abstasks import AbsTask, AbsTaskRetrieval
from mteb.abstasks.task_metadata import TaskMetadata
from mteb.models import ModelMeta
from mteb.similarity_functions import cos_sim, pairwise_cos_sim
from mteb.types import PromptType
from numpy.typing import NDArray

from cde.data import RetrievalSet
from cde.lexical import BM25
from cde.models import TASK_PREFIXES
from cde.models.contextual import class_of, fingerprint
from cde.models.weights import fetch_folder
from cde.retrieval import Encoder, Ranker, as_encoder, rank, rerank
from cde.storage import content_hash
from cde.validation import checked_instance, checked_text, checked_whole, encoded

__all__ = [
    "SEARCHED",
    "UNKNOWN",
    "BenchmarkEncoder",
    "BenchmarkRanker",
    "draw",
    "model_meta",
    "prefixes_of",
    "task_texts",
]

#: types of tasks that have a corpus to search
SEARCHED = ("Retrieval", "Reranking", "InstructionRetrieval", "InstructionReranking")
_CLASSIFIED = ("Classification", "MultilabelClassification", "Regression")
#: revision of what cannot be told by a hash, such as a class of the user's own
UNKNOWN = "unknown"
_PUBLISHED = ("jxm/cde-small-v1", "jxm/cde-small-v2")


def task_texts(task: AbsTask, split: str, subset: str = "default") -> list[str]:
    """The texts of a task that a context may be drawn from, in their order."""
    if not task.data_loaded:
        task.load_data()
    if isinstance(task, AbsTaskRetrieval):
        task.convert_v1_dataset_format_to_v2(num_proc=None)
        corpus = _split_of(task, split, subset)["corpus"]
        return _read(corpus, task.metadata, PromptType.document)
    found = [
        text
        for column, kind in task._get_content_columns().items()
        if kind == "text"  # some tasks keep a list of texts in each row
        for text in pd.Series(list(_split_of(task, split, subset)[column])).explode()
        if isinstance(text, str)
    ]
    if not found:
        raise ValueError(f"{task.metadata.name} has no text in split {split!r}, subset {subset!r}")
    return found


def _read(rows: Any, metadata: TaskMetadata, kind: PromptType) -> list[str]:
    """Queries or documents as mteb gives them to an encoder: a title before the text."""
    loader = create_dataloader(rows, task_metadata=metadata, prompt_type=kind, batch_size=256)
    return [text for batch in loader for text in batch["text"]]


def _split_of(task: AbsTask, split: str, subset: str) -> Any:
    subsets: Any = task.dataset
    splits = subsets if subset == "default" and "default" not in subsets else subsets.get(subset)
    if splits is None or split not in splits:
        known = list(subsets) if splits is None else list(splits)
        what = f"subset {subset!r}" if splits is None else f"split {split!r}"
        raise ValueError(f"{task.metadata.name} has no {what}; it has {', '.join(map(str, known))}")
    return splits[split]


def draw(texts: Sequence[str], size: int, seed: int) -> list[str]:
    """Context documents of a task: `size` of its distinct texts, or all if there are fewer."""
    if not texts:
        raise ValueError("there is no text to draw a context from")
    distinct = list(dict.fromkeys(texts))
    generator, size = np.random.default_rng(seed), min(size, len(distinct))
    return [distinct[row] for row in np.sort(generator.choice(len(distinct), size, replace=False))]


def prefixes_of(metadata: TaskMetadata) -> dict[str, str]:
    """The prefixes of the published models for a task: before queries, and before documents.

    By the authors' evaluation: retrieval has two, Quora's questions the query's on both sides,
    clustering its own, and everything else, reranking too, the one of classification (§10.7).
    """
    kinds = dict.fromkeys(("Retrieval", "InstructionRetrieval"), "retrieval")
    kinds["Clustering"] = "clustering"
    quora = metadata.name.startswith("QuoraRetrieval")
    kind = "question retrieval" if quora else kinds.get(metadata.type, "classification")
    return dict(TASK_PREFIXES[kind])


class BenchmarkRanker:
    """A ranker without vectors, such as BM25, as a model of mteb: for retrieval and reranking."""

    _corpus: tuple[list[str], list[str]] | None = None
    _bound: tuple[Any, Any] | None = None  # an encoder in the context of a task, and which one

    def __init__(self, ranker: Ranker, name: str) -> None:
        self.ranker = ranker
        self.mteb_model_meta = _metadata(ranker, name, "sparse")

    def index(self, corpus: Any, *, task_metadata: TaskMetadata, **_: Any) -> None:
        """Take a corpus to search: a dataset of mteb with `id`, `text` and perhaps `title`."""
        self._corpus = list(corpus["id"]), _read(corpus, task_metadata, PromptType.document)
        self._bound = None

    def _ranked_by(self, metadata: TaskMetadata, split: str, subset: str) -> Encoder | Ranker:
        """What ranks the corpus for a task."""
        return self.ranker

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
        """Query id → document id → score, of the best `top_k` documents, or of the candidates."""
        if self._corpus is None:
            raise RuntimeError("search() needs a corpus: call index(corpus, …) first")
        ids, texts = list(queries["id"]), _read(queries, task_metadata, PromptType.query)
        collection = RetrievalSet(*self._corpus, ids, texts, {}, name=task_metadata.name)
        by = self._ranked_by(task_metadata, hf_split, hf_subset)
        if top_ranked is None:
            found = rank(by, collection, depth=top_k)
        else:
            candidates = {query: dict.fromkeys(top_ranked.get(query, ()), 0.0) for query in ids}
            most = max(map(len, candidates.values()), default=0)
            found = rerank(by, collection, candidates, depth=max(1, most))
        return {query: dict(scores) for query, scores in found.items()}


class BenchmarkEncoder(BenchmarkRanker):
    """An encoder as a model of mteb, for every kind of task on text.

    Args:
        encoder: with `encode_queries` and `encode_documents`, a `SentenceTransformer`, or a
            `ContextualEncoder`, which is bound to each task.
        name: what it is called in results.
        context: of an encoder that reads one: "own" texts of the task, or "null" tokens.
        seed: of the draw.
        tasks: those that it will be evaluated on.
        prefixes: whether the published models' prefixes for the kind of task stand before texts; by
            default where the encoder has those for retrieval.

    Raises:
        TypeError: what is not an encoder.
        ValueError: a context that does not fit the encoder.
    """

    contexts: ClassVar[tuple[str, ...]] = ("own", "null")

    def __init__(
        self,
        encoder: Any,
        name: str,
        context: str | None = None,
        seed: int = 0,
        tasks: Sequence[AbsTask] = (),
        prefixes: bool | None = None,
    ) -> None:
        reads = bool(getattr(encoder, "reads_context", False))
        accepted = self.contexts if reads else ("none",)
        if context not in (None, *accepted):
            raise ValueError(
                f"context {context!r} does not fit: {type(encoder).__name__} reads "
                f"{'a' if reads else 'no'} corpus, and takes {', '.join(accepted)}"
            )
        self.encoder: Any = encoder if reads else as_encoder(encoder)
        self.seed = checked_whole(seed, "seed", 0)
        self.context = (context or "own") if reads else None
        kind: Any = AbsTask
        self.tasks = [checked_instance(task, kind, "tasks: each") for task in tasks]
        self.drawn: dict[tuple[str, str, str], list[str]] = {}
        own = getattr(getattr(self.encoder, "config", None), "document_prefix", "")
        published = TASK_PREFIXES["retrieval"]["document_prefix"]
        self.prefixes = own == published if prefixes is None else prefixes
        with_prefixes = {"prefixes": "of the task"} if self.prefixes else {}
        self.mteb_model_meta = _metadata(encoder, name, "dense", self._experiment() | with_prefixes)

    def _experiment(self) -> dict[str, Any]:
        """What of its settings tells results apart."""
        drawn = {} if self.context in (None, "null") else {"seed": self.seed}
        return {"context": self.context or "none", **drawn}

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
        return encoded(bound, texts, "queries" if prompt_type == PromptType.query else "documents")

    similarity, similarity_pairwise = staticmethod(cos_sim), staticmethod(pairwise_cos_sim)

    def _bind(self, metadata: TaskMetadata, split: str, subset: str, given: list[str]) -> Encoder:
        if metadata.type in _CLASSIFIED:  # texts to train on share the context of those evaluated
            splits = list((self._known(metadata.name) or metadata).eval_splits)
            split = split if split in splits else splits[0]
        key, bound = (metadata.name, split, subset), self.encoder
        if self._bound is None or self._bound[0] != key:
            if self.context == "null":
                bound = bound.with_context(None)
            elif self.context is not None:
                drawn = self.drawn[key] = self._documents(metadata, split, subset, given)
                prefix = self._prefixes(metadata)["document_prefix"] if self.prefixes else None
                bound = bound.with_context(bound.embed_context(drawn, prefix=prefix))
            if self.prefixes:
                of = prefixes_of(metadata)
                bound = SimpleNamespace(
                    encode_queries=partial(bound.encode_queries, prefix=of["query_prefix"]),
                    encode_documents=partial(bound.encode_documents, prefix=of["document_prefix"]),
                )
            self._bound = key, bound
        encoder: Encoder = self._bound[1]
        return encoder

    def _known(self, name: str) -> AbsTask | None:
        return next((task for task in self.tasks if task.metadata.name == name), None)

    def _documents(
        self, metadata: TaskMetadata, split: str, subset: str, given: list[str]
    ) -> list[str]:
        texts = self._own_texts(metadata, split, subset, given)
        return draw(texts, self.encoder.config.context_size, self.seed)

    def _own_texts(
        self, metadata: TaskMetadata, split: str, subset: str, given: list[str]
    ) -> list[str]:
        task = self._known(metadata.name)
        if task is None or metadata.type in SEARCHED:  # of retrieval the corpus is given
            return given
        return task_texts(task, split, subset)

    def _prefixes(self, metadata: TaskMetadata) -> Mapping[str, str]:
        return prefixes_of(metadata)


def _metadata(
    encoder: Any, name: str, kind: str, experiment: dict[str, Any] | None = None
) -> ModelMeta:
    """What mteb keeps beside results, in a folder for each revision and experiment."""
    checked_text(name, "name")
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


def _loaded(
    name: str,
    revision: str | None = None,
    *,
    path: str,
    context: str | None = None,
    seed: int = 0,
    device: str | None = None,
    **_: Any,
) -> BenchmarkEncoder:
    """The loader of `model_meta`, as mteb calls one."""
    folder = fetch_folder(path, None if Path(path).is_dir() else revision)
    if (kind := class_of(folder)) is None:
        raise ValueError(f"{folder} holds no encoder of cde.models; mteb loads others by itself")
    return BenchmarkEncoder(kind.from_pretrained(folder, device=device), name, context, seed)


def model_meta(
    path_or_repository: str | Path, name: str | None = None, context: str = "own", seed: int = 0
) -> ModelMeta:
    """What mteb keeps of an encoder, and how it loads it: `mteb.evaluate(model_meta(folder), …)`.

    Args:
        path_or_repository: a folder that `save_pretrained` wrote, or one in the layout of the
            published checkpoints; or "jxm/cde-small-v1" or "jxm/cde-small-v2", of which mteb's own
            entry is taken, with this package's loader.
        name: "organisation/name"; by default "cde/" and the folder's name.
        context, seed: as for `BenchmarkEncoder`, of an encoder that reads a context.

    Raises:
        ValueError: a folder without an encoder of `cde.models`, or a name without "/".

    Example:
        >>> import tempfile
        >>> from cde.models import BiEncoder
        >>> folder = tempfile.mkdtemp()
        >>> BiEncoder.from_backbone("minilm", layers=1).save_pretrained(folder)
        >>> meta = model_meta(folder, "me/tiny")
        >>> meta.embed_dim, meta.max_tokens, meta.load_model().mteb_model_meta.name
        (384, 512.0, 'me/tiny')
    """
    path = str(path_or_repository)
    own: dict[str, Any] = {"loader": _loaded, "loader_kwargs": {"path": path}}
    if path in _PUBLISHED:
        drawn = {"context": context} | ({} if context == "null" else {"seed": seed})
        own["experiment_kwargs"] = drawn | {"prefixes": "of the task"}
        return ModelMeta(**dict(mteb.get_model_meta(path)) | own)
    called_there = name or f"cde/{Path(path).resolve().name}"
    reads = getattr(class_of(fetch_folder(path)), "reads_context", False)
    made = _loaded(called_there, path=path, context=context if reads else None, seed=seed)
    model = getattr(made.encoder, "model", made.encoder)  # of one that is bound to a corpus
    own |= {
        "name": called_there,
        "n_parameters": model.num_parameters(),
        "memory_usage_mb": round(model.get_memory_footprint(return_buffers=False) / 2**20),
        "max_tokens": model.most_tokens,
        "framework": ["PyTorch", "Transformers", "Sentence Transformers", "safetensors"],
        "similarity_fn_name": "cosine",
        "use_instructions": bool(model.config.query_prefix or model.config.document_prefix),
    }
    return ModelMeta(**dict(made.mteb_model_meta) | own)

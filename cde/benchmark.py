"""Any encoder or ranker of this package as a model of mteb (2.26), and its evaluation on tasks.

**Contexts.** CDE §10.12: of a retrieval task the context is drawn from the corpus, and never from
the queries; of any other task from the texts that are evaluated, and never from the labels. The
draw is seeded, and its result is kept. The authors' evaluation and mteb's own wrapper of their
model differ in four ways: three are settings of `Protocol`, the fourth is the seed of the draw.
Users found that their scores were not the published ones (mteb #1521, #1851, #1946, #2076); the
chapter `mteb_tasks` measures what each moves.

**Models.** Retrieval and reranking go through mteb's `SearchProtocol`: `index` is given the corpus,
so the context is drawn from the corpus that is searched, for each split and subset, and no task is
loaded a second time. All other tasks go through its encoder protocol, which gives one column of
texts at a time and no task: so the model knows the tasks that it will be evaluated on, and draws
from their texts. Of a task that it does not know it draws from what it is given first. Searching is
`cde.retrieval.rank`, or `rerank` where a task brings candidates: scores are those of
`cde.evaluate`.

**Evaluation.** Results are kept in mteb's own format and folders, one for each context and draw;
what is there is read back, and the rest goes on. A result belongs to an encoder's weights, by their
hash, and to the tasks' data, by their revision.

Cost: that of embedding the tasks' texts once for each context and draw; a context is drawn and
embedded once for each task, split and subset.
"""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import datasets
import mteb
import numpy as np
import pandas as pd
from mteb._create_dataloaders import create_dataloader
from mteb.abstasks import (
    AbsTask,
    AbsTaskBitextMining,
    AbsTaskClassification,
    AbsTaskClustering,
    AbsTaskClusteringLegacy,
    AbsTaskMultilabelClassification,
    AbsTaskPairClassification,
    AbsTaskRegression,
    AbsTaskRetrieval,
    AbsTaskSTS,
    AbsTaskSummarization,
)
from mteb.abstasks.task_metadata import TaskMetadata
from mteb.models import ModelMeta
from mteb.similarity_functions import cos_sim, pairwise_cos_sim
from mteb.types import PromptType
from numpy.typing import NDArray
from sklearn.exceptions import UndefinedMetricWarning

from cde.data import RetrievalSet
from cde.data.readers import notice_being_offline
from cde.lexical import BM25
from cde.models import TASK_PREFIXES
from cde.models.contextual import fingerprint, random_texts
from cde.progress import progress
from cde.retrieval import Encoder, Ranker, SentenceEncoder, as_encoder, rank, rerank
from cde.retrieval.systems import is_ranker
from cde.storage import content_hash
from cde.validation import called, encoded, unknown

__all__ = [
    "AUTHORS",
    "OURS",
    "WRAPPER",
    "BenchmarkEncoder",
    "BenchmarkRanker",
    "Protocol",
    "Source",
    "benchmark_model",
    "draw",
    "evaluate_tasks",
    "is_trained_on",
    "prefixes_of",
    "task_texts",
]

#: types of tasks that have a corpus to search
_SEARCHED = ("Retrieval", "Reranking", "InstructionRetrieval", "InstructionReranking")
_CLASSIFIED = ("Classification", "MultilabelClassification", "Regression")
#: revision of what cannot be told by a hash, such as a class of the user's own
_UNKNOWN = "unknown"
#: what the context is made of: texts of the task; of another task; random letters; null tokens
Source = Literal["own", "other", "random", "null"]
_SOURCES = ("own", "other", "random", "null", "none")
_TRAINED = (AbsTaskClassification, AbsTaskMultilabelClassification, AbsTaskRegression)


@dataclass(frozen=True)
class Protocol:
    """How a context is drawn from a task, and what stands before its texts."""

    prefix: Literal["task", "document"] = "task"
    inputs: Literal["all", "first call"] = "all"
    split: Literal["evaluated", "train"] = "evaluated"
    replace: bool = False


#: the default
OURS = Protocol()
#: the authors' evaluation, in which the draw has no seed
AUTHORS = Protocol(replace=True)
#: mteb's `CDEWrapper`, in which the seed is 42
WRAPPER = Protocol("document", "first call", "train")


def is_trained_on(task: AbsTask) -> bool:
    """Whether a task trains something on texts of a split of its own."""
    return isinstance(task, _TRAINED)


def task_texts(
    task: AbsTask, split: str, subset: str = "default", train: bool = False
) -> list[str]:
    """The texts of a task that a context may be drawn from, in their order."""
    if not task.data_loaded:
        task.load_data()
    if isinstance(task, AbsTaskRetrieval):
        task.convert_v1_dataset_format_to_v2(num_proc=None)
        corpus = _split_of(task, split, subset)["corpus"]
        return _read(corpus, task.metadata, PromptType.document)
    if isinstance(task, _TRAINED):
        split = task.train_split if train else split
    found = [
        text
        for column in _columns(task)
        for text in _flat(_split_of(task, split, subset)[column])
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


def _columns(task: AbsTask) -> Sequence[str]:
    if isinstance(task, (*_TRAINED, AbsTaskClustering, AbsTaskClusteringLegacy)):
        columns: Any = task.input_column_name
    elif isinstance(task, AbsTaskSTS):
        columns = task.column_names
    elif isinstance(task, AbsTaskPairClassification):
        columns = (task.input1_column_name, task.input2_column_name)
    elif isinstance(task, AbsTaskBitextMining):
        columns = ("sentence1", "sentence2")
    elif isinstance(task, AbsTaskSummarization):
        columns = ("text",)
    else:
        raise TypeError(
            f"it is not known what the context of a {task.metadata.type!r} task such as "
            f"{task.metadata.name} is drawn from; known are retrieval, reranking, classification, "
            "regression, clustering, pair classification, STS, bitext mining and summarisation"
        )
    return (columns,) if isinstance(columns, str) else [str(column) for column in columns]


def _flat(values: Any) -> Iterable[Any]:
    """Texts of a column; some tasks keep a list of them in each row."""
    for value in values:
        if isinstance(value, (list, tuple)):
            yield from _flat(value)
        else:
            yield value


def draw(texts: Sequence[str], size: int, seed: int, replace: bool = False) -> list[str]:
    """Context documents of a task: `size` of its distinct texts, or all if there are fewer."""
    if not texts:
        raise ValueError("there is no text to draw a context from")
    generator = np.random.default_rng(seed)
    if replace:
        return [texts[row] for row in generator.choice(len(texts), size)]
    distinct = list(dict.fromkeys(texts))
    rows = generator.choice(len(distinct), min(size, len(distinct)), replace=False)
    return [distinct[row] for row in np.sort(rows)]


def prefixes_of(metadata: TaskMetadata) -> dict[str, str]:
    """The prefixes of the published models for a task: before queries, and before documents.

    By the authors' evaluation: retrieval has two, Quora's questions the query's on both sides,
    clustering its own, and everything else, reranking too, the one of classification (§10.7).
    """
    kinds = {
        "Retrieval": "retrieval",
        "InstructionRetrieval": "retrieval",
        "Clustering": "clustering",
    }
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
        """Query id → document id → score, of the best `top_k` documents, or of the candidates.

        Raises:
            RuntimeError: no corpus was indexed.
        """
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
        if context not in ((None, *_SOURCES[:-1]) if reads else (None, "none")):
            said = "reads a corpus: take own, other, random or null" if reads else "reads no corpus"
            raise ValueError(f"context {context!r} does not fit: {type(encoder).__name__} {said}")
        self.encoder, self.seed, self.protocol = encoder, seed, protocol
        self.context: Source | None = (context or "own") if reads else None
        self.tasks = list(tasks)
        self.drawn: dict[tuple[str, str, str], list[str]] = {}
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
        """The encoder in the context of a task."""
        if metadata.type in _CLASSIFIED:  # texts to train on share the context of those evaluated
            splits = list((self._known(metadata.name) or metadata).eval_splits)
            split = split if split in splits else splits[0]
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
            if self.context == "other":
                texts = self._other_texts(metadata)
            else:
                texts = self._own_texts(metadata, split, subset, given)
            drawn = draw(texts, size, self.seed, self.protocol.replace)
        self.drawn[metadata.name, split, subset] = drawn
        by_task = self.protocol.prefix == "task"
        kind = prefixes_of(metadata) if by_task else TASK_PREFIXES["retrieval"]
        prefix = kind["document_prefix"] if self.prefixes else None
        vectors: NDArray[np.float32] = self.encoder.embed_context(drawn, prefix=prefix)
        return vectors

    def _own_texts(
        self, metadata: TaskMetadata, split: str, subset: str, given: list[str]
    ) -> list[str]:
        task = self._known(metadata.name)
        if task is None or metadata.type in _SEARCHED:
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

    def encode_queries(self, texts: Sequence[str]) -> Any:
        return self.encoder.encode_queries(texts, prefix=self.of["query_prefix"])

    def encode_documents(self, texts: Sequence[str]) -> Any:
        return self.encoder.encode_documents(texts, prefix=self.of["document_prefix"])


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
    revision = getattr(encoder, "fingerprint", None) or fingerprint(encoder) or _UNKNOWN
    if revision == _UNKNOWN and isinstance(encoder, BM25):
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


def evaluate_tasks(
    encoder: Any,
    name: str,
    tasks: Sequence[AbsTask],
    contexts: Iterable[str | None] = (None,),
    draws: int = 1,
    protocol: Protocol = OURS,
    folder: Path | str | None = None,
    prefixes: bool | None = None,
) -> pd.DataFrame:
    """Main scores of an encoder, a ranker or a `SentenceTransformer`, task by task.

    With a `folder`, results are read back for the same encoder, by its fingerprint. Of what has
    none, such as a class of one's own without an attribute `fingerprint`, they never are.

    Returns:
        A row for each task, subset, context and draw: task, type, subset, context, draw, score
        (0 to 1).

    Raises:
        ConnectionError: a task of the Hub, which cannot be reached. Errors of a task's own code
            come as they are.
        TypeError: what neither embeds nor ranks.
    """
    rows: list[tuple[Any, ...]] = []
    options = {"tasks": tasks, "protocol": protocol, "prefixes": prefixes}
    cache = None if folder is None else mteb.ResultCache(folder)
    usual = "own" if getattr(encoder, "reads_context", False) else "none"
    jobs = [
        (context, seed)
        for context in (usual if one is None else one for one in contexts)
        for seed in range(1 if context in ("none", "null") else draws)
    ]
    for context, seed in progress(jobs, f"mteb: {name}", unit="contexts"):
        model = benchmark_model(encoder, name, context=context, seed=seed, **options)
        used = (model.mteb_model_meta.experiment_kwargs or {}).get("context", "none")
        for task in tasks:
            of = task.metadata
            if not hasattr(model, "encode") and of.type not in _SEARCHED:
                continue
            with _quiet():
                _load(task)
                found = mteb.evaluate(
                    model,
                    task,
                    cache=cache,
                    overwrite_strategy=_strategy(cache, model, task),
                    co2_tracker=False,
                    show_progress_bar=False,
                )
            for split in task.eval_splits:  # as mteb rounds them: what is read back is the same
                for row in found.task_results[0].scores[split]:
                    score = round(float(row["main_score"]), 6)
                    rows.append((of.name, of.type, row["hf_subset"], used, seed, score))
    return pd.DataFrame(rows, columns=["task", "type", "subset", "context", "draw", "score"])


def _strategy(cache: mteb.ResultCache | None, model: Any, task: AbsTask) -> str:
    """mteb takes a result of other data for the same where it has every split and subset, and one
    of another encoder without a fingerprint too.
    """
    if model.mteb_model_meta.revision == _UNKNOWN:
        return "always"
    found = cache and cache.load_task_result(task.metadata.name, model.mteb_model_meta)
    same = not found or found.dataset_revision == task.metadata.dataset["revision"]
    return "only-missing" if same else "always"


def _load(task: AbsTask) -> None:
    """Load a task's data, or say that its place cannot be reached."""
    if task.data_loaded:
        return
    path = str(task.metadata.dataset["path"])
    here = path.startswith("cde/")
    if not here:
        notice_being_offline()
    try:
        task.load_data()
    except Exception as error:
        if here or not _of_the_network(error):
            raise
        raise ConnectionError(
            f"the task {task.metadata.name} reads {path} of the Hub, which cannot be reached "
            f"({type(error).__name__}); `cde mteb --list` names tasks that need no network"
        ) from error


#: whose errors are of the way to the Hub: its clients raise a dozen kinds
_CLIENTS = ("datasets", "huggingface_hub", "fsspec", "httpx", "httpcore", "requests", "urllib3")


def _of_the_network(error: Exception) -> bool:
    """Whether the Hub cannot be reached, and not a task's own code failed."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    raised_in = str(frame.f_globals.get("__name__"))
    of_files = FileNotFoundError | PermissionError | IsADirectoryError | NotADirectoryError
    return raised_in.partition(".")[0] in _CLIENTS or (
        isinstance(error, OSError) and not isinstance(error, of_files)
    )


@contextmanager
def _quiet() -> Iterator[None]:
    """`datasets` shows a bar for each corpus, however small; scikit-learn warns of each label that
    a classifier never gives.
    """
    shown = not datasets.utils.are_progress_bars_disabled()
    datasets.disable_progress_bars()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UndefinedMetricWarning)
            yield
    finally:
        if shown:
            datasets.enable_progress_bars()

"""Tasks of mteb's own classes on local text: nothing is downloaded.

Eight of six types on docstrings, whatever machine: search in each of the four packages that no
training sees; reranking what BM25 finds; which package or module a docstring is from, as
classification and as clustering; whether a summary belongs to a body; and how much of a text is
left when sentences of another take the place of its own, as similarity. With `$CDE_DATA` there are
its judged collections and labelled texts besides.

`cde_studies.benchmark.offline` has them by name. Each is a class, so that mteb keeps its results by
its name. The revision of its data is that of the texts and their number.
"""

from __future__ import annotations

from abc import abstractmethod
from functools import partial
from typing import Any

import pandas as pd
from datasets import Dataset, DatasetDict
from mteb.abstasks import (
    AbsTask,
    AbsTaskClassification,
    AbsTaskClustering,
    AbsTaskPairClassification,
    AbsTaskRetrieval,
    AbsTaskSTS,
)
from mteb.abstasks.task_metadata import TaskMetadata

from cde.data import RetrievalSet, load_retrieval
from cde.data.sources import source_key
from cde_studies.benchmark.texts import (
    belonging_pairs,
    beside_candidates,
    graded_similarities,
    modules,
    packages,
    split_by_label,
)
from cde_studies.collections.pydocs import HELD_OUT, load_pairs

#: type of a task → what mteb ranks it by
_SCORES = {
    "Retrieval": "ndcg_at_10",
    "Reranking": "map_at_1000",
    "Classification": "accuracy",
    "Clustering": "v_measure",
    "PairClassification": "max_ap",
    "STS": "cosine_spearman",
}
_ENGLISH = ["eng-Latn"]
_CANDIDATES = 20  # of a query
_LEAST = 4  # texts or queries of a task, whatever the share


def local_metadata(name: str, kind: Any, about: str, source: str, **more: Any) -> TaskMetadata:
    """What mteb asks of a task."""
    return TaskMetadata(
        name=name,
        description=about,
        dataset={"path": f"cde/{source}", "revision": "local"},  # each object has its own
        type=kind,
        category="t2c" if kind in ("Classification", "Clustering") else "t2t",
        main_score=_SCORES[kind],
        **{"eval_splits": ["test"], "eval_langs": _ENGLISH, **more},
    )


#: the tasks that every machine has
ON_DOCSTRINGS: list[type[LocalTask]] = []


class LocalTask(AbsTask):
    """What all these tasks do alike: their data are made here, a share of the usual size.

    A class that names its type and the source of its texts is described by its docstring.
    """

    abstask_prompt = ""
    documents: int = 300
    queries: int = 150
    labelled: staticmethod[..., pd.DataFrame]

    def __init_subclass__(
        cls, kind: Any = None, source: str = "", labelled: Any = None, **more: Any
    ) -> None:
        super().__init_subclass__()
        if labelled:
            cls.labelled = staticmethod(labelled)
        if source:
            cls.metadata = local_metadata(cls.__name__, kind, str(cls.__doc__), source, **more)
            ON_DOCSTRINGS.append(cls)

    def __init__(self, share: float = 1.0, **options: Any) -> None:
        super().__init__(**options)
        for name in ("documents", "queries"):
            usual = getattr(self, name)
            setattr(self, name, usual and max(_LEAST, round(share * usual)))
        data = dict(self.metadata.dataset)
        key = source_key(str(data["path"]).removeprefix("cde/"))
        data["revision"] = f"{key}-{self.documents}-{self.queries}"
        self.metadata = self.metadata.model_copy(update={"dataset": data})

    def load_data(self, num_proc: int | None = None, **_: Any) -> None:
        if not self.data_loaded:
            self.dataset = self._made()
            self.data_loaded = True

    @abstractmethod
    def _made(self) -> Any:
        """The dataset, as mteb holds one of this kind."""


def searchable(collection: RetrievalSet, candidates: dict[str, list[str]] | None = None) -> Any:
    """A retrieval set as mteb holds one."""
    texts, ids = list(collection.documents), list(collection.document_ids)
    asked = {"id": list(collection.query_ids), "text": list(collection.queries)}
    return {
        "corpus": Dataset.from_dict({"id": ids, "title": [""] * len(texts), "text": texts}),
        "queries": Dataset.from_dict(asked),
        "relevant_docs": {query: dict(collection.qrels.get(query, {})) for query in asked["id"]},
        "top_ranked": candidates,
    }


class DocstringRetrieval(
    LocalTask,
    AbsTaskRetrieval,
    kind="Retrieval",
    source="pydocs",
    eval_langs=dict.fromkeys(HELD_OUT, _ENGLISH),
):
    """The body of a docstring, found by its summary among those of its package."""

    def _made(self) -> Any:
        sets = {name: load_retrieval(f"pydocs/{name}") for name in HELD_OUT}
        some = {name: one.shrink(self.documents, self.queries) for name, one in sets.items()}
        return {name: {"test": searchable(one)} for name, one in some.items()}


class DocstringReranking(LocalTask, AbsTaskRetrieval, kind="Reranking", source="pydocs/sympy"):
    """Of a docstring's body and what BM25 finds for its summary, the body first."""

    documents = 600

    def _made(self) -> Any:
        collection = load_retrieval("pydocs/sympy").shrink(self.documents, self.queries)
        candidates = beside_candidates(collection, _CANDIDATES)
        return {"default": {"test": searchable(collection, candidates)}}


class LabelledTask(LocalTask, AbsTaskClassification):
    """Classification of texts that have a label, some of each label to train on."""

    n_experiments = 5
    documents = 40  # to train on, of each label
    queries = 400  # to test on, of all labels

    def _made(self) -> Any:
        rows = self.labelled()
        rows["label"] = pd.Categorical(rows["label"]).codes.astype(int)  # mteb asks for numbers
        parts = split_by_label(rows, self.documents, self.queries)
        return DatasetDict(
            {name: _dataset(part) for name, part in zip(("train", "test"), parts, strict=True)}
        )


class DocstringPackageClassification(
    LabelledTask, kind="Classification", source="pydocs", labelled=packages
):
    """The package that the body of a docstring is from."""


class DocstringModuleClassification(
    LabelledTask,
    kind="Classification",
    source="pydocs/sympy",
    labelled=partial(modules, "sympy", 2),
):
    """The module of sympy that the body of a docstring is from."""


class GroupedTask(LocalTask, AbsTaskClustering):
    """Clustering of texts that have a label."""

    max_fraction_of_documents_to_embed = None
    n_clusters = 5
    documents = 400

    def _made(self) -> Any:
        rows = self.labelled()
        rows = rows.sample(min(self.documents, len(rows)), random_state=0).sort_index()
        self.max_documents_per_cluster = len(rows)
        named = rows.rename(columns={"text": "sentences", "label": "labels"})
        return DatasetDict({"test": _dataset(named)})


class DocstringPackageClustering(
    GroupedTask, kind="Clustering", source="pydocs", labelled=packages
):
    """Bodies of docstrings, grouped as the packages that they are from."""


class DocstringModuleClustering(
    GroupedTask,
    kind="Clustering",
    source="pydocs/networkx",
    labelled=partial(modules, "networkx", 3),
):
    """Bodies of docstrings of networkx, grouped as the modules that they are from."""


class DocstringPairClassification(
    LocalTask, AbsTaskPairClassification, kind="PairClassification", source="pydocs/polars"
):
    """Whether a summary and a body belong to one docstring of polars."""

    def _made(self) -> Any:
        pairs = load_pairs(["polars"], split="all").sample(self.documents, 0)
        return DatasetDict({"test": _dataset(belonging_pairs(pairs))})


class DocstringSTS(LocalTask, AbsTaskSTS, kind="STS", source="pydocs/sqlalchemy"):
    """The share of a docstring's sentences that a copy has kept, by construction."""

    def _made(self) -> Any:
        texts = load_pairs(["sqlalchemy"], split="all").documents
        return DatasetDict({"test": _dataset(graded_similarities(texts, self.documents))})


def _dataset(rows: pd.DataFrame) -> Dataset:
    return Dataset.from_pandas(rows, preserve_index=False)

"""An encoder evaluated on tasks of mteb, in contexts of several kinds, drawn several times, by the
protocols of the authors and of mteb.

The authors' evaluation and mteb's own wrapper of their model differ in how a context is drawn: in
three settings of `Protocol`, and in the seed. Users found that their scores were not the published
ones (mteb #1521, #1851, #1946, #2076); the chapter `mteb_tasks` measures what each moves.

Results are kept in mteb's own format and folders, one for each context and draw, and read back. A
result belongs to an encoder's weights, by their hash, and to the tasks' data, by their revision.
"""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import datasets
import mteb
import pandas as pd
from mteb.abstasks import AbsTask, AbsTaskClassification
from mteb.abstasks.task_metadata import TaskMetadata
from sklearn.exceptions import UndefinedMetricWarning

from cde.benchmark import (
    SEARCHED,
    UNKNOWN,
    BenchmarkEncoder,
    BenchmarkRanker,
    draw,
    prefixes_of,
    task_texts,
)
from cde.data.readers import notice_being_offline
from cde.models import TASK_PREFIXES
from cde.progress import progress
from cde.retrieval import Encoder
from cde.retrieval.systems import is_ranker
from cde.storage import content_hash
from cde_studies.sweeps import random_texts


@dataclass(frozen=True)
class Protocol:
    """How a context is drawn from a task, and what stands before its texts."""

    prefix: Literal["task", "document"] = "task"
    inputs: Literal["all", "first call"] = "all"
    split: Literal["evaluated", "train"] = "evaluated"


#: the authors' way, and the default
OURS = Protocol()
#: mteb's `CDEWrapper`, in which the seed is 42
WRAPPER = Protocol("document", "first call", "train")


class StudiedEncoder(BenchmarkEncoder):
    """An encoder with a context of the task, of the next of its `tasks`, or of random letters."""

    contexts: ClassVar[tuple[str, ...]] = ("own", "other", "random", "null")

    def __init__(self, encoder: Any, name: str, protocol: Protocol = OURS, **options: Any) -> None:
        self.protocol = protocol
        super().__init__(encoder, name, **options)

    def _experiment(self) -> dict[str, Any]:
        said = super()._experiment()
        if "seed" in said and self.protocol != OURS:
            said["protocol"] = ", ".join(map(str, vars(self.protocol).values()))
        if self.context == "other":  # whose texts these are depends on the tasks beside it
            beside = [(one.metadata.name, one.metadata.dataset["revision"]) for one in self.tasks]
            said["tasks"] = content_hash([str(one) for one in beside])
        return said

    def _documents(
        self, metadata: TaskMetadata, split: str, subset: str, given: list[str]
    ) -> list[str]:
        size = self.encoder.config.context_size
        if self.context == "random":
            return random_texts(size, self.seed)
        if self.context == "other":
            texts = self._other_texts(metadata)
        else:
            texts = self._own_texts(metadata, split, subset, given)
        return draw(texts, size, self.seed)

    def _own_texts(
        self, metadata: TaskMetadata, split: str, subset: str, given: list[str]
    ) -> list[str]:
        task = self._known(metadata.name)
        if isinstance(task, AbsTaskClassification):
            trained = self.protocol.split == "train"
            return task_texts(task, task.train_split if trained else split, subset)
        if self.protocol.inputs == "first call":
            return given
        return super()._own_texts(metadata, split, subset, given)

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

    def _prefixes(self, metadata: TaskMetadata) -> Mapping[str, str]:
        by_task = self.protocol.prefix == "task"
        return prefixes_of(metadata) if by_task else TASK_PREFIXES["retrieval"]


def benchmark_model(encoder: Any, name: str, **options: Any) -> StudiedEncoder | BenchmarkRanker:
    """Anything that searches, as a model of mteb; an encoder with the options."""
    if is_ranker(encoder) and not isinstance(encoder, Encoder):
        if options.get("context") not in (None, "none"):
            raise ValueError(
                f"context {options['context']!r} does not fit: {type(encoder).__name__} ranks "
                "without an encoder"
            )
        return BenchmarkRanker(encoder, name)
    return StudiedEncoder(encoder, name, **options)


def evaluate_tasks(
    encoder: Any,
    name: str,
    tasks: Sequence[AbsTask],
    contexts: Iterable[str | None] = (None,),
    draws: int = 1,
    protocol: Protocol = OURS,
    folder: Path | str | None = None,
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
    options = {"tasks": tasks, "protocol": protocol}
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
            if not hasattr(model, "encode") and of.type not in SEARCHED:
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
    if model.mteb_model_meta.revision == UNKNOWN:
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
    """Without a bar for each small corpus, and a warning for each label that is never given."""
    shown = not datasets.utils.are_progress_bars_disabled()
    datasets.disable_progress_bars()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UndefinedMetricWarning)
            yield
    finally:
        if shown:
            datasets.enable_progress_bars()

"""Which texts of a task the context of a contextual encoder is drawn from.

CDE §10.12: of a retrieval task the corpus, and never the queries; of any other task the texts that
are evaluated, and never the labels. The draw is seeded, and its result is kept.

The authors' evaluation and mteb's own wrapper of their model differ in four ways: three are
settings of `Protocol`, the fourth is the seed of the draw. Users found that their scores were not
the published ones (mteb #1521, #1851, #1946, #2076); the chapter `mteb_tasks` measures what each
moves.

Cost: a pass over the task's texts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
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
from mteb.types import PromptType

__all__ = [
    "AUTHORS",
    "OURS",
    "WRAPPER",
    "Protocol",
    "Source",
    "corpus_texts",
    "draw",
    "is_trained_on",
    "random_texts",
    "task_texts",
]

_WORDS, _SHORTEST, _LONGEST = 12, 2, 8
_LETTERS = np.array(list("abcdefghijklmnopqrstuvwxyz"))


def random_texts(count: int, seed: int | np.random.Generator = 0) -> list[str]:
    """Texts of twelve words of two to eight random letters."""
    generator = np.random.default_rng(seed)
    lengths = generator.integers(_SHORTEST, _LONGEST + 1, (count, _WORDS))
    return [
        " ".join("".join(generator.choice(_LETTERS, length)) for length in row) for row in lengths
    ]


#: what the context is made of: texts of the task; of another task; random letters; null tokens
Source = Literal["own", "other", "random", "null"]

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
        rows = _split_of(task, split, subset)
        return corpus_texts(rows["corpus"], task.metadata)
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


def corpus_texts(corpus: Any, metadata: TaskMetadata) -> list[str]:
    """The documents of a corpus as mteb gives them to an encoder: a title before the text."""
    loader = create_dataloader(
        corpus, task_metadata=metadata, prompt_type=PromptType.document, batch_size=256
    )
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
            f"{task.metadata.name} is a task of type {task.metadata.type!r}, of which it is not "
            "known what a context is drawn from; known are retrieval, reranking, classification, "
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

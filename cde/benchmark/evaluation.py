"""Encoders evaluated by mteb on a list of tasks, in several contexts and over draws of each.

Results are kept in mteb's own format and folders, one for each context and draw; what is there is
read back, and the rest goes on. A result belongs to an encoder's weights, by their hash, and to the
tasks' data, by their revision.

Cost: that of embedding the tasks' texts once for each context and draw.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import datasets
import mteb
import pandas as pd
from mteb.abstasks import AbsTask
from sklearn.exceptions import UndefinedMetricWarning

from cde.benchmark.contexts import OURS, Protocol
from cde.benchmark.models import SEARCHED, UNKNOWN, benchmark_model
from cde.data.readers import notice_being_offline
from cde.progress import progress

__all__ = ["evaluate_tasks"]


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
    rows = []
    cache = None if folder is None else mteb.ResultCache(folder)
    usual = "own" if getattr(encoder, "reads_context", False) else "none"
    jobs = [
        (context, draw)
        for context in (usual if one is None else one for one in contexts)
        for draw in range(1 if context in ("none", "null") else draws)
    ]
    for context, draw in progress(jobs, f"mteb: {name}", unit="contexts"):
        model = benchmark_model(
            encoder,
            name,
            context=context,
            seed=draw,
            tasks=tasks,
            protocol=protocol,
            prefixes=prefixes,
        )
        for task in tasks:
            if not hasattr(model, "encode") and task.metadata.type not in SEARCHED:
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
            experiment = model.mteb_model_meta.experiment_kwargs or {}
            for subset, score in _main_scores(found.task_results[0], task):
                rows.append(
                    {
                        "task": task.metadata.name,
                        "type": task.metadata.type,
                        "subset": subset,
                        "context": experiment.get("context", "none"),
                        "draw": draw,
                        "score": score,
                    }
                )
    return pd.DataFrame(rows)


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
    if path.startswith("cde/"):
        task.load_data()
        return
    notice_being_offline()
    try:
        task.load_data()
    except Exception as error:
        if not _of_the_network(error):
            raise
        raise ConnectionError(
            f"the task {task.metadata.name} reads {path} of the Hub, which cannot be reached "
            f"({type(error).__name__}); `cde mteb --list` names tasks that need no network"
        ) from error


#: whose errors are of the way to the Hub: its clients raise a dozen kinds
_CLIENTS = ("datasets", "huggingface_hub", "fsspec", "httpx", "httpcore", "requests", "urllib3")


def _of_the_network(error: Exception) -> bool:
    """Whether the Hub cannot be reached, and not a task's own code failed."""
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    raised_in = "" if place is None else str(place.tb_frame.f_globals.get("__name__"))
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


_DECIMALS = 6  # as mteb writes them: what is read back is what was computed


def _main_scores(result: Any, task: AbsTask) -> list[tuple[str, float]]:
    """Subset and main score, of every split: a task here is evaluated on one."""
    return [
        (row["hf_subset"], round(float(row["main_score"]), _DECIMALS))
        for split in task.eval_splits
        for row in result.scores[split]
    ]

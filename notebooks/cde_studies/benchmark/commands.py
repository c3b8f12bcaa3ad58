"""`cde mteb`: an encoder, or BM25, evaluated by mteb; results are kept in its format."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cde.storage import cache_folder

if TYPE_CHECKING:
    import pandas as pd

_CONTEXTS = ("own", "other", "random", "null", "none")
_SHOWN = 6  # decimals of a score


def add_parsers(commands: Any) -> None:
    parser = commands.add_parser("mteb", help="evaluate an encoder, or BM25, on tasks of mteb")
    parser.set_defaults(do=run)
    parser.add_argument(
        "--model",
        default="minilm",
        help="minilm (the default), bm25, the folder of a model, or a repository of the Hub",
    )
    parser.add_argument(
        "--tasks",
        nargs="+",
        metavar="TASK",
        help="offline tasks, or mteb's own by name; by default the eight on docstrings",
    )
    parser.add_argument(
        "--context",
        nargs="+",
        choices=_CONTEXTS,
        help="of a contextual encoder (default: own); none is for encoders that read none",
    )
    parser.add_argument(
        "--draws", type=int, default=1, metavar="N", help="contexts drawn, with the seeds 0, 1, …"
    )
    parser.add_argument(
        "--share", type=float, default=1.0, help="part of each offline task's usual size"
    )
    parser.add_argument(
        "--out", type=Path, metavar="FOLDER", help="mteb's results (default: in the cache folder)"
    )
    parser.add_argument("--list", action="store_true", help="name the offline tasks, and end")


def run(options: argparse.Namespace) -> int:
    """Evaluate, print a line for each task and context, and say where the results lie."""
    # mteb and torch take seconds to import: other commands go without
    from cde.corpus.encoders import named_system
    from cde_studies.benchmark.evaluation import evaluate_tasks
    from cde_studies.benchmark.offline import get_tasks, task_names

    if options.list:
        print("\n".join(task_names()))
        return 0
    if options.draws < 1:
        raise ValueError(f"--draws must be 1 or more; it is {options.draws}")
    tasks = get_tasks(options.tasks, options.share)
    encoder = named_system(options.model)
    path = Path(options.model).expanduser()
    name = path.resolve().name if path.is_dir() else options.model
    folder = options.out or cache_folder("mteb")
    contexts = options.context or [None]
    rows = evaluate_tasks(encoder, name, tasks, contexts, options.draws, folder=folder)
    if rows.empty:
        names = ", ".join(task.metadata.name for task in tasks)
        raise ValueError(f"{name} ranks without vectors, and nothing is searched in {names}")
    print(scores_by_task(rows).round(_SHOWN).to_string(index=False))
    print(f"results in mteb's format: {Path(folder) / 'results'}")
    return 0


def scores_by_task(rows: pd.DataFrame) -> pd.DataFrame:
    """A line for each task and context: task, type, context, score (the mean over subsets and
    draws), spread (the standard deviation over draws of the mean over subsets; NaN for one draw)
    and draws.
    """
    keys = ["task", "type", "context"]
    of_draws = rows.groupby([*keys, "draw"], sort=False)["score"].mean()
    found = of_draws.groupby(keys, sort=False).agg(score="mean", spread="std", draws="size")
    return found.reset_index()

"""`cde mteb`: an encoder, or BM25, evaluated by mteb; results in its format, kept and gone on with.

Cost: that of `cde.benchmark.evaluate_tasks`.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from cde.storage import cache_folder
from cde.validation import unknown

__all__ = ["add_parser", "load_model", "run"]

_CONTEXTS = ("own", "other", "random", "null", "none")
_SHOWN = 6  # decimals of a score


def add_parser(commands: Any) -> None:
    """Add `mteb` to the sub-commands of `cde`."""
    parser = commands.add_parser("mteb", help="evaluate an encoder, or BM25, on tasks of mteb")
    parser.add_argument(
        "--model",
        default="minilm",
        help="minilm, bm25, a folder that save_pretrained wrote, or a repository of the Hub",
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
    """Evaluate, print a line for each task and context, and say where the results lie.

    Raises:
        ValueError: an unknown task, a context that the model does not have, fewer than one draw.
        ConnectionError: a model or task of the Hub that cannot be reached.
    """
    # mteb takes seconds to import: other commands go without
    from cde.benchmark.evaluation import evaluate_tasks, scores_by_task
    from cde.benchmark.offline import get_tasks, task_names

    if options.list:
        print("\n".join(task_names()))
        return 0
    if options.draws < 1:
        raise ValueError(f"--draws must be 1 or more; it is {options.draws}")
    tasks = get_tasks(options.tasks, options.share)
    encoder, name = load_model(options.model)
    folder = options.out or cache_folder("mteb")
    contexts = [None if one == "none" else one for one in options.context or [None]]
    rows = evaluate_tasks(encoder, name, tasks, contexts, options.draws, folder=folder)
    print(scores_by_task(rows).round(_SHOWN).to_string(index=False))
    print(f"results in mteb's format: {Path(folder) / 'results'}")
    return 0


def load_model(named: str) -> tuple[Any, str]:
    """An encoder or ranker by what `--model` says, and its name.

    Args:
        named: "minilm", "bm25", a folder of an encoder of this package or of a published one, or a
            repository of the Hub.

    Raises:
        ValueError: a folder of something else.
        ConnectionError: a repository that cannot be reached.

    Example:
        >>> load_model("bm25")[1]
        'bm25'
    """
    from cde.lexical import BM25
    from cde.models import ContextualEncoder, CorpusEncoder
    from cde.models.encoder import kinds
    from cde.models.weights import fetch_folder, read_config
    from cde.surrogate import Surrogate

    known = {"minilm": Surrogate, "bm25": BM25}
    if named in known:
        return known[named](), named
    path = Path(named).expanduser()
    if "/" not in named and not path.is_dir():
        raise ValueError(
            f"{unknown([named], known, 'model')}; others are the path of a folder, or a repository"
        )
    folder = fetch_folder(path if path.is_dir() else named)
    values = read_config(folder)
    name = folder.resolve().name if path.is_dir() else named
    if values.get("context_drawn") is not None:
        return CorpusEncoder.from_pretrained(folder), name
    own: Any = kinds.get(str(values.get("model_type")), ContextualEncoder)
    return own.from_pretrained(folder), name

"""Models and tasks for mteb: any encoder of this package in its evaluation, on tasks without a
network.

::

    tasks = offline_tasks()                                   # eight on docstrings, of six types
    rows = evaluate_tasks(model, "my-model", tasks, contexts=("own", "random"), draws=10)

`contexts` says what a context is drawn from; `models` are the two protocols of mteb; `texts` and
`tasks` make what is evaluated on; `evaluation` runs it, and `commands` is `cde mteb`.
"""

from typing import TYPE_CHECKING

import lazy_loader

if TYPE_CHECKING:
    from cde.benchmark.contexts import AUTHORS, OURS, WRAPPER, Protocol, task_texts
    from cde.benchmark.evaluation import evaluate_tasks, scores_by_task
    from cde.benchmark.models import BenchmarkEncoder, BenchmarkRanker, benchmark_model
    from cde.benchmark.offline import get_tasks, offline_tasks, task_names

# mteb takes seconds to import, and `cde` names the command of this room for every command
__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "contexts": ["AUTHORS", "OURS", "WRAPPER", "Protocol", "task_texts"],
        "evaluation": ["evaluate_tasks", "scores_by_task"],
        "models": ["BenchmarkEncoder", "BenchmarkRanker", "benchmark_model"],
        "offline": ["get_tasks", "offline_tasks", "task_names"],
    },
)

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
    from cde.benchmark.contexts import AUTHORS as AUTHORS
    from cde.benchmark.contexts import OURS as OURS
    from cde.benchmark.contexts import WRAPPER as WRAPPER
    from cde.benchmark.contexts import Protocol as Protocol
    from cde.benchmark.contexts import task_texts as task_texts
    from cde.benchmark.evaluation import evaluate_tasks as evaluate_tasks
    from cde.benchmark.evaluation import scores_by_task as scores_by_task
    from cde.benchmark.models import BenchmarkEncoder as BenchmarkEncoder
    from cde.benchmark.models import BenchmarkRanker as BenchmarkRanker
    from cde.benchmark.models import benchmark_model as benchmark_model
    from cde.benchmark.offline import get_tasks as get_tasks
    from cde.benchmark.offline import offline_tasks as offline_tasks
    from cde.benchmark.offline import task_names as task_names

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

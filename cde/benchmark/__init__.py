"""Any encoder of this package in mteb's evaluation: `contexts` says what a context is drawn from,
`models` are the two protocols of mteb, `evaluation` runs tasks.
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
    from cde.benchmark.models import BenchmarkEncoder as BenchmarkEncoder
    from cde.benchmark.models import BenchmarkRanker as BenchmarkRanker
    from cde.benchmark.models import benchmark_model as benchmark_model

# mteb takes seconds to import
__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "contexts": ["AUTHORS", "OURS", "WRAPPER", "Protocol", "task_texts"],
        "evaluation": ["evaluate_tasks"],
        "models": ["BenchmarkEncoder", "BenchmarkRanker", "benchmark_model"],
    },
)

"""Contextual document embeddings: the package behind the book.

The names below are imported on first use, so that `import cde` is quick and a chapter's page
depends only on the modules that it really uses.

Example:
    >>> import cde
    >>> len(cde.load_pairs("pydocs/rich")) > 100
    True
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cde.batching.clustering import cluster_pairs
    from cde.batching.filtering import false_negatives
    from cde.batching.packing import pack_batches
    from cde.data import Pairs, RetrievalSet, list_sources, load_pairs, load_retrieval
    from cde.experiments.runs import train
    from cde.lexical import BM25
    from cde.models import BiEncoder, ContextualEncoder, CorpusEncoder
    from cde.retrieval import evaluate
    from cde.surrogate import Surrogate
    from cde.training import TrainConfig

__all__ = [
    "BM25",
    "BiEncoder",
    "ContextualEncoder",
    "CorpusEncoder",
    "Pairs",
    "RetrievalSet",
    "Surrogate",
    "TrainConfig",
    "cluster_pairs",
    "evaluate",
    "false_negatives",
    "list_sources",
    "load_pairs",
    "load_retrieval",
    "pack_batches",
    "train",
]

__version__ = "0.1.0"

_HOMES = {
    "BM25": "cde.lexical",
    "BiEncoder": "cde.models",
    "ContextualEncoder": "cde.models",
    "CorpusEncoder": "cde.models",
    "Pairs": "cde.data",
    "RetrievalSet": "cde.data",
    "Surrogate": "cde.surrogate",
    "cluster_pairs": "cde.batching.clustering",
    "TrainConfig": "cde.training",
    "evaluate": "cde.retrieval",
    "false_negatives": "cde.batching.filtering",
    "list_sources": "cde.data",
    "load_pairs": "cde.data",
    "load_retrieval": "cde.data",
    "pack_batches": "cde.batching.packing",
    "train": "cde.experiments.runs",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'cde' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])

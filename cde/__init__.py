"""Contextual document embeddings: the package behind the book.

The names below are imported on first use, so that `import cde` is quick and a chapter's page
depends only on the modules that it really uses.

Example:
    >>> import cde
    >>> len(cde.load_pairs("pydocs/rich")) > 100
    True
"""

from typing import TYPE_CHECKING

import lazy_loader

if TYPE_CHECKING:  # under their own names, or type checkers take them for private
    from cde.adaptation import adapted as adapted
    from cde.batching.clustering import cluster_pairs as cluster_pairs
    from cde.batching.negatives import false_negatives as false_negatives
    from cde.batching.packing import pack_batches as pack_batches
    from cde.batching.sentence_trainer import clustered_batches as clustered_batches
    from cde.batching.sentence_trainer import contextual_batches as contextual_batches
    from cde.batching.sentence_trainer import filtered_loss as filtered_loss
    from cde.corpus import Index as Index
    from cde.data import Pairs as Pairs
    from cde.data import RetrievalSet as RetrievalSet
    from cde.data import list_sources as list_sources
    from cde.data import load_pairs as load_pairs
    from cde.data import load_retrieval as load_retrieval
    from cde.lexical import BM25 as BM25
    from cde.models import BiEncoder as BiEncoder
    from cde.models import ContextualEncoder as ContextualEncoder
    from cde.models import CorpusEncoder as CorpusEncoder
    from cde.retrieval import Hybrid as Hybrid
    from cde.retrieval import Run as Run
    from cde.retrieval import compare as compare
    from cde.retrieval import compare_all as compare_all
    from cde.retrieval import compare_tables as compare_tables
    from cde.retrieval import evaluate as evaluate
    from cde.retrieval import search as search
    from cde.surrogate import Surrogate as Surrogate
    from cde.training import TrainConfig as TrainConfig
    from cde.training.runs import train as train

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "adaptation": ["adapted"],
        "batching.clustering": ["cluster_pairs"],
        "batching.negatives": ["false_negatives"],
        "batching.packing": ["pack_batches"],
        "batching.sentence_trainer": ["clustered_batches", "contextual_batches", "filtered_loss"],
        "corpus": ["Index"],
        "data": ["Pairs", "RetrievalSet", "list_sources", "load_pairs", "load_retrieval"],
        "training.runs": ["train"],
        "lexical": ["BM25"],
        "models": ["BiEncoder", "ContextualEncoder", "CorpusEncoder"],
        "retrieval": [
            "Hybrid",
            "Run",
            "compare",
            "compare_all",
            "compare_tables",
            "evaluate",
            "search",
        ],
        "surrogate": ["Surrogate"],
        "training": ["TrainConfig"],
    },
)

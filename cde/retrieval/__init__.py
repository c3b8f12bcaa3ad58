"""Search and its measures: `systems` says what can search, `ranking` searches by inner product,
evaluates with trec_eval's measures and fuses; `comparison` says whether one system is better than
another, and `runs` reads and writes what they found.
"""

from typing import TYPE_CHECKING

import lazy_loader

if TYPE_CHECKING:
    from cde.retrieval.comparison import Comparison, compare, compare_all, compare_tables
    from cde.retrieval.ranking import Hybrid, evaluate, rank, rerank, score_queries, search
    from cde.retrieval.runs import Run
    from cde.retrieval.systems import Encoder, Ranker, Rankings, SentenceEncoder, System, as_encoder

__all__ = [
    "Comparison",
    "Encoder",
    "Hybrid",
    "Ranker",
    "Rankings",
    "Run",
    "SentenceEncoder",
    "System",
    "as_encoder",
    "compare",
    "compare_all",
    "compare_tables",
    "evaluate",
    "rank",
    "rerank",
    "score_queries",
    "search",
]

# imported on first use: a page that only reads records loads no torch
__getattr__, __dir__, _ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "comparison": ["Comparison", "compare", "compare_all", "compare_tables"],
        "ranking": ["Hybrid", "evaluate", "rank", "rerank", "score_queries", "search"],
        "runs": ["Run"],
        "systems": ["Encoder", "Ranker", "Rankings", "SentenceEncoder", "System", "as_encoder"],
    },
)

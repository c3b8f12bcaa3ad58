"""Search and its measures: `systems` says what can search, `ranking` searches by inner product,
evaluates with trec_eval's measures, compares two systems query by query, and fuses them.
"""

from typing import TYPE_CHECKING

import lazy_loader

if TYPE_CHECKING:
    from cde.retrieval.ranking import (
        Comparison,
        Hybrid,
        compare,
        evaluate,
        rank,
        rerank,
        score_queries,
        search,
    )
    from cde.retrieval.systems import Encoder, Ranker, Rankings, SentenceEncoder, System, as_encoder

__all__ = [
    "Comparison",
    "Encoder",
    "Hybrid",
    "Ranker",
    "Rankings",
    "SentenceEncoder",
    "System",
    "as_encoder",
    "compare",
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
        "ranking": [
            "Comparison",
            "Hybrid",
            "compare",
            "evaluate",
            "rank",
            "rerank",
            "score_queries",
            "search",
        ],
        "systems": ["Encoder", "Ranker", "Rankings", "SentenceEncoder", "System", "as_encoder"],
    },
)

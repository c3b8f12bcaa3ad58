"""Search, scores, and two systems side by side.

- `cde.retrieval.ranking`: search by inner product, rankings, trec_eval's measures;
- `cde.retrieval.together`: two systems compared query by query, or fused into one.
"""

from cde.retrieval.ranking import (
    Encoder,
    Ranker,
    Rankings,
    evaluate,
    rank,
    rerank,
    score_queries,
    search,
)
from cde.retrieval.together import Comparison, Hybrid, compare

__all__ = [
    "Comparison",
    "Encoder",
    "Hybrid",
    "Ranker",
    "Rankings",
    "compare",
    "evaluate",
    "rank",
    "rerank",
    "score_queries",
    "search",
]

"""Two systems on one set: compared query by query, or fused into one ranking.

*Comparing* pairs the two scores of each query: the mean difference with a bootstrap interval over
queries, and a randomisation test (Smucker et al. 2007).

*Fusing* is reciprocal rank fusion (Cormack, Clarke and Büttcher 2009): a document scores
Σ 1 / (k + its rank) over the systems. Ranks need no common scale: BM25 and cosines can meet.

Cost: that of ranking with each system; 9,999 random swaps of the queries for a comparison.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from cde.data import RetrievalSet
from cde.intervals import Interval, paired_test
from cde.retrieval.ranking import _by_rank, rank, score_queries
from cde.retrieval.systems import Rankings, System
from cde.validation import checked_number, checked_text, checked_whole, shown

__all__ = ["Comparison", "Hybrid", "compare"]


@dataclass(frozen=True)
class Comparison:
    """Two systems on the same queries.

    Attributes:
        difference: mean of first minus second, with its interval over queries.
        p_value: of the randomisation test, two-sided.
        queries: a frame with a row for each query: columns first, second, difference; those that
            gain most from the first system stand at the top.
    """

    difference: Interval
    p_value: float
    queries: pd.DataFrame

    def __repr__(self) -> str:
        ahead = int((self.queries["difference"] > 0).sum())
        behind = int((self.queries["difference"] < 0).sum())
        return (
            f"Comparison({self.difference}, p = {self.p_value:.3g}; ahead on {ahead}, behind on "
            f"{behind} of {len(self.queries)} queries)"
        )


def compare(
    first: System,
    second: System,
    retrieval_set: RetrievalSet,
    metric: str = "ndcg@10",
    depth: int = 1000,
    seed: int = 0,
    drop_own: bool = True,
) -> Comparison:
    """Whether one system finds more than another on the same queries.

    Args:
        first, second: encoders, rankers such as `BM25()`, or models of sentence-transformers.
        retrieval_set: what to search; two queries or more.
        metric: as for `evaluate`.
        depth: documents that are ranked.
        seed: seed of the bootstrap and of the swaps.
        drop_own: leave out a document that has its query's id, as for `evaluate`. Ids of one's own
            often begin at 0 for both: then False.

    Raises:
        ValueError: an unknown metric, or fewer than two queries.
        TypeError: an object that is neither an encoder nor a ranker.

    Example:
        >>> from cde.lexical import BM25
        >>> toy = RetrievalSet(["d1", "d2"], ["red boats", "green house"], ["q", "r"],
        ...     ["green", "red"], {"q": {"d2": 1}, "r": {"d1": 1}})
        >>> compare(BM25(), BM25(k1=2.0), toy)
        Comparison(0 [0, 0], p = 1; ahead on 0, behind on 0 of 2 queries)
    """
    metric, seed = checked_text(metric, "metric"), checked_whole(seed, "seed", 0)
    scores = [
        score_queries(rank(one, retrieval_set, depth), retrieval_set, (metric,), drop_own=drop_own)[
            metric
        ]
        for one in (first, second)
    ]
    test = paired_test(scores[0].tolist(), scores[1].tolist(), seed)
    table = pd.DataFrame({"first": scores[0], "second": scores[1]})
    table["difference"] = table["first"] - table["second"]
    ordered = table.sort_values("difference", ascending=False, kind="stable")
    return Comparison(test.difference, test.p_value, ordered)


@dataclass(frozen=True)
class Hybrid:
    """A ranker that fuses the rankings of several systems by their ranks.

    Attributes:
        systems: encoders, rankers, models of sentence-transformers.
        k: how little the first places weigh more than the next; 60 is the paper's.

    Raises:
        ValueError: no system, or k below 0.

    Example:
        >>> from cde.lexical import BM25
        >>> toy = RetrievalSet(["d1", "d2"], ["red boats", "green house"], ["q"], ["green"],
        ...     {"q": {"d2": 1}})
        >>> Hybrid([BM25(), BM25(k1=2.0)]).rank(toy)["q"]
        {'d2': 0.03278688524590164}
    """

    systems: Sequence[System]
    k: float = 60.0

    def __post_init__(self) -> None:
        if isinstance(self.systems, str) or not isinstance(self.systems, Sequence):
            raise TypeError(f"systems must be a list; it is {shown(self.systems)}")
        if not self.systems or not checked_number(self.k, "k") >= 0:
            raise ValueError(
                f"a hybrid needs one system or more and k of 0 or more; it has {len(self.systems)} "
                f"and k = {shown(self.k)}"
            )

    def rank(self, retrieval_set: RetrievalSet, depth: int = 1000) -> Rankings:
        """Rank a retrieval set: query id → document id → fused score, best first.

        Documents that a system ranks below `depth` get nothing from it. Ties go to the later id, as
        in trec_eval.
        """
        fused: dict[str, dict[str, float]] = {query: {} for query in retrieval_set.query_ids}
        for system in self.systems:
            for query, ranking in rank(system, retrieval_set, depth).items():
                best_first = sorted(ranking.items(), key=_by_rank, reverse=True)
                for place, (document, _) in enumerate(best_first, start=1):
                    own = fused[query]
                    own[document] = own.get(document, 0.0) + 1.0 / (self.k + place)
        return {
            query: dict(sorted(scores.items(), key=_by_rank, reverse=True)[:depth])
            for query, scores in fused.items()
        }

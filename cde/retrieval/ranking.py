"""Search by inner product, and trec_eval's measures.

`search` compares in blocks of queries and documents, so that memory stays flat: with `depth` k the
largest array is block × block scores. `evaluate` ranks a retrieval set with any encoder and scores
it through pytrec_eval, with the conventions of BEIR. The best `depth` documents (1,000) are kept.
Documents with the query's own id are dropped where asked for. Ties are broken by trec_eval (by
document id, descending). A query without results scores 0.

Cost of exact search: n_queries × n_documents × dim multiply-adds; 12,800 queries against 33,400
documents in 384 dimensions take about 3 s on 2 cores.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cde.data import RetrievalSet
from cde.hardware import compute_device
from cde.intervals import Interval, paired_test
from cde.progress import progress
from cde.retrieval.systems import Ranker, Rankings, System, as_encoder
from cde.validation import (
    array_of_numbers,
    checked_ids,
    checked_number,
    checked_switch,
    checked_text,
    checked_texts,
    checked_whole,
    encoded,
    shown,
)

__all__ = [
    "Comparison",
    "Hybrid",
    "compare",
    "evaluate",
    "rank",
    "rerank",
    "score_queries",
    "search",
]

_TREC_NAMES = {
    "ndcg": "ndcg_cut",
    "map": "map_cut",
    "recall": "recall",
    "p": "P",
    "mrr": "recip_rank",
}


def search(
    query_vectors: NDArray[np.float32],
    document_vectors: NDArray[np.float32],
    depth: int = 10,
    block: int = 4096,
    device: str | None = None,
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """The `depth` documents of largest inner product with each query.

    Args:
        query_vectors: `(n, dim)` float32.
        document_vectors: `(m, dim)` float32.
        depth: how many to return; at most m are.
        block: rows of queries and of documents that are compared at a time.
        device: by default CUDA where there is one.

    Returns:
        scores `(n, depth)` float32 in descending order, and positions `(n, depth)` int64.

    Raises:
        ValueError: the vectors' lengths differ, or depth is below 1.
        TypeError: vectors that are no arrays of numbers.

    Example:
        >>> documents = np.eye(3, dtype=np.float32)
        >>> search(documents[:1], documents, depth=1)[1].tolist()
        [[0]]
    """
    depth, block = checked_whole(depth, "depth"), checked_whole(block, "block")
    query_vectors = array_of_numbers(query_vectors, "query_vectors")
    document_vectors = array_of_numbers(document_vectors, "document_vectors")
    if (
        query_vectors.ndim != 2
        or document_vectors.ndim != 2
        or query_vectors.shape[1] != document_vectors.shape[1]
    ):
        raise ValueError(
            f"queries {query_vectors.shape} and documents {document_vectors.shape} must be (n, "
            "dim) and (m, dim)"
        )
    depth = min(depth, len(document_vectors))
    if len(query_vectors) == 0 or depth == 0:
        return np.zeros((len(query_vectors), depth), np.float32), np.zeros(
            (len(query_vectors), depth), np.int64
        )
    import torch

    device = compute_device(device)
    queries = torch.as_tensor(np.asarray(query_vectors, dtype=np.float32))
    documents = torch.as_tensor(np.asarray(document_vectors, dtype=np.float32))
    scores = np.empty((len(queries), depth), np.float32)
    positions = np.empty((len(queries), depth), np.int64)
    title = f"searching {len(documents):,} documents"
    for start in progress(range(0, len(queries), block), title, unit="blocks of queries"):
        some = queries[start : start + block].to(device)
        best = torch.empty((len(some), 0), device=device)
        where = torch.empty((len(some), 0), dtype=torch.int64, device=device)
        for offset in progress(range(0, len(documents), block), title, unit="blocks"):
            product = some @ documents[offset : offset + block].to(device).T
            values, columns = product.topk(min(depth, product.shape[1]), dim=1)
            best = torch.cat([best, values], dim=1)
            where = torch.cat([where, columns + offset], dim=1)
            best, order = best.topk(min(depth, best.shape[1]), dim=1)
            where = where.gather(1, order)
        scores[start : start + len(some)] = best.cpu().numpy()
        positions[start : start + len(some)] = where.cpu().numpy()
    return scores, positions


def rank(encoder: System, retrieval_set: RetrievalSet, depth: int = 1000) -> Rankings:
    """Rank a retrieval set's corpus for each of its queries: query id → document id → score.

    Raises:
        TypeError: an object that is neither an encoder nor a ranker.
        ValueError: an encoder whose vectors are not one for each text, of one length for queries
            and documents, finite and not zero.
    """
    _check_set(retrieval_set)
    depth = checked_whole(depth, "depth")
    if isinstance(encoder, Ranker) and not isinstance(encoder, type):
        return encoder.rank(retrieval_set, depth)
    encoder = as_encoder(encoder)
    queries = encoded(encoder, retrieval_set.queries, "queries")
    dim = queries.shape[1] if len(queries) else None
    documents = encoded(encoder, retrieval_set.documents, "documents", dim)
    scores, positions = search(queries, documents, depth)
    ids = np.asarray(retrieval_set.document_ids, dtype=object)
    return {
        query: {ids[p]: float(s) for s, p in zip(row, where, strict=True)}
        for query, row, where in zip(retrieval_set.query_ids, scores, positions, strict=True)
    }


def rerank(
    encoder: System, retrieval_set: RetrievalSet, candidates: Rankings, depth: int = 1024
) -> Rankings:
    """Rank, for each query, only the best candidates of another model: the shortcut of CDE §10.9.

    Args:
        encoder: an encoder, of which only documents that are somebody's candidates are embedded; or
            a ranker, whose ranking of the whole corpus is cut down to the candidates.
        retrieval_set: the set that the candidates were ranked in.
        candidates: the other model's rankings; a query that is missing has none.
        depth: how many candidates a query keeps. Of two that tie at the cut the later id stays, as
            in trec_eval.

    Returns:
        query id → document id → the encoder's score, from the best candidate to the worst. A
        candidate to which a ranker gives no score is left out.

    Raises:
        ValueError: a depth below 1, candidates that the set does not hold, or vectors as for
            `rank`.
        TypeError: an object that is neither an encoder nor a ranker.

    Example:
        >>> from cde.lexical import BM25
        >>> toy = RetrievalSet(["d1", "d2"], ["red boats", "red red house"], ["q"], ["red"],
        ...     {"q": {"d2": 1}})
        >>> list(rerank(BM25(), toy, {"q": {"d1": 0.9, "d2": 0.1}}, depth=1)["q"])
        ['d1']
    """
    depth = checked_whole(depth, "depth")
    _check_rankings(candidates, "candidates")
    kept = {
        query: [
            d
            for d, _ in sorted(candidates.get(query, {}).items(), key=_by_rank, reverse=True)[
                :depth
            ]
        ]
        for query in retrieval_set.query_ids
    }
    place = {document: row for row, document in enumerate(retrieval_set.document_ids)}
    wanted = {document for some in kept.values() for document in some}
    if stray := sorted(wanted - place.keys()):
        raise ValueError(
            f"{retrieval_set.name}: {len(stray)} candidates are not in the corpus, such as "
            f"{', '.join(stray[:3])}"
        )
    if isinstance(encoder, Ranker) and not isinstance(encoder, type):
        whole = encoder.rank(retrieval_set, len(retrieval_set.documents))
        return {
            query: _best_first({d: whole[query][d] for d in some if d in whole.get(query, {})})
            for query, some in kept.items()
        }
    encoder = as_encoder(encoder)
    if not wanted:
        return {query: {} for query in kept}
    embedded = sorted(wanted, key=place.__getitem__)
    row_of = {document: row for row, document in enumerate(embedded)}
    queries = encoded(encoder, retrieval_set.queries, "queries")
    texts = [retrieval_set.documents[place[document]] for document in embedded]
    documents = encoded(encoder, texts, "documents", queries.shape[1] if len(queries) else None)
    rankings = {}
    for (query, some), vector in zip(kept.items(), queries, strict=True):
        scores = documents[[row_of[document] for document in some]] @ vector if some else ()
        rankings[query] = _best_first({d: float(s) for d, s in zip(some, scores, strict=True)})
    return rankings


def _best_first(ranking: Mapping[str, float]) -> dict[str, float]:
    return dict(sorted(ranking.items(), key=_by_rank, reverse=True))


def score_queries(
    rankings: Rankings,
    retrieval_set: RetrievalSet,
    metrics: str | Sequence[str] = ("ndcg@10",),
    drop_own: bool = True,
) -> pd.DataFrame:
    """Score each query by trec_eval's definitions.

    Args:
        rankings: query id → document id → score; a query that is missing scores 0.
        retrieval_set: judgements, and the documents to exclude.
        metrics: one or several of ndcg@k, map@k, recall@k, p@k, mrr@k.
        drop_own: drop a document whose id is the query's, as BEIR does, unless it is judged
            relevant (in pydocs a query and its document share their id).

    Returns:
        A frame of float64, one row per query (in the set's order), one column per metric.

    Raises:
        ValueError: an unknown metric.
    """

    import pytrec_eval

    _check_set(retrieval_set)
    _check_rankings(rankings, "rankings")
    drop_own = checked_switch(drop_own, "drop_own")
    metrics = checked_texts([metrics] if isinstance(metrics, str) else metrics, "metrics")
    for metric in metrics:
        if not re.fullmatch(r"(ndcg|map|recall|p|mrr)@[1-9][0-9]{0,8}", metric):
            raise ValueError(
                f"unknown metric {shown(metric)}; accepted are ndcg@k, map@k, recall@k, p@k and "
                "mrr@k"
            )
    kept: dict[str, dict[str, float]] = {}
    for query in retrieval_set.query_ids:
        dropped = set(retrieval_set.excluded.get(query, ()))
        if drop_own and retrieval_set.qrels.get(query, {}).get(query, 0) <= 0:
            dropped.add(query)
        scores = _finite(query, rankings.get(query, {}))
        kept[query] = {d: s for d, s in scores.items() if d not in dropped}
    checked_ids(sorted(set().union(*kept.values()) - set(retrieval_set.document_ids)), "rankings")
    qrels = {query: dict(retrieval_set.qrels.get(query, {})) for query in retrieval_set.query_ids}
    columns: dict[str, list[float]] = {}
    for metric in metrics:
        kind, _, cut = metric.partition("@")
        name = _TREC_NAMES[kind]
        runs = kept
        if kind == "mrr":  # trec_eval's reciprocal rank has no cut-off
            runs = {
                q: dict(sorted(r.items(), key=_by_rank, reverse=True)[: int(cut)])
                for q, r in kept.items()
            }
        measure = name if kind == "mrr" else f"{name}.{cut}"
        scored = pytrec_eval.RelevanceEvaluator(qrels, {measure}).evaluate(runs)
        key = measure.replace(".", "_")
        columns[metric] = [scored.get(query, {}).get(key, 0.0) for query in retrieval_set.query_ids]
    return pd.DataFrame(
        columns, index=pd.Index(retrieval_set.query_ids, name="query"), dtype=np.float64
    )


def _check_set(retrieval_set: object) -> None:
    if not isinstance(retrieval_set, RetrievalSet):
        raise TypeError(f"retrieval_set must be a RetrievalSet; it is {shown(retrieval_set)}")


def _check_rankings(rankings: object, name: str) -> None:
    """Refuse what is no mapping of query ids → document ids → scores."""
    accepted = "a mapping of query ids → document ids → scores"
    if not isinstance(rankings, Mapping):
        raise TypeError(f"{name} must be {accepted}; they are {shown(rankings)}")
    for query, ranking in rankings.items():
        if not isinstance(ranking, Mapping):
            raise TypeError(f"{name} must be {accepted}; of {query!r} there is {shown(ranking)}")
        if not all(isinstance(document, str) for document in ranking):
            raise TypeError(f"{name} must be {accepted}; of {query!r} an id is no string")


def _finite(query: str, ranking: Mapping[str, float]) -> dict[str, float]:
    """Scores of a query as Python's numbers, which trec_eval takes: it ranks what is none too."""
    given = list(ranking.values())
    try:
        scores = np.fromiter(given, np.float64, len(given))
    except (TypeError, ValueError, OverflowError):
        raise TypeError(f"scores of the query {query!r} must be numbers: {shown(given)}") from None
    if not np.isfinite(scores).all():
        first = list(ranking)[int(np.isfinite(scores).argmin())]
        raise ValueError(
            f"scores must be finite numbers; that of {query!r} → {first!r} is {ranking[first]}"
        )
    return dict(zip(ranking, scores.tolist(), strict=True))


def _by_rank(item: tuple[str, float]) -> tuple[float, str]:
    # trec_eval keeps scores in single precision: what agrees there is a tie
    return float(np.float32(item[1])), item[0]


def evaluate(
    encoder: System,
    retrieval_set: RetrievalSet,
    metrics: str | Sequence[str] = ("ndcg@10",),
    depth: int = 1000,
    drop_own: bool = True,
) -> dict[str, float]:
    """Mean over queries of trec_eval's measures.

    Args:
        encoder: an encoder (`encode_queries`, `encode_documents`), a ranker (`rank`), or a model of
            sentence-transformers.
        retrieval_set: what to search.
        metrics: one or several of ndcg@k, map@k, recall@k, p@k, mrr@k.
        depth: how many documents are ranked.
        drop_own: drop a document with the query's own id unless it is judged relevant.

    Returns:
        metric → mean over the set's queries, between 0 and 1.

    Raises:
        ValueError: an unknown metric, a set without queries, or an encoder whose vectors are not
            one for each text, of one length for queries and documents, finite and not zero (which
            encoder, and which row is the first).
        TypeError: an object that is neither an encoder nor a ranker.

    Example:
        >>> from cde.lexical import BM25
        >>> toy = RetrievalSet(["d1", "d2"], ["red boats", "green house"], ["q"], ["green"],
        ...     {"q": {"d2": 1}})
        >>> evaluate(BM25(), toy)
        {'ndcg@10': 1.0}
    """
    _check_set(retrieval_set)
    if not retrieval_set.queries:
        raise ValueError(f"{retrieval_set.name} has no judged query to evaluate on")
    metrics = checked_texts([metrics] if isinstance(metrics, str) else metrics, "metrics")
    scores = score_queries(rank(encoder, retrieval_set, depth), retrieval_set, metrics, drop_own)
    return {metric: float(scores[metric].mean()) for metric in metrics}


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

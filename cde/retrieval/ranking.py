"""Search by inner product, and trec_eval's measures, through pytrec_eval.

Ties are broken as in trec_eval (by document id, descending), and a measure at k is that of the
whole ranking: where so many tie that which of them are ranked would decide, all are.

Cost of exact search: n_queries × n_documents × dim multiply-adds, in blocks, so that memory stays
flat; 12,800 queries against 33,400 documents in 384 dimensions take about 3 s on 2 cores.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pytrec_eval
import torch
from numpy.typing import NDArray

from cde.data import RetrievalSet
from cde.hardware import compute_device
from cde.progress import progress
from cde.retrieval.systems import Rankings, System, as_encoder, is_ranker
from cde.validation import (
    array_of_numbers,
    as_array,
    called,
    checked_ids,
    checked_instance,
    checked_number,
    checked_switch,
    checked_texts,
    checked_whole,
    encoded,
    shown,
)

__all__ = ["Hybrid", "evaluate", "rank", "rerank", "score_queries", "search"]

#: rows of queries and of documents that are compared at a time
BLOCK = 4096
_TREC_NAMES = {"ndcg": "ndcg_cut", "map": "map_cut", "recall": "recall", "p": "P"}


def search(
    query_vectors: NDArray[np.float32], document_vectors: NDArray[np.float32], depth: int = 10
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """The `depth` documents of largest inner product with each query.

    Args:
        query_vectors: `(n, dim)` float32.
        document_vectors: `(m, dim)` float32.
        depth: how many to return; at most m are.

    Returns:
        scores `(n, depth)` float32 in descending order, and positions `(n, depth)` int64.

    Raises:
        ValueError: the vectors' lengths differ, numbers that are not finite (which row is the
            first), or a depth below 1.
        TypeError: vectors that are not arrays of numbers.

    Example:
        >>> documents = np.eye(3, dtype=np.float32)
        >>> search(documents[:1], documents, depth=1)[1].tolist()
        [[0]]
    """
    depth = checked_whole(depth, "depth")
    query_vectors = array_of_numbers(query_vectors, "query_vectors")
    document_vectors = array_of_numbers(document_vectors, "document_vectors")
    shapes = query_vectors.shape, document_vectors.shape
    if [len(shape) for shape in shapes] != [2, 2] or shapes[0][1] != shapes[1][1]:
        raise ValueError(
            f"queries {shapes[0]} and documents {shapes[1]} must be (n, dim) and (m, dim)"
        )
    queries, documents = _tensor(query_vectors), _tensor(document_vectors)
    _refuse_infinite(queries, "queries")
    depth = min(depth, len(document_vectors))
    scores = np.empty((len(query_vectors), depth), np.float32)
    positions = np.empty((len(query_vectors), depth), np.int64)
    if scores.size == 0:
        return scores, positions
    device = compute_device()
    title = f"searching {len(documents):,} documents"
    for start in progress(range(0, len(queries), BLOCK), title, unit="blocks of queries"):
        some = queries[start : start + BLOCK].to(device)
        best = torch.empty((len(some), 0), device=device)
        where = torch.empty((len(some), 0), dtype=torch.int64, device=device)
        for offset in progress(range(0, len(documents), BLOCK), title, unit="blocks"):
            product = some @ documents[offset : offset + BLOCK].to(device).T
            if not product.sum().isfinite():  # to look at each number takes twice the search
                _refuse_infinite(documents, "documents")
                if not product.isfinite().all():
                    beyond = "inner products leave single precision"
                    raise ValueError(f"vectors are too long, {beyond}: bring them to length 1")
            values, columns = product.topk(min(depth, product.shape[1]), dim=1)
            best = torch.cat([best, values], dim=1)
            where = torch.cat([where, columns + offset], dim=1)
            best, order = best.topk(min(depth, best.shape[1]), dim=1)
            where = where.gather(1, order)
        scores[start : start + len(some)] = best.cpu().numpy()
        positions[start : start + len(some)] = where.cpu().numpy()
    return scores, positions


def _tensor(vectors: NDArray[Any]) -> torch.Tensor:
    with np.errstate(over="ignore"):  # what becomes infinite is refused
        array = np.asarray(vectors, dtype=np.float32)
    # torch takes no array that runs backwards, such as vectors[::-1]
    return torch.as_tensor(array.copy() if min(array.strides) < 0 else array)


def _refuse_infinite(vectors: torch.Tensor, name: str) -> None:
    if not (finite := vectors.isfinite().all(dim=1).numpy()).all():
        raise ValueError(
            f"vectors must be finite numbers of single precision; those of {(~finite).sum()} "
            f"{name} are not, of which the first is row {finite.argmin()}"
        )


def rank(encoder: System, retrieval_set: RetrievalSet, depth: int = 1000) -> Rankings:
    """Rank a retrieval set's corpus for each of its queries: query id → document id → score.

    Raises:
        TypeError: an object that is neither an encoder nor a ranker, or a ranker that gives
            something else than numbers by query and document.
        ValueError: an encoder whose vectors are not one for each text, of one length for queries
            and documents, finite and not zero; a ranker that gives scores that are not finite,
            documents that the set lacks, or none of its queries.

    Example:
        >>> from cde.lexical import BM25
        >>> toy = RetrievalSet(["d1", "d2"], ["red boats", "a house"], ["q"], ["boat"], {})
        >>> list(rank(BM25(), toy)["q"])
        ['d1']
    """
    checked_instance(retrieval_set, RetrievalSet, "retrieval_set")
    return _prepared(encoder, retrieval_set)(retrieval_set.query_ids, checked_whole(depth, "depth"))


def _prepared(
    system: System, retrieval_set: RetrievalSet
) -> Callable[[Sequence[str], int], Rankings]:
    """What ranks some of a set's queries to a depth, and embeds nothing twice."""
    if is_ranker(system):

        def by_ranker(asked: Sequence[str], depth: int) -> Rankings:
            some = retrieval_set.asking(asked)
            return _checked(system.rank(some, depth), some, f"rankings of {called(system)}")

        return by_ranker
    encoder = as_encoder(system)
    queries = encoded(encoder, retrieval_set.queries, "queries")
    dim = queries.shape[1] if len(queries) else None
    documents = encoded(encoder, retrieval_set.documents, "documents", dim)
    ids = retrieval_set.document_ids
    row_of = {query: row for row, query in enumerate(retrieval_set.query_ids)}

    def by_encoder(asked: Sequence[str], depth: int) -> Rankings:
        scores, positions = search(queries[[row_of[query] for query in asked]], documents, depth)
        return {
            query: {ids[p]: float(s) for s, p in zip(row, where, strict=True)}
            for query, row, where in zip(asked, scores, positions, strict=True)
        }

    return by_encoder


def rerank(
    encoder: System, retrieval_set: RetrievalSet, candidates: Rankings, depth: int = 1024
) -> Rankings:
    """Rank, for each query, only the best candidates of another model: the shortcut of CDE §10.9.

    Args:
        encoder: an encoder, of which only documents that are somebody's candidates are embedded; or
            a ranker, whose ranking of the whole corpus is cut down to the candidates.
        retrieval_set: the set that the candidates were ranked in.
        candidates: the other model's rankings; a query that is missing has none.
        depth: how many candidates a query keeps; of two that tie at the cut the later id.

    Returns:
        query id → document id → the encoder's score, from the best candidate to the worst. A
        candidate to which a ranker gives no score is left out.

    Raises:
        ValueError: a depth below 1, candidates that the set does not hold or whose scores are not
            finite, or vectors as for `rank`.
        TypeError: an object that is neither an encoder nor a ranker.

    Example:
        >>> from cde.lexical import BM25
        >>> toy = RetrievalSet(["d1", "d2"], ["red boats", "red red house"], ["q"], ["red"], {})
        >>> list(rerank(BM25(), toy, {"q": {"d1": 0.9, "d2": 0.1}}, depth=1)["q"])
        ['d1']
    """
    checked_instance(retrieval_set, RetrievalSet, "retrieval_set")
    depth = checked_whole(depth, "depth")
    checked = _checked(candidates, retrieval_set, "candidates")
    kept = {query: list(best_first(ranking))[:depth] for query, ranking in checked.items()}
    if is_ranker(encoder):
        whole = rank(encoder, retrieval_set, max(1, len(retrieval_set.documents)))
        return {
            query: best_first({d: whole[query][d] for d in some if d in whole[query]})
            for query, some in kept.items()
        }
    encoder = as_encoder(encoder)
    wanted = {document for some in kept.values() for document in some}
    if not wanted:
        return {query: {} for query in kept}
    corpus = zip(retrieval_set.document_ids, retrieval_set.documents, strict=True)
    text_of = {document: text for document, text in corpus if document in wanted}
    row_of = {document: row for row, document in enumerate(text_of)}
    queries, texts = encoded(encoder, retrieval_set.queries, "queries"), list(text_of.values())
    documents = encoded(encoder, texts, "documents", queries.shape[1] if len(queries) else None)
    rankings = {}
    for (query, some), vector in zip(kept.items(), queries, strict=True):
        scores = documents[[row_of[document] for document in some]] @ vector if some else ()
        rankings[query] = best_first({d: float(s) for d, s in zip(some, scores, strict=True)})
    return rankings


def best_first(ranking: Mapping[str, float]) -> dict[str, float]:
    """A ranking in the order of trec_eval, which keeps scores in single precision."""
    by_score = [(float(np.float32(score)), document) for document, score in ranking.items()]
    return {document: ranking[document] for _, document in sorted(by_score, reverse=True)}


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
    checked_instance(retrieval_set, RetrievalSet, "retrieval_set")
    drop_own, cuts = checked_switch(drop_own, "drop_own"), _cuts(metrics)
    kept = _kept(_checked(rankings, retrieval_set, "rankings"), retrieval_set, drop_own)
    qrels = {query: dict(retrieval_set.qrels.get(query, {})) for query in retrieval_set.query_ids}
    columns: dict[str, list[float]] = {}
    for metric, cut in cuts.items():
        kind = metric.partition("@")[0]
        runs, measure = kept, f"{_TREC_NAMES.get(kind)}.{cut}"
        if kind == "mrr":  # trec_eval's reciprocal rank has no cut-off
            runs = {q: dict(list(best_first(r).items())[:cut]) for q, r in kept.items()}
            measure = "recip_rank"
        scored = pytrec_eval.RelevanceEvaluator(qrels, {measure}).evaluate(runs)
        key = measure.replace(".", "_")
        columns[metric] = [scored.get(query, {}).get(key, 0.0) for query in retrieval_set.query_ids]
    return pd.DataFrame(
        columns, index=pd.Index(retrieval_set.query_ids, name="query"), dtype=np.float64
    )


def _cuts(metrics: str | Sequence[str]) -> dict[str, int]:
    """The k of each measure."""
    given = checked_texts([metrics] if isinstance(metrics, str) else metrics, "metrics")
    for metric in given:
        if not re.fullmatch(r"(ndcg|map|recall|p|mrr)@[1-9][0-9]{0,8}", metric):
            accepted = "ndcg@k, map@k, recall@k, p@k and mrr@k"
            raise ValueError(f"unknown metric {shown(metric)}; accepted are {accepted}")
    return {metric: int(metric.partition("@")[2]) for metric in given}


def _kept(rankings: Rankings, retrieval_set: RetrievalSet, drop_own: bool) -> Rankings:
    """Rankings without what is left out of each query's."""
    kept: dict[str, dict[str, float]] = {}
    for query, ranking in rankings.items():
        dropped = set(retrieval_set.excluded.get(query, ()))
        if drop_own and retrieval_set.qrels.get(query, {}).get(query, 0) <= 0:
            dropped.add(query)
        kept[query] = {d: s for d, s in ranking.items() if d not in dropped}
    return kept


def score_systems(
    systems: Sequence[System],
    retrieval_set: RetrievalSet,
    metrics: str | Sequence[str],
    depth: int,
    drop_own: bool,
) -> list[pd.DataFrame]:
    """Scores of the judged queries by each system, of whole rankings: a frame for each."""
    checked_instance(retrieval_set, RetrievalSet, "retrieval_set")
    drop_own, cut = checked_switch(drop_own, "drop_own"), max(_cuts(metrics).values(), default=1)
    judged = [query for query in retrieval_set.query_ids if retrieval_set.qrels.get(query)]
    if not judged:
        said = "has no judged query to evaluate on: its qrels are of none"
        raise ValueError(f"{retrieval_set.name} {said}")
    if missing := len(retrieval_set.query_ids) - len(judged):
        warnings.warn(
            f"{retrieval_set.name}: {missing} of {len(retrieval_set.query_ids)} queries have no "
            "judgement, and are left out",
            stacklevel=3,
        )
    asked = retrieval_set.asking(judged)
    # so many may be left out of a ranking afterwards: what is excluded, and the query's own
    spare = 1 + max(map(len, asked.excluded.values()), default=0)
    depth = max(checked_whole(depth, "depth"), cut + spare)
    tables = []
    for system in systems:
        ranked = _prepared(system, asked)
        rankings = dict(ranked(judged, depth))
        undecided = []
        for query, ranking in _kept(rankings, asked, drop_own).items():
            # a ranking that goes on with the score of place k: others may stand there by their ids
            if depth <= len(rankings[query]) < len(asked.documents):
                scores = np.sort(np.fromiter(ranking.values(), np.float32, len(ranking)))
                if scores[-cut] == np.float32(min(rankings[query].values())):
                    undecided.append(query)
        if undecided:
            rankings |= ranked(undecided, len(asked.documents))
        tables.append(score_queries(rankings, asked, metrics, drop_own))
    return tables


def _checked(rankings: object, retrieval_set: RetrievalSet, name: str) -> Rankings:
    """The rankings of a set's queries, those that are missing empty, their scores Python's."""
    accepted = "a mapping of query ids → document ids → scores"
    if not isinstance(rankings, Mapping):
        raise TypeError(f"{name} must be {accepted}; they are {shown(rankings)}")
    known, checked = set(retrieval_set.document_ids), {}
    for query in retrieval_set.query_ids:
        ranking = rankings.get(query, {})
        if not isinstance(ranking, Mapping):
            raise TypeError(f"{name} must be {accepted}; of {query!r} there is {shown(ranking)}")
        # trec_eval knows no corpus, and ranks what is not a number
        if stray := [document for document in ranking if document not in known]:
            some = ", ".join(checked_ids(stray, name)[:3])
            said = f"{len(stray)} documents are not in the corpus, such as {some}"
            raise ValueError(f"{name} of {query!r}: {said}")
        checked[query] = scored(query, ranking)
    if rankings and checked and not rankings.keys() & checked.keys():
        other = shown(next(iter(rankings)))
        raise ValueError(f"{name} are of other queries than those of {retrieval_set.name}: {other}")
    return checked


def scored(query: str, ranking: Mapping[str, Any]) -> dict[str, float]:
    """The ranking of a query, its scores as Python's finite numbers."""
    scores = as_array(list(ranking.values()))
    if scores.dtype.kind not in "fiub" or scores.ndim != 1:
        said = shown([*ranking.values()])
        raise TypeError(f"scores of the query {query!r} must be numbers: {said}")
    if not (finite := np.isfinite(scores)).all():
        first = list(ranking)[int(finite.argmin())]
        said = f"that of {query!r} → {first!r} is {ranking[first]}"
        raise ValueError(f"scores must be finite numbers; {said}")
    return dict(zip(ranking, scores.astype(np.float64).tolist(), strict=True))


def evaluate(
    encoder: System,
    retrieval_set: RetrievalSet,
    metrics: str | Sequence[str] = ("ndcg@10",),
    depth: int = 1000,
    drop_own: bool = True,
) -> dict[str, float]:
    """Mean over queries of trec_eval's measures.

    Args:
        encoder: an encoder, a ranker such as `BM25()`, or a model of sentence-transformers.
        retrieval_set: what to search. Queries without a judgement are left out, as trec_eval and
            mteb do; a warning counts them.
        metrics: one or several of ndcg@k, map@k, recall@k, p@k, mrr@k.
        depth: how many documents are ranked at least. A measure at k ranks k in any case.
        drop_own: drop a document with the query's own id unless it is judged relevant.

    Returns:
        metric → mean over the judged queries, between 0 and 1.

    Raises:
        ValueError: an unknown metric, a set without a judged query, or vectors or rankings as for
            `rank`.
        TypeError: as for `rank`.

    Example:
        >>> from cde.lexical import BM25
        >>> toy = RetrievalSet(["d1", "d2"], ["boats", "tea"], ["q"], ["boat"], {"q": {"d1": 1}})
        >>> evaluate(BM25(), toy)
        {'ndcg@10': 1.0}
    """
    (scores,) = score_systems([encoder], retrieval_set, metrics, depth, drop_own)
    return {str(metric): float(column.mean()) for metric, column in scores.items()}


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
        >>> toy = RetrievalSet(["d1", "d2"], ["boats", "tea"], ["q"], ["boat"], {})
        >>> Hybrid([BM25(), BM25(k1=2.0)]).rank(toy)["q"]
        {'d1': 0.03278688524590164}
    """

    systems: Sequence[System]
    k: float = 60.0

    def __post_init__(self) -> None:
        if isinstance(self.systems, str) or not isinstance(self.systems, Sequence):
            raise TypeError(f"systems must be a list; it is {shown(self.systems)}")
        if not self.systems or not checked_number(self.k, "k") >= 0:
            needed = "a hybrid needs one system or more and k of 0 or more"
            raise ValueError(f"{needed}; k is {shown(self.k)}")

    def rank(self, retrieval_set: RetrievalSet, depth: int = 1000) -> Rankings:
        """Rank a retrieval set: query id → document id → fused score, best first, of ties the later
        id. Documents that a system ranks below `depth` get nothing from it.
        """
        ranked = [rank(system, retrieval_set, depth) for system in self.systems]
        return {
            query: fused([rankings[query] for rankings in ranked], depth, self.k)
            for query in retrieval_set.query_ids
        }


def fused(
    rankings: Sequence[Mapping[str, float]], depth: int, k: float = Hybrid.k
) -> dict[str, float]:
    """The rankings of one query as one, best first; below `depth` nothing counts."""
    scores: dict[str, float] = {}
    for ranking in rankings:
        best = [*best_first(ranking)][:depth]  # a ranker may give more
        for place, document in enumerate(best, start=1):
            scores[document] = scores.get(document, 0.0) + 1.0 / (k + place)
    return dict([*best_first(scores).items()][:depth])

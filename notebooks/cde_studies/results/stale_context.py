"""A corpus replaced bit by bit, under an encoder that goes on reading its first context.

Documents of one corpus give way to those of another, and queries for them come along. An index has
four ways to live with it:

- *re-embedded*: the context is drawn from the corpus of today, and all documents are embedded in
  it;
- *stale*: everything is embedded in the first context;
- *mixed, new queries*: documents that stayed keep their old vectors, those that came are embedded
  in the new context, queries too;
- *mixed, old queries*: the same documents, queries in the old context.

What a way loses is the NDCG@10 of the first one minus its own, query by query. Beside it stand the
numbers of `cde_studies.results.staleness`, which need no judgements: can they foretell the loss?
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cde.data import RetrievalSet
from cde.models import ContextualEncoder
from cde.progress import progress
from cde_studies.motivation.score_matrices import JudgedMatrix
from cde_studies.recipes import EvaluationSet
from cde_studies.results.staleness import moved, vector_drift, vocabulary_drift

#: what can be done when the corpus has changed, as described above
WAYS = ("re-embedded", "stale", "mixed, new queries", "mixed, old queries")
#: the way that embeds nothing again
STALE = WAYS[1]
#: numbers that foretell a loss without judgements
MEASURES = ("replaced", "vocabulary", "vectors", "moved")


def replaced(old: RetrievalSet, new: RetrievalSet, share: float, seed: int = 0) -> RetrievalSet:
    """A corpus of which a share of the documents has given way to another's, ids with "old " or
    "new " before them, and the queries of either that one of its documents answers.
    """
    if not 0 <= share <= 1:
        raise ValueError(f"share must be from 0 to 1, of the documents; it is {share}")
    count = round(share * len(old.documents))
    if count > len(new.documents):
        raise ValueError(
            f"{count} documents are to be replaced, and {new.name} has {len(new.documents)}"
        )
    gone, come = (
        np.random.default_rng(seed).permutation(len(one.documents))[:count] for one in (old, new)
    )
    kept = np.setdiff1d(np.arange(len(old.documents)), gone)
    parts = [("old", old, kept), ("new", new, np.sort(come))]
    ids = [f"{when} {one.document_ids[row]}" for when, one, rows in parts for row in rows]
    texts = [one.documents[row] for _, one, rows in parts for row in rows]
    there = set(ids)
    queries, asked, qrels, excluded = [], [], {}, {}
    for when, one, _ in parts:
        for name, text in zip(one.query_ids, one.queries, strict=True):
            judged = {f"{when} {doc}": grade for doc, grade in one.qrels.get(name, {}).items()}
            left = {doc: grade for doc, grade in judged.items() if doc in there}
            if any(grade > 0 for grade in left.values()):
                asked.append(f"{when} {name}")
                queries.append(text)
                qrels[asked[-1]] = left
                if never := one.excluded.get(name):
                    excluded[asked[-1]] = frozenset(f"{when} {doc}" for doc in never)
    name = f"{old.name}, {share:.0%} {new.name}"
    return RetrievalSet(ids, texts, asked, queries, qrels, excluded=excluded, name=name)


def lose_context(
    model: ContextualEncoder, corpora: Sequence[EvaluationSet], shares: Sequence[float]
) -> pd.DataFrame:
    """Every corpus replaced by the next one, bit by bit, and what each way to live with it loses.

    A row for each corpus, share and way: `old`, `new`, `share`, `way`; `ndcg` (0 to 1); `loss`,
    points of NDCG@10 less than re-embedded, and `error`, its standard error over `queries`; the
    measures: `replaced` (the share again), `vocabulary`, `vectors`, `moved`; and `seconds`, what
    the new context and the documents in it took to embed.
    """
    if len(corpora) < 2:
        raise ValueError(f"a corpus gives way to another: two are needed, {len(corpora)} was given")
    rows = []
    for place, old in enumerate(progress(list(corpora), "replacing corpora", unit="corpora")):
        new = corpora[(place + 1) % len(corpora)]
        lost = _lose(model, old.collection, new.collection, shares)
        rows.append(lost.assign(old=old.name, new=new.name))
    return pd.concat(rows, ignore_index=True)


def _lose(
    model: ContextualEncoder, old: RetrievalSet, new: RetrievalSet, shares: Sequence[float]
) -> pd.DataFrame:
    first = model.with_context(old.documents, seed=0)
    documents = [*old.documents, *new.documents]
    in_first = dict(zip(documents, first.encode_documents(documents), strict=True))
    queries = [*old.queries, *new.queries]
    asked_first = dict(zip(queries, first.encode_queries(queries), strict=True))
    at_first = np.stack([in_first[text] for text in old.documents])
    rows: list[dict[str, Any]] = []
    for share in shares:
        now = replaced(old, new, share)
        begun = time.perf_counter()
        today = model.with_context(now.documents, seed=1)
        fresh = today.encode_documents(now.documents)
        seconds = time.perf_counter() - begun
        asked = today.encode_queries(now.queries)
        stale = np.stack([in_first[text] for text in now.documents])
        asked_stale = np.stack([asked_first[text] for text in now.queries])
        stayed = np.array([name.startswith("old ") for name in now.document_ids])
        mixed = np.where(stayed[:, None], stale, fresh)
        pairs = ((asked, fresh), (asked_stale, stale), (asked, mixed), (asked_stale, mixed))
        judged = JudgedMatrix.of(now)
        found = {way: judged.ndcg(q @ d.T) for way, (q, d) in zip(WAYS, pairs, strict=True)}
        measured = {
            "replaced": share,
            "vocabulary": vocabulary_drift(old.documents, now.documents),
            "vectors": vector_drift(at_first, stale),
            "moved": moved(stale, fresh),
        }
        for way in WAYS:
            lost = 100 * (found[WAYS[0]] - found[way])
            error = float(lost.std(ddof=1) / np.sqrt(len(lost))) if len(lost) > 1 else 0.0
            scores = {"ndcg": float(found[way].mean()), "loss": float(lost.mean()), "error": error}
            about = {"share": share, "way": way, "queries": len(lost), "seconds": seconds}
            rows.append({**about, **scores, **measured})
    return pd.DataFrame(rows)


def largest_catching_limit(measured: NDArray[np.float64]) -> float:
    """The largest limit that a tenth of these cases pass at most; infinite where there is none."""
    if not len(measured):
        return float("inf")
    return float(np.nextafter(np.sort(measured)[len(measured) // 10], -np.inf))


def trigger_elsewhere(rows: pd.DataFrame, measure: str) -> pd.DataFrame:
    """A trigger on cases that did not set its limit: each corpus by the limit of all others. The
    rows, with `limit`, `alarm` (the measure is above it), and `lost`: the loss is above a point,
    and more than chance among queries explains (1.96 standard errors above 0).
    """
    lost = (rows["loss"] > 1.0) & (rows["loss"] > 1.96 * rows["error"])
    out = rows.assign(lost=lost, limit=np.inf)
    for name in rows["old"].unique():
        here = rows["old"] == name
        elsewhere = rows.loc[lost & ~here, measure].to_numpy(np.float64)
        out.loc[here, "limit"] = largest_catching_limit(elsewhere)
    return out.assign(alarm=out[measure] > out["limit"])

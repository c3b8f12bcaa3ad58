"""Every corpus searched in the context of every other: what a context is worth to an encoder that
reads it, beside what the word statistics of the same documents are worth to BM25.

An encoder that uses a context as statistics finds much in the contexts with whose statistics BM25
finds much. The measure is Spearman's correlation of the two scores over the sources, within the
corpus that is searched: how hard a corpus is, and how good an encoder, do not enter.

Cost: two forward passes of a corpus for each source of its context; BM25 takes milliseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from cde.models import ContextualEncoder
from cde.progress import progress
from cde.retrieval import evaluate
from cde_studies.motivation.corpus_statistics import Counts
from cde_studies.motivation.headroom import TermMatrix
from cde_studies.motivation.score_matrices import JudgedMatrix
from cde_studies.recipes import EvaluationSet

__all__ = ["follows_statistics", "own_corpus_gains", "search_in_every_context"]


def search_in_every_context(
    model: ContextualEncoder,
    searched: Sequence[EvaluationSet],
    sources: Sequence[EvaluationSet],
    others: int | None = None,
) -> pd.DataFrame:
    """NDCG@10 (0 to 1) of corpora, by the corpus that the context and BM25's weights are taken
    from: a row for each set and source with `searched`, `source`, `ndcg` (the encoder in the
    source's context) and `bm25` (BM25 with the source's IDF).
    """
    rows, longest = [], model.config.max_tokens
    counts = {
        one.name: Counts.of(one.collection.documents, model.tokenizer, longest) for one in sources
    }
    jobs = [
        (test, source)
        for place, test in enumerate(searched)
        for source in _sources_of(test, sources, others, place)
    ]
    matrices = {
        test.name: (TermMatrix.of(test.collection), JudgedMatrix.of(test.collection))
        for test in searched
    }
    for test, source in progress(jobs, "searching in every context", unit="searches"):
        matrix, judged = matrices[test.name]
        weights = counts[source.name].term_weights(matrix.vocabulary)
        encoder = model.with_context(source.collection.documents, seed=0)
        rows.append(
            {
                "searched": test.name,
                "source": source.name,
                "ndcg": evaluate(encoder, test.collection)["ndcg@10"],
                "bm25": float(judged.ndcg(matrix.scores(weights)).mean()),
            }
        )
    return pd.DataFrame(rows)


def _sources_of(
    test: EvaluationSet, sources: Sequence[EvaluationSet], others: int | None, place: int
) -> list[EvaluationSet]:
    """The sources of a set, in their order: its own, where it is one, and others."""
    foreign = [one for one in sources if one.name != test.name]
    if others is None:
        return list(sources)
    if not 0 < others <= len(foreign):
        raise ValueError(
            f"others must be from 1 to {len(foreign)}, as many other sources as there are; it is "
            f"{others}"
        )
    drawn = np.random.default_rng(place).choice(len(foreign), others, replace=False)
    chosen = {foreign[one].name for one in drawn} | {test.name}
    return [one for one in sources if one.name in chosen]


def own_corpus_gains(rows: pd.DataFrame, column: str = "ndcg") -> pd.Series[float]:
    """Points of NDCG@10 that the own corpus is worth more than others, the mean over seeds, by set
    in the order of the rows.
    """
    table = rows.pivot_table(column, "set", "context", sort=False)
    return 100 * (table["own"] - table["other"])


def follows_statistics(rows: pd.DataFrame) -> pd.Series[float]:
    """Spearman's correlation over sources of the encoder's scores and BM25's, for each corpus
    searched; NaN where all sources are worth the same.
    """
    found = {}
    for name, of in rows.groupby("searched", sort=False):
        scores = of[["ndcg", "bm25"]]
        tells = all(len(set(scores[one])) > 1 for one in scores)
        together: Any = scores["ndcg"].corr(scores["bm25"], method="spearman") if tells else "nan"
        found[str(name)] = float(together)
    return pd.Series(found)

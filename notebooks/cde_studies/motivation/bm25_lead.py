"""How far BM25 is ahead of dense models on a corpus, and how far the corpus' IDF is from that of a
training corpus: the two axes of CDE Fig. 8.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import cde
from cde.data import RetrievalSet, load_retrieval
from cde.intervals import Interval
from cde.progress import progress
from cde_studies.collections.pydocs import HELD_OUT, PACKAGES, TRAINING
from cde_studies.intervals import correlation_interval
from cde_studies.motivation.word_counts import (
    Divergence,
    document_frequencies,
    idf_divergence_of_counts,
)

#: stands in for MS MARCO, the paper's training corpus
REFERENCE = "beir/msmarco-dl19-sub"


class LatentSemanticAnalysis:
    """An encoder into the leading singular vectors of a training corpus' tf-idf table: unit
    vectors, zeros for a text of which no word is known.
    """

    zeros_for_unknown = True

    def __init__(self, training: Sequence[str], dimensions: int, seed: int = 0) -> None:
        from sklearn.decomposition import TruncatedSVD
        from sklearn.feature_extraction.text import TfidfVectorizer
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import Normalizer

        words = TfidfVectorizer(sublinear_tf=True, stop_words="english", min_df=2)
        table = words.fit_transform(training)
        space = TruncatedSVD(min(dimensions, table.shape[1] - 1), random_state=seed).fit(table)
        self._model = make_pipeline(words, space, Normalizer())

    def encode_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return np.asarray(self._model.transform(texts), np.float32)

    encode_queries = encode_documents


def package_leads(documents: int, dimensions: int, max_tokens: int, seed: int) -> pd.DataFrame:
    """Each package of `pydocs`, cut to some documents, against the training packages without it:
    distances, and NDCG@10 of BM25, of LSA fitted to these training packages, and of MiniLM.
    """
    some = {
        name: cde.load_pairs(f"pydocs/{name}").sample_per_domain(documents, seed)
        for name in PACKAGES
    }
    minilm, lines = cde.Surrogate(max_tokens=max_tokens), []
    for name, pairs in progress(some.items(), "comparing and searching", unit="packages"):
        training = [text for one in TRAINING if one != name for text in some[one].documents]
        systems = {"LSA": LatentSemanticAnalysis(training, dimensions, seed), "MiniLM": minilm}
        line: dict[str, Any] = {"package": name, "held out": name in HELD_OUT}
        line |= _distances(pairs.documents, training)
        lines.append(line | _scores(systems, RetrievalSet.from_pairs(pairs)))
    return pd.DataFrame(lines)


def collection_leads(
    names: Sequence[str], documents: int, queries: int, max_tokens: int, seed: int
) -> pd.DataFrame:
    """Each collection, cut down, against `REFERENCE`: distances, NDCG@10 of BM25 and of MiniLM."""
    minilm, lines = cde.Surrogate(max_tokens=max_tokens), []
    training = load_retrieval(REFERENCE).documents
    for name in names:
        some = load_retrieval(f"beir/{name}").shrink(documents, queries, seed)
        line: dict[str, Any] = {"collection": name, **_distances(some.documents, training)}
        line |= {**_scores({"MiniLM": minilm}, some), "documents": len(some.documents)}
        lines.append(line | {"BM25 − MiniLM": line["BM25"] - line["MiniLM"]})
    return pd.DataFrame(lines)


def _distances(texts: Sequence[str], training: Sequence[str]) -> dict[str, float]:
    """A corpus' distances from training texts, by every formula."""
    own, other = document_frequencies(texts), document_frequencies(training)
    sizes = len(texts), len(training)
    return {
        one: idf_divergence_of_counts(own, sizes[0], other, sizes[1], one)
        for one in get_args(Divergence)
    }


def _scores(systems: Mapping[str, Any], corpus: RetrievalSet) -> dict[str, float]:
    every = {"BM25": cde.BM25(), **systems}
    return {name: cde.evaluate(one, corpus)["ndcg@10"] for name, one in every.items()}


def lead_correlations(
    rows: pd.DataFrame, lead: pd.Series[float]
) -> dict[tuple[str, str], Interval]:
    """The correlation of BM25's lead over a model with each distance, by Pearson and Spearman."""
    return {
        (measure, method): correlation_interval(rows[measure], lead, method)
        for measure in get_args(Divergence)
        for method in ("pearson", "spearman")
    }

"""Every corpus searched in the context of every other: what a context is worth to an encoder that
reads it, beside what the word statistics of the same documents are worth to BM25.

An encoder that uses a context as statistics finds much in the contexts with whose statistics BM25
finds much. The measure is Spearman's correlation of the two scores over the sources, within the
corpus that is searched: how hard a corpus is, and how good an encoder, do not enter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np
import pandas as pd

import cde
from cde.data import RetrievalSet
from cde.lexical import BM25
from cde.models import ContextualEncoder
from cde.progress import progress
from cde.retrieval import evaluate
from cde_studies.collections.pydocs import HELD_OUT
from cde_studies.motivation.corpus_statistics import Counts
from cde_studies.motivation.headroom import TermMatrix
from cde_studies.motivation.score_matrices import JudgedMatrix
from cde_studies.recipes import EvaluationSet, Recipe
from cde_studies.results.frozen_encoder import LEXICAL, MINILM
from cde_studies.sweeps import score_references, sweep


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


def search_with_sizes(
    model: ContextualEncoder,
    tests: Sequence[EvaluationSet],
    windows: Sequence[tuple[int, str]],
    draws: int,
) -> pd.DataFrame:
    """NDCG@10 (0 to 1) of corpora with contexts of so many of their documents, and by what fills
    the rest of the window (`with_context`): a row for each set, window and draw with `set`, `size`,
    `fill`, `draw`, `taken` (as many as there are) and `ndcg`.
    """
    rows = []
    for test, (size, fill) in product(tests, windows):
        documents = test.collection.documents
        for draw in range(draws if size else 1):
            encoder = model.with_context(
                documents if size else None, size=size or None, seed=draw, fill=fill
            )
            context = {"set": test.name, "size": size, "fill": fill, "draw": draw}
            ndcg = evaluate(encoder, test.collection)["ndcg@10"]
            rows.append({**context, "taken": min(size, len(documents)), "ndcg": ndcg})
    return pd.DataFrame(rows)


def _sources_of(
    test: EvaluationSet, sources: Sequence[EvaluationSet], others: int | None, place: int
) -> list[EvaluationSet]:
    """The sources of a set, in their order: its own, where it is one, and others."""
    foreign = [one for one in sources if one.name != test.name]
    if others is None:
        return list(sources)
    drawn = np.random.default_rng(place).choice(len(foreign), others, replace=False)
    chosen = {foreign[one].name for one in drawn} | {test.name}
    return [one for one in sources if one.name in chosen]


def load_sources(names: Sequence[str] | None, documents: int, queries: int) -> list[EvaluationSet]:
    """A sample of each source of pairs, as a set to search: of all that $CDE_DATA has unless they
    are named, or of the packages that no reader was trained on where it has none.
    """
    at_hand = [one.name for one in cde.list_sources() if one.name.startswith("pairs/")]
    chosen = names or at_hand or [f"pydocs/{name}" for name in HELD_OUT]
    return [
        EvaluationSet(name.split("/")[1], of_pairs(name, documents, queries), "out")
        for name in chosen
    ]


def of_pairs(name: str, documents: int, queries: int) -> RetrievalSet:
    """A sample of a source of pairs, as a collection."""
    return RetrievalSet.from_pairs(cde.load_pairs(name).sample(documents, 0), queries)


def search_with_all(
    readers: Mapping[str, Recipe], seeds: Sequence[int], sets: Sequence[EvaluationSet], others: int
) -> pd.DataFrame:
    """Rows of a sweep: each source searched by every reader with every seed, in its own context and
    in others'; beside the first with a fixed context, MiniLM and BM25.
    """
    read = [
        search_in_every_context(of.train({}, seed).model(), sets, sets, others).assign(
            arm=arm, seed=seed, where="out"
        )
        for arm, of in readers.items()
        for seed in seeds
    ]
    found = pd.concat(read).rename(columns={"searched": "set"})
    found["context"] = (found["set"] == found["source"]).map({True: "own", False: "other"})
    plain = next(iter(readers.values()))
    fixed = sweep({"fixed context": {"context_from": "fixed"}}, seeds, plain, (), sets)
    untouched = plain.train({}, seeds[0]).model()  # without context it is MiniLM
    references = score_references({MINILM: untouched, LEXICAL: BM25()}, sets, seeds)
    return pd.concat([found, fixed, references], ignore_index=True)


def own_corpus_gains(rows: pd.DataFrame, column: str = "ndcg") -> pd.Series[float]:
    """NDCG@10 points that the own corpus is worth more than others, by set: means over seeds."""
    table = rows.pivot_table(column, "set", "context", sort=False)
    return 100 * (table["own"] - table["other"])


def follows_statistics(rows: pd.DataFrame) -> pd.Series[float]:
    """Spearman's correlation over sources of the encoder's scores and BM25's, for each corpus
    searched; NaN where all sources are worth the same.
    """
    groups = rows.groupby("searched", sort=False)[["ndcg", "bm25"]]
    return pd.Series({str(name): of.corr("spearman").iloc[0, 1] for name, of in groups})

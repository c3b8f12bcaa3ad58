"""What the offline tasks are made of: labelled docstrings, candidates, pairs, graded likenesses.

Everything is seeded and depends on the texts alone.

Cost: milliseconds, and a search by BM25 for the candidates.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pandas as pd

from cde.data import Pairs, RetrievalSet
from cde.data.pydocs import PACKAGES, load_pairs
from cde.lexical import BM25

__all__ = [
    "belonging_pairs",
    "beside_candidates",
    "graded_similarities",
    "modules",
    "packages",
    "split_by_label",
]

_SENTENCES = re.compile(r"(?<=[.!?:])\s+|\n{2,}")
_PARTS = 6  # sentences, or paragraphs, of a text whose likeness is graded


def packages(labels: int = 10) -> pd.DataFrame:
    """Bodies of docstrings that no training sees, of the packages that have most of them.

    Returns:
        Columns text and label, the package.
    """
    pairs = load_pairs(list(PACKAGES), split="test")
    return _most_common(pairs.documents, pairs.domains, labels)


def modules(package: str, depth: int, labels: int = 10) -> pd.DataFrame:
    """Bodies of the docstrings of a package, with the module that each is from.

    Returns:
        Columns text and label.
    """
    pairs = load_pairs([package], split="all")
    names = [".".join(name.split(".")[:depth]) for name in pairs.ids]
    return _most_common(pairs.documents, names, labels)


def _most_common(texts: Sequence[str], names: Sequence[str], labels: int) -> pd.DataFrame:
    frame = pd.DataFrame({"text": list(texts), "label": list(names)})
    most = frame["label"].value_counts().sort_index().sort_values(kind="stable").index[-labels:]
    return frame[frame["label"].isin(most)].reset_index(drop=True)


def split_by_label(
    rows: pd.DataFrame, train: int, test: int, seed: int = 0
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Texts to train a classifier on, as many of each label, and others to test it on."""
    shuffled = rows.sample(frac=1, random_state=seed)
    place = shuffled.groupby("label").cumcount()
    share = shuffled.groupby("label")["text"].transform("size") // 2
    chosen = place < np.minimum(train, share)
    others = shuffled[~chosen]
    each = -(-test // others["label"].nunique())
    tested = others[others.groupby("label").cumcount() < each]
    return shuffled[chosen].sort_index(), tested.sort_index()


def beside_candidates(collection: RetrievalSet, count: int) -> dict[str, list[str]]:
    """What a reranker is given: for each query its relevant documents, and BM25's best others.

    Returns:
        query id → document ids, by id, so that the order says nothing.
    """
    found = BM25().rank(collection, depth=count)
    candidates = {}
    for query in collection.query_ids:
        relevant = [name for name, grade in collection.qrels[query].items() if grade > 0]
        others = [name for name in found.get(query, {}) if name not in relevant]
        candidates[query] = sorted([*relevant, *others[: max(0, count - len(relevant))]])
    return candidates


def belonging_pairs(pairs: Pairs) -> pd.DataFrame:
    """Summaries beside the body that belongs to each, and beside the one most like it.

    Returns:
        Columns sentence1 (summary), sentence2 (body) and labels: 1 where they belong together, 0
        for the body of another docstring that BM25 ranks best for the summary.
    """
    rows = []
    bm25 = BM25(list(pairs.documents))
    for row, (query, found) in enumerate(
        zip(pairs.queries, bm25.search(list(pairs.queries), depth=2), strict=True)
    ):
        own = pairs.documents[row]
        other = next(
            (pairs.documents[place] for place in found if pairs.documents[place] != own),
            pairs.documents[(row + 1) % len(pairs)],
        )
        rows += [(query, own, 1), (query, other, 0)]
    return pd.DataFrame(rows, columns=["sentence1", "sentence2", "labels"])


def graded_similarities(documents: Sequence[str], count: int, seed: int = 0) -> pd.DataFrame:
    """Texts beside copies of which a part is another text's: their likeness is what was kept.

    A text is six of its sentences. In the copy 0 to 5 of them, drawn by chance, are replaced by
    sentences of the next text, and the order is shuffled.

    Returns:
        Columns sentence1, sentence2 and score, the number of sentences kept less one: 0 to 5.
    """
    generator = np.random.default_rng(seed)
    split = [
        [part.strip() for part in _SENTENCES.split(text) if part.strip()] for text in documents
    ]
    long = [parts[:_PARTS] for parts in split if len(parts) >= _PARTS]
    rows = []
    for place, parts in enumerate(long[:count]):
        other = long[(place + 1) % len(long)]
        kept = int(generator.integers(1, _PARTS + 1))
        own = generator.choice(_PARTS, kept, replace=False)
        copy = [parts[row] if row in own else other[row] for row in range(_PARTS)]
        shuffled = [copy[row] for row in generator.permutation(_PARTS)]
        rows.append(("\n".join(parts), "\n".join(shuffled), kept - 1))
    return pd.DataFrame(rows, columns=["sentence1", "sentence2", "score"])

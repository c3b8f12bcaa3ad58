"""What the offline tasks are made of: labelled docstrings, candidates, pairs, graded likenesses.

Everything is seeded and depends on the texts alone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pandas as pd

from cde.data import Pairs, RetrievalSet
from cde.lexical import BM25
from cde_studies.collections.pydocs import PACKAGES, load_pairs

_SENTENCES = re.compile(r"(?<=[.!?:])\s+|\n{2,}")
_LABELS = 10  # packages, or modules, that have most texts
_PARTS = 6  # sentences, or paragraphs, of a text whose likeness is graded


def packages() -> pd.DataFrame:
    """Bodies of docstrings that no training sees, of the packages with most: text and label."""
    pairs = load_pairs(list(PACKAGES), split="test")
    return _most_common(pairs.documents, pairs.domains)


def modules(package: str, depth: int) -> pd.DataFrame:
    """Bodies of the docstrings of a package, with the module that each is from: text and label."""
    pairs = load_pairs([package], split="all")
    names = [".".join(name.split(".")[:depth]) for name in pairs.ids]
    return _most_common(pairs.documents, names)


def _most_common(texts: Sequence[str], names: Sequence[str]) -> pd.DataFrame:
    frame = pd.DataFrame({"text": list(texts), "label": list(names)})
    most = frame["label"].value_counts().sort_index().sort_values(kind="stable").index[-_LABELS:]
    return frame[frame["label"].isin(most)].reset_index(drop=True)


def split_by_label(rows: pd.DataFrame, train: int, test: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Texts to train a classifier on, as many of each label, and others to test it on."""
    shuffled = rows.sample(frac=1, random_state=0)
    place = shuffled.groupby("label").cumcount()
    share = shuffled.groupby("label")["text"].transform("size") // 2
    chosen = place < np.minimum(train, share)
    others = shuffled[~chosen]
    each = -(-test // others["label"].nunique())
    tested = others[others.groupby("label").cumcount() < each]
    return shuffled[chosen].sort_index(), tested.sort_index()


def beside_candidates(collection: RetrievalSet, count: int) -> dict[str, list[str]]:
    """What a reranker is given: for each query the ids of its relevant documents and BM25's best
    others, sorted, so that the order says nothing.
    """
    found = BM25().rank(collection, depth=count)
    candidates = {}
    for query in collection.query_ids:
        relevant = [name for name, grade in collection.qrels[query].items() if grade > 0]
        others = [name for name in found.get(query, {}) if name not in relevant]
        candidates[query] = sorted([*relevant, *others[: max(0, count - len(relevant))]])
    return candidates


def belonging_pairs(pairs: Pairs) -> pd.DataFrame:
    """Summaries (sentence1) beside the body that belongs to each (sentence2, labels 1), and beside
    the one of another docstring that BM25 ranks best for it (labels 0).
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


def graded_similarities(documents: Sequence[str], count: int) -> pd.DataFrame:
    """Texts (sentence1) beside copies of which a part is another text's (sentence2), and what was
    kept (score, the number of sentences less one: 0 to 5).

    A text is six of its sentences. In the copy 0 to 5 of them, drawn by chance, are replaced by
    sentences of the next text, and the order is shuffled.
    """
    generator = np.random.default_rng(0)
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

"""What the texts alone tell of the documents that the filter removes from a batch (CDE §4.1).

Nobody has judged which documents of a batch answer a query besides the labelled one. Two rules
decide some:

- a **known false negative** has the same text as the labelled document, or nearly the same, or
  stands in its own pair under the same summary line as the query;
- a **called true negative** comes from another domain, is not a known false negative, and neither
  it nor its own query has a word in common with the query, frequent words aside. The rule condemns
  answers too: how many, the labelled documents tell, which are answers by definition.

All else is open. Vectors are looked at by the filter only, never by the judge.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from cde.batching.negatives import false_negatives
from cde.data import Pairs
from cde.progress import progress
from cde.validation import Positions, Vectors
from cde_studies.leaks import plain

#: kinds of known false negatives; each is of the first that fits
KINDS = ("same text", "similar text", "same summary line")
_TITLES = {"known": "known false negative", "negative": "called true negative", "open": "open"}

Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Account:
    """How many documents of each class are in a query's batch, and how many of them are removed."""

    counts: pd.DataFrame

    def recall(self, name: str = "known") -> NDArray[np.float64]:
        """The share removed of a class, for each query that has some of it in its batch."""
        some = self.counts[self.counts[name] > 0]
        return np.asarray(some[f"{name}, removed"] / some[name], dtype=np.float64)

    def of_removed(self, name: str) -> NDArray[np.float64]:
        """The share that a class has of what is removed, for each batch that something is."""
        sums = self._by_batch()
        return np.asarray(sums[f"{name}, removed"] / sums["removed"], dtype=np.float64)

    def lower_bound(self) -> NDArray[np.float64]:
        """The share of true negatives that no condemned answer explains, for each batch.

        If the judge condemns a share r of the answers, which the labelled documents of the same
        queries tell, at least (share condemned) − r of what is removed are true negatives. The
        bound may lie below zero.
        """
        sums = self._by_batch()
        correct = sums["negative, removed"] - sums["wrongly"]
        return np.asarray(correct / sums["removed"], dtype=np.float64)

    def _by_batch(self) -> pd.DataFrame:
        sums = self.counts.groupby("batch").sum()
        return sums[sums["removed"] > 0]


class TextJudge:
    """What texts tell of the unlabelled documents of a batch, by the two rules of this module."""

    def __init__(self, pairs: Pairs, alike: ArrayLike, common: float) -> None:
        from sklearn.feature_extraction.text import CountVectorizer

        self.pairs = pairs
        text, summary = (_numbered(map(plain, some)) for some in (pairs.documents, pairs.queries))
        self._same = (text, np.asarray(alike), summary)
        self._domains = _numbered(pairs.domains)
        counter: Any = CountVectorizer(binary=True, token_pattern=r"[A-Za-z]{2,}", dtype=np.float32)
        words = counter.fit_transform([f"{query} {document}" for query, document in pairs])
        self._words = words, counter.transform(pairs.queries), counter.transform(pairs.documents)
        self._narrow(common)

    def _narrow(self, common: float) -> None:
        telling = np.asarray(self._words[0].mean(axis=0)).ravel() <= common
        self._of_pairs, self._asked, self._answered = (some[:, telling] for some in self._words)
        every = np.arange(len(self.pairs))
        self.asks: Flags = np.asarray(self._asked.sum(axis=1)).ravel() > 0
        self.condemned: Flags = self.asks & self.apart(every, every)

    def with_common(self, common: float) -> TextJudge:
        """The same judge with another bound for frequent words."""
        other = copy.copy(self)
        other._narrow(common)
        return other

    def apart(self, queries: Positions, documents: Positions) -> Flags:
        """Whether each query has no telling word in common with the document at its place."""
        both = self._asked[queries].multiply(self._answered[documents])
        return np.asarray(np.asarray(both.sum(axis=1)).ravel() == 0)

    def known_pairings(self) -> tuple[Positions, Positions]:
        """Query and document of every known false negative of all pairs: `(m,)` positions each."""
        pairings: set[tuple[int, int]] = set()
        for values in self._same:
            for members in pd.Series(np.arange(len(values))).groupby(values).indices.values():
                pairings |= {(int(i), int(j)) for i in members for j in members if i != j}
        asking, answering = np.array(sorted(pairings), np.int64).reshape(-1, 2).T
        return asking, answering

    def in_other_domains(self, queries: Positions, documents: Positions) -> Flags:
        """Whether query and document come from two domains, for each two."""
        return np.asarray(self._domains[queries] != self._domains[documents])

    def classes(self, batch: Positions) -> dict[str, Flags]:
        """The class of each document for each query of a batch, a matrix of every class.

        Returns:
            Each of `KINDS`, `known` for all of these, `negative` and `open`: `(b, b)` bool. A
            query's own document is in `open`; no filter removes it.
        """
        others = ~np.eye(len(batch), dtype=bool)
        equal, near, headed = (
            (values[batch][:, None] == values[batch]) & others for values in self._same
        )
        known = equal | near | headed
        kinds = (equal, near & ~equal, headed & ~near & ~equal)
        overlap = (self._asked[batch] @ self._of_pairs[batch].T).toarray() > 0
        foreign = self._domains[batch][:, None] != self._domains[batch]
        negative = foreign & ~overlap & self.asks[batch][:, None] & ~known
        rest = {"known": known, "negative": negative, "open": ~known & ~negative}
        return {**dict(zip(KINDS, kinds, strict=True)), **rest}

    def account(
        self,
        query_vectors: Vectors,
        document_vectors: Vectors,
        batches: Sequence[Positions],
        **rule: Any,
    ) -> Account:
        """What a filter removes from batches, counted for each query."""
        tables = []
        for number, batch in enumerate(progress(batches, "judging", unit="batches")):
            removed = false_negatives(query_vectors[batch], document_vectors[batch], **rule)
            counts = {"batch": number, "query": batch, "removed": removed.sum(axis=1)}
            for name, those in self.classes(batch).items():
                counts[name] = those.sum(axis=1)
                counts[f"{name}, removed"] = (those & removed).sum(axis=1)
            counts["wrongly"] = removed.sum(axis=1) * self.condemned[batch]
            tables.append(pd.DataFrame(counts))
        return Account(pd.concat(tables, ignore_index=True))

    def examples(
        self,
        query_vectors: Vectors,
        document_vectors: Vectors,
        batches: Sequence[Positions],
        count: int,
        seed: int = 0,
    ) -> pd.DataFrame:
        """Documents that the filter (ε = 0) removes, drawn at random, for a reader to judge: class,
        query, labelled document, its score, removed document, of, score.
        """
        generator, rows = np.random.default_rng(seed), []
        for name, title in _TITLES.items():
            removals: list[tuple[int, int]] = []
            for batch in progress(batches, f"drawing {title}", unit="batches"):
                removed = false_negatives(query_vectors[batch], document_vectors[batch])
                query, document = np.nonzero(self.classes(batch)[name] & removed)
                removals.extend(zip(batch[query], batch[document], strict=True))
            size = min(count, len(removals))
            for place in generator.choice(len(removals), size, replace=False) if size else ():
                asked, given = removals[place]
                own, other = (
                    round(float(query_vectors[asked] @ document_vectors[one]), 3)
                    for one in (asked, given)
                )
                rows.append(
                    {
                        "class": title,
                        "query": self.pairs.queries[asked],
                        "labelled document": self._start(asked),
                        "its score": own,
                        "removed document": self._start(given),
                        "of": self.pairs.ids[given],
                        "score": other,
                    }
                )
        return pd.DataFrame(rows)

    def _start(self, row: int) -> str:
        document = " ".join(self.pairs.documents[row].split())
        return document[:120] + (" …" if len(document) > 120 else "")


def _numbered(values: Iterable[str]) -> Positions:
    """The same number for the same value."""
    return np.asarray(pd.factorize(np.array(list(values), dtype=object))[0], dtype=np.int64)

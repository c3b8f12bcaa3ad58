"""Training pairs and tests in which the passage stands where it is told to.

Of each query's document there is a version with the passage at each of ten places, with the same
tokens in all (`cde_studies.dwell.probes.moved_versions`). A placement says how probable each place
is. The same draw decides for every placement, so that two of them give a query different documents
only where they must. What is trained on and what is tested share no source (article, package).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cde.data import Pairs
from cde.retrieval import Encoder, Ranker
from cde_studies.dwell.passages import Passages, texts_of
from cde_studies.dwell.probes import PLACES, moved_versions, scores_by_place

#: how probable each place is; None leaves documents as they were written
Placement = Sequence[float] | None


@dataclass(frozen=True)
class Placed:
    """Queries, and their documents in every version."""

    passages: Passages
    versions: Mapping[str, Sequence[str]]

    @classmethod
    def of(cls, passages: Passages, tokenizer: Any) -> Placed:
        return cls(passages, moved_versions(passages, tokenizer))


def means_by_place(encoder: Encoder | Ranker, placed: Placed) -> dict[str, float]:
    """NDCG@10 in points and MRR@100 (0 to 1): `ndcg 0` and `mrr 0` in documents as written,
    `ndcg 1` … and `mrr 1` … with the passage at each place.
    """
    scores = scores_by_place(encoder, placed.passages, placed.versions)
    return {
        f"{name} {place}": scale * float(mean)
        for name, metric, scale in (("ndcg", "ndcg@10", 100), ("mrr", "mrr@100", 1))
        for place, mean in enumerate(scores[metric].mean())
    }


def at_the_beginning(share: float) -> list[float]:
    """The placement with a share of the passages at the first place, and the others at the last."""
    return [share, *[0.0] * (PLACES - 2), 1 - share]


def halves(passages: Passages, source_of: Callable[[str], str]) -> tuple[Passages, Passages]:
    """Two parts of a collection, each of half of the sources with their documents and queries."""
    named = texts_of(passages.collection)
    sources = sorted({source_of(name) for name in named})
    shuffled = np.random.default_rng(0).permutation(np.array(sources, dtype=object))
    first = set(shuffled[: len(sources) // 2])

    def part(inside: bool) -> Passages:
        texts = {name: text for name, text in named.items() if (source_of(name) in first) == inside}
        return passages.held_by(texts).of_corpus(texts)

    return part(True), part(False)


def placed_pairs(
    placed: Placed, placement: Placement, source_of: Callable[[str], str], seed: int = 0
) -> Pairs:
    """Training pairs of queries and their documents, with passages placed as asked."""
    queries = [name for name in placed.passages.collection.query_ids if name in placed.versions]
    places = [0] * len(queries)
    if placement is not None:
        shares = np.asarray(placement)
        drawn = np.random.default_rng(seed).random(len(queries))
        edges = np.minimum(np.cumsum(shares), 1.0)
        edges[np.flatnonzero(shares)[-1] :] = 1.0  # rounding must not lead to a place of share 0
        places = [1 + int(place) for place in np.searchsorted(edges, drawn, side="right")]
    return Pairs(
        list(placed.passages.collection.asking(queries).queries),
        [placed.versions[name][place] for name, place in zip(queries, places, strict=True)],
        domains=[source_of(placed.passages.document_of(name)) for name in queries],
        ids=queries,
        name="placed passages",
    )

"""Probing at full power: all placed passages that an encoder reads whole, without the queries that
were looked at before.

The chapter `passage_position` first probed 150 queries of each collection, and those were seen.
What is tested is tested on others: `fresh_passages` leaves the 150 out. Names of collections are
those of `cde_studies.dwell.passages`, without "beir/"; "… joined" has neighbouring paragraphs in
longer documents (`cde_studies.dwell.longer_documents`), for docstrings those of one module.
COVID-QA's paragraphs are long as they are: few would have room for a neighbour.

Queries about one document are not independent. Every interval is a bootstrap of whole documents,
and the best place is named by one half of the documents and read from the other.

Cost: for 1,000 queries and documents of 160 tokens some minutes on one core.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache, partial
from typing import Any

import numpy as np
import pandas as pd

from cde.data import is_available
from cde.lexical import BM25
from cde.models import BiEncoder
from cde.models.encoder import load_tokenizer
from cde.progress import progress
from cde.retrieval import Encoder, Ranker, score_queries
from cde_studies.collections.pydocs import HELD_OUT
from cde_studies.dwell.cures import source_of
from cde_studies.dwell.longer_documents import join_paragraphs
from cde_studies.dwell.passages import Passages, load_passages, texts_of
from cde_studies.dwell.probes import moved_versions, scores_by_place
from cde_studies.dwell.readers import Kept
from cde_studies.dwell.recipe import dwell_recipe
from cde_studies.dwell.substrings import fewer_tokens, token_spans
from cde_studies.dwell.tables import changes
from cde_studies.intervals import clustered_interval, numbers_of

_JOINED = " joined"
#: what is probed, where it is at hand
COLLECTIONS = ("squad-dev", "squad-dev joined", "covidqa-passages", "pydocs")
#: groups of documents by length: name → fewest tokens
LENGTHS = {"under 128": 0, "128 to 254": 128, "255 to 510": 255}
#: tokens that MiniLM reads, without its own marks
_LONGEST = 510
_tokenizer = cache(lambda: load_tokenizer("minilm"))


def at_hand(names: Sequence[str]) -> list[str]:
    """Those of the collections that this machine has; pydocs is always there."""
    return [
        name
        for name in names
        if name.startswith("pydocs") or is_available(f"beir/{name.removesuffix(_JOINED)}")
    ]


def fresh_passages(
    name: str, queries: int, words: Sequence[int], packages: Sequence[str]
) -> Passages:
    """Queries of a collection that were not looked at before, with their places. Documents that are
    asked for have 510 tokens at most; longer ones stay in the corpus.
    """
    return _every_fresh(name, tuple(words), tuple(packages)).sample(queries, 0)


@lru_cache(maxsize=8)
def _every_fresh(name: str, words: tuple[int, ...], packages: tuple[str, ...]) -> Passages:
    base, joined = name.removesuffix(_JOINED), name.endswith(_JOINED)
    if base == "pydocs":
        every = load_passages("pydocs", words, packages)
    else:
        every = load_passages(f"beir/{base}")
    unseen = base == "pydocs" and not set(packages) & set(HELD_OUT)
    seen = frozenset() if unseen else _looked_at(base)  # only packages held out were looked at
    left = [query for query in every.collection.query_ids if query not in seen]
    left_out = {**every.left_out, "looked at before": len(every.spans) - len(left)}
    passages = replace(every.asking(left), left_out=left_out)
    fits = partial(fewer_tokens, tokenizer=_tokenizer(), most=_LONGEST)
    if joined:
        article = source_of(base) if base != "pydocs" else lambda name: name.rpartition(".")[0]
        return join_paragraphs(passages, article, fits)
    return passages.within(fits, f"more than {_LONGEST} tokens", corpus=False)


@lru_cache(maxsize=4)
def _looked_at(base: str) -> frozenset[str]:
    """The queries that the chapter's first record has probed, at `laptop`."""
    first = dwell_recipe("laptop")
    if base == "pydocs":
        return frozenset(first.passages.spans)
    short = load_passages(f"beir/{base}").within(first.fits, "longer", corpus=False)
    return frozenset(short.sample(first.queries, 0).spans)


@dataclass(frozen=True)
class Probed:
    """Fresh queries of a collection, and their documents in eleven versions."""

    passages: Passages

    @cached_property
    def versions(self) -> Mapping[str, Sequence[str]]:
        """Query → its document as it is, and with the passage at each of ten places."""
        return moved_versions(self.passages, _tokenizer())

    @property
    def queries(self) -> list[str]:
        """The queries whose tokens stay the same when the passage is moved."""
        return [query for query in self.passages.collection.query_ids if query in self.versions]

    @property
    def owners(self) -> list[str]:
        return [self.passages.document_of(query) for query in self.queries]

    @cached_property
    def lengths(self) -> list[str]:
        counts = [
            len(token_spans(self.versions[query][0], _tokenizer())[0]) for query in self.queries
        ]
        # the last group that begins at so many tokens, or before
        return [[name for name, least in LENGTHS.items() if least <= one][-1] for one in counts]

    def scores(self, encoder: Encoder | Ranker, most: int | None = None) -> dict[str, pd.DataFrame]:
        """MRR@100 and NDCG@10 of each query: as it is (`default`), and at each place."""
        some = {query: self.versions[query] for query in self.queries[:most]}
        return scores_by_place(encoder, self.passages, some, ["mrr@100", "ndcg@10"])


def unmoved(
    passages: Passages, encoder: Encoder | Ranker, queries: Sequence[str] | None = None
) -> pd.DataFrame:
    """MRR@100 and NDCG@10 of each query, in its document as it is: a row a query, a column each."""
    names = list(passages.collection.query_ids if queries is None else queries)
    asked, metrics = passages.collection.asking(names), ("mrr@100", "ndcg@10")
    if isinstance(encoder, Encoder):
        texts = texts_of(asked)
        own = {query: [texts[passages.document_of(query)]] for query in names}
        tables = scores_by_place(encoder, passages, own, metrics)
        by_metric = {metric: table["default"].loc[names] for metric, table in tables.items()}
        return pd.DataFrame(by_metric)
    rankings = {query: dict(one) for query, one in encoder.rank(asked, 100).items()}
    scored = score_queries(rankings, asked, metrics, False)
    return pd.DataFrame({metric: scored[metric].loc[names] for metric in metrics})


def encoder_of(model: str) -> Encoder | Ranker:
    """ "BM25", or "MiniLM" with up to 512 tokens, whose vectors are kept."""
    if model == "BM25":
        return BM25()
    if model == "MiniLM":
        return Kept(BiEncoder.from_backbone("minilm", max_tokens=_LONGEST + 2))
    raise ValueError(f"model must be 'BM25' or 'MiniLM'; it is {model!r}")


def rows_with_clusters(
    scores: Mapping[str, pd.DataFrame], documents: Sequence[Hashable], **head: Any
) -> list[dict[str, Any]]:
    """A row for each place of the passage, and one, place 0, for documents as they are.

    place; mrr and ndcg, the means; change, low, high: of MRR@100 against place 0; and in each row
    the same: ends, the first place minus the last; tail, the last minus the mean of places 4 to 7;
    later, the change at the best of places 2 to 10 as the other half of the documents names it;
    each with its `_low` and `_high`, by a bootstrap of documents; queries and documents.
    """
    reciprocal, gain = scores["mrr@100"], scores["ndcg@10"]
    moved = changes(reciprocal)
    of_all = {
        "ends": moved[1] - moved[10],
        "tail": moved[10] - moved[[4, 5, 6, 7]].mean(axis=1),
        "later": _best_later(moved, documents),
    }
    shared: dict[str, Any] = {}
    for name, values in of_all.items():
        shared |= numbers_of(clustered_interval(values, documents), name, f"{name}_")
    shared |= {"queries": len(reciprocal), "documents": len(set(documents))}
    rows = []
    for place, column in enumerate(reciprocal.columns):
        change = clustered_interval(reciprocal[column] - reciprocal["default"], documents)
        means = {"mrr": float(reciprocal[column].mean()), "ndcg": float(gain[column].mean())}
        rows.append({**head, "place": place, **means, **numbers_of(change, "change"), **shared})
    return rows


def _best_later(moved: pd.DataFrame, documents: Sequence[Hashable]) -> pd.Series[float]:
    """The change of each query at the later place that is best for the other half of documents."""
    owners, names = pd.factorize(np.array(documents, dtype=object))
    half = np.random.default_rng(0).permutation(len(names))[: len(names) // 2]
    first = np.isin(owners, half)
    later = moved.drop(columns=1)
    best = np.zeros(len(moved))
    for side in (first, ~first):
        chosen = int(later[~side].mean().to_numpy().argmax())
        best[side] = later.to_numpy()[side, chosen]
    return pd.Series(best, index=moved.index)


def probe_at_full_power(
    queries: Mapping[str, int], sample: int, words: Sequence[int], packages: Sequence[str]
) -> pd.DataFrame:
    """BM25 and MiniLM on fresh queries of several collections, by place and length.

    Rows of `rows_with_clusters` with `collection`, `model`, `group` (of `LENGTHS`, or "all");
    `bm25`, MRR@100 of BM25 on the same queries; `moved`, the greatest change of any query at any
    place; `asked` and `distinct`, texts that vectors of MiniLM were asked for, and the different
    ones among them.
    """
    rows: list[dict[str, Any]] = []
    for name, most in progress(queries.items(), "probing at full power", unit="collections"):
        probed = Probed(fresh_passages(name, most, words, packages))
        owners, lengths = probed.owners, np.array(probed.lengths)
        reference = unmoved(probed.passages, BM25(), probed.queries)["mrr@100"].to_numpy()
        kept = encoder_of("MiniLM")
        assert isinstance(kept, Kept)
        for model, encoder, some in (("MiniLM", kept, None), ("BM25", BM25(), sample)):
            scores = {
                metric: table.loc[probed.queries[:some]]
                for metric, table in probed.scores(encoder, some).items()
            }
            table = scores["mrr@100"]
            for group in ("all", *LENGTHS):
                here = np.array([group in ("all", one) for one in lengths[: len(table)]])
                of = [owner for owner, inside in zip(owners, here, strict=False) if inside]
                if len(set(of)) < 2:
                    continue
                head = {"collection": name, "model": model, "group": group}
                apart = table[here].sub(table["default"][here], axis=0).abs().to_numpy()
                mean = float(reference[: len(table)][here].mean())
                also = {"bm25": mean, "moved": float(apart.max())}
                parts = {metric: one[here] for metric, one in scores.items()}
                rows += [row | also for row in rows_with_clusters(parts, of, **head)]
        for row in rows:
            if row["collection"] == name:
                row |= {"asked": kept.asked, "distinct": len(kept.distinct)}
    return pd.DataFrame(rows)

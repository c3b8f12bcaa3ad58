"""What a reader that is trained once gains and loses on collections."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

import pandas as pd

import cde
from cde.data import Pairs, RetrievalSet
from cde.intervals import Interval, mean_interval
from cde.progress import progress
from cde.training import TrainConfig
from cde_studies.intervals import interval_of, numbers_of
from cde_studies.results import pretrained_reader
from cde_studies.results.context_sources import of_pairs
from cde_studies.sweeps import ndcg_by_query

#: collections of $CDE_DATA/beir that the card is tested on
JUDGED = ["cacm", "cisi", "climate-fever-evidence", "cosqa", "covidqa-docs", "covidqa-passages"]
JUDGED += ["cranfield", "csfcube", "dbpedia-entity-sub", "med", "msmarco-dl19-sub", "quora-sub"]
JUDGED += ["scifact", "squad-dev"]


@dataclass(frozen=True)
class ReadyReader:
    """The reader of a profile, and the sizes of what it searches."""

    profile: str
    documents: int
    queries: int
    max_tokens: int
    draw: int

    @cached_property
    def config(self) -> TrainConfig:
        """How the reader is trained."""
        return pretrained_reader.reader_config(self.profile)

    @cached_property
    def pairs(self) -> Pairs:
        """What it is trained on; at `smoke` a few of them."""
        pairs = pretrained_reader.reading_pairs()
        return pairs.sample(400, 0) if self.profile == "smoke" else pairs

    def score(
        self, gates: Mapping[str, float], names: Sequence[str], contexts: Sequence[str]
    ) -> pd.DataFrame:
        """The reader at every gate on some sets: what it gains over itself without context.

        A row for each set, model and context: `set`, `where`, `documents`, `queries`, `model`,
        `context`; `without`, NDCG@10 in points without context; `gain`, points more with it, and
        `low` and `high`, the ends of its bootstrap interval over queries.
        """
        models = {
            name: pretrained_reader.with_trained_reader(
                self.config, self.pairs, gate, self.max_tokens
            )
            for name, gate in gates.items()
        }
        sets = {name.split("/")[1]: self._cut(name) for name in names}
        following = dict(zip(sets, [*list(sets)[1:], *list(sets)[:1]], strict=True))
        rows, first = [], next(iter(models.values()))
        for name, one in progress(sets.items(), "searching", total=len(sets), unit="collections"):
            plain = ndcg_by_query(first.with_context(None), one, depth=100)
            about = {"set": name, "where": "out", "documents": len(one.documents)}
            about |= {"queries": len(one.queries), "without": 100 * float(plain.mean())}
            for model, context in product(models, contexts):
                texts = one if context == "own" else sets[following[name]]
                encoder = models[model].with_context(texts.documents, seed=self.draw)
                found = ndcg_by_query(encoder, one, depth=100)
                gain = numbers_of(mean_interval(100 * (found - plain)), "gain")
                rows.append({**about, "model": model, "context": context, **gain})
        return pd.DataFrame(rows)

    def record_key(self, **chapter: Any) -> dict[str, Any]:
        """What its scores depend on, beside the chapter's own settings."""
        sizes = {name: getattr(self, name) for name in ("documents", "queries", "max_tokens")}
        own = {**sizes, "gate": pretrained_reader.GATE, **self.config.to_dict()}
        return {"seed": self.draw, **chapter, **own}

    def _cut(self, name: str) -> RetrievalSet:
        """A collection, or a source of pairs, at these sizes."""
        if name.startswith("pairs/"):
            return of_pairs(name, self.documents, self.queries)
        return cde.load_retrieval(name).shrink(self.documents, self.queries, 0)


def gains_by_set(rows: pd.DataFrame, model: str, context: str = "own") -> dict[str, Interval]:
    """What a model gains on each collection, with an interval over queries, largest first."""
    of = rows[(rows["model"] == model) & (rows["context"] == context)]
    over = {"n": "queries", "method": "percentile bootstrap"}
    order = of.sort_values("gain", ascending=False).to_dict("records")
    return {one["set"]: interval_of(one, "gain", **over) for one in order}

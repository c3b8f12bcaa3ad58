"""MiniLM with a reader of the corpus, trained once on docstrings and kept; and what it gains and
loses on collections.

MiniLM is frozen, and a gated reader (`cde.models.stages`) is trained, some minutes on two cores:
batches of one package, context drawn from the batch. Without context the encoder is MiniLM, to the
bit.

Against harm on text unlike docstrings, training is short, and what the reader adds is multiplied by
`GATE` afterwards, which was chosen on validation text before any test collection was searched. That
does not rule out a harm of 0.3 points on every collection (the chapter `taught_to_read`), so the
library does not offer it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any

import pandas as pd
import torch

import cde
from cde.data import Pairs, RetrievalSet
from cde.intervals import Interval, mean_interval
from cde.models import ContextualEncoder
from cde.progress import progress
from cde.training import TrainConfig, build_model
from cde.training.runs import train
from cde_studies.collections.pydocs import TRAINING
from cde_studies.collections.pydocs import load_pairs as load_docstrings
from cde_studies.encoder.boilerplate import GATED
from cde_studies.intervals import interval_of, numbers_of
from cde_studies.results.context_sources import of_pairs
from cde_studies.sweeps import ndcg_by_query

#: what the reader adds is multiplied by this after training
GATE = 0.25
#: packages on which `GATE` was chosen; the reader has not seen them
VALIDATION = ("matplotlib", "tornado")
#: sources of pairs of `$CDE_DATA` on which it was chosen, too
VALIDATION_SOURCES = ("stackexchange-beer", "wordnet-definitions", "scitldr", "medquad-medical")
#: gates that there were to choose from
GATES = (0.5, 0.25)

_CONFIG = TrainConfig(
    **GATED,
    trains="reader",
    cluster_size=128,
    surrogate_tokens=48,
    batch_size=64,
    uncached_tokens=65536,
    learning_rate=1e-3,
    steps=100,
    query_tokens=20,
    document_tokens=48,
    context_tokens=48,
)
_MINIATURE: dict[str, Any] = {
    "layers": 1,
    "context_size": 8,
    "cluster_size": 16,
    "surrogate_tokens": 12,
    "batch_size": 8,
    "uncached_tokens": TrainConfig().uncached_tokens,
    "steps": 3,
    "query_tokens": 8,
    "document_tokens": 12,
    "context_tokens": 12,
}
#: collections of $CDE_DATA/beir that the card is tested on
JUDGED = ["cacm", "cisi", "climate-fever-evidence", "cosqa", "covidqa-docs", "covidqa-passages"]
JUDGED += ["cranfield", "csfcube", "dbpedia-entity-sub", "med", "msmarco-dl19-sub", "quora-sub"]
JUDGED += ["scifact", "squad-dev"]


def reader_config(profile: str) -> TrainConfig:
    """How the reader is trained: the same at every profile, but for `smoke`, in miniature."""
    return replace(_CONFIG, **_MINIATURE) if profile == "smoke" else _CONFIG


def reading_pairs() -> Pairs:
    """The docstrings that the reader is trained on: no package that it is tested or tuned on."""
    return load_docstrings([name for name in TRAINING if name not in VALIDATION], "train")


def with_trained_reader(
    config: TrainConfig, pairs: Pairs, gate: float, max_tokens: int
) -> ContextualEncoder:
    """The encoder of a config with its reader, trained or read from the store."""
    trained = train(config, pairs).model().get_submodule("second_stage.reader")
    model = build_model(replace(config, model={**config.model, "max_tokens": max_tokens}))
    reader = model.get_submodule("second_stage.reader")
    reader.load_state_dict(trained.state_dict())
    with torch.no_grad():
        reader.get_parameter("gate").mul_(gate)
    return model


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
        return reader_config(self.profile)

    @cached_property
    def pairs(self) -> Pairs:
        """What it is trained on; at `smoke` a few of them."""
        pairs = reading_pairs()
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
            name: with_trained_reader(self.config, self.pairs, gate, self.max_tokens)
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
        sizes = {name: getattr(self, name) for name in ("documents", "queries", "max_tokens")}
        own = {**sizes, "gate": GATE, **self.config.to_dict()}
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

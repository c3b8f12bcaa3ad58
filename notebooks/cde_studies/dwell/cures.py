"""Where training's passages stand, and what cures an encoder of dwelling: arms, and their probe.

Every arm trains the same layers of MiniLM, with as many steps, on the same queries and documents;
those with [CLS] pooling have layers of their own number (`CureRecipe.cls_layers`), since MiniLM's
[CLS] stands for a text in the last layer alone.
In some arms the passage that answers stands at the beginning of each document, in others at the
end, at both in some share (a dose), anywhere, or where it was written. The cures are tried on the
worst case, an encoder whose training had every passage at the beginning:

===========================  ==============================================================
another pooling              [CLS], or chunks of equal weight; trained with it
other batches                of neighbours (clusters)
the corpus                   a contextual encoder, in the context of the batch and the corpus
when texts are embedded      chunks of equal weight, attention evened out, both orders
===========================  ==============================================================

Trained on and tested are different sources: articles of SQuAD (`$CDE_DATA`), packages of pydocs.

Cost: at `laptop` a minute a training and a quarter of one a probe; for [CLS] three times as long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import pandas as pd

from cde.data import Pairs
from cde.lexical import BM25
from cde.models import BiEncoder
from cde.models.encoder import load_tokenizer
from cde.progress import progress
from cde.retrieval import Encoder, Ranker
from cde.training import TrainConfig
from cde.training.runs import train
from cde.validation import unknown
from cde_studies.collections.pydocs import HELD_OUT, TRAINING
from cde_studies.dwell.calibration import BothOrders, calibrated
from cde_studies.dwell.passages import Passages, load_passages
from cde_studies.dwell.placement import (
    Placed,
    Placement,
    at_the_beginning,
    halves,
    means_by_place,
    placed_pairs,
)
from cde_studies.dwell.probes import PLACES
from cde_studies.dwell.sensitivity import index_of_means
from cde_studies.dwell.substrings import fewer_tokens
from cde_studies.recipes import changed, profile_values

#: settings of the recipe that a chapter's parameters of the same name replace
PARAMETERS = ("layers", "steps", "batch_size", "learning_rate", "pairs", "queries")


@dataclass(frozen=True)
class Arm:
    """An encoder of the chapter."""

    placement: Placement
    settings: Mapping[str, Any] = field(default_factory=dict)
    embedding: str = ""


_FIRST, _LAST = at_the_beginning(1), at_the_beginning(0)
_CLS = {"model": {"pooling": "cls"}}
#: by name; the first five differ in nothing but where the passages of training stand
ARMS: dict[str, Arm] = {
    "all first": Arm(_FIRST),
    "half first": Arm(at_the_beginning(0.5)),
    "all last": Arm(_LAST),
    "anywhere": Arm([1 / PLACES] * PLACES),
    "as written": Arm(None),
    "[CLS], all first": Arm(_FIRST, _CLS),
    "[CLS], all last": Arm(_LAST, _CLS),
    "trained in chunks": Arm(_FIRST, {"model": {"pooling": "chunks"}}),
    "clusters": Arm(_FIRST, {"batches": "cluster"}),
    "context": Arm(_FIRST, {"architecture": "contextual", "attention": "cached"}),
    "chunks": Arm(_FIRST, embedding="chunks"),
    "half evened": Arm(_FIRST, embedding="half evened"),
    "evened": Arm(_FIRST, embedding="evened"),
    "both orders": Arm(_FIRST, embedding="both orders"),
    "[CLS], half evened": Arm(_FIRST, _CLS, "half evened"),
    "[CLS], evened": Arm(_FIRST, _CLS, "evened"),
}
#: what is probed without training
REFERENCES = ("before training", "MiniLM", "BM25")


@dataclass(frozen=True)
class CureRecipe:
    """What the arms train with and are probed on."""

    layers: int | None
    steps: int
    batch_size: int
    learning_rate: float
    query_tokens: int
    longest: int
    words: list[int]
    pairs: int
    queries: int
    context_size: int
    context_tokens: int
    cls_layers: int | None

    def record_key(self, **chapter: Any) -> dict[str, Any]:
        return asdict(self) | chapter

    def config(self, arm: str, seed: int) -> TrainConfig:
        settings = dict(_arm(arm).settings)
        with_cls = settings.get("model") == {"pooling": "cls"}
        base = TrainConfig(
            data="placed passages",
            architecture="bi-encoder",
            layers=self.cls_layers if with_cls else self.layers,
            batches="random",
            order="random",
            cluster_size=self.batch_size,
            filter_epsilon=None,
            batch_size=self.batch_size,
            steps=self.steps,
            learning_rate=self.learning_rate,
            query_tokens=self.query_tokens,
            document_tokens=self.longest + 2,
            checkpoint_every=0,
            uncached_tokens=65_536,
            seed=seed,
        )
        if settings.get("architecture") == "contextual":
            sizes = {"context_size": self.context_size, "context_tokens": self.context_tokens}
            settings |= {"first_stage_layers": self.layers, **sizes}
        return replace(base, **settings)

    def placed(self, collection: str) -> tuple[Placed, Placed]:
        """What is trained on and what is probed on: of "pydocs" or of a set of `$CDE_DATA`."""
        return _placed(collection, tuple(self.words), self.longest, self.pairs, self.queries)

    def training_pairs(self, collection: str, arm: str, seed: int) -> Pairs:
        """The pairs that an arm trains on; another seed draws other places."""
        placed, _ = self.placed(collection)
        return placed_pairs(placed, _arm(arm).placement, source_of(collection), seed)

    @contextmanager
    def encoder(self, collection: str, arm: str, seed: int) -> Iterator[Encoder | Ranker]:
        """An arm's encoder, trained or read from the store, or a reference (`REFERENCES`)."""
        longest = self.longest + 2
        if arm == "BM25":
            yield BM25()
            return
        if arm in REFERENCES:
            layers = self.layers if arm == "before training" else None
            yield BiEncoder.from_backbone("minilm", layers, max_tokens=longest)
            return
        model = train(self.config(arm, seed), self.training_pairs(collection, arm, seed)).model()
        if getattr(model, "reads_context", False):
            _, tested = self.placed(collection)
            yield model.with_context(tested.passages.collection.documents, seed=seed)
            return
        embedding = _arm(arm).embedding
        if embedding == "chunks":
            model.config.pooling = "chunks"
        if embedding == "both orders":
            yield BothOrders(model, model.tokenizer)
        elif embedding in ("half evened", "evened"):
            # a basket of the authors' length would hold most of a document of ours
            strength = 0.5 if embedding == "half evened" else 1.0
            with calibrated(model, basket=32, strength=strength) as evened:
                yield evened
        else:
            yield model

    def probe(self, collection: str, arm: str, seed: int) -> dict[str, Any]:
        """Train an arm, move the passages of the test, and score: a row of collection, arm, seed,
        `means_by_place`, and the queries and documents that were searched.
        """
        _, tested = self.placed(collection)
        with self.encoder(collection, arm, seed) as encoder:
            means = means_by_place(encoder, tested)
        row = {"collection": collection, "arm": arm, "seed": seed, **means}
        documents = len(tested.passages.collection.document_ids)
        return {**row, "queries": len(tested.versions), "documents": documents}

    def rows(self, collection: str, arms: list[str], seeds: list[int]) -> pd.DataFrame:
        jobs = [(arm, seeds[0]) for arm in REFERENCES]
        jobs += [(arm, seed) for seed in seeds for arm in arms]
        shown = progress(jobs, f"training and probing on {collection}", unit="encoders")
        return pd.DataFrame([self.probe(collection, *job) for job in shown])


def _arm(name: str) -> Arm:
    if name not in ARMS:
        raise ValueError(unknown([name], ARMS))
    return ARMS[name]


def source_of(collection: str) -> Callable[[str], str]:
    """A document's id → its source: the package of a docstring, the article of a paragraph."""
    if collection == "pydocs":
        return lambda name: name.partition(".")[0]
    return lambda name: name.rpartition("_")[0]


@lru_cache(maxsize=2)
def _placed(
    collection: str, words: tuple[int, ...], longest: int, pairs: int, queries: int
) -> tuple[Placed, Placed]:
    tokenizer = load_tokenizer("minilm")
    if collection == "pydocs":
        learned, tested = (load_passages("pydocs", words, some) for some in (TRAINING, HELD_OUT))
    else:
        learned, tested = halves(load_passages(f"beir/{collection}"), source_of(collection))

    def placed(part: Passages, count: int) -> Placed:
        fits = partial(fewer_tokens, tokenizer=tokenizer, most=longest)
        part = part.within(fits, f"document of more than {longest} tokens")
        return Placed.of(part.sample(count, 0), tokenizer)

    return placed(learned, pairs), placed(tested, queries)


def thirds(rows: pd.DataFrame, name: str = "ndcg") -> pd.DataFrame:
    """Means over the first three places (`beginning`), the middle four (`middle`), the last three
    (`end`) and all (`mean`), a row each; and `index`, the position sensitivity index: 1 less the
    least over the greatest of the three (arXiv 2505.13950).
    """
    parts = {"beginning": range(1, 4), "middle": range(4, 8), "end": range(8, PLACES + 1)}
    parts["mean"] = range(1, PLACES + 1)
    means = pd.DataFrame(
        {
            part: rows[[f"{name} {place}" for place in places]].mean(axis=1)
            for part, places in parts.items()
        }
    )
    return means.assign(index=index_of_means(means.drop(columns="mean").to_numpy()))


def cure_recipe(profile: str, **changes: Any) -> CureRecipe:
    values = profile_values(Path(__file__).with_suffix(".yml"), profile)
    return changed(CureRecipe(**values), changes)

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

Cost: at `laptop` a minute a training and a quarter of one a probe, on one core; with all layers,
for [CLS], three times as long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import pandas as pd

from cde.data import Pairs
from cde.data.pydocs import HELD_OUT, PACKAGES
from cde.lexical import BM25
from cde.models import BiEncoder
from cde.models.encoder import load_tokenizer
from cde.progress import progress
from cde.retrieval import Encoder, Ranker
from cde.training import TrainConfig
from cde.training.runs import train
from cde.validation import unknown
from cde_studies.dwell.calibration import BothOrders, calibrated
from cde_studies.dwell.passages import Passages, load_passages
from cde_studies.dwell.placement import (
    PLACES,
    Placed,
    Placement,
    at_the_beginning,
    halves,
    placed_pairs,
)
from cde_studies.dwell.probes import scores_by_place
from cde_studies.dwell.sensitivity import index_of_means
from cde_studies.dwell.substrings import token_spans
from cde_studies.recipes import profile_values

__all__ = [
    "ARMS",
    "PARAMETERS",
    "REFERENCES",
    "Arm",
    "CureRecipe",
    "cure_recipe",
    "source_of",
    "thirds",
]

#: settings of the recipe that a chapter's parameters of the same name replace
PARAMETERS = ("layers", "steps", "batch_size", "learning_rate", "pairs", "queries")
_METRICS = {"ndcg": "ndcg@10", "mrr": "mrr@100"}


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
    words: tuple[int, int]
    pairs: int
    queries: int
    context_size: int
    context_tokens: int
    cls_layers: int | None

    def record_key(self, **chapter: Any) -> dict[str, Any]:
        """What a record depends on: the recipe and the chapter's own settings."""
        return {**asdict(self), "words": list(self.words), **chapter}

    def config(self, arm: str, seed: int) -> TrainConfig:
        """The training run of an arm."""
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
        of_context = {
            "first_stage_layers": self.layers,
            "context_size": self.context_size,
            "context_tokens": self.context_tokens,
        }
        if settings.get("architecture") == "contextual":
            settings |= of_context
        return replace(base, **settings)

    def placed(self, collection: str) -> tuple[Placed, Placed]:
        """What is trained on and what is probed on: of "pydocs" or of a set of `$CDE_DATA`."""
        return _placed(collection, self.words, self.longest, self.pairs, self.queries)

    def training_pairs(self, collection: str, arm: str, seed: int) -> Pairs:
        """The pairs that an arm trains on; another seed draws other places."""
        placed, _ = self.placed(collection)
        return placed_pairs(placed, _arm(arm).placement, source_of(collection), seed)

    @contextmanager
    def encoder(self, collection: str, arm: str, seed: int) -> Iterator[Encoder | Ranker]:
        """An arm's encoder, trained or read from the store, or a reference (`REFERENCES`)."""
        longest = self.longest + 2
        if arm in REFERENCES:
            layers = self.layers if arm == "before training" else None
            yield (
                BM25()
                if arm == "BM25"
                else BiEncoder.from_backbone("minilm", layers, max_tokens=longest)
            )
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
        """Train an arm, move the passages of the test, and score: a row.

        Returns:
            collection, arm, seed; `ndcg 0` and `mrr 0`, the mean NDCG@10 and MRR@100 of documents
            as written, in points and from 0 to 1; `ndcg 1` … `ndcg 10`, `mrr 1` … with the passage
            at each place; queries and documents that were searched.
        """
        _, tested = self.placed(collection)
        with self.encoder(collection, arm, seed) as encoder:
            scores = scores_by_place(
                encoder, tested.passages, tested.versions, list(_METRICS.values())
            )
        row: dict[str, Any] = {"collection": collection, "arm": arm, "seed": seed}
        for name, metric in _METRICS.items():
            for place, mean in enumerate(scores[metric].mean()):
                row[f"{name} {place}"] = float(mean) * (100 if name == "ndcg" else 1)
        row["queries"] = len(tested.versions)
        row["documents"] = len(tested.passages.collection.document_ids)
        return row

    def rows(self, collection: str, arms: list[str], seeds: list[int]) -> pd.DataFrame:
        """A row for each arm and seed, and one for each reference."""
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
    collection: str, words: tuple[int, int], longest: int, pairs: int, queries: int
) -> tuple[Placed, Placed]:
    tokenizer = load_tokenizer("minilm")
    parts: tuple[Passages, Passages]
    if collection == "pydocs":
        learned = [name for name in PACKAGES if name not in HELD_OUT]
        parts = (
            load_passages("pydocs", words, packages=learned),
            load_passages("pydocs", words, packages=HELD_OUT),
        )
    else:
        parts = halves(load_passages(f"beir/{collection}"), source_of(collection))
    fitting = [
        part.within(
            lambda text: len(token_spans(text, tokenizer)[0]) <= longest,
            f"document of more than {longest} tokens",
        )
        for part in parts
    ]
    learned_from, tested = fitting[0].sample(pairs, 0), fitting[1].sample(queries, 0)
    return Placed.of(learned_from, tokenizer), Placed.of(tested, tokenizer)


def thirds(rows: pd.DataFrame, name: str = "ndcg") -> pd.DataFrame:
    """Means over the first three places, the middle four and the last three.

    Returns:
        A row for each of the rows, with the columns `beginning`, `middle`, `end`, `mean` (over all
        places), and `index`, the position sensitivity index: 1 less the least over the greatest of
        the three (arXiv 2505.13950).
    """
    parts = {"beginning": range(1, 4), "middle": range(4, 8), "end": range(8, PLACES + 1)}
    means = pd.DataFrame(
        {
            part: rows[[f"{name} {place}" for place in places]].mean(axis=1)
            for part, places in parts.items()
        }
    )
    index = index_of_means(means.to_numpy())
    means["mean"] = rows[[f"{name} {place}" for place in range(1, PLACES + 1)]].mean(axis=1)
    return means.assign(index=index)


def cure_recipe(profile: str, **changes: Any) -> CureRecipe:
    """The recipe of a profile."""
    values = profile_values(Path(__file__).with_suffix(".yml"), profile)
    recipe = CureRecipe(**{**values, "words": tuple(values["words"])})
    given = {name: value for name, value in changes.items() if value is not None}
    if strange := set(given) - set(CureRecipe.__dataclass_fields__):
        raise ValueError(unknown(strange, CureRecipe.__dataclass_fields__))
    return replace(recipe, **given)

"""The stages of *Dwell in the Beginning* for an encoder that begins with pretrained layers.

The paper gives a pretrained T5 new rotary positions, and finds that fine-tuning alone then works
badly (Table 5). Here the first layers of MiniLM get new learned positions, drawn at random, and
then go through such stages:

====================  ====================================================================
stage                 what it trains on
====================  ====================================================================
`masked`              masked modelling of documents (`cde_studies.dwell.masked_modelling`)
`crops`               pairs of two random crops of a document
`first-half crops`    pairs of two crops, of the same lengths, of a document's first half
`shuffled crops`      pairs of two crops of a document whose segments were shuffled
`tuned`               queries and their documents, one episode; hard negatives are mined anew
                      before each, for the first with the surrogate, then with the encoder itself
====================  ====================================================================

A chain is a row of stages. What two chains have in common is trained once: each stage lies in the
store of runs, and the next one goes on from its folder.

Cost: at `laptop` ten minutes a seed and a quarter of one a probe, on one core.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from cde.batching.negatives import mine_hard_negatives
from cde.data import Pairs
from cde.hardware import chosen_precision
from cde.lexical import BM25
from cde.models import BiEncoder
from cde.models.encoder import load_tokenizer
from cde.models.weights import without_minilm_rows
from cde.progress import progress
from cde.retrieval import Encoder, Ranker, evaluate
from cde.storage import content_hash
from cde.training import TrainConfig
from cde.training.runs import PROCEDURE as TRAINING
from cde.training.runs import stored, train
from cde.validation import unknown
from cde_studies.dwell.chain import crop_pairs, shuffle_segments
from cde_studies.dwell.masked_modelling import pretrain_masked
from cde_studies.dwell.placement import Placed, means_by_place
from cde_studies.dwell.probes import PLACES
from cde_studies.dwell.recipe import DwellRecipe, shorter
from cde_studies.dwell.substrings import segments, substring_similarity
from cde_studies.dwell.tables import declines, room
from cde_studies.recipes import profile_values
from cde_studies.workers import in_workers

#: the version of `start` and `masked`; the other stages are runs of `cde.train`
PROCEDURE = 1
MASKED, CROPS, TUNED = "masked", "crops", "tuned"
HALVES, SHUFFLED = "first-half crops", "shuffled crops"
#: chains by name; the last one is tuned again in all further episodes of the recipe
CHAINS: dict[str, tuple[str, ...]] = {
    "start": (),
    "masked": (MASKED,),
    "crops": (CROPS,),
    "masked, crops": (MASKED, CROPS),
    "masked, first-half crops": (MASKED, HALVES),
    "masked, shuffled crops": (MASKED, SHUFFLED),
    "tuned": (TUNED,),
    "masked, tuned": (MASKED, TUNED),
    "masked, crops, tuned": (MASKED, CROPS, TUNED),
    "masked, crops, tuned again": (MASKED, CROPS, TUNED),
}
_AGAIN = "masked, crops, tuned again"
#: settings of the stages; the others of a profile are those of the texts
_OWN = ("passages", "layers", "masked", "crops", "tune", "episodes")
#: what is probed without training; the first has the layers of `start` with MiniLM's own positions
REFERENCES = ("own positions", "BM25")


def with_new_positions(encoder: BiEncoder, seed: int = 0) -> BiEncoder:
    """The encoder with new position embeddings, drawn as before any training; in place."""
    table: Any = encoder.backbone.get_submodule("embeddings.position_embeddings")
    drawn, generator = torch.empty(table.weight.shape), torch.Generator().manual_seed(seed)
    drawn.normal_(0.0, encoder.backbone.config.initializer_range, generator=generator)
    with torch.no_grad():
        table.weight.copy_(drawn)
    return encoder


def first_halves(texts: Sequence[str], tokenizer: Any) -> list[str]:
    """The first half of each document's tokens, to the nearest whole word; of a single word all."""
    halves = []
    for text in progress(texts, "halving documents", unit="documents"):
        parts = segments(text, tokenizer, 2)
        halves.append(text if isinstance(parts, str) else parts[0])
    return halves


@dataclass(frozen=True)
class PretrainedStages:
    """What the stages train on, and how long."""

    texts: DwellRecipe
    passages: int
    layers: int | None
    masked: dict[str, Any]
    crops: dict[str, Any]
    tune: dict[str, Any]
    episodes: int

    def record_key(self, **chapter: Any) -> dict[str, Any]:
        texts = ("data", "documents", "words", "longest", "queries")
        return {
            **{name: getattr(self, name) for name in _OWN},
            **{name: getattr(self.texts, name) for name in texts},
            **chapter,
        }

    def shared(self) -> pd.DataFrame:
        """What training and tests share; see `DwellRecipe.shared`."""
        return self.texts.shared()

    def stages(self, chain: str) -> tuple[str, ...]:
        if chain not in CHAINS:
            raise ValueError(unknown([chain], CHAINS))
        more = self.episodes - 1 if chain == _AGAIN else 0
        return CHAINS[chain] + (TUNED,) * more

    def config(self, stage: str, before: Path, seed: int) -> TrainConfig:
        """The training run of a contrastive stage, which goes on from a folder."""
        base = TrainConfig(
            data=stage,
            architecture="bi-encoder",
            start=str(before / "model"),
            batches="random",
            order="random",
            filter_epsilon=None,
            checkpoint_every=0,
            uncached_tokens=65_536,
            seed=seed,
        )
        return replace(base, **(self.tune if stage == TUNED else self.crops))

    def folder(self, stages: Sequence[str], seed: int) -> Path:
        """Where the last of these stages lies, trained or read from the store, with `model/`."""
        if not stages:
            return self._start(seed)
        *earlier, stage = stages
        before = self.folder(earlier, seed)
        if stage == MASKED:
            return self._masked(before, seed)
        if stage == TUNED:
            return self._tuned(before, earlier.count(TUNED), seed)
        config = self.config(stage, before, seed)
        return train(config, self.crop_pairs(stage, seed)).folder

    def crop_pairs(self, stage: str, seed: int) -> Pairs:
        """The pairs of a stage of crops, as many as it sees.

        Crops of first halves take twice the share, and so have the lengths of the others.
        """
        texts: Sequence[str] = self.texts.pairs.documents
        shares = (0.1, 0.5)
        if stage == HALVES:
            texts, shares = first_halves(texts, self.tokenizer), (0.2, 1.0)
        if stage == SHUFFLED:
            texts = shuffle_segments(texts, self.tokenizer, seed=seed)
        count = self.crops["steps"] * self.crops["batch_size"]
        return crop_pairs(texts, self.tokenizer, count, seed, shares)

    def _start(self, seed: int) -> Path:
        longest = self.texts.longest + 2
        key = content_hash(["new positions", str(self.layers), str(longest), *_version(seed)])

        def make(folder: Path) -> dict[str, Any]:
            layers = BiEncoder.from_backbone("minilm", self.layers, max_tokens=longest)
            _save(with_new_positions(layers, seed), folder)
            return {"metrics": []}

        return stored(key, make, seed)

    def _masked(self, before: Path, seed: int) -> Path:
        texts = self.texts.pairs.documents
        settings = json.dumps(self.masked, sort_keys=True)
        parts = ["masked modelling", settings, before.name, content_hash(texts)]
        key = content_hash([*parts, *_version(seed)])

        def make(folder: Path) -> dict[str, Any]:
            model = BiEncoder.from_pretrained(before / "model")
            metrics = pretrain_masked(model, texts, folder, seed=seed, **self.masked)
            _save(model, folder)
            return {"masked": self.masked, "metrics": metrics}

        return stored(key, make, seed)

    def _tuned(self, before: Path, episode: int, seed: int) -> Path:
        # negatives of the whole collection; another episode sees other batches
        pairs = self.texts.pairs
        pairs = replace(pairs, domains=["all"] * len(pairs))
        config, hard = self.config(TUNED, before, seed + 1000 * episode), None
        if episode and config.hard_negatives:
            model = BiEncoder.from_pretrained(before / "model")
            vectors = model.encode_queries(pairs.queries), model.encode_documents(pairs.documents)
            hard = mine_hard_negatives(*vectors, config.hard_negatives)
        return train(config, pairs, hard_negatives=hard).folder

    @cached_property
    def tokenizer(self) -> Any:
        return load_tokenizer("minilm")

    @cached_property
    def probed(self) -> DwellRecipe:
        return replace(self.texts, queries=min(self.passages, self.texts.queries))

    @cached_property
    def tested(self) -> Placed:
        return Placed.of(self.probed.passages, self.tokenizer)

    @cached_property
    def orders(self) -> dict[str, list[str]]:
        """Documents whose segments are compared with the whole, as written and shuffled."""
        texts = self.probed.probed
        return {"decline": texts, "decline, shuffled": shuffle_segments(texts, self.tokenizer)}

    def encoder(self, chain: str, seed: int) -> Encoder | Ranker:
        """The encoder at the end of a chain, or a reference (`REFERENCES`)."""
        if chain == "BM25":
            return BM25()
        if chain in REFERENCES:
            return BiEncoder.from_backbone("minilm", self.layers, max_tokens=self.texts.longest + 2)
        return BiEncoder.from_pretrained(self.folder(self.stages(chain), seed) / "model")

    def probe(self, chain: str, seed: int) -> dict[str, Any]:
        """Train a chain as far as the store lacks it, and measure quality and bias at its end.

        Returns:
            chain, seed; `mrr` and `ndcg`, MRR@100 and NDCG@10 (in points) on the collection;
            `means_by_place`; `decline` and `room` (`cde_studies.dwell.tables`), and the decline on
            documents with shuffled segments; queries, passages and documents of the probes. A
            ranker without vectors has no decline.
        """
        encoder, collection = self.encoder(chain, seed), self.texts.collection
        found = evaluate(encoder, collection, ("ndcg@10", "mrr@100"))
        row: dict[str, Any] = {"chain": chain, "seed": seed, "mrr": found["mrr@100"]}
        row |= {"ndcg": 100 * found["ndcg@10"], **means_by_place(encoder, self.tested)}
        row |= {name: float("nan") for name in ("room", *self.orders)}
        if isinstance(encoder, Encoder):
            for name, texts in self.orders.items():
                similar = substring_similarity(encoder, texts, self.tokenizer)
                row[name] = float(declines(similar).mean())
                if name == "decline":
                    row["room"] = room(similar)
        counts = {"queries": len(collection.queries), "passages": len(self.tested.versions)}
        return {**row, **counts, "documents": len(self.orders["decline"])}

    def quality(self, encoder: Encoder | Ranker) -> dict[str, float]:
        """MRR@100 on the collection."""
        return {"mrr": evaluate(encoder, self.texts.collection, ("mrr@100",))["mrr@100"]}

    def rows(self, seeds: Sequence[int]) -> pd.DataFrame:
        jobs = [(name, seeds[0]) for name in REFERENCES]
        jobs += [(chain, seed) for seed in seeds for chain in CHAINS]
        shown = progress(jobs, "chains from pretrained layers", unit="encoders")
        return pd.DataFrame([self.probe(*job) for job in shown])


def share_of_bm25(rows: pd.DataFrame, chains: Sequence[str]) -> tuple[float, str]:
    """The mean MRR@100 of the weakest of some chains, over BM25's; and which chain that is."""
    scores = rows.groupby("chain")["mrr"].mean()
    of_chains = scores[list(chains)]
    return float(of_chains.min() / scores["BM25"]), str(of_chains.idxmin())


def _version(seed: int) -> list[str]:
    """What each stage that is not a run of `cde.train` depends on besides."""
    return [str(seed), f"procedure {TRAINING} {PROCEDURE}", chosen_precision("auto")]


def _save(model: BiEncoder, folder: Path) -> None:
    model.save_pretrained(folder / "model", without_minilm_rows(model.state_dict()))


def pretrained_stages(
    profile: str, share_of_steps: float | None = None, **changes: Any
) -> PretrainedStages:
    values = profile_values(Path(__file__).with_suffix(".yml"), profile)
    given = {name: value for name, value in changes.items() if value is not None}
    if strange := set(given) - {*values, "data"}:
        raise ValueError(unknown(strange, {*values, "data"}))
    values = {**values, **given}
    for stage in ("masked", "crops", "tune"):
        values[stage] = shorter(values[stage], share_of_steps)
    own = {name: values.pop(name) for name in _OWN}
    return PretrainedStages(DwellRecipe({}, {}, {}, {}, 0, **values), **own)


#: chains of which each has one stage more than the one before
STEPS = ("start", "masked", "masked, crops", "masked, crops, tuned", "masked, crops, tuned again")
#: those, and the others that Table 5 compares
COMPARED = (*STEPS, "tuned", "masked, tuned")


def rows_of_orders(stages: PretrainedStages, seeds: Sequence[int], orders: int) -> pd.DataFrame:
    """The decline on documents with shuffled segments, in several orders, after each stage. One
    order alone has a decline of its own, by what chances to stand first in it.

    A row for each of `STEPS`, seed and order: chain, seed, order, decline, room; and of the whole
    chain `mrr`, MRR@100 on the collection, with a row of BM25's.
    """
    return _in_orders(stages, seeds, orders, STEPS, stages.quality)


def rows_of_compared(stages: PretrainedStages, seeds: Sequence[int], orders: int) -> pd.DataFrame:
    """The same of all that Table 5 compares, and of each chain also `recall`, R@100, and `lost`,
    the MRR@100 that moving the passage from where it stands to places 2 to 10 costs.
    """

    def measured(encoder: Encoder | Ranker) -> dict[str, float]:
        places = means_by_place(encoder, stages.tested)
        later = [places[f"mrr {place}"] for place in range(2, PLACES + 1)]
        recall = evaluate(encoder, stages.texts.collection, ("recall@100",))["recall@100"]
        lost = places["mrr 0"] - float(np.mean(later))
        return {**stages.quality(encoder), "recall": recall, "lost": lost}

    return _in_orders(stages, seeds, orders, COMPARED, measured)


def _in_orders(
    stages: PretrainedStages,
    seeds: Sequence[int],
    orders: int,
    chains: Sequence[str],
    measured: Callable[[Encoder | Ranker], dict[str, float]],
) -> pd.DataFrame:
    shuffled = [
        shuffle_segments(stages.probed.probed, stages.tokenizer, seed=order)
        for order in range(orders)
    ]

    def of_seed(seed: int) -> list[dict[str, Any]]:
        rows = []
        for chain in chains:
            encoder = BiEncoder.from_pretrained(stages.folder(stages.stages(chain), seed) / "model")
            of_chain = {"chain": chain, "seed": seed, **measured(encoder)}
            for order, texts in enumerate(shuffled):
                similar = substring_similarity(encoder, texts, stages.tokenizer)
                row = {"order": order, "decline": float(declines(similar).mean())}
                row |= {"room": room(similar), "documents": len(similar.rows)}
                rows.append(of_chain | row)
        return rows

    _ = stages.texts.pairs  # read here, so that the record names them, not only in a worker
    found = in_workers(of_seed, seeds, "chains in several orders of segments", unit="seeds")
    rows = [row for of_one in found for row in of_one]
    return pd.DataFrame([{"chain": "BM25", **measured(BM25())}, *rows])

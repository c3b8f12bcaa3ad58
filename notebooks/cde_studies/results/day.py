"""Encoders that are trained for thousands of steps, and what they do with their context on the way.

Training has no manuals, on which encoders are tested: what the paper claims is about text of a kind
that training never had.

Every 400 steps an encoder is tested on manuals that are kept for validation: NDCG@10 in the context
of the corpus that is searched, of another, of none and of random letters; the loss of Eq. 1 on
pairs of one corpus in its own context and in another's, where reading shows first; and how far
documents move from one to the other (one minus the cosine).

Arms that end in a length or a depth differ from the arm of the same name in that alone.

The arm with `directions` is a bi-encoder whose loss multiplies the vectors of a batch by C^(−1/4)
of its documents (`cde.adaptation.tempered`): its second stage is this matrix, and it reads its
corpus by construction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import normalize

from cde.adaptation import AdaptedEncoder, Shift, tempered
from cde.data import Pairs, RetrievalSet, load_pairs, load_retrieval
from cde.retrieval import evaluate
from cde.storage import content_hash
from cde.training import TrainConfig, runs
from cde.training.loss import ContrastiveLoss, Loss, contrastive_loss
from cde_studies.collections import manuals
from cde_studies.motivation.score_matrices import JudgedMatrix
from cde_studies.sweeps import context_texts
from cde_studies.workers import in_workers

Vectors = NDArray[np.float32]

#: settings of every run; learning rate and length are those of the profile `hours`, eight times
DAY = TrainConfig(
    layers=2,
    first_stage_layers=2,
    batch_size=256,
    cluster_size=256,
    context_size=64,
    steps=3200,
    warmup_steps=320,
    learning_rate=3e-4,
    query_tokens=32,
    document_tokens=48,
    context_tokens=48,
    surrogate_tokens=48,
    checkpoint_every=400,
    uncached_tokens=131_072,
    evaluate_every=400,
)
_CONTEXTUAL = {"architecture": "contextual", "batches": "cluster"}
#: how arms differ from `DAY`
ARMS: dict[str, dict[str, Any]] = {
    "bi-encoder; clustered": {"architecture": "bi-encoder", "batches": "cluster"},
    "contextual, full": {**_CONTEXTUAL, "attention": "full"},
    "contextual, cached": {**_CONTEXTUAL, "attention": "cached"},
    "bi-encoder, directions; clustered": {"architecture": "bi-encoder", "batches": "cluster"},
}
_LONGER = {name: 4 * getattr(DAY, name) for name in ("steps", "warmup_steps", "evaluate_every")}
_DEEPER = {"layers": 6, "first_stage_layers": 6}
ARMS |= {
    "contextual, full; 12,800 steps": ARMS["contextual, full"] | _LONGER,
    "contextual, full; six layers": ARMS["contextual, full"] | _DEEPER,
    "bi-encoder; clustered; six layers": ARMS["bi-encoder; clustered"] | _DEEPER,
}


def training_pairs(
    public: int | None = 100_000, least: int = DAY.batch_size + DAY.context_size
) -> Pairs:
    """What a run trains on: `public` pairs of `pairs/*` (None: all) and all of `pydocs`, without
    sources of fewer than `least` documents, too small for a batch and a context beside it.
    """
    parts = [load_pairs("pydocs")]
    if public != 0:
        every = load_pairs("pairs/*")
        parts.insert(0, every if public is None else every.sample(public, 0))
    columns = ("queries", "documents", "domains", "ids")
    joined = {one: [text for part in parts for text in getattr(part, one)] for one in columns}
    pairs = Pairs(**joined, name=" + ".join(part.name for part in parts))
    documents = pd.Series(pairs.documents).groupby(list(pairs.domains)).nunique()
    return pairs.select((documents[list(pairs.domains)] >= least).to_numpy())


def panel(
    part: manuals.Part, corpora: int | None = None, documents: int = 300, queries: int = 100
) -> list[RetrievalSet]:
    """Manuals of a part of the split, one a family, the first so many by a hash of their names, cut
    to a size.
    """
    names = sorted(manuals.corpora(part), key=lambda name: content_hash([name]))
    of = manuals.table().drop_duplicates("corpus").set_index("corpus")["family"]
    chosen = of[names].drop_duplicates().index[:corpora]
    return [load_retrieval(f"manuals/{name}").shrink(documents, queries, 0) for name in chosen]


def _losses(queries: Vectors, documents: Vectors, answers: Sequence[int]) -> float:
    """Eq. 1 on the pairs of one corpus, each query against the answers of all."""
    wanted = torch.from_numpy(documents[list(answers)])
    return float(contrastive_loss(torch.from_numpy(queries), wanted, DAY.temperature).loss)


def scores_on_the_way(model: Any, tests: Sequence[RetrievalSet]) -> dict[str, float]:
    """Means over the tests: NDCG@10 (0 to 1) and loss by context, and how far documents moved."""
    rows, reads = [], bool(getattr(model, "reads_context", False))
    for place, test in enumerate(tests):
        row: dict[str, float] = {}
        judged, number = JudgedMatrix.of(test), {one: i for i, one in enumerate(test.document_ids)}
        answers = [number[next(iter(test.qrels[query]))] for query in test.query_ids]
        made: dict[str, Vectors] = {}
        other = tests[(place + 1) % len(tests)].documents
        for name in ("own", "other", "null", "strings") if reads else ("none",):
            encoder = model
            if reads:
                texts = context_texts(name, other if name == "other" else test.documents, model)
                encoder = model.with_context(texts, seed=0)
            queries = encoder.encode_queries(test.queries)
            made[name] = encoder.encode_documents(test.documents)
            row[f"ndcg {name}"] = float(judged.ndcg(queries @ made[name].T).mean())
            row[f"loss {name}"] = _losses(queries, made[name], answers)
        if reads:
            row["moved"] = float(1 - np.einsum("nd,nd->n", made["own"], made["other"]).mean())
        rows.append(row)
    return {str(name): float(mean) for name, mean in pd.DataFrame(rows).mean().items()}


def tempered_loss(
    queries: Tensor,
    documents: Tensor,
    temperature: float,
    *,
    masked: Tensor,
    symmetric: bool,
    hardness: float,
) -> ContrastiveLoss:
    """Eq. 1 of vectors that are multiplied by C^(−1/4) of their batch's documents, which are of one
    cluster: the second stage is this matrix. No gradient flows through it.
    """
    rows = normalize(documents.detach().float(), dim=-1).cpu().numpy()
    weights = torch.from_numpy(tempered(rows)).to(documents.device)
    asked, answers = (normalize(side.float(), dim=-1) @ weights for side in (queries, documents))
    return contrastive_loss(
        asked, answers, temperature, masked=masked, symmetric=symmetric, hardness=hardness
    )


def by_directions(model: Any, documents: Sequence[str]) -> AdaptedEncoder:
    """An encoder whose vectors are multiplied by C^(−1/4) of (256 of) a corpus' documents."""
    read = model.encode_documents(list(documents)[:256])
    nothing = np.zeros(read.shape[1], np.float32)
    return AdaptedEncoder(model, Shift(nothing, nothing, tempered(read)))


def directions_on_the_way(model: Any, tests: Sequence[RetrievalSet]) -> dict[str, float]:
    """Means over the tests: NDCG@10 by the corpus whose directions are shortened."""
    rows = []
    for place, test in enumerate(tests):
        judged, other = JudgedMatrix.of(test), tests[(place + 1) % len(tests)].documents
        vectors = model.encode_queries(test.queries), model.encode_documents(test.documents)
        row = {"ndcg none": float(judged.ndcg(vectors[0] @ vectors[1].T).mean())}
        for name, corpus in (("own", test.documents), ("other", other)):
            shift = by_directions(model, corpus).shift
            scores = shift.of(vectors[0], "query") @ shift.of(vectors[1], "document").T
            row[f"ndcg {name}"] = float(judged.ndcg(scores).mean())
        rows.append(row)
    return {str(name): float(mean) for name, mean in pd.DataFrame(rows).mean().items()}


def train(
    arm: str, seed: int, pairs: Pairs, tests: Sequence[RetrievalSet], **changes: Any
) -> runs.Run:
    """The run of an arm, trained or read from the store; tested on the way."""
    config = replace(DAY, **{**ARMS[arm], **changes, "data": pairs.name, "seed": seed})
    loss: Loss = contrastive_loss
    way = scores_on_the_way
    if "directions" in arm:
        loss, way = tempered_loss, directions_on_the_way
    return runs.train(config, pairs, tests=tests, evaluate_on_the_way=way, loss=loss)


def train_all(
    arms: Sequence[tuple[str, int]], pairs: Pairs, tests: Sequence[RetrievalSet], **changes: Any
) -> dict[tuple[str, int], runs.Run]:
    """The runs of arms with their seeds, in as many processes as $CDE_JOBS says."""
    trained = in_workers(lambda which: train(*which, pairs, tests, **changes), arms, "training")
    return dict(zip(arms, trained, strict=True))


def curves(trained: Mapping[tuple[str, int], runs.Run]) -> pd.DataFrame:
    """A row for each run, by arm and seed, and test on the way: step and its numbers."""
    parts = []
    for (arm, seed), run in trained.items():
        tested = run.metrics.filter(regex="^(step|ndcg|loss |moved)")
        kept = tested.dropna(subset=tested.filter(like="ndcg").columns[:1])
        parts.append(kept.assign(arm=arm, seed=seed))
    return pd.concat(parts, ignore_index=True)


def on_manuals(
    models: Mapping[tuple[str, int], Any], tests: Sequence[RetrievalSet]
) -> pd.DataFrame:
    """NDCG@10 (0 to 1) of each model, or run of one, by arm and seed, in each context on each
    test, in as many processes as $CDE_JOBS says.

    What has no context is searched plainly ("none") and by the directions of the test's own and of
    another's documents.
    """
    found = in_workers(partial(_on_manuals, tests), list(models.values()), "searching", "models")
    parts = [
        rows.assign(arm=arm, seed=seed) for (arm, seed), rows in zip(models, found, strict=True)
    ]
    columns = ["arm", "seed", "collection", "context", "ndcg"]
    return pd.concat(parts, ignore_index=True)[columns]


def _on_manuals(tests: Sequence[RetrievalSet], model: Any) -> pd.DataFrame:
    model, rows = model.model() if isinstance(model, runs.Run) else model, []
    for place, test in enumerate(tests):
        texts, other = test.documents, tests[(place + 1) % len(tests)].documents
        encoders = {"none": model}
        if getattr(model, "reads_context", False):
            contexts: dict[str, Sequence[str] | None] = {"own": texts, "other": other}
            contexts |= {one: context_texts(one, texts, model) for one in ("null", "strings")}
            encoders = {one: model.with_context(read, seed=0) for one, read in contexts.items()}
        elif hasattr(model, "encode_documents"):
            encoders["own directions"] = by_directions(model, texts)
            encoders["other directions"] = by_directions(model, other)
        for context, encoder in encoders.items():
            rows.append((test.name, context, evaluate(encoder, test)["ndcg@10"]))
    return pd.DataFrame(rows, columns=["collection", "context", "ndcg"])

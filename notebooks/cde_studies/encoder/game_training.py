"""A contextual encoder learns the word game, or does not.

Every batch is one corpus that was never seen and never comes back, with its own context documents.
The corpora of the test are new, too: the encoder reads their own context, another's, or null
tokens.

Cost: 750 steps of 128 pairs take about half a minute on 2 cores (attention `cached`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from cde.hardware import compute_device
from cde.models import ContextualEncoder
from cde.progress import progress
from cde.storage import content_hash
from cde.training.loss import contrastive_loss
from cde.training.runs import stored
from cde.training.trainer import Loop
from cde_studies.encoder.game_players import FIRST_WORD, GameSettings, game_encoder
from cde_studies.encoder.word_game import Corpus, mean_ndcg

#: the version of this procedure; see `cde.training.runs.PROCEDURE`
PROCEDURE = 1
#: what an encoder reads at test time
CONTEXTS = ("own", "other", "null")


def _tokens(model: ContextualEncoder, rows: Tensor) -> Tensor:
    return (rows + FIRST_WORD).to(model.device)


def _vectors(model: ContextualEncoder, corpus: Corpus, context: Tensor | None) -> list[Tensor]:
    texts = (corpus.queries, corpus.documents)
    return [model.second_stage(_tokens(model, rows), None, context) for rows in texts]


def _test(model: ContextualEncoder, tests: list[Corpus]) -> dict[str, float]:
    """NDCG@10 in each context, the mean over the corpora."""
    model.eval()
    with torch.inference_mode():
        own = [model.first_stage(_tokens(model, test.context)) for test in tests]
        contexts: dict[str, list[Tensor | None]] = {
            "own": [*own],
            "other": [own[-1], *own[:-1]],
            "null": [None] * len(tests),
        }

        def ndcg(test: Corpus, context: Tensor | None) -> float:
            queries, documents = (normalize(one, dim=1) for one in _vectors(model, test, context))
            return mean_ndcg((queries @ documents.T).cpu())

        scores = {
            name: [ndcg(test, one) for test, one in zip(tests, given, strict=True)]
            for name, given in contexts.items()
        }
    model.train()
    return {name: sum(every) / len(every) for name, every in scores.items()}


def play(settings: GameSettings) -> pd.DataFrame:
    """Train a player, or read its training back from the store of runs: a row for each test with
    step, own, other, null (NDCG@10, 0 to 1), loss (mean since the last test).
    """
    identity = json.dumps(asdict(settings), sort_keys=True)
    key = content_hash([identity, f"word game {PROCEDURE}", "float32"])

    def make(folder: Path) -> dict[str, Any]:
        model = game_encoder(settings).to(compute_device())
        metrics = _train(model, settings, identity, folder)
        model.save_pretrained(folder / "model")
        return {"config": asdict(settings), "metrics": metrics}

    values = json.loads((stored(key, make, settings.seed) / "run.json").read_text())
    frame = pd.DataFrame(values["metrics"])
    frame["loss"] = frame["loss"].rolling(settings.every, min_periods=1).mean()
    tested = frame.dropna(subset=["own"]).reset_index(drop=True)
    return tested[["step", *CONTEXTS, "loss"]].astype({"step": int})


def play_all(players: Mapping[str, GameSettings], seeds: Sequence[int]) -> pd.DataFrame:
    """Train players with every seed: the rows of `play`, with columns player and seed in front."""
    jobs = [(name, seed) for name in players for seed in seeds]
    curves = []
    for name, seed in progress(jobs, "playing the word game", unit="players"):
        curve = play(replace(players[name], seed=seed))
        curves.append(curve.assign(player=name, seed=seed))
    rows = pd.concat(curves, ignore_index=True)
    return rows[["player", "seed", *rows.columns[:-2]]]


def _train(
    model: ContextualEncoder, settings: GameSettings, identity: str, folder: Path
) -> list[dict[str, float]]:
    weights = [one for one in model.parameters() if one.requires_grad]
    optimiser = torch.optim.AdamW(
        weights, lr=settings.learning_rate, weight_decay=0.0, betas=(0.9, 0.98)
    )
    steps, warmup = settings.steps, max(1, settings.steps // 10)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimiser, lambda step: min(1.0, (step + 1) / warmup) * (1 - 0.9 * step / steps)
    )
    tests, corpus_of = settings.tests(), _corpora(settings)

    def step(number: int) -> dict[str, float]:
        generator = torch.Generator().manual_seed(settings.seed * 1_000_003 + number)
        corpus = corpus_of(generator)
        null = float(torch.rand(1, generator=generator)) < settings.null_share
        reads = settings.reads and not null
        context = model.first_stage(_tokens(model, corpus.context)) if reads else None
        queries, documents = _vectors(model, corpus, context)
        loss = contrastive_loss(queries, documents, settings.temperature).loss
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(weights, 1.0)
        optimiser.step()
        schedule.step()
        row = {"step": number + 1, "loss": float(loss.detach())}
        if (number + 1) % settings.every == 0 or number + 1 == steps:
            row |= _test(model, tests)
        return row

    loop = Loop(model, optimiser, schedule, identity, folder)
    loop.resume()
    model.train()
    return loop.run(step, steps, "one player")


def _corpora(settings: GameSettings) -> Callable[[torch.Generator], Corpus]:
    """What a step trains on: pairs of a corpus that is new, or one of a few."""
    size = (settings.batch_size, settings.context_size)
    if settings.corpora == "fresh":
        return lambda generator: settings.game.draw(*size, generator)
    first = torch.Generator().manual_seed(settings.seed)
    kept = [settings.game.vocabulary(first) for _ in range(settings.corpora)]

    def one_of_them(generator: torch.Generator) -> Corpus:
        chosen = int(torch.randint(len(kept), (1,), generator=generator))
        return settings.game.draw(*size, generator, kept[chosen])

    return one_of_them

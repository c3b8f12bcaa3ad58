"""A contextual encoder learns the word game, or does not: what the skill depends on.

The encoder is the book's own (`ContextualEncoder`), one small layer. Its first stage is the mean of
a document's word embeddings, normalised; its words stand for themselves. Every batch is one corpus
that was never seen and never comes back, with its own context documents.

A word's weight in this corpus has to come from a comparison: does this word stand in the context?
Attention can make it, if a text token's query fits the keys of the context vectors that hold its
word. From random weights it fits none, and there is little to learn from, because weighing pays
only once words are told apart. `matched` starts the second stage with equal query and key weights,
so that a word fits itself: that is what makes the skill appear.

Cost: 750 steps of 128 pairs take about half a minute on 2 cores (attention `cached`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import pandas as pd
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from cde.experiments.runs import stored
from cde.experiments.word_game import Corpus, WordGame, mean_ndcg
from cde.hardware import compute_device
from cde.models import ContextualEncoder
from cde.models.configuration import ContextualConfig
from cde.progress import progress
from cde.storage import content_hash
from cde.training.loop import Loop
from cde.training.loss import contrastive_loss

__all__ = [
    "CONTEXTS",
    "GameSettings",
    "game_encoder",
    "match_queries_to_keys",
    "play",
    "reference",
    "variants",
]

#: the version of this procedure; see `cde.experiments.runs.PROCEDURE`
PROCEDURE = 1
#: what an encoder reads at test time
CONTEXTS = ("own", "other", "null")
_FIRST_WORD = 1  # token 0 is padding
_TEST_SEED = 10**6


@dataclass(frozen=True)
class GameSettings:
    """One player: the game, the encoder and its training.

    Attributes:
        game: the rules.
        dim: width of the encoder; its one layer has one head of that width.
        context_size: context documents.
        attention: "cached" or "full".
        matched: start with equal query and key weights.
        tied: both stages share their word embeddings.
        first_stage_layers: 0 takes the mean of a document's word embeddings as they are.
        corpora: "fresh" draws a new corpus for each batch; a number keeps so many and draws one.
        reads: whether there is context in training; without it the null token stands there.
        null_share: share of the batches that see the null token instead of their context.
        batch_size: pairs a step, all of one corpus.
        steps, learning_rate, temperature: of training; a tenth of the steps is warm-up, then the
            rate falls linearly to a tenth.
        every: steps between two tests.
        test_corpora, test_pairs: what is tested on.
        seed: of weights and corpora; the corpora of the test are the same for all.

    Example:
        >>> GameSettings(steps=10).matched
        True
    """

    game: WordGame = field(default_factory=WordGame)
    dim: int = 64
    context_size: int = 64
    attention: Literal["cached", "full"] = "cached"
    matched: bool = True
    tied: bool = True
    first_stage_layers: int = 0
    corpora: int | Literal["fresh"] = "fresh"
    reads: bool = True
    null_share: float = 0.05
    batch_size: int = 128
    steps: int = 750
    learning_rate: float = 3e-3
    temperature: float = 0.05
    every: int = 75
    test_corpora: int = 8
    test_pairs: int = 512
    seed: int = 0

    def tests(self) -> list[Corpus]:
        """The unseen corpora of the test."""
        return [
            self.game.draw(
                self.test_pairs, self.context_size, torch.Generator().manual_seed(_TEST_SEED + one)
            )
            for one in range(self.test_corpora)
        ]


def reference(settings: GameSettings) -> dict[str, float]:
    """NDCG@10 that counting gives on the corpora of the test, without any training.

    Returns:
        "equal": all words weigh alike. "own": by IDF in the context documents. "other": by IDF in
        those of another corpus.

    Example:
        >>> lines = reference(GameSettings(test_corpora=2, test_pairs=64))
        >>> lines["own"] > lines["equal"]
        True
    """
    game, tests = settings.game, settings.tests()
    weights = [game.idf(test.context) for test in tests]
    lines = {
        "equal": [mean_ndcg(game.scores(test)) for test in tests],
        "own": [mean_ndcg(game.scores(t, w)) for t, w in zip(tests, weights, strict=True)],
        "other": [mean_ndcg(game.scores(test, weights[i - 1])) for i, test in enumerate(tests)],
    }
    return {name: sum(scores) / len(scores) for name, scores in lines.items()}


def match_queries_to_keys(model: ContextualEncoder, seed: int = 0) -> None:
    """Give each layer of the second stage equal query and key weights: rows of a random rotation.

    A token then attends most to what is like itself, in the text and in the context.

    Args:
        model: an encoder over BERT's layers; changed in place.
        seed: of the rotation.

    Used by the chapter `context_required`.
    """
    generator = torch.Generator().manual_seed(seed)
    layers: Any = model.second_stage.backbone.get_submodule("encoder.layer")
    for layer in layers:
        attention = layer.attention.self
        shape = attention.query.weight.shape
        rotation = torch.linalg.qr(torch.randn(shape, generator=generator)).Q
        for part in (attention.query, attention.key):
            part.weight.data.copy_(rotation)
            part.bias.data.zero_()


def game_encoder(settings: GameSettings) -> ContextualEncoder:
    """The player before training: `ContextualEncoder` with a token for each word.

    Example:
        >>> game_encoder(GameSettings(dim=8)).dim
        8
    """
    torch.manual_seed(settings.seed)
    backbone = {
        "model_type": "bert",
        "vocab_size": settings.game.words + _FIRST_WORD,
        "hidden_size": settings.dim,
        "num_attention_heads": 1,
        "intermediate_size": 4 * settings.dim,
        "num_hidden_layers": 1,
        "max_position_embeddings": 2 + settings.game.boilerplate + settings.game.words,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "initializer_range": 0.1,
    }
    model = ContextualEncoder(
        ContextualConfig(
            first_backbone={**backbone, "num_hidden_layers": settings.first_stage_layers},
            second_backbone=backbone,
            context_size=settings.context_size,
            attention=settings.attention,
            tie_token_embeddings=settings.tied,
            sequence_dropout=0.0,
        )
    )
    stages: list[Any] = [model.first_stage, model.second_stage]
    for stage in stages:
        places = stage.backbone.embeddings.position_embeddings.weight
        places.data.zero_()  # texts have no order
        places.requires_grad_(False)
        # Adam's steps do not grow with the weights: small embeddings would be thrown about
        nn.init.normal_(stage.backbone.get_input_embeddings().weight, std=1.0)
    if settings.matched:
        match_queries_to_keys(model, settings.seed)
    return model


def _tokens(model: ContextualEncoder, rows: Tensor) -> Tensor:
    return (rows + _FIRST_WORD).to(model.device)


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
        scores = {
            name: [
                mean_ndcg((normalize(queries, dim=1) @ normalize(documents, dim=1).T).cpu())
                for queries, documents in (
                    _vectors(model, test, one) for test, one in zip(tests, given, strict=True)
                )
            ]
            for name, given in contexts.items()
        }
    model.train()
    return {name: sum(every) / len(every) for name, every in scores.items()}


def play(settings: GameSettings) -> pd.DataFrame:
    """Train a player, or read its training back from the store of runs.

    Args:
        settings: the player.

    Returns:
        A row for each test: step, own, other, null (NDCG@10, 0 to 1), loss (mean since the last
        test).

    Used by the chapter `context_required`.

    Example:
        >>> small = GameSettings(dim=8, context_size=4, batch_size=4, steps=2, every=1,
        ...     test_corpora=2, test_pairs=8)
        >>> list(play(small)["step"])
        [1, 2]
    """
    told = json.dumps(asdict(settings), sort_keys=True)
    key = content_hash([told, f"word game {PROCEDURE}", "float32"])

    def make(folder: Path) -> dict[str, Any]:
        model = game_encoder(settings).to(compute_device())
        metrics = _train(model, settings, told, folder)
        model.save_pretrained(folder / "model")
        return {"config": asdict(settings), "metrics": metrics}

    values = json.loads((stored(key, make, settings.seed) / "run.json").read_text())
    return _curve(values["metrics"], settings)


def play_all(players: Mapping[str, GameSettings], seeds: Sequence[int]) -> pd.DataFrame:
    """Train players with every seed.

    Args:
        players: name → settings, whose seed is replaced.
        seeds: of weights and of training corpora.

    Returns:
        The rows of `play`, with columns player and seed in front.

    Used by the chapter `context_required`.
    """
    jobs = [(name, seed) for name in players for seed in seeds]
    curves = []
    for name, seed in progress(jobs, "playing the word game", unit="players"):
        curve = play(replace(players[name], seed=seed))
        curves.append(curve.assign(player=name, seed=seed))
    rows = pd.concat(curves, ignore_index=True)
    return rows[["player", "seed", *rows.columns[:-2]]]


def _curve(metrics: list[dict[str, float]], settings: GameSettings) -> pd.DataFrame:
    frame = pd.DataFrame(metrics)
    frame["loss"] = frame["loss"].rolling(settings.every, min_periods=1).mean()
    tested = frame.dropna(subset=["own"]).reset_index(drop=True)
    return tested[["step", *CONTEXTS, "loss"]].astype({"step": int})


def _train(
    model: ContextualEncoder, settings: GameSettings, told: str, folder: Path
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

    loop = Loop(model, optimiser, schedule, told, folder)
    loop.resume(model.device)
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


def variants(settings: GameSettings) -> dict[str, GameSettings]:
    """Players that differ from the given one in one thing each, by name; the given one first."""
    return {
        "the recipe": settings,
        "queries and keys not matched": replace(settings, matched=False),
        "word embeddings not shared": replace(settings, tied=False),
        "first stage of one layer": replace(settings, first_stage_layers=1),
        "attention full": replace(settings, attention="full"),
        "a third of the learning rate": replace(settings, learning_rate=settings.learning_rate / 3),
        "a quarter of the context": replace(
            settings, context_size=max(2, settings.context_size // 4)
        ),
        "eight corpora in all": replace(settings, corpora=8),
        "no context in training": replace(settings, reads=False),
    }

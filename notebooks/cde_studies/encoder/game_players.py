"""Players of the word game: small contextual encoders, and what counting would reach.

The encoder is the book's own (`ContextualEncoder`), one small layer. Its first stage is the mean of
a document's word embeddings, normalised; its words stand for themselves.

A word's weight in a corpus has to come from a comparison: does this word stand in the context?
Attention can make it, if a text token's query fits the keys of the context vectors that hold its
word. From random weights it fits none, and there is little to learn from, because weighing pays
only once words are told apart. `matched` starts the second stage with equal query and key weights,
so that a word fits itself: that is what makes the skill appear.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import nn

from cde.models import ContextualEncoder
from cde.models.configuration import ContextualConfig
from cde_studies.encoder.word_game import Corpus, WordGame, bag_scores, context_idf, mean_ndcg

#: the token of word 0; token 0 is padding
FIRST_WORD = 1
_TEST_SEED = 10**6


@dataclass(frozen=True)
class GameSettings:
    """One player: the game, the encoder and its training."""

    game: WordGame = field(default_factory=WordGame)
    dim: int = 64
    context_size: int = 64
    vectors_per_document: int = 1
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
        size = (self.test_pairs, self.context_size)
        return [
            self.game.draw(*size, torch.Generator().manual_seed(_TEST_SEED + one))
            for one in range(self.test_corpora)
        ]


def reference(settings: GameSettings) -> dict[str, float]:
    """NDCG@10 that counting gives on the corpora of the test, without any training: "equal", all
    words weigh alike; "own", by IDF in the context documents; "other", in those of another corpus.
    """
    words, tests = settings.game.words, settings.tests()
    own = [context_idf(test, words) for test in tests]
    weights = {"equal": [torch.ones(words)] * len(tests), "own": own, "other": [own[-1], *own[:-1]]}
    lines = {
        name: [mean_ndcg(bag_scores(test, one)) for test, one in zip(tests, given, strict=True)]
        for name, given in weights.items()
    }
    return {name: sum(scores) / len(scores) for name, scores in lines.items()}


def match_queries_to_keys(model: ContextualEncoder, seed: int = 0) -> None:
    """Give each layer of the second stage equal query and key weights, rows of a random rotation: a
    token then attends most to what is like itself, in the text and in the context.
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
    """The player before training: `ContextualEncoder` with a token for each word."""
    torch.manual_seed(settings.seed)
    backbone = {
        "model_type": "bert",
        "vocab_size": settings.game.words + FIRST_WORD,
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
            vectors_per_document=settings.vectors_per_document,
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
        words = stage.backbone.get_input_embeddings().weight
        # Adam's steps do not grow with the weights: small embeddings would be thrown about
        nn.init.normal_(words, std=1.0)
    if settings.matched:
        match_queries_to_keys(model, settings.seed)
    return model


def variants(settings: GameSettings) -> dict[str, GameSettings]:
    """Players that differ from the given one in one thing each, by name; the given one first."""
    quarter = max(2, settings.context_size // 4)
    return {
        "the recipe": settings,
        "queries and keys not matched": replace(settings, matched=False),
        "word embeddings not shared": replace(settings, tied=False),
        "first stage of one layer": replace(settings, first_stage_layers=1),
        "attention full": replace(settings, attention="full"),
        "a third of the learning rate": replace(settings, learning_rate=settings.learning_rate / 3),
        "a quarter of the context": replace(settings, context_size=quarter),
        "eight corpora in all": replace(settings, corpora=8),
        "no context in training": replace(settings, reads=False),
    }

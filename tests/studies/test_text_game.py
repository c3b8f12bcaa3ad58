"""The word game on docstrings: what is kept for the test, and the players that read more vectors."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from cde_studies.collections.pydocs import load_pairs
from cde_studies.encoder.game_players import (
    FIRST_WORD,
    GameSettings,
    game_encoder,
    reference,
    text_variants,
)
from cde_studies.encoder.text_game import TextGame, text_words

PACKAGES = ("rich", "tornado", "sphinx", "networkx", "pandas")
GAME = TextGame(PACKAGES)
SMALL = GameSettings(
    game=GAME, dim=16, context_size=16, batch_size=16, steps=4, test_corpora=2, test_pairs=64
)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_a_documents_content_is_words_of_one_docstring_of_its_packages() -> None:
    words = text_words(PACKAGES).words
    for game, names in ((GAME, PACKAGES[:4]), (GAME.of_test(), PACKAGES[4:])):
        texts = [
            text.lower() for name in names for text in load_pairs([name], split="all").documents
        ]
        common, _ = game.vocabulary(generator())
        corpus = game.draw(5, 5, generator(1), (common, torch.arange(game.words)))
        boilerplate = set(common.tolist())
        for row in (*corpus.documents.tolist(), *corpus.context.tolist()):
            content = [words[one] for one in row if one not in boilerplate]
            assert any(all(word in text for word in content) for text in texts)


def test_a_query_repeats_two_words_of_its_document_and_none_twice() -> None:
    common, content = GAME.vocabulary(generator())
    corpus = GAME.draw(50, 20, generator(1), (common, content))
    for query, document in zip(corpus.queries.tolist(), corpus.documents.tolist(), strict=True):
        asked = set(query) - set(common.tolist())
        assert asked <= set(document)
        assert len(asked) <= 2
        assert len(query) == 2 + GAME.boilerplate_in_document // 2


def test_boilerplate_of_the_test_is_never_boilerplate_in_training() -> None:
    games = (GAME, GAME.of_test())
    seen = [
        {word for seed in range(300) for word in game.vocabulary(generator(seed))[0].tolist()}
        for game in games
    ]
    assert seen[0].isdisjoint(seen[1])
    assert len(seen[0] | seen[1]) > 0.9 * GAME.words


def test_counting_needs_the_own_corpus() -> None:
    lines = reference(replace(SMALL, context_size=64, test_corpora=4, test_pairs=256))
    assert lines["own"] > 0.95
    # words that are common everywhere weigh less in any corpus: a little is gained even so
    assert max(lines["equal"], lines["other"]) < lines["own"] - 0.3


def test_embeddings_are_white() -> None:
    vectors = GAME.embeddings(16)
    torch.testing.assert_close(torch.cov(vectors.T), torch.eye(16), atol=1e-3, rtol=0)
    with pytest.raises(ValueError, match="at most MiniLM.s 384; it is 385"):
        GAME.embeddings(385)


def test_a_player_keeps_the_embeddings_of_words() -> None:
    model = game_encoder(SMALL)
    words = model.second_stage.backbone.get_input_embeddings().weight
    torch.testing.assert_close(words[FIRST_WORD:].detach(), GAME.embeddings(SMALL.dim))
    assert not words.requires_grad


def test_a_vector_for_every_word_is_the_words_own() -> None:
    player = text_variants(SMALL, PACKAGES)["long, a vector for every word"]
    documents = player.game.draw(2, player.context_size, generator()).context + FIRST_WORD
    words = replace(player, vectors_per_document=1, context_size=documents.numel())
    with torch.inference_mode():
        together = game_encoder(player).eval().first_stage(documents)
        alone = game_encoder(words).eval().first_stage(documents.reshape(-1, 1))
    torch.testing.assert_close(together.reshape(alone.shape), alone)


def test_long_readers_read_equally_many_context_tokens() -> None:
    players = text_variants(GameSettings(), PACKAGES)
    long = [one for name, one in players.items() if name.startswith("long")]
    tokens = [one.context_size * one.vectors_per_document for one in long]
    assert len(long) == 3
    assert tokens == pytest.approx([6 * GameSettings().context_size] * 3, rel=0.03)

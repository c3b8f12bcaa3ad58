"""The word game: its texts, what counting gives, and the start from which an encoder learns it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from cde.data import RetrievalSet
from cde.retrieval import score_queries
from cde_studies.encoder.game_players import (
    GameSettings,
    game_encoder,
    match_queries_to_keys,
    reference,
    variants,
)
from cde_studies.encoder.game_training import play
from cde_studies.encoder.word_game import WordGame, mean_ndcg

SMALL = GameSettings(
    dim=16, context_size=16, batch_size=16, steps=4, every=2, test_corpora=2, test_pairs=32
)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_a_query_repeats_content_of_its_own_document_and_no_word_twice() -> None:
    game = WordGame()
    corpus = game.draw(50, 20, generator())
    for rows in (corpus.queries, corpus.documents, corpus.context):
        assert all(len(set(row.tolist())) == rows.shape[1] for row in rows)
    common, content = game.vocabulary(generator())
    corpus = game.draw(50, 20, generator(1), (common, content))
    for query, document in zip(corpus.queries.tolist(), corpus.documents.tolist(), strict=True):
        asked = set(query) & set(content.tolist())
        assert len(asked) == game.content_in_document - 1
        assert asked <= set(document)


def test_ndcg_is_trec_evals_where_nothing_is_tied() -> None:
    scores = torch.rand(30, 30, generator=generator())
    names = [f"d{one}" for one in range(30)]
    qrels = {f"q{one}": {f"d{one}": 1} for one in range(30)}
    queries = list(qrels)
    collection = RetrievalSet(names, names, queries, queries, qrels)
    ranked = {
        query: dict(zip(names, row, strict=True))
        for query, row in zip(queries, scores.tolist(), strict=True)
    }
    peer = score_queries(ranked, collection)["ndcg@10"]
    assert mean_ndcg(scores) == pytest.approx(float(peer.mean()), abs=1e-9)


def test_ndcg_of_ties_is_what_breaking_them_by_chance_gives() -> None:
    scores = torch.randint(0, 3, (20, 20), generator=generator()).float()
    noises = (torch.rand(20, 20, generator=generator(seed)) for seed in range(400))
    broken = [mean_ndcg(scores + 0.1 * noise) for noise in noises]
    assert mean_ndcg(scores) == pytest.approx(sum(broken) / len(broken), abs=0.01)


def test_only_the_corpus_own_counts_find_the_document() -> None:
    lines = reference(GameSettings(test_corpora=4, test_pairs=256))
    assert lines["own"] > lines["equal"] + 0.4
    assert abs(lines["other"] - lines["equal"]) < 0.05


def test_matched_queries_and_keys_find_what_is_like_themselves() -> None:
    model = game_encoder(replace(SMALL, matched=False))
    match_queries_to_keys(model, seed=3)
    attention = model.second_stage.backbone.encoder.layer[0].attention.self
    states = torch.nn.functional.normalize(torch.randn(9, SMALL.dim, generator=generator()), dim=1)
    scores = attention.query(states) @ attention.key(states).T
    torch.testing.assert_close(scores, states @ states.T, atol=1e-5, rtol=0)


def test_a_player_plays_alike_again(
    private_cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    first = play(SMALL)
    monkeypatch.setenv("CDE_CACHE", str(tmp_path / "another"))
    assert play(SMALL).equals(first)
    assert first["step"].tolist() == [2, 4]


def test_each_variant_differs_from_the_recipe_in_one_setting() -> None:
    first, *others = variants(SMALL).values()
    assert first == SMALL
    for one in others:
        changed = [name for name in vars(SMALL) if getattr(one, name) != getattr(SMALL, name)]
        assert len(changed) == 1

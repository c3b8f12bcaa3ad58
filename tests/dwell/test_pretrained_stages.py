"""Chains differ in what they say they differ in, and go on from the stage before."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from biased_encoders import Bag

from cde.batching.negatives import mine_hard_negatives
from cde.lexical import BM25
from cde.models import BiEncoder
from cde.training.runs import Run
from cde_studies.dwell import pretrained_stages as stages
from cde_studies.dwell.cures import thirds
from cde_studies.dwell.pretrained_stages import CROPS, HALVES, MASKED, SHUFFLED, TUNED
from cde_studies.dwell.tables import decline_by_order

SMOKE = stages.pretrained_stages("smoke")
POSITIONS = "backbone.embeddings.position_embeddings.weight"


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return BiEncoder.from_pretrained(folder / "model").state_dict()


def test_nothing_but_the_positions_is_drawn_anew_and_each_seed_draws_others() -> None:
    own = BiEncoder.from_backbone("minilm", 1).state_dict()
    drawn = [stages.with_new_positions(BiEncoder.from_backbone("minilm", 1), s) for s in (0, 0, 1)]
    first, again, other = (model.state_dict() for model in drawn)
    assert [name for name in own if not torch.equal(own[name], first[name])] == [POSITIONS]
    assert torch.equal(first[POSITIONS], again[POSITIONS])
    table, others = first[POSITIONS].flatten(), other[POSITIONS].flatten()
    for against in (others, own[POSITIONS].flatten()):
        assert abs(np.corrcoef(table, against)[0, 1]) < 0.02
    assert table.mean().item() == pytest.approx(0, abs=2e-4)
    assert table.std().item() == pytest.approx(0.02, rel=0.01)


@pytest.mark.parametrize("profile", ["smoke", "laptop", "day", "gpu", "paper"])
def test_fine_tuning_cuts_no_document_off_at_any_scale(profile: str) -> None:
    """What had never seen an end would prefer the beginning for that alone."""
    of = stages.pretrained_stages(profile)
    assert of.tune["document_tokens"] >= of.texts.longest + 2  # with the two marks


def test_the_first_half_has_half_of_the_tokens() -> None:
    tokenizer = SMOKE.tokenizer
    texts = SMOKE.texts.pairs.documents
    for text, half in zip(texts, stages.first_halves(texts, tokenizer), strict=True):
        assert text.strip().startswith(half)
        whole, part = (len(tokenizer(one)["input_ids"]) - 2 for one in (text, half))
        assert part == pytest.approx(whole / 2, abs=0.1 * whole)
    assert stages.first_halves(["boats"], tokenizer) == ["boats"]


def test_crops_differ_in_what_is_cropped_and_not_in_how_long_they_are() -> None:
    recipe = stages.pretrained_stages("smoke", share_of_steps=50)
    texts, tokenizer = recipe.texts.pairs.documents, recipe.tokenizer
    of = {stage: recipe.crop_pairs(stage, 3) for stage in (CROPS, HALVES, SHUFFLED)}
    sides = {stage: [*pairs.queries, *pairs.documents] for stage, pairs in of.items()}
    assert {len(crops) for crops in sides.values()} == {2 * 100 * 4}
    halves = stages.first_halves(texts, tokenizer)
    assert all(any(crop in half for half in halves) for crop in sides[HALVES])
    assert all(any(crop in text for text in texts) for crop in sides[CROPS])
    assert not all(any(crop in half for half in halves) for crop in sides[CROPS])
    assert not all(any(crop in text for text in texts) for crop in sides[SHUFFLED])
    words = {stage: np.mean([len(crop.split()) for crop in all_]) for stage, all_ in sides.items()}
    for stage in (HALVES, SHUFFLED):
        assert words[stage] == pytest.approx(words[CROPS], rel=0.1)


@pytest.mark.slow
def test_a_stage_goes_on_from_the_one_before_and_is_trained_once() -> None:
    start = SMOKE.folder((), 7)
    masked = SMOKE.folder((MASKED,), 7)
    cropped = SMOKE.folder((MASKED, CROPS), 7)
    tuned = SMOKE.folder((MASKED, CROPS, TUNED), 7)
    assert Run.read(cropped).config.start == str(masked / "model")
    assert Run.read(tuned).config.start == str(cropped / "model")
    assert SMOKE.folder((MASKED, CROPS), 7) == cropped
    folders = {start, masked, cropped, tuned, SMOKE.folder((CROPS,), 7), SMOKE.folder((), 8)}
    assert len(folders) == 6
    # the first steps of Adam move each weight by the rate at most: where it went on from is seen
    before, after = weights(masked), weights(cropped)
    far = max(float((after[name] - before[name]).abs().max()) for name in before)
    assert 0 < far < 3 * SMOKE.crops["steps"] * SMOKE.crops["learning_rate"]
    assert not torch.equal(weights(start)[POSITIONS], before[POSITIONS])


def test_masked_modelling_of_no_rate_leaves_what_it_began_with() -> None:
    idle = {**SMOKE.masked, "learning_rate": 1e-30}
    recipe = replace(SMOKE, masked=idle)
    begun, ended = weights(recipe.folder((), 0)), weights(recipe.folder((MASKED,), 0))
    for name, tensor in begun.items():
        assert float((tensor - ended[name]).abs().max()) < 1e-20


def test_an_episode_takes_the_documents_that_its_own_start_ranks_highest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun = SMOKE.folder((TUNED,), 0)
    given: list[tuple[Any, Any]] = []

    def noted(config: Any, pairs: Any, hard_negatives: Any = None) -> Any:
        given.append((config, hard_negatives))
        return SimpleNamespace(folder=begun)

    monkeypatch.setattr(stages, "train", noted)
    SMOKE.folder((TUNED, TUNED), 0)
    (first, none), (second, mined) = given
    assert none is None, "the first episode has the surrogate's"
    assert (first.seed, second.seed) == (0, 1000)
    assert second.start == str(begun / "model")
    model, pairs = BiEncoder.from_pretrained(begun / "model"), SMOKE.texts.pairs
    vectors = model.encode_queries(pairs.queries), model.encode_documents(pairs.documents)
    np.testing.assert_array_equal(mined, mine_hard_negatives(*vectors, second.hard_negatives))


@dataclass(frozen=True)
class Built(stages.PretrainedStages):
    """The chains' probe, of an encoder that reads the first words of a document alone."""

    def encoder(self, chain: str, seed: int) -> Any:
        return BM25() if chain == "BM25" else Bag(SMOKE.tokenizer, lambda ids: ids[:15])


def test_the_probe_finds_a_built_bias_and_none_in_a_bag_of_words() -> None:
    texts = stages.pretrained_stages("smoke", queries=40).texts
    recipe = Built(texts, 40, 1, SMOKE.masked, SMOKE.crops, SMOKE.tune, 2)
    rows = pd.DataFrame([recipe.probe("first words", 0), recipe.probe("BM25", 0)])
    first, bag = (row for _, row in rows.join(thirds(rows)).iterrows())
    assert first["beginning"] > first["end"] + 10
    assert first["decline"] > 0.3
    assert first["decline, shuffled"] > 0.3
    assert bag["beginning"] == pytest.approx(bag["end"])
    assert np.isnan([bag["decline"], bag["room"]]).all()
    assert bag["mrr 0"] == pytest.approx(bag["mrr 10"])


@pytest.mark.slow
def test_a_stage_that_changes_nothing_adds_nothing_whatever_the_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    start = SMOKE.folder((), 0)
    monkeypatch.setattr(stages.PretrainedStages, "folder", lambda *_: start)
    rows = stages.rows_of_orders(SMOKE, [0], 3)
    declines = decline_by_order(rows)
    assert set(declines) == set(stages.STEPS)
    # one encoder: an order has a decline of its own, which the difference of stages has not
    assert declines[stages.STEPS[0]].nunique() == 3
    assert (declines.sub(declines[stages.STEPS[0]], axis=0) == 0).all().all()
    (bm25,) = rows.loc[rows["chain"] == "BM25", "mrr"]
    assert 0 < bm25 <= 1


@pytest.mark.slow
def test_a_ranker_without_positions_loses_nothing_when_passages_move(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    start = SMOKE.folder((), 0)
    monkeypatch.setattr(stages.PretrainedStages, "folder", lambda *_: start)
    rows = stages.rows_of_compared(SMOKE, [0], 2).set_index("chain")
    assert set(rows.index) == {*stages.COMPARED, "BM25"}
    assert rows.loc["BM25", "lost"] == pytest.approx(0)
    assert rows["recall"].between(rows["mrr"], 1).all()
    assert rows.drop("BM25")[["mrr", "recall", "lost"]].nunique().eq(1).all()

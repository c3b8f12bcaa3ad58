"""Masks are BERT's, only what is asked for teaches, and an interruption changes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny_encoders import BACKBONES

from cde.models import BiEncoder, BiEncoderConfig
from cde.models.encoder import load_tokenizer
from cde_studies.dwell.masked_modelling import Masked, mask_tokens, masked_loss, pretrain_masked

MARK = 1
WORDS = np.arange(1000, 3000, dtype=np.int32)
BACKBONE = {**BACKBONES["bert"], "vocab_size": 30522}
TEXTS = [
    f"the wind fills the {color} sails and the boat leaves the harbour for the open sea " * 3
    for color in ("red", "white", "green", "yellow")
]


def untrained(seed: int = 0) -> BiEncoder:
    torch.manual_seed(seed)
    model = BiEncoder(BiEncoderConfig(backbone=BACKBONE, max_tokens=64))
    ready: BiEncoder = model.set_up(load_tokenizer("minilm"), "sdpa", "cpu", "float32")
    return ready


def masked_batch(sizes: tuple[int, ...] = (5, 40, 13)) -> list[Masked]:
    generator = np.random.default_rng(0)
    rows = [generator.choice(WORDS, size) for size in sizes]
    return [mask_tokens(row, WORDS, 103, generator) for row in rows]


@given(st.integers(1, 300), st.integers(0, 10**6))
def test_a_share_of_the_tokens_is_asked_for_and_no_other_is_touched(size: int, seed: int) -> None:
    ids = np.arange(100, 100 + size, dtype=np.int32)
    masked = mask_tokens(ids, WORDS, MARK, np.random.default_rng(seed))
    assert len(masked.places) == max(1, round(0.15 * size))
    assert (np.diff(masked.places) > 0).all()
    np.testing.assert_array_equal(masked.target, ids[masked.places])
    back = masked.text.copy()
    back[masked.places] = masked.target
    np.testing.assert_array_equal(back, ids)


def test_of_ten_asked_for_eight_are_masked_one_is_random_and_one_stays() -> None:
    generator = np.random.default_rng(0)
    ids = np.arange(100, 300, dtype=np.int32)
    found, places = [], np.zeros(200)
    for _ in range(1000):
        masked = mask_tokens(ids, WORDS, MARK, generator)
        found.append(masked.text[masked.places])
        places[masked.places] += 1
    seen = np.concatenate(found)
    kept = (seen >= 100) & (seen < 300)
    random = seen >= 1000
    assert (seen == MARK).mean() == pytest.approx(0.8, abs=0.01)
    assert kept.mean() == pytest.approx(0.1, abs=0.01)
    assert random.mean() == pytest.approx(0.1, abs=0.01)
    # every place and every word alike
    assert places.mean() == pytest.approx(150)
    assert np.ptp(places.reshape(10, 20).mean(axis=1)) < 20
    assert np.unique(seen[random]).size > 1300


def test_who_knows_nothing_is_surprised_by_the_logarithm_of_the_vocabulary() -> None:
    loss, accuracy = masked_loss(untrained(), masked_batch((60, 60, 60)))
    assert loss.item() == pytest.approx(np.log(30522), abs=0.15)
    assert accuracy < 0.1


def test_only_tokens_asked_for_teach(monkeypatch: pytest.MonkeyPatch) -> None:
    model, batch = untrained(), masked_batch()
    states: list[torch.Tensor] = []
    give = BiEncoder.token_states

    def noted(self: BiEncoder, *arguments: Any) -> Any:
        hidden, mask = give(self, *arguments)
        hidden.retain_grad()
        states.append(hidden)
        return hidden, mask

    monkeypatch.setattr(BiEncoder, "token_states", noted)
    loss, _ = masked_loss(model, batch)
    loss.backward()
    assert states[0].grad is not None
    taught = states[0].grad.abs().sum(dim=-1) > 0
    for row, one in zip(taught, batch, strict=True):
        # a token further to the right: [CLS] stands before the text
        assert torch.nonzero(row)[:, 0].tolist() == (one.places + 1).tolist()


def test_every_token_asked_for_weighs_the_same_in_a_short_text_and_in_a_long_one() -> None:
    model, batch = untrained(), masked_batch((5, 60, 7, 20))
    whole, _ = masked_loss(model, batch)
    counts = [len(one.places) for one in batch]
    alone = [masked_loss(model, [one])[0].item() for one in batch]
    assert counts == [1, 9, 1, 3]
    assert whole.item() == pytest.approx(np.average(alone, weights=counts), rel=1e-5)


def test_it_learns_goes_on_after_an_interruption_and_throws_its_bias_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"batch_size": 3, "tokens": 20, "learning_rate": 1e-2, "checkpoint_every": 2}
    whole, stopped, again = untrained(), untrained(), untrained()
    metrics = pretrain_masked(whole, TEXTS, tmp_path / "whole", steps=8, **settings)
    assert metrics[-1]["loss"] < metrics[0]["loss"] - 1
    assert set(whole.state_dict()) == set(untrained().state_dict())
    assert not whole.training
    original, calls = torch.optim.AdamW.step, []

    def failing(self: Any, *arguments: Any, **options: Any) -> Any:
        calls.append(1)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return original(self, *arguments, **options)

    monkeypatch.setattr(torch.optim.AdamW, "step", failing)
    with pytest.raises(KeyboardInterrupt):
        pretrain_masked(stopped, TEXTS, tmp_path / "stopped", steps=8, **settings)
    resumed = pretrain_masked(again, TEXTS, tmp_path / "stopped", steps=8, **settings)
    assert len(calls) == 4 + 6, "the two steps before the checkpoint are not repeated"
    assert [row["loss"] for row in resumed] == [row["loss"] for row in metrics]
    for name, tensor in whole.state_dict().items():
        assert torch.equal(tensor, again.state_dict()[name]), name
    with pytest.raises(ValueError, match="other settings"):
        pretrain_masked(again, TEXTS, tmp_path / "stopped", steps=8, seed=1, **settings)

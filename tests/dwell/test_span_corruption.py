"""Corruption loses nothing and touches what it says; the probe recovers a built-in bias."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cde.models.encoder import load_tokenizer
from cde_studies.dwell import span_corruption
from cde_studies.dwell.encoder_decoder import EncoderDecoder
from cde_studies.dwell.span_corruption import Corrupted, corrupt, pretrain, sentinels

MARKS = np.arange(1, 41, dtype=np.int32)
TEXTS = [
    "the wind fills the sails of the red boat and the boat leaves the harbour for the open sea " * 4
] * 3


def restored(corrupted: Corrupted) -> list[int]:
    """Put the target's spans back where their sentinels stand."""
    spans: dict[int, list[int]] = {}
    for token in corrupted.target.tolist():
        if token <= 40:
            spans[token] = []
            last = token
        else:
            spans[last].append(token)
    assert spans.pop(last) == []
    return [
        token
        for place in corrupted.text.tolist()
        for token in (spans[place] if place <= 40 else [place])
    ]


@given(st.integers(4, 600), st.integers(0, 10**6))
def test_text_and_target_are_the_original(size: int, seed: int) -> None:
    ids = np.arange(100, 100 + size, dtype=np.int32)
    corrupted = corrupt(ids, MARKS, np.random.default_rng(seed))
    assert restored(corrupted) == ids.tolist()
    marks = [token for token in corrupted.text.tolist() if token <= 40]
    assert marks == list(range(1, len(marks) + 1))
    out = size - (len(corrupted.text) - len(marks))
    assert out == max(1, round(0.15 * size))
    # no span is empty, and something is left before, between and after them
    for row, ends in ((corrupted.text, (0, -1)), (corrupted.target, ())):
        is_mark = row <= 40
        assert not (is_mark[1:] & is_mark[:-1]).any()
        assert not any(is_mark[end] for end in ends)


def test_spans_have_the_mean_length_and_fall_anywhere() -> None:
    generator = np.random.default_rng(0)
    ids = np.arange(100, 300, dtype=np.int32)
    lengths, places = [], np.zeros(200)
    for _ in range(2000):
        corrupted = corrupt(ids, MARKS, generator)
        lengths.append((len(corrupted.target) - 11) / 10)
        out = set(ids.tolist()) - set(corrupted.text.tolist())
        places[[token - 100 for token in out]] += 1
    assert np.mean(lengths) == pytest.approx(3.0)
    # a corrupted span is as likely in the second tenth as in the ninth; the ends are a little safer
    inner = places[20:180].reshape(8, 20).mean(axis=1) / 2000
    assert inner.min() > 0.14
    assert inner.max() < 0.17


@given(st.integers(20, 400), st.integers(2, 10), st.integers(0, 1000))
def test_a_window_is_corrupted_alone_with_spans_of_three(
    size: int, windows: int, seed: int
) -> None:
    ids = np.arange(100, 100 + size, dtype=np.int32)
    corrupted = span_corruption.windows_corrupted(ids, MARKS, np.random.default_rng(seed), windows)
    if isinstance(corrupted, str):
        assert size // windows < 5
        return
    for edges, one in zip(np.array_split(ids, windows), corrupted, strict=True):
        assert restored(one) == ids.tolist()
        out = sorted(set(ids.tolist()) - set(one.text.tolist()))
        assert set(out) <= set(edges.tolist())
        count = int((one.text <= 40).sum())
        assert len(out) == 3 * count
        assert [len(part) for part in np.split(out, np.flatnonzero(np.diff(out) > 1) + 1)] == [
            3
        ] * count


class Knowing:
    """A language model that restores spans of the first `share` of a document, none later."""

    def __init__(self, share: float) -> None:
        self.share = share
        self.tokenizer = load_tokenizer("minilm")
        self.device, self.precision = torch.device("cpu"), "float32"

    def restore(
        self, ids: torch.Tensor, mask: torch.Tensor | None, labels: torch.Tensor
    ) -> torch.Tensor:
        scores = torch.zeros(*labels.shape, 30522)
        scores[..., 5] = 0.5
        marks = torch.from_numpy(sentinels(self.tokenizer)).to(ids)
        lengths = torch.full((len(ids),), ids.shape[1]) if mask is None else mask.sum(dim=1)
        first = torch.isin(ids, marks).int().argmax(dim=1) / lengths
        for row in torch.nonzero(first < self.share)[:, 0].tolist():
            scores[row].scatter_(1, labels[row].clamp(min=0)[:, None], 1.0)
        return scores


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_the_probe_recovers_what_a_model_knows(share: float) -> None:
    model: Any = Knowing(share)
    accuracy, _, left_out = span_corruption.span_accuracy(
        model, [*TEXTS, "too short"], batch_size=7
    )
    assert accuracy.shape == (3, 10)
    assert left_out == {"fewer than 50 tokens": 1}
    np.testing.assert_array_equal(
        accuracy.mean(axis=0), [1.0 * (window < 10 * share) for window in range(10)]
    )
    with pytest.raises(ValueError, match="no document can be probed"):
        span_corruption.span_accuracy(model, ["too short"])


def test_one_who_names_the_commonest_token_is_right_as_often_as_it_stands_there() -> None:
    model: Any = Knowing(0.0)
    texts = [" ".join(["boat", "red", "boat", "sea"] * 20)] * 40
    _, guessed, _ = span_corruption.span_accuracy(model, texts)
    assert guessed.mean() == pytest.approx(0.5, abs=0.02)
    assert np.ptp(guessed.mean(axis=0)) < 0.2


@pytest.mark.slow
def test_a_long_text_is_seen_as_often_at_its_end_as_at_its_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [f"{first}{second}" for first in "abcdefgh" for second in "eiou"]
    model = EncoderDecoder.small(layers=1, precision="float32", device="cpu")
    ids = model.tokenizer(" ".join(words), add_special_tokens=False)["input_ids"]
    seen = np.zeros(len(ids))
    make = span_corruption.corrupt

    def noted(stretch: Any, *rest: Any) -> Any:
        assert len(stretch) == 16
        seen[ids.index(stretch[0]) : ids.index(stretch[-1]) + 1] += 1
        return make(stretch, *rest)

    monkeypatch.setattr(span_corruption, "corrupt", noted)
    settings = {"steps": 40, "batch_size": 8, "tokens": 16, "learning_rate": 1e-9}
    pretrain(model, [" ".join(words)] * 8, tmp_path, **settings)
    assert seen[:4].mean() == pytest.approx(seen[-4:].mean(), rel=0.35)
    assert seen[-1] > 0


def test_each_step_corrupts_other_texts_in_other_places_by_its_seed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = EncoderDecoder.small(layers=1, precision="float32", device="cpu")
    texts = [" ".join(f"{first}{second}" for second in "eiou" * 8) for first in "bcdfghjk"]
    made: list[list[int]] = []

    def noted(_: Any, batch: Any, chunk: int) -> tuple[float, float]:
        made.append([token for one in batch for token in (*one.text, *one.target)])
        return 0.0, 0.0

    monkeypatch.setattr(span_corruption, "_gradients", noted)
    for name, seed in (("one", 0), ("again", 0), ("other", 1)):
        pretrain(model, texts, tmp_path / name, steps=3, batch_size=4, tokens=20, seed=seed)
    one, again, other = made[:3], made[3:6], made[6:]
    assert one == again
    assert len({tuple(step) for step in (*one, *other)}) == 6


def test_every_target_token_weighs_the_same_whichever_chunk_it_is_in() -> None:
    """A chunk of long targets weighs more than one of short targets, or of fewer texts."""
    torch.manual_seed(0)
    model = EncoderDecoder.small(layers=1, precision="float32", device="cpu").eval()
    marks, generator = sentinels(model.tokenizer), np.random.default_rng(0)
    batch = [
        corrupt(generator.integers(2000, 3000, size).astype(np.int32), marks, generator)
        for size in (5, 80, 6, 7, 40)
    ]
    found = []
    for chunk in (5, 2, 1):
        model.zero_grad(set_to_none=True)
        loss, accuracy = span_corruption._gradients(model, batch, chunk)
        gradient = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
        found.append((loss, accuracy, gradient))
    for loss, accuracy, gradient in found[1:]:
        assert loss == pytest.approx(found[0][0], rel=1e-5)
        assert accuracy == pytest.approx(found[0][1], abs=1e-7)
        torch.testing.assert_close(gradient, found[0][2], rtol=1e-3, atol=1e-6)


def test_sentinels_are_those_of_the_tokenizer() -> None:
    class T5Like:
        def get_vocab(self) -> dict[str, int]:
            return {"a": 0, "<extra_id_0>": 9, "<extra_id_1>": 8, "[unused0]": 3, "[unused1]": 4}

    assert sentinels(T5Like()).tolist() == [9, 8]
    bare: Any = SimpleNamespace(get_vocab=lambda: {"a": 0})
    with pytest.raises(ValueError, match="no sentinels"):
        sentinels(bare)

"""Properties before training: what is measured as no change is none, what changes is seen."""

from __future__ import annotations

import math

import numpy as np
import torch

from cde_studies.encoder import properties
from cde_studies.encoder.untrained import untrained_arms, untrained_published

IDS = torch.arange(1000, 1024).reshape(3, 8)
TEXT = (IDS, torch.ones_like(IDS))
CONTEXT = (IDS.flip(1), torch.ones_like(IDS))


def test_permuting_the_context_changes_nothing_and_exchanging_tokens_does() -> None:
    arms = untrained_arms(context_size=3)
    rows = properties.order_changes(arms, TEXT, CONTEXT, 2, np.random.default_rng(0))
    assert len(rows) == 2 * len(arms)
    assert rows["context permuted"].max() < 1e-4
    assert rows["two text tokens exchanged"].min() > 1e-3


def test_a_published_pass_with_positions_in_its_context_is_told_from_ours() -> None:
    v2 = untrained_published("v2", 3)
    rows = properties.order_changes(
        {("v2", "full"): v2}, TEXT, CONTEXT, 3, np.random.default_rng(0)
    )
    assert rows["context permuted"].max() > 1e-3


def test_null_tokens_hide_whatever_corpus_there_is() -> None:
    arms = untrained_arms(context_size=3)
    rows = properties.null_changes(arms, TEXT, {"a": TEXT, "b": CONTEXT})
    assert len(rows) == 2 * len(arms)
    assert rows["change"].max() < 1e-4


def test_the_published_file_sees_no_order_of_words_and_refuses_a_shorter_context() -> None:
    changes = {
        name: properties.pass_changes(untrained_published(name, 6), TEXT, CONTEXT)[0]
        for name in ("hub", "train", "v2")
    }
    assert math.isnan(changes["hub"]["half of the context"])
    exchanged = {name: one["two text tokens exchanged"] for name, one in changes.items()}
    assert exchanged["hub"] < 1e-4 < exchanged["train"]
    assert changes["hub"]["context reversed"] < 1e-4 < changes["v2"]["context reversed"]

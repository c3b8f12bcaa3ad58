"""The arms of two processes in the chapter `gradient_caching`: what each does wrong, and that it is found out."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from cde.training import TrainConfig
from cde_studies.encoder.faults import ARMS, Task, add_noise, train_arms

CONFIG = TrainConfig(
    architecture="bi-encoder", layers=1, batch_size=8, cluster_size=8, steps=2, warmup_steps=1,
    query_tokens=12, document_tokens=12, surrogate_tokens=12, learning_rate=3e-4,
    checkpoint_every=0, precision="float32",
)  # fmt: skip
TASK = Task(CONFIG, pairs=64, documents=30, queries=10, noise=0.2, seeds=(0,))


@pytest.mark.slow
def test_every_arm_is_trained_and_copies_that_differ_are_found(small_start: str) -> None:
    task = replace(TASK, config=replace(CONFIG, start=small_start))
    rows = train_arms(task).set_index("arm")
    assert list(rows.index) == [arm for arms in ARMS.values() for arm in arms]
    assert list(rows.index[rows["detected"]]) == ["different weights", "no synchronisation"]
    one, two = rows.loc["one process"], rows.loc["two processes"]
    assert two["loss"] == pytest.approx(one["loss"], rel=1e-3)
    assert rows.loc["own negatives", "loss"] < two["loss"]  # of half as many documents
    assert rows["gradient_difference"].max() < 1e-4


def test_noise_is_a_share_of_each_matrix_and_leaves_vectors_alone() -> None:
    layer = nn.Linear(400, 400)
    before = {name: tensor.clone() for name, tensor in layer.state_dict().items()}
    add_noise(layer, 0.2, seed=0)
    moved = (layer.weight.detach() - before["weight"]).std() / before["weight"].std()
    assert float(moved) == pytest.approx(0.2, rel=0.02)
    assert torch.equal(layer.bias, before["bias"])

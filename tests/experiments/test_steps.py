"""A random step says the same twice, and calls in own processes come back in order."""

from __future__ import annotations

import math

import pytest
import torch

from cde.experiments.steps import random_step, step_memory
from cde.experiments.timing import in_own_processes, memory_is_measured

pytestmark = pytest.mark.usefixtures("one_thread")
SMALL = {"layers": 1, "tokens": 4, "context_size": 2}


def test_a_step_has_the_same_loss_each_time_and_leaves_gradients() -> None:
    model, step = random_step(3, seed=1, dropout=0.1, hard=1, **SMALL)
    first = float(step(64, cache=True, half=False).loss)
    assert float(step(64, cache=True, half=False).loss) == first
    assert any(parameter.grad is not None for parameter in model.parameters())


def test_a_seed_makes_the_same_step_again() -> None:
    losses = [float(random_step(3, seed=2, **SMALL)[1](64, True, False).loss) for _ in range(2)]
    assert losses[0] == losses[1]
    torch.manual_seed(5)
    assert float(random_step(3, seed=2, **SMALL)[1](64, True, False).loss) == losses[0]


def test_calls_in_own_processes_come_back_in_order() -> None:
    assert in_own_processes(math.gcd, [(4, 6), (9, 12), (5, 7)]) == [2, 3, 1]


def test_a_call_that_fails_says_why() -> None:
    with pytest.raises(RuntimeError, match="math domain error|expected a nonnegative input"):
        in_own_processes(math.sqrt, [(-1.0,)])


@pytest.mark.skipif(not memory_is_measured(), reason="this machine does not tell")
def test_the_memory_of_a_step_is_above_the_model() -> None:
    (found,) = in_own_processes(step_memory, [(2, 0, True, 64, SMALL)])
    assert 0 < found["above"] < found["process"]
    assert math.isfinite(found["loss"])

"""How many steps optimisers have taken in this process.

What is computed from weights and kept has to be computed anew once they have been trained on.
PyTorch counts the changes of a tensor, but a fused optimiser changes weights without being counted;
its steps are counted here.

Cost: an addition a step.
"""

from __future__ import annotations

from typing import Any

from torch.optim.optimizer import register_optimizer_step_post_hook

__all__ = ["steps_taken"]

_taken = 0


def _count(*_: Any) -> None:
    global _taken
    _taken += 1


register_optimizer_step_post_hook(_count)


def steps_taken() -> int:
    """Steps of all optimisers since this module was imported."""
    return _taken

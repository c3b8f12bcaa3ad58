"""Contrastive training: loss, two-stage gradient cache, batches, several processes, the loop.

`cde.train(TrainConfig(...))` runs it through the store of runs (`cde.training.runs`); `Trainer`
is the loop itself.
"""

from typing import TYPE_CHECKING

import lazy_loader

if TYPE_CHECKING:
    from cde.training.configuration import TrainConfig
    from cde.training.loss import ContrastiveLoss, contrastive_loss
    from cde.training.preparation import Preparation
    from cde.training.processes import Processes, differing_process
    from cde.training.step import BatchTexts, backward
    from cde.training.trainer import Trainer, build_model

__all__ = [
    "BatchTexts",
    "ContrastiveLoss",
    "Preparation",
    "Processes",
    "TrainConfig",
    "Trainer",
    "backward",
    "build_model",
    "contrastive_loss",
    "differing_process",
]

# imported on first use: a page that only reads records loads no torch
__getattr__, __dir__, _ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "configuration": ["TrainConfig"],
        "loss": ["ContrastiveLoss", "contrastive_loss"],
        "preparation": ["Preparation"],
        "processes": ["Processes", "differing_process"],
        "step": ["BatchTexts", "backward"],
        "trainer": ["Trainer", "build_model"],
    },
)

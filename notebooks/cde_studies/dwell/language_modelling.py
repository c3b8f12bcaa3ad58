"""Steps on stretches of documents: the loop that both language-model tasks share.

Each step draws a batch of documents and takes all tokens of each, or of a longer one so many from
anywhere in it. The task, span corruption or masked modelling, spoils a stretch and takes gradients;
AdamW moves the weights, with a rising and then falling learning rate and gradients clipped to 1.
What a step draws depends on the seed and the step alone.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from transformers import get_cosine_schedule_with_warmup

from cde.models.encoder import tokenise
from cde.storage import content_hash
from cde.training.trainer import Loop

Ids = NDArray[np.int32]
Spoilt = TypeVar("Spoilt")


def bare_ids(tokenizer: Any, texts: Sequence[str]) -> list[Ids]:
    """Token ids of whole texts without the special tokens at their ends."""
    special = np.array(tokenizer.all_special_ids)
    rows = tokenise(tokenizer, list(texts), 10**9)
    return [row[~np.isin(row, special)] for row in rows]


def stretch(ids: Ids, tokens: int, generator: np.random.Generator) -> Ids:
    """All tokens, or so many from anywhere in the text, the end as often as the beginning."""
    start = int(generator.integers(0, max(0, len(ids) - tokens) + 1))
    return ids[start : start + tokens]


def train_on_stretches(
    trained: nn.Module,
    rows: Sequence[Ids],
    texts: Sequence[str],
    folder: Path,
    spoil: Callable[[Ids, np.random.Generator], Spoilt],
    gradients: Callable[[list[Spoilt]], tuple[float, float]],
    *,
    task: str,
    learning_rate: float = 1e-3,
    steps: int,
    batch_size: int = 32,
    tokens: int = 128,
    warmup: float = 0.1,
    checkpoint_every: int = 100,
    seed: int = 0,
) -> list[dict[str, float]]:
    """Train a module on a language-model task, in place; an interrupted call goes on from its last
    checkpoint. A row for each step: loss (nats a token), accuracy, seconds.
    """
    optimiser = torch.optim.AdamW(trained.parameters(), lr=learning_rate, weight_decay=0.0)
    schedule = get_cosine_schedule_with_warmup(optimiser, int(warmup * steps), steps)
    settings = [steps, batch_size, tokens, learning_rate, warmup, seed]
    identity = json.dumps([task, content_hash(texts), *settings])
    loop = Loop(trained, optimiser, schedule, identity, folder, checkpoint_every)
    loop.resume()

    def step(number: int) -> dict[str, float]:
        begun = time.perf_counter()
        generator = np.random.default_rng([seed, number])
        drawn = generator.choice(len(rows), min(batch_size, len(rows)), replace=False)
        batch = [spoil(stretch(rows[row], tokens, generator), generator) for row in drawn]
        optimiser.zero_grad(set_to_none=True)
        loss, accuracy = gradients(batch)
        if not np.isfinite(loss):
            raise FloatingPointError(f"step {number + 1}: the loss is {loss}; lower learning_rate")
        torch.nn.utils.clip_grad_norm_(trained.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        return {"loss": loss, "accuracy": accuracy, "seconds": time.perf_counter() - begun}

    trained.train()
    metrics = loop.run(step, steps, task)
    trained.eval()
    return metrics

"""Contrastive training of an encoder: one step after another, the same numbers after an
interruption.

What a step draws depends on the seed and the step alone, so that no random state has to be kept. A
damaged checkpoint is set aside, with a warning, and the loop begins again.
"""

from __future__ import annotations

import errno
import json
import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import torch
from torch import Tensor, nn
from transformers import get_linear_schedule_with_warmup, get_polynomial_decay_schedule_with_warmup

from cde.data import Pairs
from cde.hardware import half_precision, tokens_at_once
from cde.models import BiEncoder, ContextualEncoder
from cde.models.encoder import Encoder
from cde.models.weights import read_config
from cde.progress import progress
from cde.storage import atomic_path, disk_error, set_aside
from cde.training.configuration import TrainConfig
from cde.training.loss import ContrastiveLoss, Loss, contrastive_loss, loss_key
from cde.training.preparation import Batch, Preparation
from cde.training.processes import Processes, differing_process
from cde.training.step import backward, tokens_in
from cde.validation import checked_instance, checked_path

__all__ = ["Trainer", "build_model"]

#: name of the file that an interrupted loop goes on from
CHECKPOINT = "checkpoint.pt"
_LOWER = "Lower learning_rate or lengthen warmup_steps, or take precision='float32'"


def build_model(config: TrainConfig, device: torch.device | None = None) -> Encoder:
    """The encoder that a config describes, with its starting weights."""
    torch.manual_seed(config.seed)
    options: dict[str, Any] = {"device": device and str(device), "precision": config.precision}
    started = Path(config.start)
    is_folder = config.start != "minilm" and os.path.isfile(started / "config.json")
    saved = read_config(started) if is_folder else {}
    if str(saved.get("model_type")).startswith("cde-"):
        cls: Any = BiEncoder if config.architecture == "bi-encoder" else ContextualEncoder
        model: Encoder = cls.from_pretrained(started, **options)
        own = getattr(model.config, "context_size", config.context_size)
        if config.context_size > own:
            most = f"context_size can be {own} or less; it is {config.context_size}"
            raise ValueError(f"{config.start} has a context of {own} documents: {most}")
        return model
    settings = {"max_tokens": longest_text(config), **config.model}
    if config.architecture == "bi-encoder":
        return BiEncoder.from_backbone(config.start, config.layers, **options, **settings)
    return ContextualEncoder.from_backbone(
        config.start,
        config.layers,
        first_stage_layers=config.first_stage_layers,
        attention=config.attention,
        context_size=config.context_size,
        vectors_per_document=config.vectors_per_document,
        **options,
        **settings,
    )


def longest_text(config: TrainConfig) -> int:
    """Tokens of the longest texts that an encoder is trained on."""
    texts = max(config.query_tokens, config.document_tokens)
    return max(texts, config.context_tokens) if config.architecture == "contextual" else texts


def gradient_norms(model: Encoder) -> dict[str, float]:
    """Length of the gradient over all weights, and over those of a first stage of its own."""
    parts = {"gradient_norm": list(model.parameters())}
    if isinstance(first := getattr(model, "first_stage", None), nn.Module):
        parts["first_stage_gradient_norm"] = list(first.parameters())
    return {
        name: float(nn.utils.get_total_norm([own.grad for own in weights if own.grad is not None]))
        for name, weights in parts.items()
        if weights
    }


@dataclass
class Loop:
    """A model in training, its optimiser and schedule, the steps so far, and where it is kept."""

    model: nn.Module
    optimiser: torch.optim.Optimizer
    schedule: torch.optim.lr_scheduler.LRScheduler
    identity: str
    folder: Path | None = None
    every: int = 0
    sampler: Any = None  # with `state_dict` and `load_state_dict`
    processes: Processes = field(default_factory=Processes)
    data: str = ""  # what it is trained on
    metrics: list[dict[str, float]] = field(default_factory=list)

    def resume(self) -> None:
        """Go on from the folder's checkpoint, if there is one."""
        if self.folder is None:
            return
        # process 0 alone has written checkpoints, and its machine's folder may be the only one
        path, first = self.folder / CHECKPOINT, self.processes.rank == 0
        state = self.processes.of_first(_read(path) if first else None)
        if state is None:
            return
        if (state["identity"], state.get("data", self.data)) != (self.identity, self.data):
            raise ValueError(
                f"{path} is of a run with other settings or data; take another folder, or remove it"
            )
        for name, part in self._parts().items():
            part.load_state_dict(state[name])
        self.metrics = state["metrics"]

    def run(
        self, step: Callable[[int], dict[str, float]], steps: int, name: str
    ) -> list[dict[str, float]]:
        """Take the steps that are left; the rows of all, those before an interruption too."""
        for number in progress(range(len(self.metrics), steps), name, unit="steps"):
            self.metrics.append(step(number))
            due = self.every and (number + 1) % self.every == 0
            if self.folder is not None and (due or number + 1 == steps):
                self.check_alike("has drifted away from process 0: gradients are not in step")
                if self.processes.rank == 0:
                    self._save(self.folder / CHECKPOINT)
        return self.metrics

    def check_alike(self, problem: str) -> None:
        """Raise an error where a process has other weights than process 0."""
        if (differing := differing_process(self.model, self.processes)) is not None:
            raise RuntimeError(f"process {differing} {problem} (§10.3)")

    def _parts(self) -> dict[str, Any]:
        parts = {"model": self.model, "optimiser": self.optimiser, "schedule": self.schedule}
        return parts if self.sampler is None else {**parts, "sampler": self.sampler}

    def _save(self, path: Path) -> None:
        state = {name: part.state_dict() for name, part in self._parts().items()}
        with atomic_path(path) as temporary:
            try:
                mark = {"identity": self.identity, "data": self.data, "metrics": self.metrics}
                torch.save(state | mark, temporary)
            except RuntimeError as error:  # which is how torch words a disk that is full
                raise disk_error(path, errno.ENOSPC, str(error).splitlines()[0][:200]) from error


def _read(path: Path) -> dict[str, Any] | None:
    """A checkpoint; None where there is none, or a damaged one, which is set aside."""
    if not path.is_file():
        return None
    try:
        # torch writes the sums of what it saves, and does not look at them when it loads
        with ZipFile(path) as parts:
            damaged = parts.testzip()
        if damaged is None:
            return dict(torch.load(path, map_location="cpu", weights_only=True))
    except Exception as error:  # of all kinds
        damaged = f"{type(error).__name__}: {str(error)[:200]}"
    set_aside(path, damaged)
    return None


class Trainer:
    """One run of contrastive training.

    Args:
        config: its settings.
        pairs: to train on.
        folder: for checkpoints and metrics; an unfinished run in it goes on. None keeps nothing.
        model: to train; by default `build_model(config)`.
        processes: by default those that the launcher started.
        hard_negatives, plan, loss: as for `cde.train`.
        evaluate: tests the encoder on the way, after every `config.evaluate_every` steps and the
            last one; its numbers join the step's metrics. Its time is not counted.
    """

    def __init__(
        self,
        config: TrainConfig,
        pairs: Pairs,
        folder: Path | str | None = None,
        model: Encoder | None = None,
        processes: Processes | None = None,
        hard_negatives: Any = None,
        plan: Any = None,
        evaluate: Callable[[Encoder], dict[str, float]] | None = None,
        loss: Loss = contrastive_loss,
    ) -> None:
        self.config, self.evaluate, self.loss = config, evaluate, loss
        self.processes = processes or Processes.connect()
        model = build_model(config, self.processes.device) if model is None else model
        self.model = model.train()
        if model.longest is not None and (asked := longest_text(config)) > model.longest:
            kinds = "query_tokens, document_tokens and context_tokens can be that many"
            most = f"the encoder has {model.longest} learned positions"
            raise ValueError(f"{most}: {kinds}; the largest is {asked}")
        prefixes = (model.config.query_prefix, model.config.document_prefix)
        self.prepared = Preparation(
            config, pairs, model.tokenizer, prefixes, self.processes, hard_negatives, plan
        )
        if config.trains == "reader":
            self.model.requires_grad_(False)
            self.model.get_submodule("second_stage.reader").requires_grad_(True)
        trained = [weight for weight in self.model.parameters() if weight.requires_grad]
        self.optimiser = torch.optim.AdamW(
            trained,
            lr=config.learning_rate,
            weight_decay=config.weight_decay,
            # one pass over all weights, not six, saves a seventh of a step of two layers; losses
            # move in their last digits alone, as between processors, so `PROCEDURE` stays
            fused=True,
        )
        length = config.warmup, config.steps
        self.schedule = (
            get_polynomial_decay_schedule_with_warmup(
                self.optimiser, *length, lr_end=config.final_rate * config.learning_rate
            )
            if config.final_rate and config.warmup < config.steps  # else it never falls
            else get_linear_schedule_with_warmup(self.optimiser, *length)
        )
        folder = None if folder is None else checked_path(folder)
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
        identity = json.dumps(config.to_dict(), sort_keys=True)
        identity += "" if loss is contrastive_loss else loss_key(loss)
        self.loop = Loop(
            self.model,
            self.optimiser,
            self.schedule,
            identity,
            folder,
            config.checkpoint_every,
            self.prepared.sampler,
            self.processes,
            data=pairs.fingerprint,
        )
        self.loop.check_alike("starts from other weights than process 0: start all from one seed")
        self.loop.resume()

    def run(self) -> tuple[Encoder, list[dict[str, float]]]:
        """Train to the last step; the trained model in evaluation mode, and a row of metrics for
        each step. After an interruption a new `Trainer` goes on from the folder's checkpoint.
        """
        name = f"training: {self.config.architecture}, {self.config.batches} batches"
        batches = self.prepared.batches()

        def step(number: int) -> dict[str, float]:
            row = self._take_step(next(batches), number)
            tested = self._tested(number + 1)
            if both := row.keys() & tested.keys():
                raise ValueError(f"a test on the way gives {', '.join(both)}, as training does")
            return row | tested

        metrics = self.loop.run(step, self.config.steps, name)
        if self.config.trains == "reader":
            self.model.requires_grad_(True)
        return self.model.eval(), metrics

    def _take_step(self, batch: Batch, step: int) -> dict[str, float]:
        config, begun = self.config, time.perf_counter()
        torch.manual_seed((config.seed * 1_000_003 + step) * 64 + self.processes.rank)
        self.optimiser.zero_grad(set_to_none=True)
        rate = self.schedule.get_last_lr()[0]
        device = self.processes.device.type
        chunk_tokens, uncached_tokens = config.token_limits(device != "cpu")
        cache = tokens_in(self.model, batch.texts) > uncached_tokens
        if not cache and device == "cpu":  # all graphs are held; small chunks have less padding
            chunk_tokens = min(chunk_tokens, tokens_at_once(device, config.precision))
        try:
            result = backward(
                self.model,
                batch.texts,
                lambda embeddings: self._loss(embeddings, batch),
                chunk_tokens=chunk_tokens,
                half=half_precision(config.precision),
                cache=cache,
            )
        except FloatingPointError as error:
            raise FloatingPointError(
                f"step {step + 1}: {error}, at learning rate {rate:.2e}. {_LOWER}"
            ) from error
        self.processes.add_gradients(self.model.parameters())
        norms = gradient_norms(self.model)
        if not math.isfinite(norms["gradient_norm"]):
            raise FloatingPointError(
                f"step {step + 1}: the loss is finite and its gradient is not, at learning rate "
                f"{rate:.2e}. In a loss of one's own the root of 0 does that, or its logarithm. "
                f"{_LOWER}"
            )
        if config.clip_gradients is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), config.clip_gradients)
        self.optimiser.step()
        self.schedule.step()
        seconds = time.perf_counter() - begun
        # with negatives of their own, each process has differentiated its share of the loss
        shares = 1 if config.share_negatives else self.processes.count
        return {
            "step": step + 1,
            "loss": self.processes.mean(shares * float(result.loss)),
            "accuracy": self.processes.mean(float(result.accuracy)),
            "masked": self.processes.mean(float(result.masked)),
            "learning_rate": rate,
            **norms,
            "seconds": seconds,
        }

    def _tested(self, step: int) -> dict[str, float]:
        """What the tests on the way say after this step; nothing where none is due."""
        every = self.config.evaluate_every
        if self.evaluate is None or not every or (step % every and step != self.config.steps):
            return {}
        numbers = checked_instance(self.evaluate(self.model.eval()), dict, "what a test gives")
        self.model.train()
        # a checkpoint is read back as plain numbers
        return {name: float(value) for name, value in numbers.items()}

    def _loss(self, embeddings: Tensor, batch: Batch) -> ContrastiveLoss:
        config, count = self.config, self.processes.count
        size = config.batch_size // count
        parts = [embeddings[:size], embeddings[size : 2 * size], embeddings[2 * size :]]
        if config.share_negatives:
            parts = [self.processes.gathered(part) if len(part) else part for part in parts]
        queries, documents, hard = parts
        loss = self.loss(
            queries,
            torch.cat([documents, hard]),
            config.temperature,
            masked=torch.from_numpy(batch.left_out).to(embeddings.device),
            symmetric=config.symmetric,
            hardness=config.hardness,
        )
        checked_instance(loss, ContrastiveLoss, "what the loss gives")
        if config.share_negatives or count == 1:
            return loss
        # gradients are added up: a loss of each process's own part counts for its share
        return ContrastiveLoss(loss.loss / count, loss.accuracy, loss.masked)

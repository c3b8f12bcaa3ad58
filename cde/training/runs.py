"""A store of training runs, addressed by what they are: the same call again reads the result back.

A run lies in the cache folder under a hash of four things: its config, the precision that "auto" is
here, the content of its data, and the declared version of the training procedure (`PROCEDURE`). Of
two processes that ask for the same run, the second waits for the first; one that was interrupted
goes on from its last checkpoint. The sha256 of its files are checked whenever it is asked for.
Processes on several machines train one run in the store of process 0; it is sent to those that lack
it::

    runs/<key>/run.json        config, data, metrics, provenance, digests; written last: it is done
    runs/<key>/model/          the trained encoder, for `from_pretrained`; word embeddings that are
                               still MiniLM's are left out (`cde.models.weights`)
    runs/<key>/checkpoint.pt   while it trains
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from filelock import FileLock

from cde.batching.packing import positions_of_pairs
from cde.data import Pairs, RetrievalSet, load_pairs
from cde.hardware import chosen_precision, describe
from cde.models import BiEncoder, ContextualEncoder
from cde.models.weights import without_minilm_rows
from cde.provenance import commit, libraries, now
from cde.retrieval import evaluate
from cde.storage import (
    atomic_path,
    cache_folder,
    content_hash,
    differing_file,
    digest_of,
    folder_hash,
    read_json,
    remove_leftovers,
    set_aside,
    write_json,
)
from cde.training import Processes, TrainConfig, Trainer
from cde.training.loss import Loss, contrastive_loss, loss_key, source_of
from cde.training.trainer import CHECKPOINT
from cde.validation import checked_instance, checked_path, shown

__all__ = ["PROCEDURE", "Run", "train"]

#: the version of the training procedure: a run of another version is another run. Raise it when the
#: numbers of a run change; `tests/training/test_runs.py` holds the losses of a few steps, and
#: fails when they move and this has not
PROCEDURE = 1

_MANIFEST = "run.json"

#: how an encoder is tested on the way: from it and the tests to numbers by name
Tested = Callable[[Any, Sequence[RetrievalSet]], dict[str, float]]


def ndcg_without_context(model: Any, tests: Sequence[RetrievalSet]) -> dict[str, float]:
    """NDCG@10 of each test, under "ndcg@10 " and its name; a contextual encoder has no context."""
    bound = model.with_context(None) if getattr(model, "reads_context", False) else model
    return {f"ndcg@10 {test.name}": evaluate(bound, test)["ndcg@10"] for test in tests}


def run_key(
    config: TrainConfig,
    pairs: Pairs,
    hard_negatives: Any = None,
    plan: Any = None,
    tests: Sequence[RetrievalSet] = (),
    loss: Loss = contrastive_loss,
    evaluate_on_the_way: Tested = ndcg_without_context,
) -> str:
    """The address of a run: also of what it starts from, is tested on, and is trained by."""
    settings, procedure = json.dumps(config.to_dict(), sort_keys=True), f"procedure {PROCEDURE}"
    parts = [settings, pairs.fingerprint, procedure, chosen_precision(config.precision)]
    for folder in (config.start, config.surrogate, config.filter_surrogate):
        # weights, settings and tokenizer; "minilm" is the one that is built in
        if folder not in (None, "minilm") and os.path.isdir(folder):
            parts.append(folder_hash(folder))
    if hard_negatives is not None:
        given = positions_of_pairs(hard_negatives, "hard_negatives", len(pairs))
        parts.append(content_hash([given.tobytes()]))
    if plan is not None:
        given = positions_of_pairs(plan, "plan", len(pairs))
        parts.append(content_hash(["plan", given.tobytes()]))
    if tests and config.evaluate_every:
        parts.append(content_hash(["tests", *(test.fingerprint for test in tests)]))
        if evaluate_on_the_way is not ndcg_without_context:
            source, settings = source_of(evaluate_on_the_way, "evaluate_on_the_way")
            parts.append(f"tested by {source}{settings}")
    if loss is not contrastive_loss:
        parts.append(loss_key(loss))
    return content_hash(parts)


def provenance(seconds: float, seed: int) -> dict[str, Any]:
    """Where numbers come from: time, machine, libraries and commit."""
    head, dirty = commit()
    return {
        "time": now(),
        "seconds": round(seconds, 1),
        "device": describe(),
        "threads": torch.get_num_threads(),
        "libraries": libraries(),
        "commit": head,
        "dirty": dirty,
        "seed": seed,
    }


@dataclass(frozen=True)
class Run:
    """A finished training run.

    Attributes:
        key: its address.
        folder: where it lies.
        config: its settings.
        metrics: a row for each step: loss, accuracy, share of masked negatives, learning rate,
            lengths of gradients (`cde.training.trainer.gradient_norms`), seconds.
        provenance: time, machine, libraries, commit, seed.
        data: fingerprint of the pairs.
        source: name of the pairs: `config.data`, unless others were given to `train`.
    """

    key: str
    folder: Path
    config: TrainConfig
    metrics: pd.DataFrame
    provenance: dict[str, Any]
    data: str
    source: str = ""

    def __repr__(self) -> str:
        last = self.metrics.iloc[-1]["loss"] if len(self.metrics) else float("nan")
        what = f"{self.config.architecture} on {self.source or self.config.data}"
        return f"Run({self.key}: {what}, {len(self.metrics)} steps, loss {last:.3g})"

    def model(self) -> Any:
        """The trained encoder, read from the store."""
        files = (read_json(self.folder / _MANIFEST, since="files") or {}).get("files", {})
        if damaged := differing_file(self.folder, files):
            what = f"{self.folder / damaged[0]} {damaged[1]}"
            raise ValueError(f"{what}: train with the same config again, which makes the run again")
        kind: Any = BiEncoder if self.config.architecture == "bi-encoder" else ContextualEncoder
        return kind.from_pretrained(self.folder / "model", precision=self.config.precision)

    @classmethod
    def read(cls, folder: Path | str) -> Run:
        """A run from its folder."""
        folder = checked_path(folder)
        values = read_json(folder / _MANIFEST, since="files")
        if values is None:
            raise FileNotFoundError(f"{folder} holds no finished run: there is no run.json in it")
        return cls(
            values["key"],
            folder,
            TrainConfig(**values["config"]),
            pd.DataFrame(values["metrics"]),
            values["provenance"],
            values["data"],
            values.get("source", ""),
        )


def stored(key: str, make: Callable[[Path], dict[str, Any]], seed: int) -> Path:
    """The folder of a finished training; it is made first if the store lacks it."""
    folder, processes = cache_folder("runs", key), Processes.connect()
    _check_that_all_want(key, processes)
    # process 0 holds the lock for all; whether the work is done is its word
    with nullcontext() if processes.rank else FileLock(folder / ".lock"):
        if not processes.of_first(processes.rank == 0 and _is_whole(folder)):
            begun = time.perf_counter()
            values = make(folder)
            if processes.rank == 0:
                made = provenance(time.perf_counter() - begun, seed)
                made["processes"] = processes.count
                values = {"key": key, **values, "provenance": made}
                write_json(folder / _MANIFEST, {**values, "files": _digests(folder)})
                (folder / CHECKPOINT).unlink(missing_ok=True)
        if processes.count > 1:
            _send_to_all(folder, processes)
    return folder


def _check_that_all_want(key: str, processes: Processes) -> None:
    """Machines may differ in what "auto" is there, and in their data."""
    (first, its_own), *others = processes.of_all((key, chosen_precision("auto")))
    for rank, (other, precision) in enumerate(others, start=1):
        if other != first:
            raise ValueError(
                f"process {rank} wants the run {other}, process 0 the run {first}: give all "
                f'machines the same lock, data and settings ("auto" is {precision} and {its_own}; '
                "CDE_PRECISION=float32 works on every machine)"
            )


def _send_to_all(folder: Path, processes: Processes) -> None:
    """Give the run that process 0 has made to the processes whose machines lack it."""
    manifest = folder / _MANIFEST
    files = processes.of_first((read_json(manifest) or {})["files"] if not processes.rank else {})
    lacking = not manifest.is_file() or differing_file(folder, files) is not None
    if not any(processes.of_all(lacking)):
        return
    for name in (*files, _MANIFEST):  # as when it is made, the manifest comes last
        content = processes.of_first(b"" if processes.rank else (folder / name).read_bytes())
        if lacking:
            with atomic_path(folder / name) as temporary:
                temporary.write_bytes(content)
    processes.mean(0.0)  # the others wait until it is written


def _is_whole(folder: Path) -> bool:
    """Whether a finished run lies in a folder, whose lock is held; a damaged one is set aside."""
    for part in (folder, folder / "model"):
        remove_leftovers(part)
    values = read_json(folder / _MANIFEST, since="files")
    if values is None:
        return False
    if "files" not in values:  # of a version that kept no digests: from now on they are known
        values["files"] = _digests(folder)
        write_json(folder / _MANIFEST, values)
    if damaged := differing_file(folder, values["files"]):
        path = folder / damaged[0]
        set_aside(path if path.exists() else folder / _MANIFEST, " ".join(damaged))
        (folder / _MANIFEST).unlink(missing_ok=True)  # without it, the run is not done
        return False
    (folder / CHECKPOINT).unlink(missing_ok=True)
    return True


def _digests(folder: Path) -> dict[str, str]:
    """sha256 of what a finished run is made of."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    names = {path.relative_to(folder).as_posix(): path for path in files}
    others = re.compile(rf"(.*/)?\.[^/]*|.*\.damaged-\d+(/.*)?|{_MANIFEST}|{CHECKPOINT}")
    return {name: digest_of(path) for name, path in names.items() if not others.fullmatch(name)}


def _check_tests(tests: Any, by: Tested) -> None:
    """Refuse at once what would fail on the way, or write over the numbers of another test."""
    if not isinstance(tests, Sequence):
        raise TypeError(f"tests must be a list of RetrievalSets; they are {shown(tests)}")
    names = [checked_instance(test, RetrievalSet, "tests: each").name for test in tests]
    if by is ndcg_without_context and len(set(names)) < len(names):
        raise ValueError(f"tests must have names of their own: RetrievalSet(…, name=…); {names}")
    for test in tests if by is ndcg_without_context else ():
        if not any(test.qrels.values()):
            raise ValueError(f"tests: {test.name} has no judged query to evaluate on")


def train(
    config: TrainConfig,
    pairs: Pairs | None = None,
    hard_negatives: Any = None,
    plan: Any = None,
    tests: Sequence[RetrievalSet] = (),
    loss: Loss = contrastive_loss,
    evaluate_on_the_way: Tested = ndcg_without_context,
) -> Run:
    """Train an encoder, or read the run back if the store has it.

    Args:
        config: the settings.
        pairs: to train on; by default `cde.load_pairs(config.data)`, of which `config.pairs` are
            drawn.
        hard_negatives: `(n, h)` positions of documents; by default mined, as the config asks.
        plan: `(steps, batch_size)` positions of the pairs of each step, in place of the config's
            batches (`cde.batching.packing`).
        tests: what it is tested on on the way, where `config.evaluate_every` asks for it; the
            numbers are in the metrics of the step.
        loss: in place of `contrastive_loss`, and called as it is (`cde.training.loss.Loss`): a
            function, or `functools.partial` of one. A run of another loss is another run.
        evaluate_on_the_way: how it is tested, from the encoder and the tests to numbers by name; by
            default NDCG@10, without context. Its source is part of the run's key.

    Returns:
        The finished run.

    Raises:
        TypeError: what is no config, pairs, or list of tests.
        ValueError: data or settings that cannot be trained with, or tests that NDCG@10 cannot be
            had of, or told apart by their names.

    Several processes: start the same script with `torchrun --nproc-per-node 2`; each process gets
    the run. Several machines, which may share a cache folder or not: on each of them, with its
    number, `torchrun --nnodes 2 --node-rank 0 --nproc-per-node 1 --master-addr ADDRESS` and the
    address of the first.

    Example:
        >>> config = TrainConfig(data="pydocs/rich", architecture="bi-encoder", layers=1, steps=2,
        ...     batches="random", filter_epsilon=None, batch_size=8)
        >>> run = train(config)
        >>> len(run.metrics), run.model().dim
        (2, 384)
    """
    checked_instance(config, TrainConfig, "config")
    pairs = load_pairs(config.data) if pairs is None else checked_instance(pairs, Pairs, "pairs")
    _check_tests(tests, evaluate_on_the_way)
    if config.pairs is not None:
        pairs = pairs.sample(config.pairs, config.seed)

    def make(folder: Path) -> dict[str, Any]:
        tested = (lambda model: evaluate_on_the_way(model, tests)) if tests else None
        trainer = Trainer(config, pairs, folder, None, None, hard_negatives, plan, tested, loss)
        model, metrics = trainer.run()
        if trainer.processes.rank == 0:
            model.save_pretrained(folder / "model", without_minilm_rows(model.state_dict()))
        used = {"data": pairs.fingerprint, "source": pairs.name}
        return {"config": config.to_dict(), **used, "metrics": metrics}

    key = run_key(config, pairs, hard_negatives, plan, tests, loss, evaluate_on_the_way)
    return Run.read(stored(key, make, config.seed))

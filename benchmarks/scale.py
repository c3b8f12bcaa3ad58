"""What a run of the paper's size would take, from curves measured here at small ones.

Three trainings are measured against `cde_studies.estimate`, each in a process of its own. Then
tokenising, embedding, clustering and the store of vectors are timed at four sizes; sizes alternate
within a round. One thread. The page book/scale.md extrapolates (`pages.py`).

    python benchmarks/scale.py [--rounds 3] [--out book/scale/measured.json]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measuring import forget_peak, memory
from measuring.reports import BOOK
from pages import write_page

import cde
from cde.batching.clustering import cluster_pairs
from cde.hardware import bfloat16_is_fast, describe
from cde.models.encoder import load_tokenizer, tokenise
from cde.provenance import commit, now
from cde.storage import atomic_path
from cde.surrogate import Surrogate
from cde.training import TrainConfig, Trainer
from cde.vector_store import VectorStore
from cde_studies.estimate import estimate

BASE = TrainConfig(batches="random", filter_epsilon=None, warmup_steps=1, checkpoint_every=0)
RUNS = {
    "two layers, 32 tokens": replace(
        BASE, architecture="bi-encoder", layers=2, batch_size=64, steps=16, query_tokens=32,
        document_tokens=32
    ),
    "six layers, 64 tokens": replace(
        BASE, architecture="bi-encoder", layers=6, batch_size=64, steps=8, query_tokens=64,
        document_tokens=64
    ),
    "contextual, two layers, 48 + 32 tokens": replace(
        BASE, layers=2, batch_size=64, steps=8, context_size=32, query_tokens=48,
        document_tokens=48, context_tokens=48
    ),
}  # fmt: skip
#: pairs at which a stage is measured
SIZES = {
    "tokenising": (1000, 2000, 4000, 8000),
    "embedding": (250, 500, 1000, 2000),
    "clustering": (4096, 8192, 16384, 32768),
    "storing vectors": (2000, 4000, 8000, 16000),
}
CLUSTER, ITERATIONS = 512, 10


def peak() -> float:
    """Operations a second of this machine's matrix product, in the precision that runs have."""
    kind = torch.bfloat16 if bfloat16_is_fast() else torch.float32
    a, b = (torch.randn(2048, 2048).to(kind) for _ in range(2))
    times = []
    for _ in range(8):
        begun = time.perf_counter()
        a @ b
        times.append(time.perf_counter() - begun)
    return float(2 * 2048**3 / np.median(times[2:]))


def trained(name: str) -> dict[str, Any]:
    """One training, measured, beside its estimate."""
    config, before = RUNS[name], peak()
    forget_peak("cpu")
    base = memory("cpu")
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(config, cde.load_pairs().sample(2000, 0), Path(folder))
        _, metrics = trainer.run()
        written = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
    used = memory("cpu", peak=True) - base
    estimated = estimate(config, peak=(before + peak()) / 2)
    steps = [row["seconds"] for row in metrics[2:]]  # the first ones warm up
    return {
        "run": name,
        "predicted_seconds": estimated.gpu_hours * 3600,
        "seconds": float(np.median(steps) * config.steps),
        "predicted_memory": estimated.memory * 1024,
        "memory": used,
        "predicted_storage": 12 * estimated.parameters / 2**20,
        "storage": written / 2**20,
    }


def stages() -> dict[str, Callable[[int], float]]:
    """Stage → seconds, or bytes, at so many pairs."""
    pairs, tokenizer = cde.load_pairs().sample(8000, 0), load_tokenizer("minilm")
    surrogate = Surrogate(max_tokens=64, cache=False)
    surrogate.embed(["warm"])
    draws = np.random.default_rng(0)
    vectors = draws.standard_normal((max(SIZES["clustering"]), 384)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)

    def timed(work: Callable[[int], Any]) -> Callable[[int], float]:
        def seconds(count: int) -> float:
            begun = time.perf_counter()
            work(count)
            return time.perf_counter() - begun

        return seconds

    def store(count: int) -> float:
        with VectorStore(f"scale {count} {draws.integers(10**9)}", 384) as kept:
            kept.write([str(one) for one in range(2 * count)], vectors[: 2 * count])
            size = kept.path.stat().st_size
        kept.path.unlink()
        return float(size)

    return {
        "tokenising": timed(
            lambda count: [
                tokenise(tokenizer, texts[:count], 512)
                for texts in (list(pairs.queries), list(pairs.documents))
            ]
        ),
        "embedding": timed(
            lambda count: surrogate.embed([*pairs.queries[:count], *pairs.documents[:count]])
        ),
        "clustering": timed(
            lambda count: cluster_pairs(
                vectors[:count], vectors[:count][::-1], CLUSTER, iterations=ITERATIONS, attempts=1
            )
        ),
        "storing vectors": store,
    }


def main() -> None:
    """Measure, and write what the page reads."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--run", choices=RUNS, help="measure one training, and print it")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.run:
        print(json.dumps(trained(options.run)))
        return
    runs: list[dict[str, Any]] = []
    for number in range(options.rounds):
        for name in RUNS:
            command = [sys.executable, __file__, "--run", name]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            runs.append({"round": number, **json.loads(done.stdout.splitlines()[-1])})
            print(json.dumps(runs[-1]), flush=True)
    curves = []
    measured = stages()
    for stage, work in measured.items():
        work(SIZES[stage][0])  # the first call of a library takes longer
    for number in range(options.rounds):
        for stage, work in measured.items():
            for count in SIZES[stage]:
                row = {"stage": stage, "round": number, "pairs": count, "peak": peak()}
                curves.append({**row, "cost": work(count)})
                print(json.dumps(curves[-1]), flush=True)
    head, dirty = commit(apart_from="book/scale*")
    about = {"time": now(), "commit": head, "clean": not dirty, "device": describe()}
    about |= {"cluster_size": CLUSTER, "iterations": ITERATIONS}
    if options.out:
        with atomic_path(options.out) as path:
            path.write_text(json.dumps({**about, "runs": runs, "curves": curves}, indent=1) + "\n")
        if options.out.resolve().parent == BOOK / "scale":
            write_page("scale")


if __name__ == "__main__":
    main()

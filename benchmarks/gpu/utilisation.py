"""What share of a GPU's peak a training step reaches, what the gradient cache costs, and memory.

Two settings: *small*, MiniLM's six layers over 64 tokens and 64 context documents; *large*, twelve
layers of NomicBERT's size over 512 and 512, with random weights. In each, a bi-encoder and a
contextual encoder of both kinds of attention take one step at once and one under the cache, in
turns. The work is that of the model, as `cde_studies.estimate` counts it, without the second
forward pass of the cache; the peak is what a product of large matrices reaches here, in the same
run. A step that needs more memory than there is, is told of and left out.

    python benchmarks/gpu/utilisation.py [--out FILE.json] [--rounds 5] [--device cuda] [--tiny]

`--tiny` is the same in miniature, for a CPU.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from measuring import forget_peak, memory

from cde.hardware import describe, half_precision
from cde.models import BiEncoder, BiEncoderConfig, ContextualConfig, ContextualEncoder
from cde.provenance import commit, now
from cde.storage import write_json
from cde.training import TrainConfig
from cde.training.loss import ContrastiveLoss, contrastive_loss
from cde.training.step import BatchTexts, backward
from cde_studies.encoder.timing import in_turns
from cde_studies.estimate import estimate

SMALL = {
    "words": 30_522,
    "tokens": 64,
    "pairs": 2048,
    "chunk": 131_072,
    "backbone": {"model_type": "bert", "hidden_size": 384, "num_hidden_layers": 6,
                 "num_attention_heads": 12, "intermediate_size": 1536},
    "as": "minilm",
}  # fmt: skip
LARGE = {
    "words": 30_528,
    "tokens": 512,
    "pairs": 128,
    "chunk": 65_536,
    "backbone": {"model_type": "nomic_bert", "num_hidden_layers": 12},
    "as": "nomic-ai/nomic-bert-2048",
}
TINY = {"tokens": 8, "pairs": 4, "chunk": 48, "words": 400}
ARMS = ("bi-encoder", "cached", "full")


def encoder(arm: str, setting: dict[str, Any], layers: int | None) -> Any:
    """An encoder of random weights, in training mode."""
    shape = setting["backbone"] | {"vocab_size": setting["words"]}
    if layers is not None:
        shape["num_hidden_layers"] = layers
    if arm == "bi-encoder":
        return BiEncoder(BiEncoderConfig(backbone=shape)).train()
    config = ContextualConfig(
        first_backbone=shape, second_backbone=shape, attention=arm, context_size=setting["tokens"]
    )
    return ContextualEncoder(config).train()


def step(
    model: Any, arm: str, setting: dict[str, Any], device: str, half: bool
) -> Callable[[bool], object]:
    """One step on random words, all texts at full length."""
    random, pairs, tokens = np.random.default_rng(0), setting["pairs"], setting["tokens"]

    def texts(count: int) -> list[np.ndarray]:
        return list(random.integers(0, setting["words"], (count, tokens)).astype(np.int32))

    batch = BatchTexts(texts(2 * pairs), texts(tokens) if arm != "bi-encoder" else ())

    def loss(embeddings: torch.Tensor) -> ContrastiveLoss:
        return contrastive_loss(embeddings[:pairs], embeddings[pairs:])

    def run(cache: bool) -> object:
        model.zero_grad(set_to_none=True)
        done = backward(model, batch, loss, chunk_tokens=setting["chunk"], half=half, cache=cache)
        if device == "cuda":
            torch.cuda.synchronize()
        return done

    return run


def operations(arm: str, setting: dict[str, Any], layers: int | None) -> float:
    """Operations of the model in one step: forward, and backward at twice that."""
    tokens, pairs = setting["tokens"], setting["pairs"]

    def of(batch_size: int) -> float:
        config = TrainConfig(
            architecture="bi-encoder" if arm == "bi-encoder" else "contextual",
            attention="full" if arm == "bi-encoder" else arm,
            start=setting["as"],
            layers=layers,
            batch_size=batch_size,
            query_tokens=tokens,
            document_tokens=tokens,
            context_size=tokens,
            context_tokens=tokens,
            steps=1,
            uncached_tokens=2**31 - 1,
        )
        return estimate(config).operations

    # a config draws its context from the batch; here it may be larger: so much a pair, and the rest
    a_pair = (of(2 * tokens) - of(tokens)) / tokens
    return of(tokens) + (pairs - tokens) * a_pair


def peak_rate(device: str, half: bool, size: int) -> float:
    """Operations a second of a product of square matrices, the best of five."""
    dtype = torch.bfloat16 if half else torch.float32
    one, other = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    best = float("inf")
    for _ in range(6):
        begun = time.perf_counter()
        one @ other
        if device == "cuda":
            torch.cuda.synchronize()
        best = min(best, time.perf_counter() - begun)
    return 2 * size**3 / best


def rows_of(
    name: str, setting: dict[str, Any], options: argparse.Namespace
) -> list[dict[str, Any]]:
    half, device = half_precision(options.precision), options.device
    peak = peak_rate(device, half, 256 if options.tiny else 8192)
    layers = 1 if options.tiny else None
    rows = []
    for arm in ARMS:
        model = encoder(arm, setting, layers).to(device)
        run, work = step(model, arm, setting, device, half), operations(arm, setting, layers)
        peaks: dict[str, float] = {}
        jobs: dict[str, Callable[[], object]] = {}
        for way, cache in (("at once", False), ("cache", True)):
            before = memory(device)
            forget_peak(device)
            try:
                run(cache)
            except torch.OutOfMemoryError:
                print(f"{name}, {arm}, {way}: more memory than there is", flush=True)
                torch.cuda.empty_cache()
                continue
            peaks[way] = memory(device, peak=True) - before
            jobs[way] = lambda cache=cache, run=run: run(cache)
        times = in_turns(jobs, options.rounds)
        seconds = {way: times.loc[times["step"] == way, "seconds"].tolist() for way in jobs}
        for way, some in seconds.items():
            middle = statistics.median(some)
            rows.append(
                {
                    "setting": name,
                    "arm": arm,
                    "way": way,
                    "pairs": setting["pairs"],
                    "seconds": some,
                    "operations": work,
                    "peak_rate": peak,
                    "utilisation": work / middle / peak,
                    "memory": peaks[way],
                    "over_at_once": middle / statistics.median(seconds["at once"])
                    if "at once" in seconds
                    else None,
                }
            )
            print(
                f"{name}, {arm}, {way}: {setting['pairs'] / middle:.0f} pairs/s, "
                f"{work / middle / 1e12:.1f} TFLOP/s, {work / middle / peak:.2f} of the peak of "
                f"{peak / 1e12:.1f}, {peaks[way]:.0f} MiB",
                flush=True,
            )
        del model, run, jobs
        if device == "cuda":
            torch.cuda.empty_cache()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=("cpu", "cuda")
    )
    parser.add_argument("--precision", default="auto", choices=("auto", "bfloat16", "float32"))
    parser.add_argument("--tiny", action="store_true")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for name, setting in (("small", SMALL), ("large", LARGE)):
        rows += rows_of(name, setting | TINY if options.tiny else setting, options)
        if options.out:  # what is done is kept, should the time run out
            what = "training steps: share of the peak, gradient cache, memory"
            made = {"time": now(), "commit": commit()[0], "device": describe()}
            write_json(options.out, {"what": what, **made, "rows": rows})


if __name__ == "__main__":
    main()

"""What gradient caching costs and saves, and how fast a training step is: ratios within one run.

1. Memory: peak of one cached step of a contextual encoder (MiniLM's six layers in each stage) at
   256, 1,024 and 4,096 pairs, each in a process of its own: of the whole process, and above the
   loaded model. On a GPU it is what torch had allocated; on a CPU the highest resident memory.
   glibc keeps freed memory for later, more or less of it from run to run, so that it is told here
   to give it back (MALLOC_TRIM_THRESHOLD_); `--keep` leaves it alone.
2. Time: a cached step over an uncached one of the same 256 pairs in the same chunks. 3. Throughput:
pairs a second of `backward` (bfloat16 where fast, chunks of texts of about one length, no
   cache) against a plain loop (float32; queries and documents each padded to their longest, in the
   given order, all at once; attention `full`), on docstrings of pydocs cut at 128 tokens.

Steps end with the gradients: the optimiser's work and memory do not depend on the batch.

    python benchmarks/gradcache.py [--parts memory time throughput] [--layers 6] [--rounds 5]
        [--chunk 4096] [--tokens 16] [--threads 2] [--device cuda] [--precision float32]
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from measuring import Arm, forget_peak, in_turns, memory, ratio

import cde
from cde.hardware import half_precision
from cde.models import BiEncoder, ContextualEncoder
from cde.models.encoder import tokenise
from cde.training.loss import ContrastiveLoss, contrastive_loss
from cde.training.step import BatchTexts, backward

CONTEXT = 32


def random_step(options: argparse.Namespace, pairs: int) -> tuple[Any, Callable[[bool], object]]:
    """A contextual encoder, and one step of it on random words of half to all of `--tokens`."""
    model = ContextualEncoder.from_backbone(
        "minilm",
        options.layers,
        attention=options.attention,
        context_size=CONTEXT,
        device=options.device,
    ).train()
    random, most = np.random.default_rng(0), options.tokens

    def texts(count: int) -> list[np.ndarray]:
        return [
            random.integers(1000, 20000, n).astype(np.int32)
            for n in random.integers(most // 2, most + 1, count)
        ]

    batch = BatchTexts(texts(2 * pairs), texts(CONTEXT))
    masked = torch.from_numpy(random.random((pairs, pairs), dtype=np.float32) < 0.05).to(
        model.device
    )
    half = half_precision(options.precision)

    def loss(embeddings: torch.Tensor) -> ContrastiveLoss:
        return contrastive_loss(embeddings[:pairs], embeddings[pairs:], masked=masked)

    def step(cache: bool) -> object:
        model.zero_grad(set_to_none=True)
        return backward(model, batch, loss, chunk_tokens=options.chunk, half=half, cache=cache)

    return model, step


def report_peak(options: argparse.Namespace) -> None:
    """In a process that does this alone: peak above the loaded model, and of the process, of one
    step.
    """
    _, step = random_step(options, options.only)
    before = memory(options.device)
    forget_peak(options.device)
    step(not options.uncached)
    most = memory(options.device, peak=True)
    print(most - before, most)


def peaks(options: argparse.Namespace, pairs: int, uncached: bool) -> tuple[float, float]:
    command = [
        sys.executable,
        __file__,
        "--only",
        str(pairs),
        *(["--uncached"] if uncached else []),
    ]
    for name in ("layers", "chunk", "tokens", "threads", "device", "precision", "attention"):
        command += [f"--{name}", str(getattr(options, name))]
    environment = {**os.environ, **({} if options.keep else {"MALLOC_TRIM_THRESHOLD_": str(2**20)})}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise SystemExit(done.stderr)
    above, whole = done.stdout.split()[-2:]
    return float(above), float(whole)


def memory_by_batch(options: argparse.Namespace) -> None:
    by_batch = {}
    for pairs, uncached in [(n, False) for n in options.batches] + [(options.batches[0], True)]:
        begun = time.perf_counter()
        above, whole = peaks(options, pairs, uncached)
        print(
            f"memory, {'uncached' if uncached else 'cached'}, {pairs:5,} pairs: {above:5.0f} MiB "
            "above the model, "
            f"{whole:5.0f} MiB whole ({time.perf_counter() - begun:.0f} s)",
            flush=True,
        )
        if not uncached:
            by_batch[pairs] = above, whole
    first, last = by_batch[options.batches[0]], by_batch[options.batches[-1]]
    print(
        f"memory, {options.batches[-1]:,} pairs over {options.batches[0]:,}: "
        f"{last[0] / first[0]:.2f} above the model, "
        f"{last[1] / first[1]:.2f} whole"
    )


def overhead(options: argparse.Namespace) -> None:
    _, step = random_step(options, 256)
    arms = {"cached": lambda: step(True), "uncached": lambda: step(False)}
    seconds = in_turns(arms, options.rounds)
    print(
        f"time, cached over uncached, 256 pairs: {ratio(seconds['cached'], seconds['uncached'])}",
        flush=True,
    )


def plain_step(
    model: Any, queries: list[str], documents: list[str], context: list[str], tokens: int
) -> None:
    """The straightforward step: whole batch at once, in the given order, float32."""
    model.zero_grad(set_to_none=True)

    def read(texts: list[str]) -> tuple[torch.Tensor, torch.Tensor]:
        read = model.tokenizer(
            texts, padding=True, truncation=True, max_length=tokens, return_tensors="pt"
        )
        return read["input_ids"].to(model.device), read["attention_mask"].to(model.device)

    vectors = (model.first_stage(*read(context)),) if isinstance(model, ContextualEncoder) else ()
    one, other = (
        torch.nn.functional.normalize(model(*read(texts), *vectors), dim=-1)
        for texts in (queries, documents)
    )
    labels = torch.arange(len(queries), device=model.device)
    torch.nn.functional.cross_entropy(one @ other.T / 0.02, labels).backward()


def our_step(
    model: Any,
    queries: list[str],
    documents: list[str],
    context: list[str],
    tokens: int,
    half: bool,
    chunk: int,
) -> None:
    model.zero_grad(set_to_none=True)
    ids = tokenise(model.tokenizer, [*queries, *documents], tokens)
    contextual = isinstance(model, ContextualEncoder)
    batch = BatchTexts(ids, tokenise(model.tokenizer, context, tokens) if contextual else ())
    count = len(queries)
    backward(
        model,
        batch,
        lambda rows: contrastive_loss(rows[:count], rows[count:]),
        chunk_tokens=chunk,
        half=half,
        cache=False,
    )


def throughput(options: argparse.Namespace) -> None:
    pairs = cde.load_pairs("pydocs").sample(options.pairs)
    texts = pairs.queries, pairs.documents, pairs.documents[:CONTEXT], options.longest
    half = half_precision(options.precision)
    common = {"device": options.device, "layers": options.layers}
    models: dict[str, tuple[Any, Any]] = {}
    bare = BiEncoder.from_backbone(**common).train()
    models["bi-encoder"] = bare, bare
    full, cached = (
        ContextualEncoder.from_backbone(attention=kind, context_size=CONTEXT, **common).train()
        for kind in ("full", "cached")
    )
    models["contextual, full"] = full, full
    models["contextual, cached (plain: full)"] = full, cached
    for name, (plain, ours) in models.items():
        arms: dict[str, Arm] = {
            "plain": lambda m=plain: plain_step(m, *texts),
            "ours, float32": lambda m=ours: our_step(m, *texts, False, options.chunk),
        }
        if half:
            arms["ours"] = lambda m=ours: our_step(m, *texts, True, options.chunk)
        seconds = in_turns(arms, max(2, options.rounds // 2))
        rates = ", ".join(
            f"{arm} {len(pairs) / statistics.median(one):.0f}" for arm, one in seconds.items()
        )
        gains = ", ".join(
            f"{arm} {ratio(seconds['plain'], seconds[arm])}" for arm in list(arms)[1:]
        )
        print(f"throughput, {name}: pairs a second: {rates}; over plain: {gains}", flush=True)


if __name__ == "__main__":
    parts = {"memory": memory_by_batch, "time": overhead, "throughput": throughput}
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", nargs="+", default=list(parts), choices=parts)
    parser.add_argument("--layers", type=int, default=6, help="of MiniLM's 6, in each stage")
    parser.add_argument(
        "--batches", type=int, nargs="+", default=[256, 1024, 4096], help="of the part memory"
    )
    parser.add_argument("--chunk", type=int, default=4096, help="tokens computed at once")
    parser.add_argument(
        "--tokens", type=int, default=16, help="of the longest text, in the parts memory and time"
    )
    parser.add_argument(
        "--attention", default="cached", choices=("full", "cached"), help="in these parts as well"
    )
    parser.add_argument("--pairs", type=int, default=128, help="of the part throughput")
    parser.add_argument(
        "--longest", type=int, default=128, help="tokens at which its texts are cut"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument(
        "--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=("cpu", "cuda")
    )
    parser.add_argument("--precision", default="auto", choices=("auto", "bfloat16", "float32"))
    parser.add_argument("--keep", action="store_true", help="let glibc keep freed memory")
    parser.add_argument("--only", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--uncached", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.only:
        report_peak(options)
        sys.exit()
    print(
        f"{options.device}, {options.threads} threads, "
        f"{'bfloat16' if half_precision(options.precision) else 'float32'}"
    )
    for part in options.parts:
        parts[part](options)

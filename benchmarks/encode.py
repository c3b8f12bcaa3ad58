"""What context costs, and how much faster the encoders are than a plain loop: ratios within one
run.

1. The cost of context: one batch of full-length texts through the second stage, `full` and
   `cached`, against the same backbone without context, at 64 + 64 and at 512 + 512 context and text
   tokens; for MiniLM (384 dimensions) and for a backbone of NomicBERT's size (768 dimensions,
   random weights, `--layers` of its 12). Attention is a larger part of a smaller backbone.
2. Real lengths: docstrings of pydocs, up to 512 tokens, in a context of 64 documents, by
   `encode_documents`, against the loop of the authors' README: float32, batches in the given order,
   each padded to its longest text, the context repeated for every text, everything attending to
   everything. Also the same loop without context.
3. Peak memory of each, in a process of its own.

Rounds alternate, so that a machine that slows down slows all.

    python benchmarks/encode.py [--texts 200] [--rounds 5] [--layers 2] [--device cuda] [--precision
    float32]
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys

import numpy as np
import torch
from measuring import Arm, forget_peak, in_turns, memory, ratio

import cde
from cde.hardware import half_precision
from cde.models import BiEncoder, BiEncoderConfig, ContextualConfig, ContextualEncoder

ARMS = (
    "plain loop, no context",
    "plain loop, full",
    "encoder, no context",
    "encoder, full",
    "encoder, cached",
)


def encoders(backbone: str, layers: int) -> tuple[BiEncoder, dict[str, ContextualEncoder]]:
    """The three arms of the cost of context, on one device and of one shape."""
    kinds = ("full", "cached")
    if backbone == "minilm":
        return BiEncoder.from_backbone(), {
            kind: ContextualEncoder.from_backbone(attention=kind) for kind in kinds
        }
    shape = {"model_type": "nomic_bert", "num_hidden_layers": layers}
    both = {"first_backbone": {**shape, "num_hidden_layers": 1}, "second_backbone": shape}
    models = {
        kind: ContextualEncoder(ContextualConfig(attention=kind, **both)).eval() for kind in kinds
    }
    return BiEncoder(BiEncoderConfig(backbone=shape)).eval(), models


def one_batch(
    bare: BiEncoder, models: dict[str, ContextualEncoder], length: int, texts: int
) -> dict[str, Arm]:
    """A batch of `texts` texts of `length` tokens, in as long a context, by each arm."""
    ids = torch.randint(1000, 20000, (texts, length), device=bare.device)
    context = torch.randn(length, bare.dim, device=bare.device)
    full, cached = models["full"].second_stage, models["cached"].second_stage
    cache = cached.cache_context(context)
    return {
        "none": lambda: bare(ids),
        "full": lambda: full(ids, None, context),
        "cached": lambda: cached(ids, None, cache),
    }


def cost_of_context(backbone: str, layers: int, rounds: int, device: str, half: bool) -> None:
    bare, models = encoders(backbone, layers)
    for model in (bare, *models.values()):
        model.to(device)
    for length, texts in ((64, 64), (512, 8)):
        texts *= 32 if device == "cuda" else 1
        with torch.inference_mode(), torch.autocast(device, torch.bfloat16, enabled=half):
            seconds = in_turns(one_batch(bare, models, length, texts), rounds)
        print(
            f"{backbone:12s} {length} + {length} tokens: "
            f"{texts / statistics.median(seconds['none']):.0f} texts/s "
            "without context; with it, times the cost: full "
            f"{ratio(seconds['full'], seconds['none'])}, "
            f"cached {ratio(seconds['cached'], seconds['none'])}",
            flush=True,
        )


def sample(count: int) -> list[str]:
    return cde.load_pairs().sample(count).documents


def plain_loop(
    model: BiEncoder | ContextualEncoder, texts: list[str], context: torch.Tensor | None
) -> np.ndarray:
    """The loop that the authors' README shows: no sorting, no half precision, the context with
    every text.
    """
    vectors = []
    for start in range(0, len(texts), 32):
        batch = model.tokenizer(
            texts[start : start + 32],
            padding=True,
            truncation=True,
            max_length=512,
            return_tensors="pt",
        ).to(model.device)
        with torch.no_grad():
            ids, mask = batch["input_ids"], batch["attention_mask"]
            embedded = model(ids, mask) if context is None else model(ids, mask, context)
        vectors.append(torch.nn.functional.normalize(embedded, dim=-1).cpu())
    return torch.cat(vectors).numpy()


def real_lengths(
    count: int, names: tuple[str, ...], device: str, precision: str
) -> tuple[dict[str, Arm], int]:
    texts = sample(count + 64)
    context, texts = texts[:64], texts[64:]
    arms: dict[str, Arm] = {}
    options = {"max_tokens": 512, "device": device, "precision": precision}
    for name in names:
        if name.endswith("no context"):
            bare = BiEncoder.from_backbone(**options)
            plain, ours = (
                (lambda m=bare: plain_loop(m, texts, None)),
                (lambda m=bare: m.encode_documents(texts)),
            )
        else:
            model = ContextualEncoder.from_backbone(
                attention=name.split()[-1], context_size=64, **options
            )
            bound = model.with_context(context)
            plain = lambda m=model, b=bound: plain_loop(m, texts, b.context)  # noqa: E731
            ours = lambda b=bound: b.encode_documents(texts)  # noqa: E731
        arms[name] = plain if name.startswith("plain") else ours
    return arms, len(texts)


def peak(arm: str, options: argparse.Namespace) -> float:
    """GiB at the highest above what the loaded model takes, in a process that does this alone."""
    command = [
        sys.executable,
        __file__,
        "--only",
        arm,
        "--texts",
        str(options.texts),
        "--device",
        options.device,
    ]
    command += ["--precision", options.precision]
    return float(
        subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1]
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--texts", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--layers", type=int, default=2, help="of the backbone of NomicBERT's size")
    parser.add_argument(
        "--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=("cpu", "cuda")
    )
    parser.add_argument("--precision", default="auto", choices=("auto", "bfloat16", "float32"))
    parser.add_argument("--only", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only:
        arms, _ = real_lengths(options.texts, (options.only,), options.device, options.precision)
        before = memory(options.device)
        forget_peak(options.device)
        arms[options.only]()
        print((memory(options.device, peak=True) - before) / 2**10)
        sys.exit()
    half = half_precision(options.precision)
    print(
        f"{options.device}, {torch.get_num_threads()} threads, {'bfloat16' if half else 'float32'}"
    )
    for backbone in ("minilm", "nomic-sized"):
        cost_of_context(backbone, options.layers, options.rounds, options.device, half)
    arms, count = real_lengths(options.texts, ARMS, options.device, options.precision)
    seconds = in_turns(arms, max(1, options.rounds // 2))
    for name in ARMS:
        rate = count / statistics.median(seconds[name])
        print(
            f"{name:24s} {rate:6.0f} texts/s, peak {peak(name, options):.2f} GiB above the model",
            flush=True,
        )
    for ours, plain in (
        ("encoder, full", ARMS[1]),
        ("encoder, cached", ARMS[1]),
        ("encoder, no context", ARMS[0]),
    ):
        print(f"{ours} over {plain}: {ratio(seconds[plain], seconds[ours])} times as fast")
    expected, actual = arms["plain loop, full"](), arms["encoder, full"]()
    print(
        "smallest cosine between the two ways of computing `full`: "
        f"{np.sum(expected * actual, axis=1).min():.5f}"
    )

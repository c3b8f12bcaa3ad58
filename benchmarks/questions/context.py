"""What context costs: a batch through the second stage, in full and cached, against no context.

The jobs are those of `benchmarks/encode.py`, which measures more of it: one batch of full-length
texts in as long a context, with MiniLM and with layers of NomicBERT's size (random weights).
"""

from __future__ import annotations

import torch
from encode import encoders, one_batch
from measuring.comparing import Case, Job, Pair

from cde.hardware import compute_device, half_precision

KINDS = ("full", "cached")


def job(backbone: str, layers: int, length: int, texts: int, arm: str) -> Job:
    device, half = compute_device(), half_precision("auto")
    bare, models = encoders(backbone, layers)
    for model in (bare, *models.values()):
        model.to(device)
    torch.manual_seed(0)
    with torch.inference_mode():
        run = one_batch(bare, models, length, texts)[arm]

    def forward() -> None:
        with torch.inference_mode(), torch.autocast(device, torch.bfloat16, enabled=half):
            run()

    return forward


def cases(quick: bool) -> list[Case]:
    found = []
    many = 32 if compute_device() == "cuda" else 1
    for backbone, layers in (("minilm", 6), ("nomic-sized", 2)):
        for length, texts in ((16, 2),) if quick else ((64, 64), (512, 8)):
            makes = {
                arm: lambda arm=arm, b=backbone, n=layers, t=length, m=texts: job(
                    b, n, t, m * many, arm
                )
                for arm in ("none", *KINDS)
            }
            named = {"none": "no context", "full": "context, full", "cached": "context, cached"}
            found.append(
                Case(
                    "context",
                    f"{backbone}, {length} + {length} tokens",
                    texts * many,
                    "texts",
                    {named[arm]: make for arm, make in makes.items()},
                    [Pair(named[arm], named["none"], "times the cost") for arm in KINDS],
                )
            )
    return found

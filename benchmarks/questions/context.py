"""What context costs: a batch through the second stage, in full and cached, against no context.

One batch of full-length texts in as long a context, with MiniLM and with layers of NomicBERT's size
(random weights). Attention is a larger part of a smaller backbone.
"""

from __future__ import annotations

import torch
from measuring.comparing import Case, Job, Pair

from cde.hardware import compute_device, half_precision
from cde.models import BiEncoder, BiEncoderConfig, ContextualConfig, ContextualEncoder

KINDS = ("full", "cached")


def encoders(backbone: str, layers: int) -> tuple[BiEncoder, dict[str, ContextualEncoder]]:
    """Without context, and with either kind of attention, of one shape."""
    if backbone == "minilm":
        return BiEncoder.from_backbone(), {
            kind: ContextualEncoder.from_backbone(attention=kind) for kind in KINDS
        }
    shape = {"model_type": "nomic_bert", "num_hidden_layers": layers}
    both = {"first_backbone": {**shape, "num_hidden_layers": 1}, "second_backbone": shape}
    models = {
        kind: ContextualEncoder(ContextualConfig(attention=kind, **both)).eval() for kind in KINDS
    }
    return BiEncoder(BiEncoderConfig(backbone=shape)).eval(), models


def one_batch(
    bare: BiEncoder, models: dict[str, ContextualEncoder], length: int, texts: int
) -> dict[str, Job]:
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

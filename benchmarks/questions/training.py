"""A training step: ours, cached or not, against a plain loop and sentence-transformers' cached one.

The same pairs of docstrings, cut at 128 tokens, the same weights (MiniLM), the same temperature and
no dropout. Token ids are made beforehand for all. Theirs computes 32 texts at a time (its default,
`mini_batch_size=32`), ours as many tokens as `TrainConfig` has by default. A step ends with the
gradients. Where they are in float32 they must agree: the number beside a comparison is the length
of their difference over the length of the peer's. The limit is three forward passes' multiply-adds,
without padding, at the rate of large matrix products (`questions.embedding`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from measuring.comparing import Case, Job, Make, Pair
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize

import cde
from cde.hardware import compute_device, half_precision
from cde.models import BiEncoder
from cde.models.encoder import load_tokenizer, tokenise
from cde.surrogate import minilm_folder
from cde.training import TrainConfig
from cde.training.loss import contrastive_loss
from cde.training.step import BatchTexts, backward
from questions.embedding import multiply_adds, product, products_in

LONGEST, AT_ONCE, TEMPERATURE = 128, 32, 0.02
THEIRS = "sentence-transformers' cached loss"
PLAIN = "plain loop, float32"
Texts = tuple[list[str], list[str]]


def without_dropout(model: nn.Module) -> nn.Module:
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return model.train()


def ours(texts: Texts, half: bool, cache: bool) -> Job:
    model = without_dropout(BiEncoder.from_backbone("minilm", device=compute_device()))
    ids = tokenise(load_tokenizer("minilm"), [*texts[0], *texts[1]], LONGEST)
    count = len(texts[0])
    config = TrainConfig(precision="bfloat16" if half else "float32")
    chunk_tokens, _ = config.token_limits(gpu=model.device.type != "cpu")

    def step() -> tuple[float, nn.Module]:
        model.zero_grad(set_to_none=True)
        done = backward(
            model,
            BatchTexts(ids),
            lambda rows: contrastive_loss(rows[:count], rows[count:], TEMPERATURE),
            chunk_tokens=chunk_tokens,
            half=half,
            cache=cache,
        )
        return float(done.loss), model

    return step


def plain(texts: Texts) -> Job:
    """Both sides padded to their longest, all at once, in the given order."""
    from transformers import AutoModel

    device = compute_device()
    model = without_dropout(AutoModel.from_pretrained(str(minilm_folder())).to(device))
    tokenizer = load_tokenizer("minilm")
    sides = [
        tokenizer(side, padding=True, truncation=True, max_length=LONGEST, return_tensors="pt").to(
            device
        )
        for side in texts
    ]

    def embed(side: Any) -> Tensor:
        hidden = model(**side).last_hidden_state
        mask = side["attention_mask"].unsqueeze(-1)
        return normalize((hidden * mask).sum(1) / mask.sum(1), dim=-1)

    def step() -> tuple[float, nn.Module]:
        model.zero_grad(set_to_none=True)
        queries, documents = map(embed, sides)
        labels = torch.arange(len(queries), device=device)
        loss = cross_entropy(queries @ documents.T / TEMPERATURE, labels)
        loss.backward()
        return float(loss.detach()), model

    return step


def theirs(texts: Texts, half: bool) -> Job:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.losses import CachedMultipleNegativesRankingLoss

    device = compute_device()
    model = without_dropout(SentenceTransformer(str(minilm_folder()), device=device))
    model.max_seq_length = LONGEST
    loss_of = CachedMultipleNegativesRankingLoss(
        model, scale=1 / TEMPERATURE, mini_batch_size=AT_ONCE
    )

    def on_device(features: dict[str, Any]) -> dict[str, Any]:
        return {k: v.to(device) if isinstance(v, Tensor) else v for k, v in features.items()}

    sides = [on_device(model.preprocess(side)) for side in texts]

    def step() -> tuple[float, nn.Module]:
        model.zero_grad(set_to_none=True)
        with torch.autocast(torch.device(device).type, torch.bfloat16, enabled=half):
            loss = loss_of([dict(side) for side in sides], None)
            loss.backward()
        return float(loss.detach()), model

    return step


def _gradients(model: nn.Module) -> dict[str, Tensor]:
    found = ((name, one.grad) for name, one in model.named_parameters())
    return {
        name[name.index("embeddings.") if "embeddings." in name else name.index("layer.") :]: grad
        for name, grad in found
        if grad is not None and "pooler" not in name
    }


def difference(one: tuple[float, nn.Module], other: tuple[float, nn.Module]) -> float:
    """The length of the gradients' difference over that of the peer's gradients."""
    left, right = _gradients(one[1]), _gradients(other[1])
    if set(left) != set(right):
        raise RuntimeError(f"gradients of other parameters: {sorted(set(left) ^ set(right))[:4]}")

    def length(tensors: Iterable[Tensor]) -> float:
        return sum(float(tensor.double().square().sum()) for tensor in tensors) ** 0.5

    return length(left[name] - right[name] for name in left) / length(right.values())


def both_sides(quick: bool) -> Texts:
    """Queries and their documents."""
    pairs = cde.load_pairs("pydocs/networkx" if quick else "pydocs").sample(10 if quick else 48)
    return list(pairs.queries), list(pairs.documents)


def cases(quick: bool) -> list[Case]:
    texts = both_sides(quick)
    half = half_precision("auto")
    makes: dict[str, Make] = {
        PLAIN: lambda: plain(texts),
        f"{THEIRS}, float32": lambda: theirs(texts, False),
    }
    lengths = [
        len(row) for row in tokenise(load_tokenizer("minilm"), [*texts[0], *texts[1]], LONGEST)
    ]
    compared, limits = [], {}
    for precision in ("float32", "bfloat16") if half else ("float32",):
        arms = {
            f"cached, {precision}": lambda h=precision != "float32": ours(texts, h, True),
            f"not cached, {precision}": lambda h=precision != "float32": ours(texts, h, False),
        }
        makes |= arms
        compared += [Pair(arm, peer) for peer in (f"{THEIRS}, float32", PLAIN) for arm in arms]
        limit = f"matrix products, {precision}"
        makes[limit] = lambda p=precision: product(p)
        limits[limit] = lambda: products_in(3 * multiply_adds(lengths))
        compared += [Pair(arm, limit, "share of the limit") for arm in arms]
        compared.append(Pair(limit, f"{THEIRS}, float32", "limit"))
    if half:
        makes[f"{THEIRS}, bfloat16"] = lambda: theirs(texts, True)
        compared += [
            Pair(f"{arm}, bfloat16", f"{THEIRS}, bfloat16") for arm in ("cached", "not cached")
        ]
    return [
        Case(
            "training",
            f"{sum(lengths) / len(lengths):.0f} tokens on average, {LONGEST} at most",
            len(texts[0]),
            "pairs",
            makes,
            compared,
            limits,
            difference,
            "difference of the gradients",
        )
    ]

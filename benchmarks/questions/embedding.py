"""Embedding with MiniLM: the surrogate and the bi-encoder against sentence-transformers' `encode`.

sentence-transformers as it comes: float32, batches of 32, texts sorted by length. It is the same
model in the same process, with as many threads. Beside both stands what the machine allows: the
seconds that the multiply-adds of the texts' own tokens, without padding, take at the rate of one
large matrix product of MiniLM's shape (4096 × 384 × 1536).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from measuring.comparing import Case, Job, Make, Pair

import cde
from cde.hardware import compute_device, half_precision
from cde.models import BiEncoder
from cde.surrogate import minilm_folder

ROWS, DIM, INNER, LAYERS = 4096, 384, 1536, 6
MOST = 256  # tokens that MiniLM reads
TIMES = 3  # products at a time, so that a round takes a while
PEER = "sentence-transformers, as it comes"


def multiply_adds(lengths: list[int]) -> float:
    """Floating-point operations of a forward pass over texts of so many tokens, two each."""
    dense = 2 * LAYERS * (4 * DIM**2 + 2 * DIM * INNER)
    return float(sum(dense * n + 4 * LAYERS * DIM * n**2 for n in lengths))


def product(precision: str) -> Job:
    """Large matrix products of the shape of MiniLM's feed-forward layer."""
    device, dtype = compute_device(), getattr(torch, precision)
    left, right = (
        torch.randn(shape, device=device).to(dtype) for shape in ((ROWS, DIM), (DIM, INNER))
    )
    out = torch.empty(ROWS, INNER, dtype=dtype, device=device)

    def multiply() -> None:
        for _ in range(TIMES):
            torch.mm(left, right, out=out)

    return multiply


def products_in(operations: float) -> float:
    """How many times the job of `product` has to run for so many operations."""
    return operations / (TIMES * 2 * ROWS * DIM * INNER)


def precisions() -> list[str]:
    """Those that are worth a try here, the plain one first."""
    return ["float32", *(["bfloat16"] if half_precision("auto") else [])]


def theirs(texts: list[str]) -> Job:
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(minilm_folder()), device=compute_device())
    return lambda: model.encode(texts, show_progress_bar=False)


def surrogate(texts: list[str], precision: Any) -> Job:
    model = cde.Surrogate(precision=precision, cache=False)
    model.embed(texts[:1])  # which loads it
    return lambda: model.embed(texts)


def bi_encoder(texts: list[str], precision: Any) -> Job:
    model = BiEncoder.from_backbone("minilm", precision=precision, max_tokens=MOST)
    return lambda: model.encode_documents(texts)


def smallest_cosine(one: Any, other: Any) -> float:
    return float(np.sum(np.asarray(one) * np.asarray(other), axis=1).min())


def arms(texts: list[str]) -> dict[str, Make]:
    """Theirs, and ours in every precision."""
    ours = {
        f"{kind}, {precision}": lambda make=make, p=precision: make(texts, p)
        for precision in precisions()
        for kind, make in (("Surrogate", surrogate), ("BiEncoder", bi_encoder))
    }
    return {PEER: lambda: theirs(texts), **ours}


def case(name: str, texts: list[str]) -> Case:
    from cde.models.encoder import load_tokenizer, tokenise

    lengths = [len(row) for row in tokenise(load_tokenizer("minilm"), texts, MOST)]
    makes = arms(texts)
    pairs = [Pair(arm, PEER) for arm in makes if arm != PEER]
    limits = {}
    for precision in precisions():
        limit = f"matrix products, {precision}"
        same = [arm for arm in makes if arm.endswith(precision)]
        pairs += [Pair(arm, limit, "share of the limit") for arm in same]
        pairs.append(Pair(limit, PEER, "limit"))
        makes[limit] = lambda p=precision: product(p)
        limits[limit] = lambda: products_in(multiply_adds(lengths))
    return Case(
        "embedding",
        f"{name}, {np.mean(lengths):.0f} tokens on average",
        len(texts),
        "texts",
        makes,
        pairs,
        limits,
        smallest_cosine,
        "smallest cosine",
        arms(sorted(texts, key=len)[-32:]),  # memory is that of a batch
    )


def inputs(quick: bool) -> dict[str, list[str]]:
    """Texts of two kinds."""
    pairs = cde.load_pairs("pydocs/networkx" if quick else "pydocs").sample(6 if quick else 256)
    some = pairs.sample(3 if quick else 48, 1)
    own = [text for pair in some for text in pair]
    return {
        "docstrings at their own lengths": list(dict.fromkeys(own)),
        "short texts": list(dict.fromkeys(pairs.queries)),
    }


def cases(quick: bool) -> list[Case]:
    return [case(name, texts) for name, texts in inputs(quick).items()]

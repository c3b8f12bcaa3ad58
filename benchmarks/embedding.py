"""How much faster the surrogate embeds than the plain loop: texts a second, in one run, as a ratio.

Plain: float32, batches of 32 in the given order, each padded to its longest text. Ours: `Surrogate`
without its cache. Texts: summaries and bodies of pydocs at their own lengths, up to MiniLM's 256
tokens. Rounds alternate, so that a machine that slows down slows both.

    python benchmarks/embedding.py [--texts 1000] [--rounds 3]
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np
import torch
from transformers import AutoModel, AutoTokenizer

import cde
from cde.hardware import bfloat16_is_fast
from cde.surrogate import minilm_folder


def plain(texts: list[str]) -> np.ndarray:
    """The loop that a first script would have."""
    vectors = []
    for start in range(0, len(texts), 32):
        batch = TOKENIZER(
            texts[start : start + 32],
            padding=True,
            truncation=True,
            max_length=256,
            return_tensors="pt",
        )
        with torch.no_grad():
            hidden = MODEL(**batch).last_hidden_state
        mask = batch["attention_mask"].unsqueeze(-1)
        vectors.append(torch.nn.functional.normalize((hidden * mask).sum(1) / mask.sum(1), dim=-1))
    return torch.cat(vectors).numpy()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--texts", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    TOKENIZER = AutoTokenizer.from_pretrained(minilm_folder())
    MODEL = AutoModel.from_pretrained(minilm_folder()).eval()
    pairs = cde.load_pairs().sample(options.texts // 2)
    texts = [text for pair in pairs for text in pair]
    ours = cde.Surrogate(cache=False)
    plain(texts[:32]), ours.embed(texts[:32])  # load, and warm up
    ratios = []
    for _ in range(options.rounds):
        begun = time.perf_counter()
        expected = plain(texts)
        middle = time.perf_counter()
        actual = ours.embed(texts)
        ended = time.perf_counter()
        ratios.append((middle - begun) / (ended - middle))
        print(
            f"plain {len(texts) / (middle - begun):6.0f} texts/s   ours "
            f"{len(texts) / (ended - middle):6.0f} texts/s"
        )
    cosine = (expected * actual).sum(axis=1).min()
    print(
        f"ratio: median {statistics.median(ratios):.2f} (from {min(ratios):.2f} to "
        f"{max(ratios):.2f}); ",
        end="",
    )
    print(
        f"smallest cosine to the plain vectors {cosine:.5f}; bfloat16 counts as fast: "
        f"{bfloat16_is_fast()}"
    )

"""Sub-string similarity (Dwell §4.3): is a document's embedding nearer to its beginning?

A document is cut into ten runs of equally many tokens, to the nearest whole word; the cosine of
each run's embedding with the document's. A run must have those tokens that it was cut from: texts
for which a tokenizer does not give that are left out and counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cde.progress import progress
from cde.retrieval import Encoder
from cde.validation import encoded


def token_spans(text: str, tokenizer: Any) -> tuple[list[int], NDArray[np.int64]]:
    """The ids of a text's tokens, without special ones and without truncation; and where each
    stands, `(n, 2)` int64: start and end in characters.
    """
    if not getattr(tokenizer, "is_fast", False):
        raise ValueError(f"{type(tokenizer).__name__} gives no offsets: a fast tokenizer is needed")
    tokens = tokenizer(
        text, add_special_tokens=False, return_offsets_mapping=True, truncation=False, verbose=False
    )
    spans = np.array(tokens["offset_mapping"], dtype=np.int64).reshape(-1, 2)
    return list(tokens["input_ids"]), spans


def fewer_tokens(text: str, tokenizer: Any, most: int) -> bool:
    return len(token_spans(text, tokenizer)[0]) <= most


def leading_blank(text: str, tokenizer: Any) -> str:
    """A blank, if the tokenizer has other tokens for a word at the very start (byte-level BPE)."""
    return " " if token_spans(" " + text, tokenizer)[0] != token_spans(text, tokenizer)[0] else ""


def begins_word(text: str, start: int) -> bool:
    # a sentencepiece token may hold the blank before its word
    return start == 0 or text[start - 1].isspace() or text[start : start + 1].isspace()


def whole_words(text: str, start: int, end: int) -> tuple[int, int]:
    """The span from `start` to `end` (exclusive), widened to whole words."""
    while start > 0 and not text[start - 1].isspace():
        start -= 1
    while end < len(text) and not text[end].isspace():
        end += 1
    return start, end


@dataclass(frozen=True)
class Similarities:
    """Cosines of runs of a document with the whole."""

    cosines: NDArray[np.float32]
    others: NDArray[np.float32]
    rows: NDArray[np.int64]
    left_out: Mapping[str, int]


def segments(text: str, tokenizer: Any, parts: int = 10) -> list[str] | str:
    """A text in `parts` runs of equally many tokens, to the nearest word; or why it has none."""
    lead = leading_blank(text.strip(), tokenizer)
    text = lead + text.strip()
    ids, spans = token_spans(text, tokenizer)
    words = [number for number, (begin, _) in enumerate(spans) if begins_word(text, begin)]
    if len(words) < parts:
        return f"fewer than {parts} words"
    wanted = np.cumsum([len(some) for some in np.array_split(np.arange(len(ids)), parts)])[:-1]
    inside = [min(words, key=lambda word: (abs(word - want), word)) for want in wanted]
    edges = [0, *inside, len(ids)]
    if len(set(edges)) <= parts:
        return "a word longer than a run"
    runs = []
    for low, high in pairwise(edges):
        run = lead + text[spans[low][0] : spans[high - 1][1]].strip()
        if token_spans(run, tokenizer)[0] != ids[low:high]:
            return "tokens change when the text is cut"
        runs.append(run)
    return runs


def substring_similarity(
    encoder: Encoder,
    texts: Sequence[str],
    tokenizer: Any,
    parts: int = 10,
    longest: int | None = None,
) -> Similarities:
    """Cosine of a document's embedding with those of its first tenth, its second tenth, …"""
    left_out: Counter[str] = Counter()
    rows, runs = [], []
    for row, text in enumerate(progress(texts, "cutting documents", unit="documents")):
        if longest is not None and not fewer_tokens(text, tokenizer, longest):
            left_out[f"more than {longest} tokens"] += 1
            continue
        runs_or_reason = segments(text, tokenizer, parts)
        if isinstance(runs_or_reason, str):
            left_out[runs_or_reason] += 1
        else:
            rows.append(row)
            runs += runs_or_reason
    if not rows:
        raise ValueError(f"no text can be cut into {parts} runs: {dict(left_out)}")
    whole = encoded(encoder, [texts[row] for row in rows], "documents")
    part = encoded(encoder, runs, "documents", whole.shape[1]).reshape(len(rows), parts, -1)
    cosines = np.einsum("nd,npd->np", whole, part).astype(np.float32)
    others = np.einsum("nd,npd->np", np.roll(whole, 1, axis=0), part).astype(np.float32)
    pairs = zip(rows, np.roll(rows, 1), strict=True)
    others[[texts[row] == texts[other] for row, other in pairs]] = np.nan
    return Similarities(cosines, others, np.array(rows, dtype=np.int64), dict(left_out))

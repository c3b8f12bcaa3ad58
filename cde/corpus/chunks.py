"""Long documents in passages that an encoder reads whole.

A text is cut where its author cut it: before headings, else between paragraphs, sentences or words,
and only then within one; pieces are joined again as long as they fit. Passages are slices of the
text, without gaps. Each begins with the last sentence of the one above it, if that is short.

Cost: a text is tokenised once, and some four times more if it is too long.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Literal

__all__ = ["Limit", "OnLong", "Passage", "limit_of", "passages"]

#: what becomes of a document that is longer than its encoder reads
OnLong = Literal["chunk", "warn", "error", "truncate"]

_HEADING = re.compile(r"^(?:#{1,6} +\S.*|\S.*\n(?:={3,}|-{3,}) *)$", re.MULTILINE)
#: where a text may be cut, the best first: before headings, and behind the ends of the rest
_CUTS = (
    re.compile(r"(?=^#{1,6} +\S)|(?=^\S.*\n(?:={3,}|-{3,}) *$)", re.MULTILINE),
    re.compile(r"(?<=\n)(?:[ \t]*\n)+"),
    re.compile(r"(?<=[.!?…])[\"')\]]*\s+|(?<=[。！？])|\n"),
    re.compile(r"\s+"),
)
_SENTENCES = 2  # their place among these


@dataclass(frozen=True)
class Limit:
    """How much an encoder reads of a text: `tokens`, as `count` counts them for each text."""

    tokens: int
    count: Callable[[Sequence[str]], list[int]]


@dataclass(frozen=True)
class Passage:
    """A slice of a document: where it begins, the heading above it, and its text."""

    start: int
    heading: str
    text: str


def limit_of(encoder: Any) -> Limit | None:
    """The limit of an encoder of this package or of sentence-transformers; None for others."""
    if encoder is None:
        return None
    if hasattr(encoder, "most_tokens"):  # an encoder of cde.models
        return _limit(encoder.tokenizer, encoder.most_tokens, encoder.config.document_prefix)
    if hasattr(encoder, "sentence_model"):  # a surrogate
        return limit_of(encoder.sentence_model)
    if hasattr(encoder, "max_seq_length"):  # a SentenceTransformer
        prompts = getattr(encoder, "prompts", None) or {}
        names = ("document", "passage", "corpus")  # the first of them stands before documents
        prompt = next((prompts[name] for name in names if name in prompts), "")
        return _limit(encoder.tokenizer, encoder.max_seq_length, prompt)
    # bound to a corpus, shifted, or called like a SentenceTransformer
    return limit_of(getattr(encoder, "model", None) or getattr(encoder, "encoder", None))


def _limit(tokenizer: Any, tokens: int | None, prefix: str) -> Limit | None:
    if tokenizer is None or tokens is None:
        return None

    def count(texts: Sequence[str]) -> list[int]:
        found = tokenizer(
            list(texts), truncation=False, padding=False, return_attention_mask=False, verbose=False
        )
        return [len(ids) for ids in found["input_ids"]]

    # what stands before each text takes room, and the two marks were counted with it
    return Limit(tokens - (count([prefix])[0] - 2 if prefix else 0), count)


def passages(
    texts: Sequence[str], limit: Limit | None, on_long: OnLong = "chunk"
) -> list[list[Passage]]:
    """The passages of each text; without a limit each is one. Longer texts are cut, left whole with
    a warning or silently, or refused with a ValueError, as `on_long` says.
    """
    whole = [[Passage(0, "", text)] for text in texts]
    if limit is None or on_long == "truncate" or not texts:
        return whole
    # no tokenizer makes more tokens than bytes, and its marks at both ends
    asked = [row for row, text in enumerate(texts) if len(text.encode()) + 2 > limit.tokens]
    counts = limit.count([texts[row] for row in asked]) if asked else []
    long = {row: tokens for row, tokens in zip(asked, counts, strict=True) if tokens > limit.tokens}
    if not long:
        return whole
    if on_long == "chunk":
        for row in long:
            whole[row] = _cut(texts[row], limit)
        return whole
    said = (
        f"{len(long)} of {len(texts)} documents are longer than the {limit.tokens} tokens that "
        f"their encoder reads (the longest has {max(long.values()):,}): what follows would not be "
        'found. on_long="chunk" indexes them in passages'
    )
    if on_long == "error":
        raise ValueError(said)
    warnings.warn(said, stacklevel=2)
    return whole


def _cut(text: str, limit: Limit) -> list[Passage]:
    found: list[Passage] = []
    start = 0
    for section in _pieces(text, _CUTS[0]):
        head = _HEADING.match(section)
        line = head.group().split("\n")[0] if head else ""
        heading = re.sub(r"^#+ +|\s+#+\s*$", "", line).strip()
        for offset, part in _joined(_small(section, limit, 1), limit):
            found.append(Passage(start + offset, heading, part))
        start += len(section)
    return found


def _pieces(text: str, cut: re.Pattern[str]) -> list[str]:
    """A text cut behind each match."""
    ends = [match.end() for match in cut.finditer(text) if 0 < match.end() < len(text)]
    return [text[a:b] for a, b in zip([0, *ends], [*ends, len(text)], strict=True)]


def _small(text: str, limit: Limit, level: int) -> list[str]:
    """Its sentences; of those that are too long the words; of those the halves."""
    half = len(text) // 2
    pieces = _pieces(text, _CUTS[level]) if level < len(_CUTS) else [text[:half], text[half:]]
    found: list[str] = []
    for piece, tokens in zip(pieces, limit.count(pieces), strict=True):
        if level < _SENTENCES or (tokens > limit.tokens and len(piece) > 1):
            found += _small(piece, limit, min(level + 1, len(_CUTS)))
        else:
            found.append(piece)
    return found


def _joined(pieces: Sequence[str], limit: Limit) -> list[tuple[int, str]]:
    """Pieces joined as long as they fit, with where each result begins."""
    starts = [0, *accumulate(map(len, pieces))]
    counts = limit.count(pieces)

    def end(first: int) -> int:
        """How far a passage goes that begins with a piece."""
        last, total = first + 1, counts[first]
        while last < len(pieces) and total + counts[last] - 2 <= limit.tokens:
            total += counts[last] - 2  # each was counted with the two marks
            last += 1
        # of two halves of a word there may be more tokens when they are joined
        while last > first + 1 and limit.count(["".join(pieces[first:last])])[0] > limit.tokens:
            last -= 1
        return last

    found: list[tuple[int, str]] = []
    first, last = 0, 0
    while last < len(pieces):
        while (reached := end(first)) <= last:  # what is said again leaves no room for more
            first += 1
        last = reached
        found.append((starts[first], "".join(pieces[first:last])))
        # the last sentence is said again, if it takes no more than a quarter
        first = last - 1 if 4 * (counts[last - 1] - 2) <= limit.tokens else last
    return found

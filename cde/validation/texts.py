"""Texts and ids as they come in: strings that a file, a hash, a tokenizer and trec_eval can take.

Emoji, scripts that run from right to left and characters without width are text like any other.
Half of a surrogate pair is none: JSON can escape it, Python takes it for a character, and nothing
else does.

Cost: one pass over texts that are not plain ASCII.
"""

from __future__ import annotations

import re
from typing import Any

from cde.validation import checked_texts

__all__ = ["checked_ids", "encodable", "half_of_a_pair"]

_SURROGATE = re.compile("[\ud800-\udfff]")


def half_of_a_pair(text: str) -> int | None:
    """Where a text holds half of a surrogate pair, which no encoding has; None for a whole text.

    JSON can escape it, and Python takes it for a character; files, hashes and tokenizers do not.
    """
    found = None if text.isascii() else _SURROGATE.search(text)
    return None if found is None else found.start()


def encodable(texts: Any, name: str = "texts") -> list[str]:
    """Texts as a list, of which each can be written as UTF-8: what a tokenizer takes."""
    items = checked_texts(texts, name)
    for position, text in enumerate(items):
        if (place := half_of_a_pair(text)) is not None:
            raise ValueError(
                f"{name} must be whole text; item {position} has half of a surrogate pair, "
                f"{text[place]!r}, at character {place}: leave it out"
            )
    return items


def checked_ids(ids: Any, name: str = "ids") -> list[str]:
    """Ids as a list: texts that trec_eval can hold, which is written in C."""
    items = encodable(ids, name)
    for position, one in enumerate(items):
        if "\0" in one:
            raise ValueError(
                f"{name} must not hold NUL, where trec_eval ends a name; item {position} is {one!r}"
            )
    return items

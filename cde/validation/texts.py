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

    Example:
        >>> half_of_a_pair("boats \\ud83d"), half_of_a_pair("boats \\N{SAILBOAT}")
        (6, None)
    """
    found = None if text.isascii() else _SURROGATE.search(text)
    return None if found is None else found.start()


def encodable(texts: Any, name: str = "texts") -> list[str]:
    """Texts as a list, of which each can be written as UTF-8: what a tokenizer takes.

    Args:
        texts, name: as for `checked_texts`.

    Raises:
        TypeError: as `checked_texts`.
        ValueError: a text with half of a surrogate pair (which item, and where in it).

    Example:
        >>> encodable(["a", "\\udc80"], "queries")
        Traceback (most recent call last):
        ValueError: queries must be whole text; item 1 has half of a surrogate pair, '\\udc80', at \
character 0: leave it out
    """
    items = checked_texts(texts, name)
    for position, text in enumerate(items):
        if (place := half_of_a_pair(text)) is not None:
            raise ValueError(
                f"{name} must be whole text; item {position} has half of a surrogate pair, "
                f"{text[place]!r}, at character {place}: leave it out"
            )
    return items


def checked_ids(ids: Any, name: str = "ids") -> list[str]:
    """Ids as a list: texts that trec_eval can hold, which is written in C.

    Args:
        ids, name: as for `checked_texts`.

    Raises:
        TypeError: as `checked_texts`.
        ValueError: an id with a character NUL, at which C ends a text, or with half of a surrogate
            pair, at which trec_eval ends the interpreter.

    Example:
        >>> checked_ids(["d1", "d\\0002"])
        Traceback (most recent call last):
        ValueError: ids must not hold NUL, where trec_eval ends a name; item 1 is 'd\\x002'
    """
    items = encodable(ids, name)
    for position, one in enumerate(items):
        if "\0" in one:
            raise ValueError(
                f"{name} must not hold NUL, where trec_eval ends a name; item {position} is {one!r}"
            )
    return items

"""Sections of a docstring: a heading, underlined or with a colon, and what follows it.

Cost: two regular expressions a text.
"""

from __future__ import annotations

import re

__all__ = ["Span", "split_sections"]

#: start and end (exclusive) in a text, in characters
Span = tuple[int, int]

_UNDERLINED = re.compile(r"^[ \t]*[A-Z][A-Za-z ]{2,24}\n[ \t]*[-=~]{3,}[ \t]*\n", re.MULTILINE)
_COLON = re.compile(r"^[ \t]*[A-Z][A-Za-z]{2,16}( \d+)?::?[ \t]*\n", re.MULTILINE)


def split_sections(text: str) -> list[Span]:
    """The sections of a docstring: from below each heading to the next; headings are underlined or
    end with a colon.

    Example:
        >>> text = "What it does.\\n\\nReturns\\n-------\\nThe sum of both.\\n"
        >>> [text[start:end] for start, end in split_sections(text)]
        ['The sum of both.\\n']
    """
    heads = sorted(
        (heading.start(), heading.end())
        for rule in (_UNDERLINED, _COLON)
        for heading in rule.finditer(text)
    )
    edges = [start for start, _ in heads] + [len(text)]
    return [(below, end) for (_, below), end in zip(heads, edges[1:], strict=True) if end > below]

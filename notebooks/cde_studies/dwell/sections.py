"""Sections of a docstring: a heading, underlined or with a colon, and what follows it; and the
sentences of any text.

Cost: two regular expressions a text.
"""

from __future__ import annotations

import re

__all__ = ["SENTENCE", "Span", "sentences_of", "split_sections"]

#: start and end (exclusive) in a text, in characters
Span = tuple[int, int]

#: to the next full stop before white space, or to an empty line
SENTENCE = re.compile(r".+?(?:[.!?](?=\s)|\n\s*\n|$)", re.DOTALL)
_UNDERLINED = re.compile(r"^[ \t]*[A-Z][A-Za-z ]{2,24}\n[ \t]*[-=~]{3,}[ \t]*\n", re.MULTILINE)
_COLON = re.compile(r"^[ \t]*[A-Z][A-Za-z]{2,16}( \d+)?::?[ \t]*\n", re.MULTILINE)


def split_sections(text: str) -> list[Span]:
    """The sections of a docstring: from below each heading to the next; headings are underlined or
    end with a colon.
    """
    heads = sorted(
        (heading.start(), heading.end())
        for rule in (_UNDERLINED, _COLON)
        for heading in rule.finditer(text)
    )
    edges = [start for start, _ in heads] + [len(text)]
    return [(below, end) for (_, below), end in zip(heads, edges[1:], strict=True) if end > below]


def sentences_of(text: str) -> list[str]:
    """The sentences of a text, without white space around them."""
    return [one for match in SENTENCE.finditer(text) if (one := match.group().strip())]

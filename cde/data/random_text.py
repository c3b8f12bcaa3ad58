"""Texts of random letters: a context that says nothing of any corpus.

Cost: microseconds a text.
"""

from __future__ import annotations

import numpy as np

__all__ = ["random_texts"]

_WORDS, _SHORTEST, _LONGEST = 12, 2, 8
_LETTERS = np.array(list("abcdefghijklmnopqrstuvwxyz"))


def random_texts(count: int, seed: int | np.random.Generator = 0) -> list[str]:
    """Texts of twelve words of two to eight random letters."""
    generator = np.random.default_rng(seed)
    lengths = generator.integers(_SHORTEST, _LONGEST + 1, (count, _WORDS))
    return [
        " ".join("".join(generator.choice(_LETTERS, length)) for length in row) for row in lengths
    ]

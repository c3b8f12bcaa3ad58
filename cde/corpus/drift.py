"""How far a corpus has moved from the one that its index was built of.

A contextual encoder reads a sample of the corpus as that was when the index was built. Documents
come and go, and the context stays. Whether a distance does harm has to be measured on judged
queries; the chapter `drift` does so.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from cde.validation import Vectors

__all__ = ["Drift", "Origin", "drift"]


@dataclass(frozen=True)
class Origin:
    """The corpus that an index was built of: its number of passages, and their mean vector."""

    rows: int
    mean: Vectors

    @classmethod
    def of(cls, vectors: Vectors) -> Origin:
        """That of a new index, from its vectors `(n, dim)`."""
        total = vectors.sum(axis=0, dtype=np.float64)
        return cls(len(vectors), (total / max(len(vectors), 1)).astype(np.float32))

    def to_json(self) -> dict[str, Any]:
        """As a mapping that JSON can hold; the mean to its last bit."""
        mean = base64.b64encode(self.mean.astype("<f4").tobytes()).decode("ascii")
        return {"rows": self.rows, "mean": mean}

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> Origin:
        """What `to_json` gave."""
        mean = np.frombuffer(base64.b64decode(saved["mean"]), "<f4").astype(np.float32)
        return cls(int(saved["rows"]), mean)


@dataclass(frozen=True)
class Drift:
    """What `drift` finds."""

    newer: float
    gone: float
    distance: float | None


def drift(origin: Origin, still: int, vectors: Vectors, context_size: int) -> Drift:
    """How far a corpus is from the one that its context was drawn from.

    Args:
        origin: that one.
        still: how many of its passages are there today.
        vectors: of today's passages, `(n, dim)` float32.
        context_size: how many documents the context has.

    Returns:
        `newer`, the share of today's passages that came later; `gone`, the share of the earlier
        ones that are gone; and `distance`, from the mean vector of the origin to that of today's
        passages, in units of what chance does: the mean of `context_size` documents, drawn from
        today's corpus, lies one unit from its mean (root mean square, √(tr Σ / J)). Below 1 a fresh
        context could as well have been the old one, as far as means can tell; far above 1 it could
        not. The mean sees a change of topic, not every change. None where all vectors are alike, or
        there are none.
    """
    count = len(vectors)
    newer = (count - still) / count if count else 0.0
    gone = (origin.rows - still) / origin.rows if origin.rows else 0.0
    if not count or not vectors.shape[1]:
        return Drift(newer, gone, None)
    mean = vectors.mean(axis=0, dtype=np.float64)
    square = np.einsum("ij,ij->", vectors, vectors, dtype=np.float64) / count
    spread = max(float(square - mean @ mean), 0.0)
    moved = float(np.linalg.norm(mean - origin.mean.astype(np.float64)))
    moved = moved if moved > 1e-6 * np.sqrt(square) else 0.0  # the mean is kept in float32
    unit = float(np.sqrt(spread / context_size))
    distance = moved / unit if unit > 1e-6 * np.sqrt(square) else None
    return Drift(newer, gone, distance)

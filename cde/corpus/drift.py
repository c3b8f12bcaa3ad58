"""How far a corpus has moved since its context was drawn.

A contextual encoder reads a sample of the corpus as that was when the index was built. Documents
come and go, the context stays. Two numbers say how far apart they are:

- the *share* of today's documents that came later, and how many of the earlier ones are gone;
- the *distance* between the mean vector of today's documents and that of the corpus which the
  context was drawn from, in units of what chance does: the mean of `context_size` documents, drawn
  from today's corpus, lies one unit from its mean (root mean square, √(tr Σ / J)). Below 1 a fresh
  context could as well have been the old one, as far as means can tell; far above 1 it could not.

The mean sees a change of topic, not every change. All vectors were made under the old context. That
a distance does harm is not said here: it has to be measured on judged queries.

Cost: one pass over the vectors.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Drift", "Origin", "drift"]

Vectors = NDArray[np.float32]


@dataclass(frozen=True)
class Origin:
    """The corpus that an index was built of: what is kept of it as documents come and go."""

    documents: int
    still: int
    mean: Vectors

    @classmethod
    def of(cls, vectors: Vectors) -> Origin:
        """That of a new index, from the vectors `(n, dim)` of its documents."""
        total = vectors.sum(axis=0, dtype=np.float64)
        mean = (total / max(len(vectors), 1)).astype(np.float32)
        return cls(len(vectors), len(vectors), mean)

    def keeping(self, rows: list[int]) -> Origin:
        """When only the documents at these rows stay."""
        return replace(self, still=sum(row < self.still for row in rows))

    def to_json(self) -> dict[str, Any]:
        """As a mapping that JSON can hold; the mean to its last bit."""
        mean = base64.b64encode(self.mean.astype("<f4").tobytes()).decode("ascii")
        return {"documents": self.documents, "still": self.still, "mean": mean}

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> Origin:
        """What `to_json` gave."""
        mean = np.frombuffer(base64.b64decode(saved["mean"]), "<f4").astype(np.float32)
        return cls(int(saved["documents"]), int(saved["still"]), mean)


@dataclass(frozen=True)
class Drift:
    """What `drift` finds."""

    newer: float
    gone: float
    distance: float | None


def drift(origin: Origin, vectors: Vectors, context_size: int) -> Drift:
    """How far a corpus is from the one that its context was drawn from."""
    count = len(vectors)
    newer = (count - origin.still) / count if count else 0.0
    gone = (origin.documents - origin.still) / origin.documents if origin.documents else 0.0
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

"""A large corpus embedded in parts, each by a process of its own, here or on a cluster.

On one machine this gains nothing over threads (two processes of one thread took 1.2 times as long
as one of two, on two cores). For several it is the way: `cde.storage.workers`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cde.progress import progress
from cde.storage.workers import in_workers
from cde.surrogate import Surrogate, Vectors

__all__ = ["embed_in_parts"]


def embed_in_parts(
    surrogate: Surrogate, texts: Sequence[str], jobs: int | None = None, portion: int = 4096
) -> Vectors:
    """Unit vectors of texts, as `Surrogate.embed` gives them, to the bit where no text is known.

    Each worker keeps its portion's vectors in its cache as they are made: a portion that is begun
    again computes the rest. Where workers share the caller's cache, the vectors are there too.
    """
    texts = list(texts)
    if not texts or not all(isinstance(text, str) for text in texts):
        return surrogate.embed(texts)
    # long texts first, as the surrogate has them, so that batches are the same
    distinct = sorted(set(texts), key=lambda text: (-len(text), text))
    parts = [distinct[start : start + portion] for start in range(0, len(distinct), portion)]
    known: dict[str, Vectors] = {}
    done = in_workers(surrogate.embed, parts, jobs)
    for place, vectors in progress(done, "embedding a corpus", total=len(parts), unit="parts"):
        known.update(zip(parts[place], vectors, strict=True))
    return np.stack([known[text] for text in texts])

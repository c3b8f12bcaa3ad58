"""Models to probe, by name, each with its tokenizer and with how far it reads.

A probe moves and cuts tokens, and must not ask a model about text that the model does not read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from cde.hardware import chosen_precision
from cde.models import BiEncoder
from cde.models.contextual import fingerprint
from cde.retrieval import Encoder
from cde.validation import encoded
from cde.vector_store import VectorStore
from cde_studies.dwell.recipe import DwellRecipe

_PORTION = 512  # texts between two saves


@dataclass(frozen=True)
class Reader:
    encoder: Encoder
    tokenizer: Any
    longest: int


class Kept:
    """An encoder whose vectors are kept on disk, so that no text is embedded twice. The first
    computation is kept: padded otherwise, a text's vector may differ in its last digits.
    """

    def __init__(self, encoder: BiEncoder) -> None:
        self.encoder = encoder
        self.model = f"{fingerprint(encoder)}-{chosen_precision(encoder.precision)}"
        self.asked = 0
        self.distinct: set[str] = set()

    def encode_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return self._vectors(texts, "queries")

    def encode_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return self._vectors(texts, "documents")

    def _vectors(
        self, texts: Sequence[str], what: Literal["queries", "documents"]
    ) -> NDArray[np.float32]:
        distinct = sorted(set(texts), key=lambda text: (-len(text), text))
        with VectorStore(f"{self.model}-{what}", self.encoder.dim) as store:
            known = store.read(distinct)
            missing = [text for text in distinct if text not in known]
            for start in range(0, len(missing), _PORTION):
                portion = missing[start : start + _PORTION]
                vectors = encoded(self.encoder, portion, what)
                store.write(portion, vectors)
                known.update(zip(portion, vectors, strict=True))
        self.asked += len(texts)
        self.distinct |= set(distinct)
        return np.stack([known[text] for text in texts])


def reader(name: str, recipe: DwellRecipe, seed: int) -> Reader:
    """MiniLM, or the model at the end of a chain of the recipe."""
    if name == "MiniLM":
        encoder = BiEncoder.from_backbone("minilm", max_tokens=512)
        return Reader(encoder, encoder.tokenizer, min(recipe.longest, 510))
    chain = recipe.model(name, seed)
    return Reader(chain, chain.tokenizer, recipe.longest)

"""Models to probe, by name, each with its tokenizer and with how far it reads.

A probe moves and cuts tokens, and must not ask a model about text that the model does not read.

Cost: that of loading a model; of a chain that the store lacks, that of its training.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cde.dwell.recipe import CHAINS, DwellRecipe
from cde.lexical import BM25
from cde.models import BiEncoder
from cde.models.encoder import load_tokenizer
from cde.retrieval import Encoder, Ranker

__all__ = ["Prompted", "Reader", "reader"]


@dataclass(frozen=True)
class Reader:
    """A model and how it reads.

    Attributes:
        encoder: what is probed.
        tokenizer: the encoder's (fast); of BM25 that of MiniLM, by which passages are moved.
        longest: tokens of a document, at most, that are read whole (and that the recipe allows).
    """

    encoder: Encoder | Ranker
    tokenizer: Any
    longest: int


class Prompted:
    """A sentence-transformers model with its own pooling, and its prompts for queries and
    documents.

    Args:
        model: a `SentenceTransformer`.

    Used by the chapter `passage_position`.
    """

    def __init__(self, model: Any) -> None:
        self.model = model

    def encode_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Unit vectors of queries, `(n, dim)`."""
        return np.asarray(self.model.encode_query(list(texts), normalize_embeddings=True))

    def encode_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Unit vectors of documents, `(n, dim)`."""
        return np.asarray(self.model.encode_document(list(texts), normalize_embeddings=True))


def reader(name: str, recipe: DwellRecipe, seed: int) -> Reader:
    """A model to probe.

    Args:
        name: "BM25", "MiniLM", a chain of the recipe (`cde.dwell.recipe.CHAINS`), or else a
            sentence-transformers model, by its folder or its name on the Hub.
        recipe: recipe with the chains, and the most tokens of a document.
        seed: seed of the chain's training.

    Raises:
        OSError: a name of another kind, which sentence-transformers does not find.

    Used by the chapters `passage_position` and `substring_similarity`.

    Example:
        >>> from cde.dwell.recipe import dwell_recipe
        >>> reader("MiniLM", dwell_recipe("smoke"), 0).longest
        254
    """
    if name == "BM25":
        return Reader(BM25(), load_tokenizer("minilm"), recipe.longest)
    if name == "MiniLM":
        encoder = BiEncoder.from_backbone("minilm", max_tokens=512)
        return Reader(encoder, encoder.tokenizer, min(recipe.longest, 510))
    if name in CHAINS:
        chain = recipe.model(name, seed)
        return Reader(chain, chain.tokenizer, recipe.longest)
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(name, trust_remote_code=False)
    longest = min(recipe.longest, model.max_seq_length - 2)
    return Reader(Prompted(model), model.tokenizer, longest)

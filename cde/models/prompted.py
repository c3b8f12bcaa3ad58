"""Queries and documents, each with the text that stands before it: what all encoders of this room
offer.

Cost: none beside the embedding.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from cde.models.encoding import Vectors
from cde.surrogate.sentence_methods import Role, SentenceMethods

__all__ = ["PromptedEncoder"]


class PromptedEncoder(SentenceMethods):
    """`encode_queries`, `encode_documents` and `embed` by one method; not used by itself."""

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Unit vectors of texts with no prefix before them, `(n, dim)` float32."""
        return self._vectors(texts, "")

    def encode_queries(self, texts: Sequence[str], prefix: str | None = None) -> Vectors:
        """Unit vectors of queries, `(n, dim)` float32: CDE's ψ(q), or ψ(q; D) in a context."""
        return self._vectors(texts, "query", prefix=prefix)

    def encode_documents(self, texts: Sequence[str], prefix: str | None = None) -> Vectors:
        """Unit vectors of documents, `(n, dim)` float32: CDE's ϕ(d), or ϕ(d; D) in a context."""
        return self._vectors(texts, "document", prefix=prefix)

    @abstractmethod
    def _vectors(
        self,
        texts: Sequence[str],
        role: Role,
        batch_size: int | None = None,
        prefix: str | None = None,
    ) -> Vectors:
        """Unit vectors, with a prefix, or that of their role, before each text."""

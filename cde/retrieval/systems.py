"""What can search: encoders, rankers, and models of sentence-transformers.

An encoder turns queries and documents into vectors, a ranker ranks a set without any. A model with
the methods of sentence-transformers (`encode`; `encode_query` and `encode_document` if there are)
becomes an encoder here. So its own prompts for queries and for documents stand before them, and its
own `similarity_fn_name` decides: for "cosine" vectors are brought to length 1, for "dot" they stay.

Cost: none beside the model's own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from cde.data import RetrievalSet
from cde.hardware import Precision
from cde.lexical import BM25
from cde.models import ContextualEncoder, CorpusEncoder
from cde.models.encoder import encoder_class
from cde.models.weights import fetch_folder, read_config
from cde.progress import progress
from cde.surrogate import Surrogate
from cde.validation import encodable

__all__ = [
    "Encoder",
    "Ranker",
    "Rankings",
    "SentenceEncoder",
    "System",
    "as_encoder",
    "named_system",
]

#: query id → document id → score
Rankings = Mapping[str, Mapping[str, float]]

_PORTION = 1024  # texts given to a model at once: it sorts them by length, and a bar can move


@runtime_checkable
class Encoder(Protocol):
    """Anything that turns queries and documents into unit vectors, `(n, dim)` float32."""

    def encode_queries(self, texts: Sequence[str]) -> NDArray[np.float32]: ...

    def encode_documents(self, texts: Sequence[str]) -> NDArray[np.float32]: ...


@runtime_checkable
class Ranker(Protocol):
    """Anything that ranks a retrieval set without vectors, such as BM25."""

    def rank(self, retrieval_set: RetrievalSet, depth: int = 1000) -> Rankings: ...


@runtime_checkable
class SentenceEncoder(Protocol):
    """Anything that is called like a `SentenceTransformer`; `encode_query` and `encode_document`
    are used where it has them.
    """

    @property
    def encode(self) -> Callable[..., Any]: ...


#: what `cde.evaluate` takes
System = Encoder | Ranker | SentenceEncoder


class _Sentences:
    """A model with the methods of sentence-transformers, as an encoder."""

    def __init__(self, model: Any) -> None:
        self.model = model
        measure = str(getattr(model, "similarity_fn_name", None) or "cosine")
        if measure not in ("cosine", "dot"):
            raise ValueError(
                f"{type(model).__name__} compares vectors by {measure!r}; search here is by inner "
                "product: set model.similarity_fn_name to 'cosine' or 'dot'"
            )
        self._unit = measure == "cosine"

    def __repr__(self) -> str:
        return type(self.model).__name__

    def encode_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Vectors `(n, dim)` of queries."""
        return self._vectors(texts, "encode_query", "queries")

    def encode_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Vectors `(n, dim)` of documents."""
        return self._vectors(texts, "encode_document", "documents")

    def _vectors(self, texts: Sequence[str], method: str, what: str) -> NDArray[np.float32]:
        texts = encodable(texts)
        encode = getattr(self.model, method, None) or self.model.encode
        portions = [texts[start : start + _PORTION] for start in range(0, len(texts), _PORTION)]
        title = f"embedding {len(texts):,} {what}"
        parts = [self._of(encode(some), len(some)) for some in progress(portions, title)]
        # one vector of no text, where there are none, for its length
        return np.concatenate(parts) if parts else self._of(encode([""]), 1)[:0]

    def _of(self, given: Any, count: int) -> NDArray[np.float32]:
        """What the model gave for so many texts, as vectors."""
        if isinstance(given, Tensor) and not given.is_sparse:
            given = given.detach().cpu().float().numpy()
        try:
            vectors = np.asarray(given)
        except ValueError:  # rows of different lengths: several vectors a text
            vectors = np.empty((0, 0), object)
        if vectors.ndim != 2 or len(vectors) != count or vectors.dtype.kind != "f":
            raise TypeError(
                f"{self!r} cannot be searched: expected one dense vector of floats for each of "
                f"{count} texts; it gave {type(given).__name__} of shape {vectors.shape}"
            )
        vectors = np.ascontiguousarray(vectors, dtype=np.float32)
        if self._unit:
            lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
            vectors = vectors / np.maximum(lengths, np.float32(1e-12))
        return vectors


def as_encoder(model: object) -> Encoder:
    """An encoder as it is; a model with the methods of sentence-transformers as an encoder.

    Args:
        model: with `encode_queries` and `encode_documents`; or with `encode`, and `encode_query`
            and `encode_document` if it has them, as a `SentenceTransformer` does.

    Raises:
        TypeError: anything else, a class, or a model that gives no dense vectors (once it is used).
        ValueError: a model that compares vectors by neither cosine nor inner product.

    Example:
        >>> class Lengths:
        ...     def encode(self, texts):
        ...         return np.array([[len(text), 1.0] for text in texts])
        >>> as_encoder(Lengths()).encode_documents(["", "four"]).round(2).tolist()
        [[0.0, 1.0], [0.9700000286102295, 0.23999999463558197]]
    """
    if not isinstance(model, (type, str)):  # a string has `encode` too
        if isinstance(model, Encoder):
            return model
        if isinstance(model, SentenceEncoder):
            return _Sentences(model)
    raise TypeError(
        f"{type(model).__name__} cannot rank: expected encode_queries and encode_documents, or "
        "rank(retrieval_set, depth), or the methods of sentence-transformers"
    )


def named_system(
    name: str, max_tokens: int | None = None, cache: bool = True, precision: Precision = "auto"
) -> Any:
    """An encoder or ranker by name."""
    path = Path(name).expanduser()
    if name != "minilm" and name != "bm25" and not path.is_dir() and "/" not in name:
        raise FileNotFoundError(
            f"no model {name!r}: accepted are minilm, bm25, a repository of the Hub, and the "
            "folder of a BiEncoder, ContextualEncoder, CorpusEncoder or sentence-transformers model"
        )
    system: Any = BM25() if name == "bm25" else None
    if name not in ("minilm", "bm25"):
        folder = fetch_folder(path if path.is_dir() else name)
        values = read_config(folder) if (folder / "config.json").is_file() else {}
        kind = encoder_class(values.get("model_type"))
        if kind is not None:
            kind = CorpusEncoder if values.get("context_drawn") else kind
            system = kind.from_pretrained(folder, precision=precision)
        elif "embedder" in values or values.get("architecture") == "transductive":
            system = ContextualEncoder.from_pretrained(folder, precision=precision)
        else:
            name = str(folder)
    if system is None:
        return Surrogate(name, max_tokens, precision, cache=cache)
    if max_tokens is not None:
        raise ValueError(f"{name} has a limit on tokens of its own: max_tokens is for minilm")
    return system

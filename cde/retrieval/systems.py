"""What can search: encoders, rankers, and models of sentence-transformers; and the methods by which
our encoders are such models.

A model with the methods of sentence-transformers becomes an encoder here, with its own prompts; by
its own `similarity_fn_name`, "cosine" brings vectors to length 1, and "dot" leaves them. The other
way round, `SentenceMethods` gives every encoder of this package the methods of that library. Two
things differ from there: vectors have length 1 whether asked for or not, and `batch_size` is an
upper limit.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, Literal, Protocol, TypedDict, TypeGuard, Unpack, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import normalize

from cde.data import RetrievalSet
from cde.progress import progress, without_bars
from cde.validation import as_array, checked_text, checked_texts, checked_whole, encodable, unknown

__all__ = [
    "EncodeOptions",
    "Encoder",
    "Ranker",
    "Rankings",
    "Role",
    "SentenceEncoder",
    "SentenceMethods",
    "System",
    "as_encoder",
    "is_ranker",
]

#: which prompt of an encoder stands before a text: that of queries, of documents, or none
Role = Literal["", "query", "document"]
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


def is_ranker(system: object) -> TypeGuard[Ranker]:
    """Whether something ranks a set by itself."""
    # tables and their columns have another `rank`, and so has a cross-encoder
    others = ("pandas", "polars", "sentence_transformers")
    foreign = type(system).__module__.partition(".")[0] in others
    return isinstance(system, Ranker) and not isinstance(system, type) and not foreign


class _Sentences:
    """A model with the methods of sentence-transformers, as an encoder."""

    def __init__(self, model: Any) -> None:
        self.model = model
        measure = str(getattr(model, "similarity_fn_name", None) or "cosine")
        if measure not in ("cosine", "dot"):
            name = type(model).__name__
            raise ValueError(
                f"{name}.similarity_fn_name must be 'cosine' or 'dot'; it is {measure!r}"
            )
        self._unit = measure == "cosine"

    def __repr__(self) -> str:
        return type(self.model).__name__

    def encode_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return self._vectors(texts, "encode_query", "queries")

    def encode_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
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
        vectors = as_array(given)
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
    if getattr(model, "reads_context", False) and not isinstance(model, type):
        name = type(model).__name__
        raise TypeError(f"{name} is bound to no corpus: model.with_context(documents) binds it")
    name = f"the class {model.__name__}" if isinstance(model, type) else type(model).__name__
    raise TypeError(
        f"{name} cannot rank: expected encode_queries and encode_documents, or "
        "rank(retrieval_set, depth), or the methods of sentence-transformers, of an object. A "
        "model's name or folder: cde.Surrogate(…)"
    )


class EncodeOptions(TypedDict, total=False):
    """Options of `encode`, named as in sentence-transformers."""

    prompt_name: str | None
    prompt: str | None
    batch_size: int | None
    show_progress_bar: bool | None
    convert_to_numpy: bool
    convert_to_tensor: bool
    normalize_embeddings: bool
    truncate_dim: int | None


class SentenceMethods:
    """Methods of sentence-transformers for encoders that have `_vectors`; not used by itself."""

    #: how two vectors are compared
    similarity_fn_name = "cosine"
    # what evaluators of sentence-transformers leave their results in: no model card is written
    model_card_data = SimpleNamespace(set_evaluation_metrics=lambda *results, **more: None)

    @abstractmethod
    def _vectors(
        self, texts: Sequence[str], role: Role, batch_size: int | None = None
    ) -> NDArray[np.float32]:
        """Unit vectors `(n, dim)` of texts, with the prompt of their role before them."""

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Unit vectors of texts, `(n, dim)` float32, with no prompt before them."""
        return self._vectors(texts, "")

    def encode_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Unit vectors of queries, `(n, dim)` float32, with the prompt for queries, if any."""
        return self._vectors(texts, "query")

    def encode_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Unit vectors of documents, `(n, dim)` float32, with the prompt for documents, if any."""
        return self._vectors(texts, "document")

    def encode(self, inputs: str | Sequence[str], **options: Unpack[EncodeOptions]) -> Any:
        """Vectors of texts, with no prompt unless one is named: float32, an array `(n, dim)`, a
        tensor, or a list of tensors, as the options say; for one string, one vector `(dim,)`.
        """
        return self._encoded(inputs, "", options)

    def encode_query(self, inputs: str | Sequence[str], **options: Unpack[EncodeOptions]) -> Any:
        """Vectors of queries, those of `encode_queries`; the rest is as for `encode`."""
        return self._encoded(inputs, "query", options)

    def encode_document(self, inputs: str | Sequence[str], **options: Unpack[EncodeOptions]) -> Any:
        """Vectors of documents, those of `encode_documents`; the rest is as for `encode`."""
        return self._encoded(inputs, "document", options)

    def similarity(self, embeddings1: Any, embeddings2: Any) -> Tensor:
        """Cosines of all vectors with all others, `(n, m)`."""
        from sentence_transformers.util import cos_sim

        return cos_sim(embeddings1, embeddings2)  # type: ignore[no-any-return]

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> Tensor:
        """The cosine of each vector with the other in its place, `(n,)`."""
        from sentence_transformers.util import pairwise_cos_sim

        return pairwise_cos_sim(embeddings1, embeddings2)  # type: ignore[no-any-return]

    def _encoded(self, inputs: Any, role: Role, options: EncodeOptions) -> Any:
        if strange := set(options) - set(EncodeOptions.__annotations__):
            raise TypeError(unknown(strange, EncodeOptions.__annotations__, "option"))
        prompt, name = options.get("prompt"), options.get("prompt_name")
        if prompt is None and name is not None:
            if name not in ("query", "document"):
                raise ValueError(f"prompt_name must be 'query' or 'document'; it is {name!r}")
            role = name  # type: ignore[assignment]
        single = isinstance(inputs, str)
        texts = checked_texts([inputs] if single else inputs, "inputs")
        if prompt is not None:
            prompt = checked_text(prompt, "prompt")
            role, texts = "", [prompt + text for text in texts]
        size, dim = options.get("batch_size"), options.get("truncate_dim")
        size = None if size is None else checked_whole(size, "batch_size")
        with without_bars() if options.get("show_progress_bar") is False else nullcontext():
            vectors = self._vectors(texts, role, size)
        if dim is not None:
            vectors = vectors[:, : checked_whole(dim, "truncate_dim")]
            if options.get("normalize_embeddings"):
                vectors = normalize(torch.from_numpy(vectors), dim=-1).numpy()
        if options.get("convert_to_tensor"):
            rows: Any = torch.from_numpy(vectors).to(getattr(self, "device", "cpu"))
        elif options.get("convert_to_numpy", True):
            rows = vectors
        else:
            rows = list(torch.from_numpy(vectors))
        return rows[0] if single else rows

"""What users of sentence-transformers call on an encoder: `encode`, `encode_query`,
`encode_document`, `similarity`.

Every encoder of this book has `encode_queries` and `encode_documents`. These methods give the same
vectors under that library's names and options, so that code which was written for a
`SentenceTransformer` takes our encoders too. Two things differ from there, and neither changes a
ranking by cosine: vectors have length 1 whether asked for or not, and texts are put into batches
by their length, of which `batch_size` is the upper limit.

Cost: that of `encode_queries` and `encode_documents`; nothing is embedded twice.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any, Literal, TypedDict, Unpack

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import normalize

from cde.progress import without_bars
from cde.validation import checked_texts, checked_whole, unknown

__all__ = ["EncodeOptions", "Role", "SentenceMethods"]

#: which prompt of an encoder stands before a text: that of queries, of documents, or none
Role = Literal["", "query", "document"]


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

    @abstractmethod
    def _vectors(
        self, texts: Sequence[str], role: Role, batch_size: int | None = None
    ) -> NDArray[np.float32]:
        """Unit vectors `(n, dim)` of texts, with the prompt of their role before them."""

    def encode(self, inputs: str | Sequence[str], **options: Unpack[EncodeOptions]) -> Any:
        """Vectors of texts, with no prompt unless one is named.

        Returns:
            Float32: an array `(n, dim)`, or a tensor, or a list of tensors, as the options say. For
            one string, one vector `(dim,)`.
        """
        return self._encoded(inputs, "", options)

    def encode_query(self, inputs: str | Sequence[str], **options: Unpack[EncodeOptions]) -> Any:
        """Vectors of queries, those of `encode_queries`; arguments and result as for `encode`."""
        return self._encoded(inputs, "query", options)

    def encode_document(self, inputs: str | Sequence[str], **options: Unpack[EncodeOptions]) -> Any:
        """Vectors of documents, those of `encode_documents`; arguments and result as for
        `encode`.
        """
        return self._encoded(inputs, "document", options)

    def similarity(self, embeddings1: Any, embeddings2: Any) -> Tensor:
        """Cosines of all vectors with all others.

        Returns:
            `(n, m)` float32.
        """
        return _unit(embeddings1) @ _unit(embeddings2).T

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> Tensor:
        """The cosine of each vector with the other in its place.

        Returns:
            `(n,)` float32.
        """
        return (_unit(embeddings1) * _unit(embeddings2)).sum(dim=-1)

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
            role, texts = "", [prompt + text for text in texts]
        size, dim = options.get("batch_size"), options.get("truncate_dim")
        size = None if size is None else checked_whole(size, "batch_size")
        quiet = without_bars() if options.get("show_progress_bar") is False else nullcontext()
        with quiet:
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


def _unit(vectors: Any) -> Tensor:
    if isinstance(vectors, (list, tuple)) and len(vectors) and isinstance(vectors[0], Tensor):
        vectors = torch.stack(list(vectors))
    tensor = torch.as_tensor(np.asarray(vectors) if not isinstance(vectors, Tensor) else vectors)
    return normalize(tensor.float(), dim=-1).reshape(-1, tensor.shape[-1])

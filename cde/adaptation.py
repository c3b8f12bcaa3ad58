"""An encoder fitted to one corpus without training: a mean vector is taken off each side, and the
directions in which the corpus varies most are made shorter::

    ψ(q; D) = unit(W (ψ(q) − m_q)),   ϕ(d; D) = unit(W (ϕ(d) − m_d))

m_d is the mean vector of the corpus' documents, m_q that of its queries: what all of them have in
common tells none of them from another. What many have in common tells little: W = C^(−1/4) is half
the way from the identity to whitening, C^(−1/2), of their covariance C.

Where there are sample queries, m_q is their mean, and their covariance is added to the documents'.
Where there are none, a linear reader predicts m_q from the documents::

    m_q ≈ q̄ + R (m_d − d̄)

R is fitted by ridge regression over many corpora whose queries are known, in which d̄ and q̄ are
the means. The chapter `training_free` says where this helps, and where not.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cde.retrieval.systems import Role, SentenceMethods, as_encoder
from cde.storage import content_hash
from cde.validation import (
    Vectors,
    array_of_numbers,
    called,
    checked_instance,
    checked_number,
    checked_texts,
    checked_whole,
    encoded,
)

__all__ = ["AdaptedEncoder", "LinearReader", "adapted", "tempered"]

_TENSORS = ("weights", "documents", "queries", "corpora")


def unit(vectors: NDArray[Any]) -> Vectors:
    """Vectors of length 1; those of length zero stay."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.where(lengths > 0, lengths, 1), np.float32)


def tempered(*samples: NDArray[Any], strength: float = 0.5, shrunk: float = 0.5) -> Vectors:
    """W = C^(−strength/2), `(dim, dim)` float32: C is the sum of the samples' covariances, shrunk
    by so much towards its mean variance (the covariance of few vectors is noisy).

    Strength 0 changes nothing, 1 whitens. Both numbers were chosen on validation manuals.

    Raises:
        ValueError: a strength that is not between 0 and 2, a share that is not between 0 and 1, or
            samples that are not `(n, dim)` of finite numbers, of one `dim`.
        TypeError: samples that are not arrays of numbers.

    Example:
        >>> vectors = np.random.default_rng(0).normal(size=(1000, 3)) * [4.0, 1.0, 1.0]
        >>> np.round((vectors @ tempered(vectors, shrunk=0)).std(axis=0))
        array([2., 1., 1.])
    """
    for name, value, most in (("strength", strength, 2), ("shrunk", shrunk, 1)):
        if not 0 <= checked_number(value, name) <= most:
            raise ValueError(f"{name} must be between 0 and {most}; it is {value}")
    rows = [array_of_numbers(some, "samples") for some in samples]
    shapes = [some.shape for some in rows]
    if {len(one) for one in shapes} != {2} or len({one[1] for one in shapes}) != 1:
        raise ValueError(f"samples must be one or more of (n, dim) each; they are {shapes}")
    if not all(len(some) and np.isfinite(some).all() for some in rows):
        raise ValueError("samples must be one vector or more each, of finite numbers")
    covariance = np.sum([np.atleast_2d(np.cov(some.T, bias=True)) for some in rows], axis=0)
    even = np.trace(covariance) / len(covariance) * np.eye(len(covariance))
    if not even.any():  # one text, or the same text again and again
        return np.eye(len(covariance), dtype=np.float32)
    variances, directions = np.linalg.eigh((1 - shrunk) * covariance + shrunk * even)
    scales = np.maximum(variances, variances[-1] * 1e-6) ** (-strength / 2)
    return np.asarray((directions * scales) @ directions.T, np.float32)


@dataclass(frozen=True)
class Shift:
    """What is taken off vectors of queries and of documents, and what both are multiplied by."""

    queries: Vectors
    documents: Vectors
    weights: Vectors | None = None

    @property
    def fingerprint(self) -> str:
        parts = [self.queries.tobytes(), self.documents.tobytes()]
        return content_hash(parts if self.weights is None else [*parts, self.weights.tobytes()])

    def of(self, vectors: Vectors, role: Role) -> Vectors:
        """Vectors, shifted, of length 1; one that equals the mean would be nothing, and stays."""
        moved = vectors - (self.queries if role == "query" else self.documents)
        alike = np.linalg.norm(moved, axis=1) <= 1e-6 * np.linalg.norm(vectors, axis=1)
        moved[alike] = vectors[alike]
        return unit(moved if self.weights is None else moved @ self.weights)


@dataclass(frozen=True)
class LinearReader:
    """Predicts the mean vector of a corpus' queries from that of its documents."""

    #: `(dim, dim)`, R of the equation
    weights: Vectors
    #: `(dim,)`, the means d̄ and q̄ over the corpora it was fitted on
    documents: Vectors
    queries: Vectors
    #: `(n, dim)`, the mean documents of these corpora
    corpora: Vectors
    #: name of the encoder whose vectors it knows; "" asks for none
    encoder: str = ""
    #: it is of use where `nearness` is so much or more
    least_near: float = -1.0

    def predict(self, documents: NDArray[Any]) -> Vectors:
        """Mean query vectors from mean document vectors: `(dim,)`, or `(n, dim)`."""
        moved = np.asarray(documents, np.float32) - self.documents
        return np.asarray(self.queries + moved @ self.weights, np.float32)

    def nearness(self, documents: NDArray[Any]) -> float:
        """The mean cosine of a mean document with the ten nearest that the reader was fitted on."""
        cosines = unit((documents - self.documents)[None]) @ unit(self.corpora - self.documents).T
        return float(np.sort(cosines[0])[-10:].mean())

    @classmethod
    def load(cls, path: Path | str) -> LinearReader:
        """A reader from a file of safetensors."""
        from safetensors import safe_open

        with safe_open(path, "numpy") as file:
            tensors = {name: file.get_tensor(name).astype(np.float32) for name in _TENSORS}
            said = file.metadata()
            return cls(**tensors, encoder=said["encoder"], least_near=float(said["least_near"]))


@cache
def linear_reader() -> LinearReader:
    """The reader that comes with the package: of MiniLM's vectors, fitted on manuals."""
    return LinearReader.load(Path(__file__).with_name("linear_reader.safetensors"))


class AdaptedEncoder(SentenceMethods):
    """An encoder whose vectors are shifted, and brought to length 1 again (`Shift.of`)."""

    def __init__(self, encoder: Any, shift: Shift) -> None:
        self.encoder, self.shift = encoder, shift
        self.dim = len(shift.documents)

    def __repr__(self) -> str:
        return f"AdaptedEncoder({called(self.encoder)}, shift {self.shift.fingerprint[:8]})"

    @property
    def fingerprint(self) -> str:
        """Hash of what its vectors depend on; needs an encoder that has one."""
        return content_hash([self.encoder.fingerprint, self.shift.fingerprint])

    @property
    def expected(self) -> str:
        """What to expect of it on this corpus, by the rule of the chapter `training_free`."""
        shift = self.shift
        if shift.weights is None and not (shift.queries.any() or shift.documents.any()):
            return (
                "none: the corpus is unlike those of the reader, so the encoder is left as it was"
            )
        reader = linear_reader()
        if reader.encoder != getattr(self.encoder, "name", None):
            return "no gain was measured with this encoder: compare it with the plain one on yours"
        near, least = reader.nearness(self.shift.documents), reader.least_near
        seen = "a gain was seen" if near >= least else "no gain was seen"
        return f"{seen} on such corpora (nearness to manuals {near:.2f}, rule {least:.2f})"

    def _vectors(self, texts: Sequence[str], role: Role, batch_size: int | None = None) -> Vectors:
        if not role:
            raise ValueError("queries and documents differ: take encode_query or encode_document")
        what: Any = "queries" if role == "query" else "documents"
        return self.shift.of(encoded(self.encoder, checked_texts(texts), what, self.dim), role)


def adapted(
    encoder: Any,
    documents: Sequence[str],
    queries: Sequence[str] | None = None,
    reader: LinearReader | None = None,
    sample: int = 256,
    seed: int = 0,
    strength: float = 0.5,
) -> AdaptedEncoder:
    """An encoder adapted to a corpus, without training.

    Args:
        encoder: with `encode_queries` and `encode_documents`, or a `SentenceTransformer`.
        documents: of the corpus; `sample` of them, drawn with `seed`, are averaged.
        queries: samples of what people ask of it, without judgements. On manuals 20 are worth some
            eight points of NDCG@10; on judged collections no gain was seen.
        reader: where there are no sample queries: what predicts their mean. By default the one that
            comes with the package, which knows MiniLM (`cde.Surrogate()`) and queries that are
            names of things.
        strength: of what `tempered` does; 0 takes means off alone.

    Warns:
        UserWarning: the corpus is too unlike those that the reader was fitted on, by the rule of
            the chapter `training_free`; the encoder is then left as it is.

    Example:
        >>> from cde import Surrogate
        >>> corpus = ["a pot of tea for two", "green tea leaves", "tea with milk"]
        >>> encoder = adapted(Surrogate(), corpus, queries=["which tea is green?", "milk in tea?"])
        >>> encoder.encode_queries(["how many does the pot serve?"]).shape
        (1, 384)
    """
    model: Any = as_encoder(encoder)
    texts = checked_texts(documents, "documents")
    if not texts:
        raise ValueError("documents must be one or more: their mean is taken off; they are none")
    strength = checked_number(strength, "strength")
    draws = np.random.default_rng(checked_whole(seed, "seed", 0))
    order = draws.permutation(len(texts))[: checked_whole(sample, "sample")]
    read = encoded(model, [texts[row] for row in order], "documents")
    mean = read.mean(axis=0)

    def weights(*samples: Vectors) -> Vectors | None:
        return tempered(*samples, strength=strength) if strength else None

    if queries is not None and (some := checked_texts(queries, "queries")):
        asked = encoded(model, some, "queries")
        return AdaptedEncoder(model, Shift(asked.mean(axis=0), mean, weights(read, asked)))
    reader = linear_reader() if reader is None else checked_instance(reader, LinearReader, "reader")
    if reader.encoder not in ("", getattr(model, "name", None)):
        raise ValueError(f"the linear reader is for {reader.encoder!r} alone: give sample queries")
    near = reader.nearness(mean)
    if near < reader.least_near:
        warnings.warn(
            f"this corpus is unlike those that the reader was fitted on (nearness {near:.2f} "
            f"where {reader.least_near:.2f} is asked for), and it is not seen to help there: the "
            "encoder is left as it is. Sample queries may: adapted(encoder, documents, queries)",
            stacklevel=2,
        )
        return AdaptedEncoder(model, Shift(np.zeros_like(mean), np.zeros_like(mean)))
    return AdaptedEncoder(model, Shift(reader.predict(mean), mean, weights(read)))

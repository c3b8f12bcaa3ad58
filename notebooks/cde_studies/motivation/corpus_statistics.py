"""What a corpus says of itself: document frequencies, mean vector, covariance.

They are taken of a corpus' documents alone, never of its queries:

- `Counts`: how many documents hold each of BM25's terms, and each of MiniLM's word pieces;
- `Moments`: the mean of the document vectors, and a root of the inverse of their covariance. The
  covariance is shrunk towards its mean variance by the rule of Ledoit and Wolf (2004): nothing is
  tuned.

Several corpora together have both too, as one large corpus.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from cde.models.encoder import tokenise
from cde_studies.motivation.word_counts import document_frequencies

Vectors = NDArray[np.float32]


def inverse_document_frequency(counts: NDArray[np.integer], size: int) -> NDArray[np.float64]:
    """Lucene's IDF, that of `cde.BM25`: ln(1 + (N - df + 0.5) / (df + 0.5)), always above 0."""
    weights = np.log1p((size - counts + 0.5) / (counts + 0.5))
    return np.asarray(weights, dtype=np.float64)


@dataclass(frozen=True)
class Counts:
    """Document frequencies of a corpus, or of several as one."""

    size: int
    terms: pd.Series[int]
    pieces: NDArray[np.int64]

    @classmethod
    def of(cls, documents: Sequence[str], tokenizer: Any, max_tokens: int) -> Counts:
        """Count the documents of a corpus; word pieces behind `max_tokens` are not seen."""
        pieces = np.zeros(len(tokenizer), np.int64)
        for row in tokenise(tokenizer, list(documents), max_tokens):
            pieces[np.unique(row)] += 1
        return cls(len(documents), document_frequencies(documents), pieces)

    @classmethod
    def together(cls, corpora: Sequence[Counts]) -> Counts:
        return cls(
            size=sum(one.size for one in corpora),
            terms=pd.concat([one.terms for one in corpora]).groupby(level=0).sum(),
            pieces=np.sum([one.pieces for one in corpora], axis=0),
        )

    def term_weights(self, vocabulary: list[str]) -> NDArray[np.float64]:
        """IDF of these terms, `(terms,)`; a term that the corpus lacks has the largest."""
        counts = self.terms.reindex(pd.Index(vocabulary), fill_value=0)
        return inverse_document_frequency(counts.to_numpy(np.int64), self.size)

    def piece_weights(self) -> Vectors:
        """IDF of every word piece, `(vocabulary,)` float32."""
        return inverse_document_frequency(self.pieces, self.size).astype(np.float32)


@dataclass(frozen=True)
class Moments:
    """Mean and covariance of document vectors."""

    mean: Vectors
    whitening: Vectors

    @classmethod
    def of(cls, vectors: Vectors) -> Moments:
        covariance = torch.from_numpy(shrunk_covariance(vectors))
        # vectors that are all alike have no variance to divide by
        precision = torch.linalg.inv(covariance + 1e-9 * torch.eye(len(covariance)))
        return cls(vectors.mean(axis=0), torch.linalg.cholesky(precision).float().numpy())


def shrunk_covariance(vectors: Vectors) -> NDArray[np.float64]:
    """Covariance, `(dim, dim)` float64, shrunk by Ledoit and Wolf's rule, as by
    `sklearn.covariance.ledoit_wolf`, with one product of the vectors in place of three.
    """
    centred = torch.from_numpy(vectors - vectors.mean(axis=0))
    n, dim = centred.shape
    covariance = (centred.T @ centred).double() / n
    target = covariance.trace() / dim * torch.eye(dim)
    apart = float(((covariance - target) ** 2).sum())
    # how far single documents scatter around the covariance that they have together
    lengths = (centred.double() ** 2).sum(dim=1)
    noise = float((lengths**2).mean() - (covariance**2).sum()) / n
    share = min(noise / apart, 1.0) if apart > 0 else 1.0
    return np.asarray(((1 - share) * covariance + share * target).numpy())

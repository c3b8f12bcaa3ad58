"""How the linear reader of `cde.adaptation` is fitted over many corpora, and written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cde.adaptation import LinearReader
from cde.storage import atomic_path


def fit_reader(documents: NDArray[Any], queries: NDArray[Any], ridge: float = 0.03) -> LinearReader:
    """Ridge regression over the mean vectors of corpora' documents and queries, `(corpora, dim)`.

    `ridge` is added to the diagonal of X'X, X being the centred means of documents.
    """
    x, y = (np.asarray(means, np.float64) for means in (documents, queries))
    means = x.mean(axis=0), y.mean(axis=0)
    x, y = x - means[0], y - means[1]
    # of the smaller system of the two: there may be fewer corpora than dimensions
    if len(x) < x.shape[1]:
        weights = x.T @ np.linalg.solve(x @ x.T + ridge * np.eye(len(x)), y)
    else:
        weights = np.linalg.solve(x.T @ x + ridge * np.eye(x.shape[1]), x.T @ y)
    single = [np.asarray(values, np.float32) for values in (weights, *means, documents)]
    return LinearReader(single[0], single[1], single[2], single[3])


def save_reader(reader: LinearReader, path: Path | str) -> None:
    """Write a reader as one safetensors file, in half precision, for `LinearReader.load`."""
    from safetensors.numpy import save_file

    names = ("weights", "documents", "queries", "corpora")
    tensors = {name: getattr(reader, name).astype(np.float16) for name in names}
    with atomic_path(path) as file:
        save_file(tensors, file, {"encoder": reader.encoder, "least_near": str(reader.least_near)})

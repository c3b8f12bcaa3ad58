"""Vectors of encoders, looked at once where they enter: scores of what is no number look like any.

An encoder may be anything of a user's. What it gives is a finite vector above zero for each text,
or an error that names the encoder and the first row that is not.

Cost: one pass over the vectors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from cde.validation import shown

__all__ = ["array_of_numbers", "called", "checked_vectors", "encoded"]

#: squares of a vector's length: products of shorter or longer ones leave single precision
_SHORTEST, _LONGEST = 1e-36, 1e36


def called(thing: object) -> str:
    """What an object is called in a message: what it says of itself, or its class."""
    said = repr(thing)
    return type(thing).__name__ if " object at 0x" in said or "\n" in said else said


def encoded(
    encoder: Any,
    texts: Sequence[str],
    what: Literal["queries", "documents"],
    dim: int | None = None,
) -> NDArray[Any]:
    """Vectors of queries or of documents by an encoder, checked.

    Returns:
        `(n, dim)`, in the encoder's own type of numbers.
    """
    encode = encoder.encode_queries if what == "queries" else encoder.encode_documents
    return checked_vectors(encode(texts), encoder, what, len(texts), dim)


def array_of_numbers(given: Any, name: str) -> NDArray[Any]:
    """An array of real numbers, not copied where it is one already."""
    try:
        array = np.asarray(given)
    except (TypeError, ValueError, RuntimeError):
        array = np.empty(0, object)
    if array.dtype.kind not in "fiu":
        raise TypeError(f"{name} must be an array of real numbers; they are {shown(given)}")
    if array.ndim == 2 and len(array) and array.shape[1] == 0:
        raise ValueError(f"{name} must have a dimension or more; they are {array.shape}")
    return array


def checked_vectors(
    given: Any, encoder: object, what: str, count: int, dim: int | None = None
) -> NDArray[Any]:
    """What an encoder gave, where it enters: a finite vector above zero for each text.

    An encoder of words may know none of a text's, and give zeros for it. It says so by an attribute
    `zeros_for_unknown` that is true; zeros for every text are refused all the same.

    Returns:
        The vectors `(count, dim)`, as they came.
    """
    if callable(getattr(given, "detach", None)):  # a tensor: of any device, with or without a graph
        given = given.detach().cpu()
        given = given.float() if str(given.dtype) == "torch.bfloat16" else given
    try:
        vectors = np.asarray(given)
    except (TypeError, ValueError, RuntimeError):  # rows of several lengths; a sparse tensor
        vectors = np.empty(0, object)
    shape = f"({count}, {'dim' if dim is None else dim})"
    if vectors.dtype.kind not in "fiu":
        raise ValueError(
            f"{called(encoder)} gave no vectors for {count} {what}: expected numbers of shape "
            f"{shape}; it gave {type(given).__name__}"
        )
    if (
        vectors.ndim != 2
        or len(vectors) != count
        or (count and vectors.shape[1] == 0)
        or dim not in (None, vectors.shape[1])
    ):
        raise ValueError(
            f"{called(encoder)} gave vectors of shape {vectors.shape} for {count} {what}; expected "
            f"{shape}"
        )
    squares = np.einsum("nd,nd->n", vectors, vectors, dtype=np.float64, casting="unsafe")
    zeros = squares == 0
    unknown = getattr(encoder, "zeros_for_unknown", False) is True and not zeros.all()
    bad = {
        "numbers that are not finite": ~np.isfinite(squares),
        "only zeros": np.zeros_like(zeros) if unknown else zeros,
        "lengths that single precision cannot multiply": ~zeros
        & ((squares < _SHORTEST) | (squares > _LONGEST)),
    }
    for problem, rows in bad.items():
        if rows.any():
            raise ValueError(
                f"{called(encoder)} gave vectors that nothing can be ranked by: of {count} {what}, "
                f"{int(rows.sum())} have {problem}, the first in row {int(rows.argmax())}"
            )
    return vectors

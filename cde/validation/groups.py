"""Groups as they come in: the domain, source or cluster of each item, by name or by number.

Cost: one sort of the groups.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["group_numbers"]


def group_numbers(groups: Any, name: str, count: int | None = None) -> NDArray[np.int64]:
    """The number of each item's group, by the order of their names.

    Returns:
        `(n,)` int64, 0 … groups − 1.
    """
    if isinstance(groups, str | bytes | Set | Mapping) or not isinstance(groups, Iterable):
        raise TypeError(f"{name} must be a list, one for each item; it is {groups!r}")
    if isinstance(groups, np.ndarray):
        values = groups
    else:
        listed = list(groups)
        values = np.empty(len(listed), object)  # never a table, whatever the items
        values[:] = listed
    if values.ndim != 1:
        raise ValueError(f"{name} must be a row, one for each item; it has shape {values.shape}")
    if count is not None and len(values) != count:
        raise ValueError(
            f"{name} must hold one for each of the {count} pairs; it has {len(values)}"
        )
    if values.dtype.kind == "O":
        accepted = str | int | float | np.integer | np.floating
        for position, value in enumerate(values):
            if not isinstance(value, accepted) or value != value:
                raise ValueError(f"{name} must be strings or numbers; item {position} is {value!r}")
        if len({isinstance(value, str) for value in values}) > 1:
            raise ValueError(f"{name} must be all strings or all numbers; both were given")
        values = np.asarray(values.tolist())
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        place = int(np.isfinite(values).argmin())
        raise ValueError(f"{name} must be strings or numbers; item {place} is {values[place]}")
    if values.dtype.kind not in "UTSiufb":
        raise TypeError(f"{name} must be strings or numbers; it is an array of {values.dtype}")
    return np.asarray(np.unique(values, return_inverse=True)[1], dtype=np.int64)

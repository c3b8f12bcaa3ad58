"""Where the spread of a score comes from, when every seed was tested on every collection.

A difference y of seed i on collection j is μ + aᵢ + bⱼ + eᵢⱼ, all independent and normal (the
two-way random model without repeats). The mean squares of rows, columns and rest give the
variances (Searle, Casella and McCulloch 1992, §4.4). The mean over all cells has the variance
σ²ₐ/I + σ²_b/J + σ²ₑ/IJ, estimated by (MSₐ + MS_b − MSₑ)/IJ, with Satterthwaite's degrees of
freedom. Its interval speaks of other seeds and of other collections at once, where one over seeds
alone takes the collections as given.

Cost: none to speak of.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from cde.intervals.estimates import Interval, run_interval

__all__ = ["Spread", "crossed_interval", "spread", "table_interval"]


class Spread(NamedTuple):
    """Standard deviations of the parts of a difference, in its unit.

    Attributes:
        seeds: of what a seed has on all collections.
        collections: of what a collection has with all seeds.
        rest: of what is neither: sampling of queries, and how a seed suits a collection.
    """

    seeds: float
    collections: float
    rest: float


def spread(values: ArrayLike) -> Spread:
    """The parts of the spread of a table of differences.

    Args:
        values: `(seeds, collections)`, at least two of each.

    Raises:
        ValueError: another shape, or a value that is no number.

    Example:
        >>> spread([[0.0, 1.0], [2.0, 3.0]])
        Spread(seeds=1.4142135623730951, collections=0.7071067811865476, rest=0.0)
    """
    table = _checked(values)
    seeds, collections = table.shape
    rows, columns, rest = _mean_squares(table)
    return Spread(
        float(np.sqrt(max(0.0, rows - rest) / collections)),
        float(np.sqrt(max(0.0, columns - rest) / seeds)),
        float(np.sqrt(rest)),
    )


def crossed_interval(values: ArrayLike) -> Interval:
    """Mean of a table of differences, with an interval over other seeds and other collections.

    Args:
        values: `(seeds, collections)`, at least two of each.

    Raises:
        ValueError: another shape, or a value that is no number.

    Example:
        >>> print(crossed_interval([[1.0, 2.0, 3.0], [1.2, 1.8, 3.1], [0.9, 2.1, 2.8]]))
        2.0 [-0.4, 4.4]
    """

    from scipy import stats

    table = _checked(values)
    rows, columns, rest = _mean_squares(table)
    seeds, collections = table.shape
    combined = rows + columns - rest
    error = np.sqrt(max(combined, rows, columns) / table.size)
    if combined >= max(rows, columns):
        parts = rows**2 / (seeds - 1), columns**2 / (collections - 1)
        last = rest**2 / ((seeds - 1) * (collections - 1))
        freedom = combined**2 / (sum(parts) + last) if combined else None
    else:  # a source without spread of its own: the other alone
        freedom = float(seeds - 1 if rows >= columns else collections - 1)
    half = float(stats.t.ppf(0.975, freedom) * error) if freedom else 0.0
    mean = float(table.mean())
    method = f"random effects of {seeds} seeds and {collections} collections"
    return Interval(mean, mean - half, mean + half, min(table.shape), method, freedom)


def table_interval(values: ArrayLike | pd.Series[float]) -> Interval | None:
    """Mean of a table of differences, with the interval that its shape allows.

    Args:
        values: `(seeds, collections)`, or a series by seed and collection.

    Returns:
        The interval over both, where there are two or more of each (`crossed_interval`); Student's
        over the one that there are two or more of; None for a single value, or none.

    Raises:
        ValueError: no table, or a value that is no number.

    Example:
        >>> print(table_interval([[1.0, 2.0, 3.0]]), table_interval([[1.0]]))
        2.0 [-0.5, 4.5] None
        >>> cells = pd.MultiIndex.from_product([(0, 1), (2, 3, 4)], names=["seed", "set"])
        >>> by_cell = pd.Series([1.0, 2.0, 3.0, 1.2, 1.8, 3.1], cells)
        >>> table_interval(by_cell) == crossed_interval([[1.0, 2.0, 3.0], [1.2, 1.8, 3.1]])
        True
    """
    if isinstance(values, pd.Series) and values.index.nlevels == 2:
        values = values.dropna().unstack()  # noqa: PD010
    table = np.asarray(values, dtype=np.float64)
    if table.ndim != 2:
        raise ValueError(f"values must be a table, (seeds, collections): {table.shape}")
    if table.size < 2:
        return None
    if min(table.shape) > 1:
        return crossed_interval(table)
    return run_interval(table, "seeds" if table.shape[1] == 1 else "collections")


def _checked(values: ArrayLike) -> np.ndarray:
    table = np.asarray(values, dtype=np.float64)
    if table.ndim != 2 or min(table.shape) < 2:
        raise ValueError(f"values must be (seeds, collections), two or more of each: {table.shape}")
    if not np.isfinite(table).all():
        raise ValueError(
            f"{int((~np.isfinite(table)).sum())} of {table.size} values are no numbers"
        )
    return table


def _mean_squares(table: np.ndarray) -> tuple[float, float, float]:
    seeds, collections = table.shape
    centred = table - table.mean()
    of_row, of_column = centred.mean(axis=1), centred.mean(axis=0)
    rest = centred - of_row[:, None] - of_column
    freedom = (seeds - 1) * (collections - 1)
    return (
        float(collections * (of_row**2).sum() / (seeds - 1)),
        float(seeds * (of_column**2).sum() / (collections - 1)),
        float((rest**2).sum() / freedom),
    )

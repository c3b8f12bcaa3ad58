"""Drawings that explain and measure nothing: the two-stage model, which token attends to which, the
scores of a batch that a filter masks, and clusters in a row that is cut into batches.

In the model orange is the context, blue the text, green what holds both.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch, Rectangle
from numpy.typing import NDArray

from cde.models.attention import visibility
from cde_book.plots import COLORS, GRID, INK, MUTED, figure

TEXT, CONTEXT, BOTH = COLORS[:3]


def contextual_model(context: int, text: int) -> tuple[Any, pd.DataFrame]:
    """Draw the two-stage model, and beside it which tokens attend to which in its two patterns."""
    one_way = visibility(None, text, context, context, context_sees_text=False)
    assert one_way is not None
    tokens = context + text
    seen = {"full": np.ones((tokens, tokens), np.bool_), "cached": one_way[0, 0].numpy()}
    with figure(1, 3, width=9.6, height=3.4, width_ratios=[2.6, 1, 1]) as (drawing, axes):
        two_stages(axes[0])
        axes[0].set_title("two stages")
        for axis, (name, pairs) in zip(axes[1:], seen.items(), strict=True):
            attention_pairs(axis, pairs, context)
            axis.set_title(name)
        axes[1].set_ylabel("attends")
    parts = {"context": slice(context), "text": slice(context, None)}
    counts = {
        f"{one} tokens see {other} tokens": {
            name: int(pairs[rows, columns].sum()) for name, pairs in seen.items()
        }
        for one, rows in parts.items()
        for other, columns in parts.items()
    }
    return drawing, pd.DataFrame(counts).T


def two_stages(axis: Axes) -> None:
    """Draw the model of CDE Fig. 1: context through the first stage, then with text the second."""
    for place, name in enumerate(["$d^1$", "$d^2$", "$d^J$"]):
        left, middle = place * 1.25, place * 1.25 + 0.5
        _box(axis, (left, 0), (1, 0.7), name, CONTEXT)
        _box(axis, (left + 0.15, 2.7), (0.7, 0.6), "", CONTEXT)
        for low, high in ((0.7, 1.3), (2.1, 2.7), (3.3, 3.9)):
            _arrow(axis, middle, low, high)
    for place in range(4):
        left = 4.2 + place * 0.85
        _box(axis, (left, 2.7), (0.7, 0.6), f"$d'_{{{place + 1}}}$", TEXT)
        _arrow(axis, left + 0.35, 3.3, 3.9)
    for low, high in ((0.7, 2.7), (4.7, 5.3)):
        _arrow(axis, 5.8, low, high)
    _box(axis, (0, 1.3), (3.5, 0.8), "first stage $M_1$", CONTEXT)
    _box(axis, (4.2, 0), (3.25, 0.7), "text $d'$, or query $q$", TEXT)
    _box(axis, (0, 3.9), (7.45, 0.8), "second stage $M_2$", BOTH)
    _box(axis, (4.2, 5.3), (3.25, 0.7), "mean over text tokens", TEXT)
    axis.text(3.6, 2.95, "+", ha="center", va="center", fontsize=9)
    axis.set(xlim=(-0.2, 7.7), ylim=(-0.2, 6.2), xticks=[], yticks=[])
    _bare(axis)


def _box(
    axis: Axes, corner: tuple[float, float], size: tuple[float, float], label: str, colour: str
) -> None:
    axis.add_patch(Rectangle(corner, *size, fill=False, ec=colour, lw=1.6))
    middle = (corner[0] + size[0] / 2, corner[1] + size[1] / 2)
    axis.text(*middle, label, ha="center", va="center", fontsize=8)


def _arrow(axis: Axes, x: float, low: float, high: float) -> None:
    ends = ((x, low), (x, high))
    axis.add_patch(
        FancyArrowPatch(*ends, arrowstyle="-|>", mutation_scale=9, linewidth=1.1, color=MUTED)
    )


def attention_pairs(axis: Axes, seen: NDArray[np.bool_], context: int) -> None:
    """Draw which token attends to which: a line for each that looks, a column for each seen."""
    tokens = len(seen)
    for row, column in np.argwhere(seen):
        colour = CONTEXT if column < context else TEXT
        axis.add_patch(Rectangle((column, row), 0.86, 0.86, color=colour, lw=0))
    middles = [context / 2, context + (tokens - context) / 2]
    axis.set_xticks(middles, ["context", "text"])
    axis.set_yticks(middles, ["context", "text"])
    axis.set(xlim=(-0.3, tokens + 0.2), ylim=(tokens + 0.2, -0.3), aspect="equal")
    axis.set_xlabel("may be attended to")
    axis.grid(False)


def masked_scores(scores: pd.DataFrame, masked: NDArray[np.bool_]) -> Any:
    """Draw a batch's scores, a line for each query: its own document, on the diagonal, in a blue
    frame, and documents that are masked crossed out.
    """
    with figure(width=6.4, height=2.9) as (drawing, axis):
        for (row, column), score in np.ndenumerate(scores.to_numpy(dtype=float)):
            frame = TEXT if row == column else CONTEXT if masked[row, column] else GRID
            _box(axis, (column, row), (0.92, 0.84), f"{round(score, 2) + 0.0:.2f}", frame)
            if masked[row, column]:
                axis.plot([column, column + 0.92], [row, row + 0.84], color=CONTEXT, marker="")
        names = ["\n".join(textwrap.wrap(one, 18)) for one in scores.columns]
        axis.set_xticks(np.arange(len(names)) + 0.46, names, fontsize=7.5)
        axis.set_yticks(np.arange(len(names)) + 0.42, list(scores.index))
        axis.set(xlim=(-0.1, len(names)), ylim=(len(names), -0.1))
        axis.set(xlabel="document", ylabel="query")
        _bare(axis)
    return drawing


def row_of_clusters(
    sizes: Mapping[str, int], orders: Mapping[str, Sequence[str]], batch: int
) -> Any:
    """Draw clusters laid in a row, a line for each order, and the cuts that make batches of it."""
    with figure(width=7.2, height=0.7 + 0.5 * len(orders)) as (drawing, axis):
        for line, order in enumerate(orders.values()):
            left = 0
            for name in order:
                colour = COLORS[list(sizes).index(name) % 6]
                _box(axis, (left + 0.08, line), (sizes[name] - 0.16, 0.6), name, colour)
                left += sizes[name]
            for cut in range(0, left + 1, batch):
                axis.plot([cut, cut], [line - 0.12, line + 0.72], color=INK, lw=1.4, marker="")
        axis.set_yticks(np.arange(len(orders)) + 0.3, list(orders))
        axis.set(xlim=(-0.4, left + 0.4), ylim=(len(orders), -0.2), xlabel="pairs, in a row")
        _bare(axis)
    return drawing


def _bare(axis: Axes) -> None:
    axis.grid(False)
    axis.tick_params(length=0)
    for side in axis.spines.values():
        side.set_visible(False)

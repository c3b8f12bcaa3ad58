"""Every token that sees another is drawn, and no other; what is masked is crossed out."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.colors import to_hex

from cde_book.plots import figure
from cde_book.sketches import CONTEXT, TEXT, attention_pairs, masked_scores


def test_a_square_for_each_pair_that_sees_each_other_coloured_by_what_is_seen() -> None:
    seen = np.array([[1, 0, 0], [1, 1, 1], [1, 1, 0]], bool)
    with figure() as (_, axis):
        attention_pairs(axis, seen, context=1)
        squares = {
            tuple(int(x) for x in one.get_xy()): to_hex(one.get_facecolor()) for one in axis.patches
        }
    assert set(squares) == {(column, row) for row, column in np.argwhere(seen).tolist()}
    assert {colour for (column, _), colour in squares.items() if column == 0} == {CONTEXT}
    assert {colour for (column, _), colour in squares.items() if column > 0} == {TEXT}


def test_what_is_masked_is_crossed_out_and_the_diagonal_is_framed() -> None:
    scores = pd.DataFrame(np.eye(3), list("abc"), list("xyz"))
    masked = np.array([[0, 1, 0], [0, 0, 0], [0, 0, 0]], bool)
    (axis,) = masked_scores(scores, masked).axes
    (cross,) = axis.lines
    assert [cross.get_xdata()[0], cross.get_ydata()[0]] == [1, 0]
    framed = {one.get_xy() for one in axis.patches if to_hex(one.get_edgecolor()) == TEXT}
    assert framed == {(0, 0), (1, 1), (2, 2)}

"""The drawings: every token that sees another is drawn, and no other."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.colors import to_hex

from cde_book.plots import figure
from cde_book.sketches import CONTEXT, TEXT, attention_pairs, two_stages


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


def test_a_grid_that_is_no_square_is_refused() -> None:
    with figure() as (_, axis), pytest.raises(ValueError, match=r"square of 1 or more.*\(2, 3\)"):
        attention_pairs(axis, np.ones((2, 3), bool), context=1)


def test_the_model_is_drawn_with_its_two_stages() -> None:
    with figure() as (_, axis):
        two_stages(axis)
        words = [text.get_text() for text in axis.texts]
    assert "first stage $M_1$" in words
    assert "second stage $M_2$" in words

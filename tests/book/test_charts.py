"""A chart says in words what it draws: its series with their numbers, or how many there are."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.axes import Axes

from cde.intervals import Interval
from cde_book import charts, plots
from cde_book.plots import LONGEST, description, in_words

NAMES = ["red boats", "leeks", "harbours", "tides", "soup"]


def interval(value: float) -> Interval:
    return Interval(value, value - 1, value + 2, 9, "made up")


def forest(axis: Axes, values: dict[str, float]) -> None:
    charts.forest(axis, {name: interval(one) for name, one in values.items()}, "points", bound=0)


def dots(axis: Axes, values: dict[str, float]) -> None:
    charts.seed_dots(axis, {name: {"": [one, one]} for name, one in values.items()}, "points")


def lines(axis: Axes, values: dict[str, float]) -> None:
    charts.curves(axis, {name: pd.Series({1: one, 2: one}) for name, one in values.items()})
    axis.set_ylabel("points")


def scatter(axis: Axes, values: dict[str, float]) -> None:
    charts.points(axis, {name: ([0, 1], [one, one]) for name, one in values.items()})
    axis.set_ylabel("points")


def squares(axis: Axes, values: dict[str, float]) -> None:
    charts.heatmap(axis, pd.DataFrame({"left": values, "right": values}))
    axis.set_ylabel("points")


CHARTS: list[Callable[[Axes, dict[str, float]], None]] = [forest, dots, lines, scatter, squares]


def described(chart: Callable[[Axes, dict[str, float]], None], values: dict[str, float]) -> str:
    with plots.figure() as (drawing, axis):
        chart(axis, values)
        return description(drawing)


def places(axis: Axes) -> set[float]:
    """The numbers that an axis has drawn as points, in either direction."""
    xy = [line.get_xydata() for line in axis.lines]
    return {float(one) for some in xy for one in np.asarray(some, dtype=float).ravel()}


@pytest.mark.parametrize("chart", CHARTS)
def test_a_short_chart_names_every_series_with_its_number(chart: Any) -> None:
    values = dict(zip(NAMES, (1.2, -0.5, 3.8, 0.0, 2.0), strict=True))
    text, digits = described(chart, values), 1 if chart is squares else 2
    assert "points" in text and len(text) <= LONGEST
    for name, value in values.items():
        assert re.search(
            rf"{name} [^;]*(?<![\d.-]){re.escape(f'{value:.{digits}f}')}(?!\d)", text
        ), text
    assert f"highest {3.8:.{digits}f}" in text and "(harbours)" in text
    assert f"lowest {-0.5:.{digits}f}" in text and "(leeks)" in text


@given(st.lists(st.floats(-1e4, 1e4).filter(lambda one: abs(one) > 0.01), min_size=1, max_size=30))
def test_numbers_are_told_as_they_are_drawn(values: Sequence[float]) -> None:
    named = {f"arm {number}": value for number, value in enumerate(values)}
    with plots.figure() as (drawing, axis):
        forest(axis, named)
        drawn, text = places(axis), description(drawing)
    assert set(values) <= drawn and len(text) <= LONGEST
    form = in_words(edge for one in values for edge in (one - 1, one, one + 2))
    assert {form(max(values)), form(min(values))} <= set(re.findall(r"-?[\d,]*\d(?:\.\d+)?", text))


def test_a_name_with_dollar_signs_is_drawn_as_it_is() -> None:
    """Between two of them matplotlib reads mathematics, and refuses what is none."""
    name = "$$x$$ and $\\undefined{"
    with plots.figure(3, 1) as (drawing, (dots, lines, squares)):
        charts.seed_dots(dots, {name: {name: [1.0, 2.0], "b": [1.0]}}, "score")
        charts.curves(lines, {name: pd.Series({1: 2.0, 3: 4.0})})
        charts.points(lines, {name: ([1.0], [2.0])}, {name: [name]})
        charts.reference(lines, x=1.0, name=name)
        charts.heatmap(squares, pd.DataFrame({name: [1.0, 2.0]}, index=[name, "c"]))
        lines.legend()
        drawing.draw_without_rendering()
        assert dots.get_yticklabels()[0].get_text().replace("\\$", "$") == name
    assert name in plots.description(drawing) and "\\$" not in plots.description(drawing)

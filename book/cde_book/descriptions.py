"""Figures in words: each chart leaves on its axes what it has drawn, and `description` makes a
figure's alternative text of it.

A short figure is told series by series, with the numbers as drawn. Of others each panel tells how
many series it has and which are highest and lowest, or the whole figure does.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from weakref import WeakKeyDictionary

from matplotlib.axes import Axes
from matplotlib.figure import Figure

__all__ = ["LONGEST", "Series", "describe", "description", "in_words"]

LONGEST = 400  # characters of a description


class Series(NamedTuple):
    """What a chart draws under one name: numbers in words, and the ends, each a value and words."""

    name: str
    numbers: str
    lowest: tuple[float, str]
    highest: tuple[float, str]


@dataclass
class _Panel:
    kind: str = ""
    is_categorical: bool = False  # x has the values, y the names
    series: list[Series] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)


_PANELS: WeakKeyDictionary[Axes, _Panel] = WeakKeyDictionary()


def in_words(values: Iterable[float]) -> Callable[[float], str]:
    """How to write numbers of one chart: with the decimals that the largest one bears."""
    largest = max((abs(one) for one in values if math.isfinite(one)), default=0.0)
    digits = min(max(2 - math.floor(math.log10(largest)), 0), 6) if largest else 0
    return lambda value: f"{round(value, digits) + 0.0:,.{digits}f}"  # no "-0.0"


def describe(
    axis: Axes,
    kind: str = "",
    series: Iterable[Series] = (),
    is_categorical: bool = False,
    line: str = "",
) -> None:
    """Add series, or a line of reference, to what an axis is known to show."""
    known = _PANELS.setdefault(axis, _Panel())
    known.kind, known.is_categorical = kind or known.kind, is_categorical or known.is_categorical
    known.series += [one._replace(name=" ".join(one.name.split())) for one in series]
    known.lines += [line] if line else []


def description(drawing: Figure) -> str:
    """What the charts of a figure show, in at most 400 characters; empty without such a chart."""
    known = {axis: _PANELS[axis] for axis in drawing.axes if axis in _PANELS}
    shown = {axis: one for axis, one in known.items() if one.series and axis.get_visible()}
    if not shown:
        return ""
    kinds = [" and ".join(dict.fromkeys(one.kind for one in shown.values()))]
    legends = [axis.get_legend() for axis in shown]
    kinds += [one.get_title().get_text() for one in legends if one and one.get_title().get_text()]
    start = [f"{len(shown)} panels"] if len(shown) > 1 else []
    begun, common = ", ".join([*start, " by ".join(kinds[:2])]), []
    heads, alike = [[_title(axis, one)] for axis, one in shown.items()], True
    for which in ("y", "x"):
        labels = [_label(axis, shown, which) for axis in shown]
        if len(set(labels)) == 1:
            common += labels[:1]
            continue
        heads = [[*head, label] for head, label in zip(heads, labels, strict=True)]
        alike &= which == "x" and not any(one.is_categorical for one in shown.values())
    begun = "; ".join(filter(None, (begun, " ".join(filter(None, common)))))
    begun = textwrap.shorten(begun[0].upper() + begun[1:], 150, placeholder="…")
    lines = dict.fromkeys(line for one in known.values() for line in one.lines)
    rest = f" Lines: {', '.join(lines)}." if lines else ""
    named = [", ".join(filter(None, head)) for head in heads]
    panels = list(zip(named, [one.series for one in shown.values()], strict=True))
    every = [
        one._replace(name=", ".join(filter(None, (one.name, head))))
        for head, of in panels
        for one in of
    ]
    levels = [(_each, panels), (_extremes, panels)]
    if alike:  # where panels measure different things, none is higher than another
        levels.append((_extremes, [("", every)]))
    for told, parts in levels:
        words = ". ".join(f"{head}: {told(of)}" if head else told(of) for head, of in parts)
        text = f"{begun}{'. ' if parts[0][0] else ': '}{words}."
        for whole in (text + rest, text):
            if len(whole) <= LONGEST:
                return whole
    return textwrap.shorten(text, LONGEST, placeholder=" …")


def _title(axis: Axes, panel: _Panel) -> str:
    title = axis.get_title() or axis.get_title("left")
    return " ".join((title or (axis.get_ylabel() if panel.is_categorical else "")).split())


def _label(axis: Axes, shown: dict[Axes, _Panel], which: str) -> str:
    """What an axis of a panel says, or that of the panels that share its row or column."""
    if which == "y" and shown[axis].is_categorical:
        return ""
    place, span = axis.get_subplotspec(), "rowspan" if which == "y" else "colspan"
    near = [
        one for one in shown if getattr(one.get_subplotspec(), span, 0) == getattr(place, span, 0)
    ]
    labels = (getattr(one, f"get_{which}label")() for one in (axis, *near, *shown))
    label = " ".join(next(filter(None, labels), "").split())
    return f"over {label}" if label and which == "x" and not shown[axis].is_categorical else label


def _each(series: Sequence[Series]) -> str:
    told = "; ".join(f"{one.name} {one.numbers}".strip() for one in series)
    hidden = any(one.highest[1] not in one.numbers for one in series)
    return f"{told}; {_ends(series)}" if hidden or len(series) > 2 else told


def _extremes(series: Sequence[Series]) -> str:
    return f"{len(series)} series, {_ends(series)}" if len(series) > 1 else _each(series)


def _ends(series: Sequence[Series]) -> str:
    known = [one for one in series if math.isfinite(one.highest[0])]
    if not known:
        return "without a number"
    top, least = max(known, key=lambda one: one.highest), min(known, key=lambda one: one.lowest)
    names = [textwrap.shorten(one.name, 60, placeholder="…") for one in (top, least)]
    high, low = (f" ({name})" if name else "" for name in names)
    return f"highest {top.highest[1]}{high}, lowest {least.lowest[1]}{low}"

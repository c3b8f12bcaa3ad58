"""Boxes of a page that are neither figure nor table of measurements: HTML with its text beside it.

Where numbers come from, what tests share with training, and settings as a table of what was
changed. A box works in JupyterLab as in the rendered book; a reader without a browser gets its
text.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pandas as pd

from cde_book import plots
from cde_book.markup import Box, render

__all__ = ["folded", "show_configurations_as_tables", "show_shared", "show_source"]


def folded(title: str, shown: Box, text: str = "") -> Box:
    """A box that is closed at first, under a title."""
    return Box(render("fold.html.j2", title=title, body=shown.markup), text or shown.text)


def show_source(note: str) -> None:
    """Say below the cell where its numbers come from: the first words, and the rest folded unless
    a record is stale.
    """
    from IPython.display import display

    if not note:
        return
    head, found, _ = note.partition(", not computed here")
    if not found:
        head = note.partition(": ")[0].partition(". ")[0]
    markup = render("source.html.j2", head=head, note=note, open="STALE" in note)
    display(Box(markup, note))  # type: ignore[no-untyped-call]


def show_shared(counted: pd.DataFrame) -> None:
    """Say below the cell what the tests share with training: the sum, and a folded table by set."""
    from IPython.display import display

    parts = []
    for where, name in (("out", "out of domain"), ("in", "in domain")):
        sums = counted[counted["where"] == where].sum(numeric_only=True)
        if len(counted[counted["where"] == where]):
            parts.append(
                f"{name} {sums['near documents']:,.0f} of {sums['documents']:,.0f} documents, "
                f"{sums['answers']:,.0f} of {sums['queries']:,.0f} queries' answers"
            )
    told = f"Training and tests share: {'; '.join(parts)}."
    display(folded(told, plots.table(counted), told))  # type: ignore[no-untyped-call]


def show_configurations_as_tables() -> None:
    """Have IPython show a `TrainConfig` by what differs from its defaults: as one line it is wider
    than any page. Elsewhere than in IPython nothing happens.
    """
    from IPython import get_ipython

    shell = get_ipython()
    if shell is not None:
        formatter = shell.display_formatter.formatters["text/html"]
        formatter.for_type_by_name("cde.training.configuration", "TrainConfig", changed_fields)


def changed_fields(config: Any) -> str:
    """An HTML table of a config's fields that differ from their defaults."""
    default = type(config)()
    changed = {
        one.name: repr(value)
        for one in fields(config)
        if (value := getattr(config, one.name)) != getattr(default, one.name)
    }
    return plots.table(pd.DataFrame({"other than the default": changed})).markup

"""One progress bar for terminals, notebooks and logs.

A bar appears only once work has taken three seconds. Where the output is not a terminal, it is
renewed every ten seconds at most, so that logs stay short. A bar within another one goes when it
has ended.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

from tqdm import tqdm

Item = TypeVar("Item")

_HIDDEN: ContextVar[bool] = ContextVar("hidden", default=False)


def progress(
    items: Iterable[Item], title: str, total: int | None = None, unit: str = ""
) -> tqdm[Item]:
    """Iterate over `items` behind a progress bar."""
    terminal = sys.stderr.isatty()
    outermost = not len(getattr(tqdm, "_instances", ()))  # the bars that have not ended
    return tqdm(
        items,
        desc=title,
        total=total,
        unit=f" {unit}" if unit else " items",
        delay=3,
        disable=_HIDDEN.get(),
        mininterval=0.2 if terminal else 10,
        position=None if terminal else 0,
        leave=outermost,
        dynamic_ncols=True,
    )


@contextmanager
def without_bars() -> Iterator[None]:
    """Show no bars within: for callers who said that they want none."""
    token = _HIDDEN.set(True)
    try:
        yield
    finally:
        _HIDDEN.reset(token)

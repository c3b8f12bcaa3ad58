"""The scales that the book is made at, and whether this process makes it anew."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["PROFILES", "Making", "making", "without_records"]

#: the scales of the book, from the smallest up
PROFILES = ("smoke", "laptop", "gpu", "paper")


@dataclass
class Making:
    """How a process makes the book.

    Attributes:
        fresh: from no record (`make book FRESH=1`); then `laptop` is shortened: less training,
            smaller collections.
    """

    fresh: bool = False


#: of this process; a page's settings say it
making = Making()


def without_records() -> bool:
    """Whether this process makes the book anew."""
    return making.fresh

"""The scales that the book is made at, and whether it is made anew."""

from __future__ import annotations

import os

__all__ = ["PROFILES", "without_records"]

#: the scales of the book, from the smallest up
PROFILES = ("smoke", "laptop", "gpu", "paper")


def without_records() -> bool:
    """Whether this book is made anew, from no record (`make book FRESH=1`); then `laptop` is
    shortened: less training, smaller collections.
    """
    return os.environ.get("CDE_FRESH") == "1"

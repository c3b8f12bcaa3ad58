"""The scales that the book is made at, and whether this process makes it anew."""

from __future__ import annotations

from types import SimpleNamespace

#: the scales of the book, from the smallest up
PROFILES = ("smoke", "laptop", "gpu", "paper")
#: how this process makes the book, as a page's settings say: `fresh` from no record (`make book
#: FRESH=1`), and then `laptop` is shortened: less training, smaller collections
making = SimpleNamespace(fresh=False)

"""What this process has found: one account holds all that a page tells of itself at its end
(`cde_book.page.finish`), beside the collections that it loaded (`cde.provenance.account`).
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Account:
    """What a page has read and found."""

    read: set[str] = field(default_factory=set)  # records looked for: paths below the checkout
    shared: set[str] = field(default_factory=set)  # hashes of recipes whose overlap is shown
    measured: list[Any] = field(default_factory=list)  # measurements of claims, in their order
    gates: dict[tuple[str, str], Any] = field(default_factory=dict)  # (scale, gate) → its reading
    sources: dict[int, Any] = field(default_factory=dict)  # by cell: the fold shown, its notes
    answer: str = ""  # in Markdown
    chapter: str = ""  # once the page has told its provenance
    profile: str = ""  # once the page's settings are made
    given: dict[str, Any] = field(default_factory=dict)  # parameters not left to the profile
    begun: float = field(default_factory=time.time)  # when the process began to count


#: account of this process
account = Account()


def most_memory() -> float:
    """The most memory that this process has held so far, in GiB; what it started is left out."""
    status = Path("/proc/self/status")
    if status.exists():
        return int(status.read_text().partition("VmHWM:")[2].split()[0]) / 2**20
    import resource  # which counts on Linux what the starting process held as well

    unit = 1 if sys.platform == "darwin" else 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**30

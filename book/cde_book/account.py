"""What this process has found: one account holds all that a page tells of itself at its end
(`cde_book.page.finish`), beside the collections that it loaded (`cde.provenance.account`).
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["Account", "account", "most_memory"]


@dataclass
class Account:
    """What a page has read and found.

    Attributes:
        read: records that were looked for, as paths below the checkout.
        proofs: record → what its comparison with a miniature gave: "" if the proof holds.
        measured: measurements of claims, in their order.
        shared: hashes of the recipes whose overlap of training and tests is shown already.
        gates: (scale, gate) → what the gate showed.
        answer: the page's answer, in Markdown.
        profile: the page's, once its settings are made.
        given: the page's parameters that are not left to the profile.
        begun: when the process began to count, in seconds since 1970.
    """

    read: set[str] = field(default_factory=set)
    proofs: dict[str, str] = field(default_factory=dict)
    shared: set[str] = field(default_factory=set)
    measured: list[Any] = field(default_factory=list)
    gates: dict[tuple[str, str], Any] = field(default_factory=dict)
    answer: str = ""
    profile: str = ""
    given: dict[str, Any] = field(default_factory=dict)
    begun: float = field(default_factory=time.time)


#: account of this process
account = Account()


def most_memory() -> float:
    """The most memory that this process has held so far, in GiB; what it started is left out.

    Linux tells it in /proc. The `ru_maxrss` that every Unix has counts there what the starting
    process held as well.
    """
    status = Path("/proc/self/status")
    if status.exists():
        (line,) = (one for one in status.read_text().splitlines() if one.startswith("VmHWM"))
        return int(line.split()[1]) / 2**20
    import resource

    unit = 1 if sys.platform == "darwin" else 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**30

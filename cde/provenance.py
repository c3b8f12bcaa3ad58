"""Where numbers come from: commit, libraries and machine; and what this process has loaded, asked
for and found.

One account a process holds all that a page tells of itself at its end (`cde_book.page.finish`).
Rooms enter what they read, the page enters what it found; nothing else is global.

Cost: two calls of git, milliseconds.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

__all__ = ["Account", "account", "commit", "libraries", "most_memory", "now", "without_records"]

#: what moves numbers; faiss comes as one of two distributions, so that one of them is missing
_LIBRARIES = (
    "torch",
    "transformers",
    "sentence-transformers",
    "tokenizers",
    "accelerate",
    "faiss-cpu",
    "faiss-gpu",
    "bm25s",
    "pytrec-eval-terrier",
    "numpy",
    "scipy",
    "scikit-learn",
    "pandas",
)


#: the scales of the book, from the smallest up
PROFILES = ("smoke", "laptop", "gpu", "paper")


@dataclass
class Account:
    """What a process has used and found.

    Attributes:
        loaded: name → fingerprint of each collection that was loaded.
        asked: names of collections that were loaded or looked for: a page is stale when one
            appears, changes or goes.
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

    loaded: dict[str, str] = field(default_factory=dict)
    asked: set[str] = field(default_factory=set)
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


def without_records() -> bool:
    """Whether this book is made anew, from no record (`make book FRESH=1`); then `laptop` is
    shortened: less training, smaller collections.
    """
    return os.environ.get("CDE_FRESH") == "1"


def libraries() -> dict[str, str]:
    """Versions of the libraries that compute, as far as they are installed."""
    versions = {}
    for name in _LIBRARIES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return versions


def commit(root: Path | None = None, apart_from: str = "") -> tuple[str, bool]:
    """The commit of the checkout, and whether there are changes that no commit has; ("unknown",
    False) without git.
    """
    root = root or Path(__file__).resolve().parents[1]
    try:
        if not Path(_git(root, "rev-parse", "--show-toplevel")).samefile(root):
            return "unknown", False  # installed below somebody else's checkout
        head = _git(root, "rev-parse", "HEAD")
        counted = ["--", ".", f":(exclude){apart_from}"] if apart_from else []
        return head, bool(_git(root, "status", "--porcelain", *counted))
    except (OSError, subprocess.CalledProcessError):
        return "unknown", False


def _git(root: Path, *words: str) -> str:
    return subprocess.run(
        ["git", *words], cwd=root, capture_output=True, text=True, check=True
    ).stdout.strip()


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


def now() -> str:
    """The time, to the second, in UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")

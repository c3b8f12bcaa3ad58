"""Where numbers come from: commit, libraries, and the collections that this process has loaded."""

from __future__ import annotations

import subprocess
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

#: what moves numbers; faiss comes as one of two distributions, so that one of them is missing
_LIBRARIES = ["torch", "transformers", "sentence-transformers", "tokenizers", "accelerate"]
_LIBRARIES += ["faiss-cpu", "faiss-gpu", "bm25s", "pytrec-eval-terrier"]
_LIBRARIES += ["numpy", "scipy", "scikit-learn", "pandas"]


@dataclass
class Account:
    """What a process has used."""

    #: name → fingerprint of each collection that was loaded
    loaded: dict[str, str] = field(default_factory=dict)
    #: names that were loaded or looked for: results are stale when one appears, changes or goes
    asked: set[str] = field(default_factory=set)


#: account of this process
account = Account()


def libraries() -> dict[str, str]:
    """Versions of the libraries that compute, as far as they are installed."""
    versions = {}
    for name in _LIBRARIES:
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    return versions


def commit(root: Path | None = None, apart_from: str = "") -> tuple[str, bool]:
    """The commit of the checkout, and whether there are other changes; or "unknown", False."""
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


def now() -> str:
    """The time, to the second, in UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")

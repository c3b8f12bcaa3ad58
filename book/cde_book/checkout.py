"""The checkout of the book: the folder with `book/` and `notebooks/`, and its lock."""

from __future__ import annotations

import os
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

#: the packages of a checkout, from its root: the library, the book beside it, its studies
PACKAGES = ("cde", "book/cde_book", "notebooks/cde_studies")


def project_root() -> Path:
    """The checkout that this package is installed from."""
    root = Path(__file__).resolve().parents[2]
    if not (root / "book" / "claims.yml").exists():
        raise FileNotFoundError(
            f"{root} has no book/claims.yml: the ledger and the chapters come with a checkout of "
            "the book; install from one (pip install -e '.[book]')"
        )
    return root


def python_path(root: Path) -> str:
    """The `PYTHONPATH` with which a process takes its packages from this checkout."""
    return os.pathsep.join(str((root / package).parent) for package in PACKAGES)


def version_differences() -> list[str]:
    """Installed distributions whose version is not the lock's."""
    lines = (project_root() / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line.split("==", 1) for line in lines if "==" in line and not line.startswith("#")]
    differences = []
    for name, locked in pins:
        with suppress(PackageNotFoundError):  # what is not installed does not count
            installed = version(name)
            if installed.partition("+")[0] != locked:
                differences.append(f"{name} {installed} (lock: {locked})")
    return differences

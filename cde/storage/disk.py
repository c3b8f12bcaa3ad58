"""A disk that is full or closed to writing, told with the path and with what to do."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import platformdirs

__all__ = ["cache_root", "disk_error", "told_of_the_disk"]

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_CLOSED = {errno.EROFS, errno.EACCES, errno.EPERM}


def cache_root() -> Path:
    """The cache folder: `$CDE_CACHE`, by default the platform's user cache.

    Example:
        >>> cache_root().is_absolute() or bool(os.environ["CDE_CACHE"])
        True
    """
    return Path(os.environ.get("CDE_CACHE") or platformdirs.user_cache_path("cde"))


def disk_error(path: Path | str, number: int | None, reason: str = "") -> OSError:
    """The error of a path that could not be written, with what to do.

    Args:
        path: the path.
        number: of the error, as in `errno`.
        reason: in words; by default those of the system.

    Example:
        >>> print(disk_error("/full/book.ipynb", errno.ENOSPC))
        cannot write /full/book.ipynb (No space left on device): make room there, or take another \
place; what was finished is kept
    """
    reason = reason or os.strerror(number or errno.EIO)
    inside = cache_root() == Path(path) or cache_root() in Path(path).parents
    other = "set CDE_CACHE to a folder that can be written to" if inside else "take another place"
    if number in _CLOSED:
        error: OSError = PermissionError(
            f"cannot write {path} ({reason}): allow writing there, or {other}"
        )
    else:
        error = OSError(
            f"cannot write {path} ({reason}): make room there, or {other}; what was finished is "
            "kept"
        )
    error.errno = number
    return error


@contextmanager
def told_of_the_disk(path: Path | str | None = None) -> Iterator[None]:
    """Let errors of a disk name the path that is being written, and say what to do.

    Args:
        path: by default the one that the system names, or the cache folder.

    Example:
        >>> with told_of_the_disk("book.ipynb"):
        ...     raise OSError(errno.EROFS, "Read-only file system", ".book.ipynb")
        Traceback (most recent call last):
        PermissionError: cannot write book.ipynb (Read-only file system): allow writing there, or \
take another place
    """
    try:
        yield
    except OSError as error:
        # one that is told already has no words of the system's
        if not error.strerror:
            raise
        # that a file may not be read says nothing of this path
        near = path is not None and str(error.filename or "").startswith(str(Path(path).parent))
        if error.errno in _FULL | {errno.EROFS} or (error.errno in _CLOSED and near):
            raise disk_error(
                path or error.filename or cache_root(), error.errno, error.strerror
            ) from error
        raise

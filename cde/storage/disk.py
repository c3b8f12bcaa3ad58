"""A disk that is full or closed to writing, told with the path and with what to do; and whether a
disk that several machines share keeps them from writing at once.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import platformdirs

__all__ = ["cache_root", "disk_error", "lock_reach", "told_of_the_disk"]

Reach = Literal["here", "everywhere", "own", "unknown"]

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_MOUNTS = Path("/proc/self/mounts")
#: disks that machines share: those whose locks all of them see, and those of which nobody can tell
_REACHING = {"nfs", "nfs4", "ceph", "fuse.ceph", "gpfs", "lustre", "fuse.glusterfs"}
_UNKNOWN = {"cifs", "smb3", "9p", "virtiofs", "beegfs", "afs", "fuse"}
#: options of a mount that keep its locks on the machine
_OWN_LOCKS = {"nolock", "local_lock=all", "local_lock=flock", "local_lock=posix", "localflock"}
_CLOSED = {errno.EROFS, errno.EACCES, errno.EPERM}


def cache_root() -> Path:
    """The cache folder: `$CDE_CACHE`, by default the platform's user cache."""
    return Path(os.environ.get("CDE_CACHE") or platformdirs.user_cache_path("cde"))


def lock_reach(path: Path | str) -> Reach:
    """Who sees the locks that are taken below a path.

    Returns:
        "here": no other machine has this disk; "everywhere": all that share it; "own": each machine
        its own alone; "unknown": the kind of disk does not tell.
    """
    place, kind, options = Path("/"), "", ""
    for line in _MOUNTS.read_text().splitlines() if _MOUNTS.exists() else ():
        _, mount, its_kind, its_options, *_ = line.split(" ")
        folder = Path(mount.replace(r"\040", " "))  # so a space in a name is written
        if Path(path).resolve().is_relative_to(folder) and len(folder.parts) >= len(place.parts):
            place, kind, options = folder, its_kind, its_options
    if kind in _REACHING:
        return "own" if _OWN_LOCKS & set(options.split(",")) else "everywhere"
    return "unknown" if kind in _UNKNOWN or kind.startswith("fuse.") else "here"


def disk_error(path: Path | str, number: int | None, reason: str = "") -> OSError:
    """The error of a path that could not be written, with what to do."""
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
    """Let errors of a disk name the path that is being written, and say what to do."""
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

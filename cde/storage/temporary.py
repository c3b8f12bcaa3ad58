"""Files that appear whole or not at all, and temporary ones that do not outlive their writers.

Beside each temporary file or folder stands a lock, which its writer holds and which the system
takes from it when it ends, by SIGKILL too. Whoever can take the lock knows that the writer is gone:
neither a number of a process that was given anew, nor another machine on the same disk, nor a clock
that was set can mislead it. What has no lock beside it was not made here, and is left alone.

The first temporary file that a process makes in a folder removes what earlier ones left there.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import re
import secrets
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from filelock import FileLock, Timeout

from cde.storage.disk import told_of_the_disk

__all__ = ["alone", "atomic_path", "remove_leftovers", "temporary_folder"]

#: the mark of the machine, which earlier versions left out, and random digits
_LOCK = re.compile(r"\..*\.cde-([0-9a-f]{8})?[0-9a-f]{8}(\.[^.]*)?\.lock")
_BOOT = Path("/proc/sys/kernel/random/boot_id")
#: folders that this process has looked through
_swept: set[Path] = set()


@contextmanager
def atomic_path(path: Path | str) -> Iterator[Path]:
    """Yield a temporary path beside `path`; rename it to `path` if the block ends well.

    A reader sees the old file or the new one, never half of one, and a block that raises
    (or is interrupted) leaves the old file as it was.
    """
    path = Path(path)
    with told_of_the_disk(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with _reserved(path.parent, path.stem, path.suffix) as temporary:
            os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            try:
                yield temporary
                # a shared book should be readable
                temporary.chmod(0o644)
                temporary.replace(path)
            finally:
                temporary.unlink(missing_ok=True)


@contextmanager
def temporary_folder(parent: Path | str | None = None, name: str = "cde") -> Iterator[Path]:
    """Yield a new folder, deleted at the end of the block."""
    parent = Path(parent or tempfile.gettempdir())
    with told_of_the_disk(parent), _reserved(parent, name, "") as folder:
        folder.mkdir(mode=0o700)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _reserved(folder: Path, stem: str, suffix: str) -> Iterator[Path]:
    """A name in a folder that is this process's alone, for as long as the block lasts."""
    if (place := folder.resolve()) not in _swept:
        _swept.add(place)
        remove_leftovers(place)
    path = folder / f".{stem}.cde-{_machine()}{secrets.token_hex(4)}{suffix}"
    lock = FileLock(f"{path}.lock")
    try:
        with lock:
            yield path
    finally:  # whoever has taken the lock in the meantime deletes it, too
        Path(lock.lock_file).unlink(missing_ok=True)


@cache
def _machine() -> str:
    """Marks of this machine's name and of its running system, four digits each.

    Containers on one system have names of their own, and see each other's locks.
    """
    name = platform.node()
    system = _BOOT.read_text() if _BOOT.exists() else name
    return "".join(hashlib.blake2b(one.encode()).hexdigest()[:4] for one in (name, system))


def _is_elsewhere(mark: str | None) -> bool:
    """Whether a mark is of a machine whose locks may not be seen from here."""
    own = _machine()
    return mark is not None and mark[:4] != own[:4] and mark[4:] != own[4:]


@contextmanager
def alone(lock: Path | str, what: str) -> Iterator[bool]:
    """Do a piece of work in one process at a time; others wait, and are told for what."""
    lock = Path(lock)
    with told_of_the_disk(lock):
        lock.parent.mkdir(parents=True, exist_ok=True)
        own = FileLock(lock, is_singleton=True)
        waited = False
        try:
            own.acquire(timeout=0)
        except Timeout:
            waited = True
            print(f"another process is at {what}: waiting for it", file=sys.stderr, flush=True)
            own.acquire()
    try:
        yield waited
    finally:
        if own.lock_counter == 1:  # those who wait for it see that it is gone, and make another
            with contextlib.suppress(OSError):
                lock.unlink()
        own.release()


def remove_leftovers(folder: Path | str, below: bool = False) -> list[Path]:
    """Delete what writers that are gone have left of their temporary files in a folder.

    Returns:
        What was deleted. Files of living writers, of other machines, of others than `cde`, and
        those that may not be deleted stay.
    """
    removed = []
    pattern = ".*.cde-*.lock"
    for lock in Path(folder).rglob(pattern) if below else Path(folder).glob(pattern):
        named = _LOCK.fullmatch(lock.name)
        if named is None or _is_elsewhere(named[1]):
            continue
        path = lock.with_name(lock.name.removesuffix(".lock"))
        with contextlib.suppress(OSError, Timeout), FileLock(lock, timeout=0):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
            lock.unlink(missing_ok=True)
            removed.append(path)
    return removed

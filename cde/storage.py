"""The cache folder, files that appear whole or not at all, and hashes of content.

Everything that `cde` computes once and keeps lives below one folder, `$CDE_CACHE`, by default the
platform's user cache. Deleting that folder costs time and nothing else.

With each temporary file or folder goes a lock, which the system takes from its writer when that
ends, by SIGKILL too. Whoever can take the lock knows that the writer is gone, and removes what it
left; what has no lock is left alone.

A file of the cache is believed only if it is what was written. A damaged one is set aside under
another name, with a warning, and made again by whoever asked for it.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import platform
import re
import secrets
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar

import platformdirs
from filelock import FileLock, Timeout

Content = TypeVar("Content")

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_MOUNTS = Path("/proc/self/mounts")
#: disks that machines share: those whose locks all of them see, and those of which nobody can tell
_REACHING = {"nfs", "nfs4", "ceph", "fuse.ceph", "gpfs", "lustre", "fuse.glusterfs"}
_UNKNOWN = {"cifs", "smb3", "9p", "virtiofs", "beegfs", "afs", "fuse"}
#: options of a mount that keep its locks on the machine
_OWN_LOCKS = {"nolock", "local_lock=all", "local_lock=flock", "local_lock=posix", "localflock"}
_CLOSED = {errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EEXIST}


def cache_root() -> Path:
    """The cache folder: `$CDE_CACHE`, by default the platform's user cache."""
    return Path(os.environ.get("CDE_CACHE") or platformdirs.user_cache_path("cde")).expanduser()


def lock_reach(path: Path | str) -> Literal["here", "everywhere", "own", "unknown"]:
    """Who sees the locks that are taken below a path: "here" if no other machine has this disk;
    "everywhere" all that share it, "own" each machine its own alone; "unknown" if nobody can tell.
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
    kind, do = (PermissionError, "allow writing") if number in _CLOSED else (OSError, "make room")
    error: OSError = kind(
        f"cannot write {path} ({reason}): {do} there, or {other}; what was finished is kept"
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
            place = path or error.filename or cache_root()
            raise disk_error(place, error.errno, error.strerror) from error
        raise


#: the mark of the machine, which earlier versions left out, and random digits
_LOCK = re.compile(r"\..*\.cde-([0-9a-f]{8})?[0-9a-f]{8}(\.[^.]*)?\.lock")
_BOOT = Path("/proc/sys/kernel/random/boot_id")
#: folders that this process has looked through
_swept: set[Path] = set()


@contextmanager
def atomic_path(path: Path | str) -> Iterator[Path]:
    """Yield a temporary path, which is renamed to `path` if the block ends well."""
    path = Path(path)
    with told_of_the_disk(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with _reserved(path.parent, path.stem, path.suffix) as temporary:
            temporary.touch(exist_ok=False)
            mode = temporary.stat().st_mode  # as the user's umask has it
            try:
                yield temporary
                temporary.chmod(mode)  # safetensors writes for the owner alone
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
    """Marks of this machine's name and of its running system, four digits each."""
    name = platform.node()
    system = _BOOT.read_text() if _BOOT.exists() else name
    return "".join(hashlib.blake2b(text.encode()).hexdigest()[:4] for text in (name, system))


@contextmanager
def alone(lock: Path, what: str) -> Iterator[bool]:
    """Do a piece of work in one process at a time; others wait, and are told for what."""
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
    """Delete what writers of this machine that are gone have left of their temporary files."""
    removed, own = [], _machine()
    pattern = ".*.cde-*.lock"
    for lock in Path(folder).rglob(pattern) if below else Path(folder).glob(pattern):
        named = _LOCK.fullmatch(lock.name)
        mark = (named and named[1]) or own
        if named is None or (mark[:4] != own[:4] and mark[4:] != own[4:]):
            continue  # nobody's, or of a machine whose locks may not be seen from here
        path = lock.with_name(lock.name.removesuffix(".lock"))
        with contextlib.suppress(OSError, Timeout), FileLock(lock, timeout=0):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
            lock.unlink(missing_ok=True)
            removed.append(path)
    return removed


_SEAL = b"cde sealed "


class DamageWarning(UserWarning):
    """A file of the cache was damaged; it was set aside, and is made again."""


def digest_of(path: Path | str) -> str:
    """sha256 of a file's content."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def folder_hash(folder: Path | str) -> str:
    """A hash of all files below a folder, by name and content."""
    files = sorted(path for path in Path(folder).rglob("*") if path.is_file())
    named = ((path.relative_to(folder).as_posix(), digest_of(path)) for path in files)
    return content_hash(part for both in named for part in both)


def differing_file(folder: Path, files: Mapping[str, str]) -> tuple[str, str] | None:
    """The first file that is not what it was, and why not; None if all are whole."""
    for name, expected in files.items():
        if not (folder / name).is_file():
            return name, "is missing"
        if (found := digest_of(folder / name)) != expected:
            return name, f"is damaged (its sha256 is {found[:8]}…, expected {expected[:8]}…)"
    return None


def set_aside(path: Path, reason: str) -> Path:
    """Rename a damaged file or folder, so that it is made again, with a warning: its new path."""
    number = 1
    while (aside := path.with_name(f"{path.name}.damaged-{number}")).exists():
        number += 1
    try:
        path.rename(aside)
    except FileNotFoundError:  # another process has set it aside
        return aside
    except OSError as error:
        raise disk_error(path, error.errno, f"it is damaged, {reason}; {error.strerror}") from error
    warnings.warn(
        f"{path} is damaged ({reason}): it was set aside as {aside.name}, which may be deleted, "
        "and its content is made again",
        DamageWarning,
        stacklevel=2,
    )
    return aside


def signed(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values with a sha256 over them all, by which `unsigned` knows them again."""
    rest = {name: value for name, value in values.items() if name != "sha256"}
    text = json.dumps(rest, sort_keys=True)
    return {**rest, "sha256": hashlib.sha256(text.encode()).hexdigest()}


def unsigned(values: Any, since: str = "") -> dict[str, Any]:
    """The values without their sha256, which is checked."""
    if not isinstance(values, dict):
        raise ValueError("it is not a JSON object")
    earlier = bool(since) and not {"sha256", since} & set(values)
    if not earlier and signed(values) != values:
        raise ValueError("its sha256 is not that of its content")
    return {name: value for name, value in values.items() if name != "sha256"}


def write_json(path: Path | str, values: Mapping[str, Any]) -> None:
    """Write values as JSON with their own sha256, whole or not at all."""
    # as they will be read: tuples are lists, and keys are strings
    kept = json.loads(json.dumps(values))
    with atomic_path(path) as temporary:
        temporary.write_text(json.dumps(signed(kept), indent=1) + "\n", encoding="utf-8")


def read_json(path: Path, since: str = "") -> dict[str, Any] | None:
    """The values that `write_json` wrote; None where there are none."""
    return _read_whole(path, lambda written: unsigned(json.loads(written.decode()), since))


def inode(path: Path) -> int:
    """The number of a file; -1 where there is none."""
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return -1


def _read_whole(path: Path, read: Callable[[bytes], Content]) -> Content | None:
    """What a function makes of a file; one that it refuses is set aside, unless another process
    has put a new one in its place already, which is read then.
    """
    while True:
        try:
            with path.open("rb") as file:
                written, read_one = file.read(), os.fstat(file.fileno()).st_ino
        except FileNotFoundError:
            return None
        try:
            return read(written)
        except (ValueError, RecursionError) as error:
            if inode(path) in (-1, read_one):
                set_aside(path, str(error))
                return None


def write_sealed(path: Path | str, data: bytes) -> None:
    """Write bytes after a line with their sha256, whole or not at all."""
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        file.write(_SEAL + hashlib.sha256(data).hexdigest().encode() + b"\n")
        file.write(data)


def read_sealed(path: Path) -> bytes | None:
    """The bytes that `write_sealed` wrote; None where there are none."""
    return _read_whole(path, unsealed)


def unsealed(written: bytes) -> bytes:
    """What `write_sealed` wrote into a file of this content; a ValueError if it is damaged."""
    head, _, data = written.partition(b"\n")
    if head != _SEAL + hashlib.sha256(data).hexdigest().encode():
        raise ValueError("its sha256 is not that of its content")
    return data


def cache_folder(*parts: str) -> Path:
    """A folder below the cache, made if it is missing."""
    folder = cache_root().joinpath(*parts)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise disk_error(folder, error.errno) from error
    return folder


def content_hash(parts: Iterable[str | bytes], length: int = 16) -> str:
    """Hash a sequence of texts or bytes; where one part ends and the next begins counts."""
    state = hashlib.blake2b()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        state.update(len(data).to_bytes(8, "little"))
        state.update(data)
    return state.hexdigest()[:length]

"""Vectors on disk by the hash of their text, in one SQLite file that several processes may share.

A vector that comes back is the one that was written. Each row has a checksum over its key and its
vector, salted with what the file is for; the file's name holds the model, the format, and the
versions of the libraries that compute. A row that fails, and one of another file, is told of,
dropped and computed again; a file that SQLite cannot read is set aside whole. On a disk that
several machines share each has a file of its own: SQLite needs locks, and a view of what others
have just written, that such disks do not promise.

Cost: a hash of each vector read, 2 µs for MiniLM's; on disk, a quarter more than the vectors.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import importlib.metadata
import platform
import sqlite3
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray

from cde.storage import cache_folder, content_hash
from cde.storage.damage import DamageWarning, set_aside
from cde.storage.disk import disk_error, lock_reach

__all__ = ["FORMAT", "VectorStore", "computed_with"]

Vectors = NDArray[np.float32]
Result = TypeVar("Result")

#: of the file: raise it when what is in it, or how a vector is computed, changes
FORMAT = 2

#: bytes; in SQLite's own 4,096 a row of MiniLM's does not fit, and takes a second page for itself
_PAGE = 16_384

_INSERT = "INSERT OR IGNORE INTO vectors VALUES (?, ?, ?)"
_COMPUTE = ("torch", "transformers", "tokenizers", "sentence-transformers")
_DISK = {
    sqlite3.SQLITE_FULL: errno.ENOSPC,
    sqlite3.SQLITE_READONLY: errno.EROFS,
    sqlite3.SQLITE_CANTOPEN: errno.EACCES,
    sqlite3.SQLITE_PERM: errno.EACCES,
    sqlite3.SQLITE_AUTH: errno.EACCES,
    sqlite3.SQLITE_IOERR: errno.EIO,
}
#: a file that ends too early is no fault of the disk
_SHORT = sqlite3.SQLITE_IOERR_SHORT_READ


@cache
def computed_with() -> str:
    """A hash of the versions of the libraries that turn texts into vectors."""
    return content_hash((importlib.metadata.version(name) for name in _COMPUTE), 8)


class VectorStore:
    """Vectors of one model, by text."""

    def __init__(self, model: str, dim: int) -> None:
        name = f"{model}-v{FORMAT}-{computed_with()}"
        folder = cache_folder("embeddings")
        owner = "" if lock_reach(folder) == "here" else f"-{content_hash([platform.node()], 8)}"
        self.path = folder / f"{name}{owner}.sqlite"
        self._salt = hashlib.blake2b(f"{name} {dim}".encode(), digest_size=16).digest()
        self._connection: sqlite3.Connection | None = None
        self._opened = -1
        self._whole(lambda _: None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._close()

    def read(self, texts: list[str]) -> dict[str, Vectors]:
        """The vectors that are known, by text."""
        by_key = {_key(text): text for text in texts}
        found, damaged = self._whole(lambda connection: self._rows(connection, list(by_key)))
        if damaged:
            warnings.warn(
                f"{self.path} is damaged: {len(damaged):,} of {len(found) + len(damaged):,} "
                "vectors are not what was written; they were dropped, and are computed again",
                DamageWarning,
                stacklevel=2,
            )
            self._whole(lambda connection: _drop(connection, damaged))
        return {by_key[key]: vector for key, vector in found.items()}

    def write(self, texts: list[str], vectors: Vectors) -> None:
        """Keep vectors; of a text that is known already, the first one stays.

        Vectors that are not finite, or all zero, are no embeddings, and are not kept.
        """
        rows = []
        for text, vector in zip(texts, vectors, strict=True):
            if np.isfinite(vector).all() and vector.any():
                key, data = _key(text), vector.tobytes()
                rows.append((key, data, self._checksum(key, data)))

        def insert(connection: sqlite3.Connection) -> None:
            with connection:  # one transaction: all of a portion is kept, or none
                connection.executemany(_INSERT, rows)
            # where a key of a page's edge is damaged, what is kept may not be found again
            found, damaged = self._rows(connection, [key for key, _, _ in rows])
            if damaged or len(found) < len({key for key, _, _ in rows}):
                raise _Unfit("what was written cannot be read back")

        self._whole(insert)

    def _checksum(self, key: bytes, data: bytes) -> bytes:
        return hashlib.blake2b(key + data, digest_size=16, key=self._salt).digest()

    def _is_whole(self, key: object, data: object, checksum: object) -> bool:
        whole = isinstance(key, bytes) and isinstance(data, bytes)
        return whole and self._checksum(key, data) == checksum  # type: ignore[arg-type]

    def _rows(
        self, connection: sqlite3.Connection, keys: list[bytes]
    ) -> tuple[dict[bytes, Vectors], list[tuple[bytes, object, object]]]:
        found, damaged = {}, []
        for start in range(0, len(keys), 500):
            some = keys[start : start + 500]
            marks = ",".join("?" * len(some))
            for key, data, checksum in connection.execute(
                f"SELECT key, vector, checksum FROM vectors WHERE key IN ({marks})", some
            ):
                if self._is_whole(key, data, checksum):
                    found[key] = np.frombuffer(data, np.float32)
                else:
                    damaged.append((key, data, checksum))
        return found, damaged

    def _whole(self, work: Callable[[sqlite3.Connection], Result]) -> Result:
        """Do something with the file; if that finds it damaged, set it aside, and do it anew."""
        for last in (False, True):
            try:
                return work(self._open())
            except (sqlite3.DatabaseError, UnicodeDecodeError, _Unfit) as error:
                code = getattr(error, "sqlite_errorcode", None) or sqlite3.SQLITE_CORRUPT
                if code & 0xFF == sqlite3.SQLITE_BUSY or last:
                    raise
                if code & 0xFF in _DISK and code != _SHORT:
                    raise disk_error(self.path, _DISK[code & 0xFF], str(error)) from error
                self._set_aside(str(error))
        raise AssertionError

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = connection = sqlite3.connect(self.path, timeout=120)
            connection.text_factory = bytes  # a damaged row may claim to hold text
            connection.execute(f"PRAGMA page_size = {_PAGE}")  # of a new file; no other heeds it
            self._opened = _inode(self.path)
            (found,) = connection.execute("PRAGMA user_version").fetchone()
            if found == 0:
                _create(connection)
            elif found != FORMAT:
                raise _Unfit(f"it has format {found}, expected {FORMAT}")
            self._opened = _inode(self.path)
        return self._connection

    def _set_aside(self, reason: str) -> None:
        self._close()
        # another process may have found the same, and have made a new file already
        with FileLock(f"{self.path}.lock"):
            if self._opened == _inode(self.path):
                # what SQLite had noted to undo is of the damaged file
                for end in ("-journal", "-wal", "-shm"):
                    Path(f"{self.path}{end}").unlink(missing_ok=True)
                self._salvage(set_aside(self.path, reason))

    def _salvage(self, damaged: Path) -> None:
        """Take over what is whole, as far as it can be read."""
        with (
            contextlib.suppress(sqlite3.Error, ValueError, _Unfit),
            contextlib.closing(sqlite3.connect(damaged)) as source,
        ):
            source.text_factory = bytes
            rows = source.execute("SELECT key, vector, checksum FROM vectors")
            with self._open() as connection:
                connection.executemany(_INSERT, (row for row in rows if self._is_whole(*row)))

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class _Unfit(Exception):
    """A file of another format, or one whose parts do not fit each other."""


def _key(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _inode(path: Path) -> int:
    return path.stat().st_ino if path.exists() else -1


def _create(connection: sqlite3.Connection) -> None:
    with connection:
        connection.execute("BEGIN IMMEDIATE")
        (found,) = connection.execute("PRAGMA user_version").fetchone()
        if found == 0:  # and no other process was faster
            connection.execute(
                "CREATE TABLE vectors (key BLOB PRIMARY KEY, vector BLOB, checksum BLOB) "
                "WITHOUT ROWID"
            )
            connection.execute(f"PRAGMA user_version = {FORMAT}")


def _drop(connection: sqlite3.Connection, rows: list[tuple[bytes, object, object]]) -> None:
    with connection:  # these alone: another process may have put good ones in their place
        connection.executemany(
            "DELETE FROM vectors WHERE key IS ? AND vector IS ? AND checksum IS ?", rows
        )
    # a damaged key stands where it is not looked for
    (found,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
    if found != b"ok":
        raise _Unfit(found.decode(errors="replace"))

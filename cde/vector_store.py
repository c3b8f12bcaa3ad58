"""Vectors of texts on disk, so that no text is embedded twice.

A file is of one model with its settings, and of one set of versions of what computes. Each row has
a checksum; the first vector of a text is kept.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import importlib.metadata
import platform
import sqlite3
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Self, TypeVar

import numpy as np
from filelock import FileLock

from cde.storage import cache_folder, content_hash, disk_error, inode, lock_reach, set_aside
from cde.validation import Vectors

Result = TypeVar("Result")

#: of the file: raise it when what is in it, or how a vector is computed, changes
FORMAT = 2

#: bytes; in SQLite's own 4,096 a row of MiniLM's does not fit, and takes a second page for itself
_PAGE = 16_384

_TABLE = (
    "CREATE TABLE IF NOT EXISTS vectors (key BLOB PRIMARY KEY, vector BLOB, checksum BLOB) "
    "WITHOUT ROWID"
)
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
#: a file that ends too early is not a fault of the disk
_SHORT = sqlite3.SQLITE_IOERR_SHORT_READ


@cache
def computed_with() -> str:
    """A hash of the versions of the libraries that turn texts into vectors."""
    return content_hash((importlib.metadata.version(name) for name in _COMPUTE), 8)


class VectorStore:
    """Vectors of one model, by text, in one SQLite file that several processes may share; a damaged
    file is set aside, and what it held is computed again.
    """

    def __init__(self, model: str, dim: int) -> None:
        name = f"{model}-v{FORMAT}-{computed_with()}"
        folder = cache_folder("embeddings")
        # SQLite needs locks, and a view of new rows, that shared disks do not promise
        owner = "" if lock_reach(folder) == "here" else f"-{content_hash([platform.node()], 8)}"
        self.path = folder / f"{name}{owner}.sqlite"
        self._salt = hashlib.blake2b(f"{name} {dim}".encode(), digest_size=16).digest()
        self._connection: sqlite3.Connection | None = None
        self._opened = -1
        self._whole(lambda _: None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def read(self, texts: list[str]) -> dict[str, Vectors]:
        """The vectors that are known, by text."""
        by_key = {_key(text): text for text in texts}
        found = self._whole(lambda connection: self._rows(connection, list(by_key)))
        return {by_key[key]: vector for key, vector in found.items()}

    def write(self, texts: list[str], vectors: Vectors) -> None:
        """Keep finite vectors above zero; of a text that is known already, the first one stays."""
        rows = []
        for text, vector in zip(texts, vectors, strict=True):
            if np.isfinite(vector).all() and vector.any():
                key, data = _key(text), vector.tobytes()
                rows.append((key, data, self._checksum(key, data)))

        def insert(connection: sqlite3.Connection) -> None:
            with connection:  # one transaction: all of a portion is kept, or none
                connection.executemany(_INSERT, rows)
            # where a key of a page's edge is damaged, what is kept may not be found again
            keys = {key for key, _, _ in rows}
            if len(self._rows(connection, list(keys))) < len(keys):
                raise _Unfit("what was written cannot be read back")

        self._whole(insert)

    def _checksum(self, key: bytes, data: bytes) -> bytes:
        return hashlib.blake2b(key + data, digest_size=16, key=self._salt).digest()

    def _rows(self, connection: sqlite3.Connection, keys: list[bytes]) -> dict[bytes, Vectors]:
        found = {}
        for start in range(0, len(keys), 500):
            some = keys[start : start + 500]
            marks = ",".join("?" * len(some))
            query = f"SELECT key, vector, checksum FROM vectors WHERE key IN ({marks})"
            for key, data, checksum in connection.execute(query, some):
                # a damaged row may hold anything
                whole = isinstance(key, bytes) and isinstance(data, bytes)
                if not (whole and self._checksum(key, data) == checksum):
                    raise _Unfit("a vector is not what was written")
                found[key] = np.frombuffer(data, np.float32)
        return found

    def _whole(self, work: Callable[[sqlite3.Connection], Result]) -> Result:
        """Do something with the file; if that finds it damaged, set it aside, and do it again."""
        made_again = False
        for left in reversed(range(10)):  # a disk may give a file other numbers each time
            try:
                return work(self._open())
            except (sqlite3.DatabaseError, UnicodeDecodeError, _Unfit) as error:
                code = getattr(error, "sqlite_errorcode", None) or sqlite3.SQLITE_CORRUPT
                if code & 0xFF == sqlite3.SQLITE_BUSY:
                    raise
                # whatever the error says, it may be of a file that is gone
                if left and self._replaced():
                    self._close()
                    continue
                if code & 0xFF in _DISK and code != _SHORT:
                    raise disk_error(self.path, _DISK[code & 0xFF], str(error)) from error
                if made_again or not left:
                    raise
                self._set_aside(str(error))
                made_again = True
        raise AssertionError

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            there = self._opened = inode(self.path)
            connection = sqlite3.connect(self.path, timeout=120)
            if inode(self.path) != there != -1:  # set aside in between: which one is open?
                connection.close()
                raise _Unfit("it was replaced while it was opened")
            self._opened, self._connection = inode(self.path), connection
            connection.text_factory = bytes  # a damaged row may claim to hold text
            connection.execute(f"PRAGMA page_size = {_PAGE}")  # of a new file; no other heeds it
            connection.execute(_TABLE)  # where another process was not faster
        return self._connection

    def _replaced(self) -> bool:
        """Whether another process has set aside the file that is open here."""
        with contextlib.suppress(OSError), FileLock(f"{self.path}.lock"):
            pass  # one that is at it
        return self._opened != inode(self.path)

    def _set_aside(self, reason: str) -> None:
        self._close()
        # another process may have found the same, and have made a new file already
        with FileLock(f"{self.path}.lock"):
            if self._opened == inode(self.path):
                # what SQLite had noted to undo is of the damaged file
                for end in ("-journal", "-wal", "-shm"):
                    Path(f"{self.path}{end}").unlink(missing_ok=True)
                set_aside(self.path, reason)

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class _Unfit(Exception):
    """A file whose parts do not fit each other."""


def _key(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()

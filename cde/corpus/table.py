"""Rows of an index, passages of documents with their vectors; how far they have moved from those
that it was built of; and an index in a folder.

LanceDB keeps the rows: every change is one version of the table, which a reader sees whole or not
at all. `index.json` names the encoder that made the vectors. It is written last, so that a build
which was killed leaves the old index, or none, and goes on from the rows that are there. Each row
carries a hash of all that it holds, since LanceDB checks none.

Cost: one reading of all rows, and of their hashes, when an index is loaded or has changed.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from cde.corpus.encoders import is_kept
from cde.storage import alone, content_hash, folder_hash, unsigned, write_json
from cde.validation import Vectors

__all__ = ["Document", "Drift", "Origin", "drift"]

#: columns of the table: those of `Row`, in its order
_COLUMNS = {
    "ids": pa.string(),
    "places": pa.int32(),
    "starts": pa.int64(),
    "headings": pa.string(),
    "texts": pa.string(),
    "metadata": pa.string(),
    "built": pa.bool_(),
}
_SETTINGS, _FORMAT, _VERSION = "index.json", "cde.Index", 3
_OWN = re.compile(r"(rows-[0-9a-f]{16}\.lance|encoder-[0-9a-f]{16})(\.damaged-\d+)?")
_KEPT_FOR = timedelta(minutes=10)
_AGAIN = "take a copy of the folder, or build the index again from its texts"


@dataclass(frozen=True)
class Document:
    """A text with its id, and what else is known of it."""

    id: str
    text: str
    metadata: Mapping[str, Any]


class Row(NamedTuple):
    """A passage of a document."""

    id: str  # of the document
    place: int  # number of the passage in the document, from 0
    start: int  # where it begins in the document, in characters
    heading: str  # the heading above it, "" for none
    text: str
    metadata: str  # of the document, as JSON
    built: bool  # whether it was there when the index was built


@dataclass(frozen=True)
class Rows:
    """Passages, those of a document together, and their vectors, `(n, dim)` float32."""

    passages: list[Row]
    vectors: Vectors

    def __len__(self) -> int:
        return len(self.passages)

    def __add__(self, other: Rows) -> Rows:
        vectors = np.concatenate([self.vectors, other.vectors])
        return Rows(self.passages + other.passages, vectors)

    def where(self, holds: Callable[[str], bool]) -> Rows:
        """The rows of documents for whose id a function is true."""
        return self._take([place for place, row in enumerate(self.passages) if holds(row.id)])

    def _take(self, places: list[int]) -> Rows:
        return Rows([self.passages[place] for place in places], self.vectors[places])

    def grouped(self) -> Rows:
        """The passages of a document together and in their order, documents as they first occur."""
        if self.most_passages == 1:
            return self
        first: dict[str, int] = {}
        for place, row in enumerate(self.passages):
            first.setdefault(row.id, place)
        order = [(first[row.id], row.place, place) for place, row in enumerate(self.passages)]
        return self._take([place for *_, place in sorted(order)])

    @cached_property
    def documents(self) -> dict[str, Document]:
        """The documents by id, put together from their passages."""
        parts: dict[str, list[str]] = {}
        last: dict[str, Row] = {}
        for row in self.passages:
            if row.place:  # passages overlap
                before = last[row.id]
                parts[row.id][-1] = before.text[: row.start - before.start]
            parts.setdefault(row.id, []).append(row.text)
            last[row.id] = row
        return {
            name: Document(name, "".join(texts), json.loads(last[name].metadata or "{}"))
            for name, texts in parts.items()
        }

    @cached_property
    def texts(self) -> list[str]:
        return [row.text for row in self.passages]

    @cached_property
    def most_passages(self) -> int:
        """Passages of the document that has most."""
        return 1 + max((row.place for row in self.passages), default=0)

    def digests(self) -> Iterator[bytes]:
        """A hash of each row, over all that it holds."""
        vectors = np.ascontiguousarray(self.vectors, dtype="<f4")
        for row, vector in zip(self.passages, vectors, strict=True):
            text = json.dumps(row).encode()  # half a surrogate pair is escaped
            yield hashlib.blake2b(text + vector.tobytes(), digest_size=16).digest()


@dataclass(frozen=True)
class Origin:
    """The corpus that an index was built of: its number of passages, and their mean vector."""

    rows: int
    mean: list[float]

    @classmethod
    def of(cls, vectors: Vectors) -> Origin:
        """That of a new index, from its vectors `(n, dim)`."""
        total = vectors.sum(axis=0, dtype=np.float64)
        return cls(len(vectors), (total / max(len(vectors), 1)).astype(np.float32).tolist())


@dataclass(frozen=True)
class Drift:
    """What `drift` finds: the share of today's passages that came later, that of the earlier ones
    that are gone, and the distance; None where all vectors are alike, or there are none.
    """

    newer: float
    gone: float
    distance: float | None


def drift(origin: Origin, still: int, vectors: Vectors, context_size: int) -> Drift:
    """How far a corpus is from its origin, of which `still` so many passages are there: today's
    have `vectors`, `(n, dim)` float32. Its context was drawn from the origin, `context_size`
    documents.

    The distance is that from the origin's mean vector to today's, in units of what chance does: the
    mean of so many documents, drawn from today's corpus, lies one unit from its mean (root mean
    square, √(tr Σ / J)). Below 1 a fresh context could as well have been the old one, as far as
    means can tell; far above 1 it could not. The mean sees a change of topic, not every change.
    """
    count = len(vectors)
    newer = (count - still) / count if count else 0.0
    gone = (origin.rows - still) / origin.rows if origin.rows else 0.0
    if not count or not vectors.shape[1]:
        return Drift(newer, gone, None)
    mean = vectors.mean(axis=0, dtype=np.float64)
    square = np.einsum("ij,ij->", vectors, vectors, dtype=np.float64) / count
    spread = max(float(square - mean @ mean), 0.0)
    moved = float(np.linalg.norm(mean - np.array(origin.mean)))
    moved = moved if moved > 1e-6 * np.sqrt(square) else 0.0  # the mean is kept in float32
    unit = float(np.sqrt(spread / context_size))
    distance = moved / unit if unit > 1e-6 * np.sqrt(square) else None
    return Drift(newer, gone, distance)


def locked(folder: Path) -> AbstractContextManager[bool]:
    """Change an index's folder in one process at a time; others wait."""
    return alone(folder / ".lock", f"the index {folder}")


def read_settings(folder: Path) -> dict[str, Any] | None:
    """What `index.json` says, checked; None where a folder holds no index, or an unfinished one."""
    path = folder / _SETTINGS
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(values, dict) or values.get("format") != _FORMAT:
            raise ValueError("it was not written by cde.Index")
        settings = unsigned(values)
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged ({error}): {_AGAIN}") from error
    if settings["version"] != _VERSION:
        other = f"{folder} holds an index of version {settings['version']!r}"
        raise ValueError(
            f"{other}, and this cde reads version {_VERSION}: use the cde that made it"
        )
    return settings


def require_free(folder: Path) -> None:
    """Refuse a file, and a folder that holds something else than an index."""
    if folder.exists() and not folder.is_dir():
        raise FileExistsError(f"{folder} is a file; an index is saved as a folder: name another")
    if folder.is_dir() and not (folder / _SETTINGS).exists():
        names = (path.name for path in folder.iterdir())
        others = sorted(name for name in names if not _OWN.fullmatch(name) and name[0] != ".")
        if others:
            some = ", ".join(others[:3])
            raise FileExistsError(f"{folder} holds other files ({some}) and no index: name another")


class Table:
    """Rows of an index in a folder: vectors of length `dim` (of BM25 0) by a record's encoder."""

    def __init__(self, folder: Path, record: Mapping[str, Any], dim: int, found: bool) -> None:
        try:
            import lancedb
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(
                "an index in a folder is a table of lancedb, which is not installed: "
                "pip install 'contextual-document-embeddings[index]'"
            ) from error
        self.folder, self.dim, self._record = folder, dim, record
        vectors = {"vectors": pa.list_(pa.float32(), dim)} if dim else {}
        self._schema = pa.schema(_COLUMNS | {"digest": pa.binary(16)} | vectors)
        #: where an encoder of one's own is kept
        self.encoder_folder = folder / f"encoder-{content_hash([str(record['fingerprint'])])}"
        self.mark = content_hash([record["fingerprint"] or record["name"], str(dim)])
        self.name = f"rows-{self.mark}"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of lancedb's own deprecations
            database = lancedb.connect(str(folder))
            if (folder / f"{self.name}.lance").exists():
                with self._whole():
                    self._table: Any = database.open_table(self.name)
            elif found:
                raise ValueError(f"{folder / self.name}.lance is missing: {_AGAIN}")
            else:
                self._table = database.create_table(self.name, schema=self._schema)

    @contextmanager
    def _whole(self) -> Iterator[None]:
        """Tell of damage as such."""
        try:
            yield
        except Exception as error:  # of Rust, and of many kinds
            said = f"cannot be read, and may be damaged ({str(error).splitlines()[0][:200]})"
            raise ValueError(f"{self.folder / self.name}.lance {said}: {_AGAIN}") from error

    @property
    def version(self) -> int:
        """Number of the newest version."""
        with self._whole():
            self._table.checkout_latest()
        return int(self._table.version)

    def read(self) -> Rows:
        """All rows, each checked by its hash."""
        with self._whole():
            found = self._table.to_arrow()
            columns = [found[name].to_pylist() for name in (*_COLUMNS, "digest")]
            vectors = np.zeros((len(found), 0), np.float32)
            if self.dim:
                values = found["vectors"].combine_chunks().flatten().to_numpy(zero_copy_only=False)
                vectors = values.reshape(-1, self.dim).copy()  # Arrow's are not to be written to
        *columns, digests = columns
        rows = Rows([Row(*values) for values in zip(*columns, strict=True)], vectors)
        for row, kept, own in zip(rows.passages, digests, rows.digests(), strict=True):
            if kept != own:
                raise ValueError(f"{self.folder}: the document {row.id!r} is damaged: {_AGAIN}")
        return rows.grouped()

    def put(self, rows: Rows | None, gone: set[str]) -> None:
        """In one version: rows come, and those of the documents `gone` go or are replaced."""
        quoted = (name.replace("'", "''") for name in sorted(gone))
        of_gone = "ids IN ({})".format(", ".join(f"'{name}'" for name in quoted))
        if rows is None:
            self._table.delete(of_gone)
        elif not gone:
            self._table.add(self._arrow(rows))
        else:
            change = self._table.merge_insert(["ids", "places"]).when_matched_update_all()
            change = change.when_not_matched_insert_all()
            change.when_not_matched_by_source_delete(of_gone).execute(self._arrow(rows))
        if self._table.version % 64 == 0:
            self._table.optimize(cleanup_older_than=_KEPT_FOR)

    def overwrite(self, rows: Rows) -> None:
        """In one version: these rows come, all others go."""
        self._table.add(self._arrow(rows), mode="overwrite")

    def _arrow(self, rows: Rows) -> Any:
        columns: dict[str, Any] = {
            name: [row[field] for row in rows.passages] for field, name in enumerate(_COLUMNS)
        }
        columns["digest"] = list(rows.digests())
        if self.dim:
            flat = pa.array(np.ascontiguousarray(rows.vectors).ravel())
            columns["vectors"] = pa.FixedSizeListArray.from_arrays(flat, self.dim)
        return pa.table(columns, schema=self._schema)

    def keep(self, encoder: Any) -> None:
        """Write an encoder of one's own beside the rows, unless it lies there whole."""
        before = None
        with suppress(ValueError):  # a damaged index is replaced
            before = read_settings(self.folder)
        whole = before is not None and before["kept"] == folder_hash(self.encoder_folder)
        if is_kept(self._record) and not whole:
            # of an adapted one the encoder within
            getattr(encoder, "encoder", encoder).save_pretrained(self.encoder_folder)

    def finish(self, settings: Mapping[str, Any]) -> None:
        """Make this table the folder's index; what belonged to another goes."""
        self._table.optimize(cleanup_older_than=_KEPT_FOR)  # small parts are joined
        known = {"format": _FORMAT, "version": _VERSION, "dim": self.dim}
        values = {**known, "kept": folder_hash(self.encoder_folder), **settings}
        write_json(self.folder / _SETTINGS, values)
        own = {f"{self.name}.lance", self.encoder_folder.name}
        for path in self.folder.iterdir():
            if _OWN.fullmatch(path.name) and path.name not in own and not path.is_symlink():
                shutil.rmtree(path)

"""Documents from Python's own containers, from tables, and from files: text, Markdown, JSON lines,
CSV and Parquet, one of them or a folder that mixes them.

Files are read in the order of their paths, so that two readings give the same corpus.

Cost: one pass over the files. All texts are held in memory; of a table nothing more than a row (of
Parquet, 256 rows).
"""

from __future__ import annotations

import csv
import gzip
import json
import os
import warnings
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from pyarrow import ArrowException, parquet
from pyarrow.types import is_nested

from cde.corpus.table import Document
from cde.data import RetrievalSet
from cde.data.sets import id_text
from cde.progress import progress
from cde.storage import content_hash
from cde.validation import (
    checked_path,
    checked_text,
    checked_texts,
    encodable,
    half_of_a_pair,
    shown,
    unknown,
)

__all__ = ["LeftOut", "Source", "read_source"]


def named_documents(
    texts: Any,
    ids: Iterable[str] | None = None,
    columns: Mapping[str, str] | None = None,
    before: Sequence[str] = (),
) -> list[Document]:
    """Documents, in whatever form they came."""
    numbers = (int(name) for name in before if name.isascii() and name.isdigit())
    documents = _documents_of(texts, columns, max(numbers, default=-1) + 1)
    if ids is not None:
        if isinstance(texts, RetrievalSet | Mapping):
            kind = type(texts).__name__
            raise ValueError(f"ids are for a list of texts; this {kind} has ids of its own")
        given = checked_texts(ids, "ids")
        if len(given) != len(documents):
            raise ValueError(f"{len(given)} ids for {len(documents)} texts: give each text one id")
        documents = [replace(one, id=name) for one, name in zip(documents, given, strict=True)]
    names = encodable([one.id for one in documents], "ids")
    encodable([one.text for one in documents])
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise ValueError(
            f"ids must be distinct; {len(twice)} occur more than once, such as {_some(twice)}"
        )
    taken = set(before)
    if there := [name for name in names if name in taken]:
        raise ValueError(
            f"{len(there)} of the ids are in the index already, such as {_some(there)}: remove "
            "them first to replace their texts, or give other ids"
        )
    return documents


def _documents_of(texts: Any, columns: Mapping[str, str] | None, following: int) -> list[Document]:
    """Documents as they came; those without an id are numbered, from the `following` number on."""
    chosen = Columns.chosen(columns)
    if isinstance(texts, RetrievalSet):
        texts = dict(zip(texts.document_ids, texts.documents, strict=True))
    library = type(texts).__module__.partition(".")[0]  # none is imported to ask
    if library == "datasets" and not isinstance(texts, Mapping):
        texts = list(texts)
    elif library in ("polars", "pyarrow") and hasattr(texts, "columns"):
        texts = texts.to_pandas()
    if isinstance(texts, Mapping):
        rows = [one if isinstance(one, Mapping) else {chosen.text: one} for one in texts.values()]
        return _of_table(list(texts), rows, replace(chosen, id=""), following)
    if isinstance(texts, pd.Series):
        texts = texts.to_frame(chosen.text)
    if isinstance(texts, pd.DataFrame):
        if not texts.columns.is_unique:
            twice = texts.columns[texts.columns.duplicated()][0]
            raise ValueError(f"a table's columns must have names of their own; {twice!r} has two")
        plain = texts.index.nlevels > 1 or texts.index.equals(pd.RangeIndex(len(texts)))
        names = range(len(texts)) if plain else texts.index.tolist()
        return _of_table(names, texts.rename(columns=str).to_dict("records"), chosen, following)
    if isinstance(texts, list) and texts:
        if all(isinstance(one, Document) for one in texts):
            return texts
        if all(isinstance(one, Mapping) for one in texts):
            return _of_table(range(len(texts)), texts, chosen, following)
    if isinstance(texts, str | Path):
        raise TypeError(
            f"texts must be a list of strings; {str(texts)[:60]!r} was given: put it in a list, or "
            "read a folder or file by cde.Index.from_folder"
        )
    numbered = enumerate(checked_texts(texts), start=following)
    return [Document(str(number), text, {}) for number, text in numbered]


def _rest(row: Mapping[Any, Any], read: Iterable[str]) -> dict[str, Any]:
    """What else a document's row says: its metadata, as far as JSON can hold it."""
    found = {}
    for name, value in row.items():
        if name not in read and isinstance(value, str | int | float | bool | list | dict):
            with suppress(TypeError, ValueError, RecursionError):  # no number, or of another type
                found[str(name)] = json.loads(json.dumps(value, allow_nan=False))
    return found


def _of_table(
    names: Iterable[Any], rows: Sequence[Mapping[Any, Any]], columns: Columns, following: int
) -> list[Document]:
    if rows and (problem := columns.missing(dict.fromkeys(chain.from_iterable(rows)))):
        raise ValueError(f"the table has {problem}")
    documents = []
    for place, row in zip(names, rows, strict=True):
        name, text = columns.of(row)
        if text is None:
            raise TypeError(
                f'the document {place!r} has no string in "{columns.text}", but '
                f"{shown(row.get(columns.text))}: leave such rows out, as by "
                f"frame.dropna(subset=[{columns.text!r}])"
            )
        number = place + following if isinstance(names, range) else place
        documents.append(Document(name or str(number), text, _rest(row, columns.read)))
    return documents


def _some(names: Sequence[str], most: int = 3) -> str:
    return ", ".join(name[:40] for name in names[:most]) + (", …" if len(names) > most else "")


#: bytes that a document may have
LARGEST = 10_000_000

_TABLES = (".jsonl", ".jsonl.gz", ".ndjson", ".csv", ".tsv", ".parquet")
_SUFFIXES = (".txt", ".md", ".markdown", ".rst", *_TABLES)
_ACCEPTED = f"{', '.join(_SUFFIXES[:-1])} or {_SUFFIXES[-1]}"
_MARK = b"\xef\xbb\xbf"  # a byte order mark; editors on Windows write it, before the text


class LeftOut(NamedTuple):
    """A file or a row that is not read, and why."""

    place: str
    reason: str

    def __str__(self) -> str:
        return f"{self.place} ({self.reason})"


#: the beginning of a reason: what there is in the file is unknown
UNREADABLE = "cannot be read"
#: what a damaged file, or one with values that Python lacks, raises
_DAMAGED = (OSError, EOFError, KeyError, OverflowError, ValueError, zlib.error, ArrowException)
#: what there is in a file
_Found = Iterator[Document | LeftOut]


@dataclass(frozen=True)
class Columns:
    """Which columns of a table, or fields of a JSON line, make a document."""

    text: str = "text"
    title: str = "title"
    id: str | None = None

    @classmethod
    def chosen(cls, columns: Mapping[str, str] | None) -> Columns:
        """From a mapping of "text", "title", "id" to names of columns; None is the default."""
        if not isinstance(columns, Mapping | None):
            raise TypeError(
                f"columns must be a mapping of text, title, id → names; it is {shown(columns)}"
            )
        given = {part: checked_text(name, "columns") for part, name in (columns or {}).items()}
        if strange := set(given) - {"text", "title", "id"}:
            raise ValueError(f"columns: {unknown(strange, ('text', 'title', 'id'), 'part')}")
        return cls(**given)

    @property
    def ids(self) -> tuple[str, ...]:
        """Columns that may name the document, the first that is there does; "" for none."""
        return ("id", "_id") if self.id is None else (self.id,) if self.id else ()

    @property
    def read(self) -> tuple[str, ...]:
        """Columns that are not metadata."""
        return (self.text, self.title, *self.ids)

    def missing(self, found: Any) -> str:
        """Why a table with these columns cannot be read; "" if it can."""
        names = [str(name) for name in found]
        if twice := [name for name in self.read if names.count(name) > 1]:
            return f'two columns "{twice[0]}": give one of them another name'
        # many tables have no titles; one whose name was given must be there
        title = "" if self.title == Columns.title else self.title
        for part, chosen in (("text", self.text), ("title", title), ("id", self.id)):
            if chosen and chosen not in names:
                there = _some(names, 12) or "none"
                how = f'columns={{"{part}": …}}, on the shell by --{part}-column'
                return f'no column "{chosen}"; it has {there}: name one by {how}'
        return ""

    def of(self, row: Mapping[str, Any]) -> tuple[str, str | None]:
        """Id ("" for none) and text of a row, the title before it; None for a text that is none."""
        text, title = row.get(self.text), row.get(self.title)
        if not isinstance(text, str):
            return "", None
        titled = f"{title} {text}".strip() if isinstance(title, str) and title else text
        given = next((row[name] for name in self.ids if row.get(name) is not None), "")
        return id_text(given), titled


@dataclass(frozen=True)
class Source:
    """Where documents are read from: what `sync` reads again.

    Attributes:
        path: a folder or file; "" for documents that came from Python.
        columns: of tables: the text's, the title's and the id's.
    """

    path: str = ""
    columns: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, path: Path | str, columns: Mapping[str, str] | None = None) -> Source:
        Columns.chosen(columns)
        return cls(str(checked_path(path).expanduser().absolute()), dict(columns or {}))


def read_source(source: Source, root: Path | str = "") -> tuple[list[Document], list[LeftOut]]:
    """Documents of a folder or file, as `Index.from_folder` says; and what was left out, each with
    its reason. Ids are paths below a root, by default the folder. A row of a table without an id is
    named by its file and a hash of its text; of unlike rows with one text, the later ones by a hash
    of all that they hold.
    """
    if not source.path:
        raise ValueError("this index was not built of a folder or file: give the source")
    path = Path(source.path)
    if not path.exists():
        raise FileNotFoundError(f"no folder or file {path}: expected a folder of {_ACCEPTED}")
    left_out: list[LeftOut] = []
    if path.is_dir():
        files = _files(path, left_out)
    elif path.name.lower().endswith(_SUFFIXES):
        files = [path]
    else:
        raise ValueError(f"{path} cannot be read: accepted are {_ACCEPTED}, or a folder")
    root = Path(root or path)
    root = root if root.is_dir() else root.parent
    columns = Columns.chosen(source.columns)
    found: dict[str, tuple[Document, Path]] = {}
    for file in progress(files, f"reading {len(files):,} files", unit="files"):
        relative = file.relative_to(root).as_posix()
        for some in _documents(file, relative, columns):
            if isinstance(some, LeftOut):
                left_out.append(some)
                continue
            unlike = some.id in found and some.metadata != found[some.id][0].metadata
            if unlike and some.id == _named(relative, some.text):
                more = json.dumps(some.metadata, sort_keys=True)
                some = replace(some, id=_named(relative, some.text, more))
            if some.id not in found:
                found[some.id] = some, file
            elif found[some.id] == (some, file):
                left_out.append(LeftOut(relative, "a row that is there already"))
            else:
                raise ValueError(
                    f"{file}: the id {some.id!r} occurs in {found[some.id][1]} too; ids must be "
                    'distinct. columns={"id": ""} (--id-column "") names rows by file and content'
                )
    if not found:
        more = "; …" if len(left_out) > 3 else ""
        said = f": {'; '.join(map(str, left_out[:3]))}{more}" if left_out else ": it is empty"
        raise ValueError(f"{path} holds no document that can be read ({_ACCEPTED}){said}")
    return [document for document, _ in found.values()], left_out


def counted(left_out: Sequence[LeftOut]) -> str:
    """What was left out, counted by reason."""
    counts = Counter(one.reason for one in left_out)
    return ", ".join(f"{count:,} × {reason}" for reason, count in counts.most_common(8))


def read_and_warn(source: Source) -> list[Document]:
    """The documents of a source, with a warning of what was left out."""
    documents, left_out = read_source(source)
    if left_out:
        more = f"; and {len(left_out) - 20:,} more" if len(left_out) > 20 else ""
        warnings.warn(
            f"{source.path}: {len(documents):,} documents were read, {len(left_out):,} left out "
            f"({counted(left_out)}): {'; '.join(map(str, left_out[:20]))}{more}",
            stacklevel=3,
        )
    return documents


def _files(folder: Path, left_out: list[LeftOut]) -> list[Path]:
    for corpus in (folder / "corpus.jsonl", folder / "corpus.jsonl.gz"):
        if corpus.is_file() and any(folder.glob("queries.jsonl*")):
            return [corpus]

    def leave_out(path: str | Path, reason: str) -> None:
        place = os.path.relpath(path, folder).encode("utf-8", "replace").decode()
        left_out.append(LeftOut(place, reason))

    def unreadable(error: OSError) -> None:
        leave_out(str(error.filename), f"{UNREADABLE}: {error.strerror}")

    found = []
    inside = folder.resolve()
    for place, folders, names in os.walk(folder, onerror=unreadable):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for below in [Path(place, name) for name in folders]:
            if below.is_symlink():
                leave_out(below, "a link to a folder")
            elif any(below.glob("rows-*.lance")):
                leave_out(below, "an index")
                folders.remove(below.name)
        for file in [Path(place, name) for name in names if not name.startswith(".")]:
            if half_of_a_pair(str(file)) is not None:
                leave_out(file, "its name is not UTF-8")
            elif not file.name.lower().endswith(_SUFFIXES):
                leave_out(file, f"files of kind {file.suffix or 'none'} are not read")
            elif file.is_symlink() and not file.resolve().is_relative_to(inside):
                leave_out(file, "a link out of the folder")
            else:
                found.append(file)
    return sorted(found, key=lambda file: file.relative_to(folder).as_posix())


def _documents(file: Path, relative: str, columns: Columns) -> _Found:
    name, read = file.name.lower(), _one_text
    if name.endswith((".jsonl", ".jsonl.gz", ".ndjson")):
        read = _json_rows
    elif name.endswith((".csv", ".tsv")):
        read = _separated_rows
    elif name.endswith(".parquet"):
        read = _parquet_rows
    found = 0
    try:
        if file.exists() and not file.is_file():  # a pipe would be waited for
            yield LeftOut(relative, "no regular file")
            return
        for one in read(file, relative, columns):
            found += 1
            yield one
    except _DAMAGED as error:
        after = f" after {found:,} rows" if found else ""
        if isinstance(error, UnicodeDecodeError):
            yield LeftOut(relative, f"not UTF-8 at byte {error.start}{after}")
        else:
            said = getattr(error, "strerror", None) or str(error).partition("\n")[0][:120]
            yield LeftOut(relative, f"{UNREADABLE}{after}: {said}")
    else:
        if not found:
            yield LeftOut(relative, "empty")


def _too_large(size: int) -> str:
    """Why a document is not read; "" if it is."""
    return f"{size:,} bytes, above the limit of {LARGEST:,}" if size > LARGEST else ""


def _one_text(file: Path, relative: str, columns: Columns) -> _Found:
    problem = _too_large(file.stat().st_size)
    text = "" if problem else file.read_bytes().removeprefix(_MARK).decode("utf-8").strip()
    yield Document(relative, text, {}) if text else LeftOut(relative, problem or "empty")


def _of_row(row: Mapping[str, Any], place: str, columns: Columns) -> Document | LeftOut:
    try:
        name, text = columns.of(row)
    except ValueError as error:
        return LeftOut(place, str(error))
    if text is None:
        empty = row.get(columns.text) is None
        return LeftOut(place, "empty" if empty else f'no string in "{columns.text}"')
    text = text.strip()
    # JSON may escape half of a surrogate pair: a string to Python, and to no encoder
    if any(half_of_a_pair(one) is not None for one in (name, text)):
        return LeftOut(place, "half of a surrogate pair, which is not text")
    if isinstance(row.get(columns.title), list | dict):
        return LeftOut(place, f'no string in "{columns.title}"')
    if problem := _too_large(len(text.encode())) if text else "empty":
        return LeftOut(place, problem)
    name = name or _named(place.rpartition(":")[0], text)
    return Document(name, text, _rest(row, columns.read))


def _named(relative: str, *content: str) -> str:
    """An id for a row that has none."""
    return f"{relative}#{content_hash(content, 12)}"


def _json_rows(file: Path, relative: str, columns: Columns) -> _Found:
    wanted = f'expected a JSON object with the string field "{columns.text}"'
    for number, line in enumerate(_lines(file, 8 * LARGEST), start=1):
        place = f"{relative}:{number}"
        if line is None:
            yield LeftOut(place, f"a line above {8 * LARGEST:,} bytes")
            continue
        data = line.removeprefix(_MARK) if number == 1 else line
        if not data.strip():
            continue
        try:
            row = json.loads(data.decode("utf-8"))
        except UnicodeDecodeError as error:
            yield LeftOut(place, f"not UTF-8 at byte {error.start} of the line")
            continue
        except (ValueError, RecursionError):
            row = None
        if not isinstance(row, dict) or not isinstance(row.get(columns.text), str):
            names = _some(list(row), 12) if isinstance(row, dict) else ""
            yield LeftOut(place, f"{wanted}{names and f'; it has {names}'}")
        else:
            yield _of_row(row, place, columns)


def _lines(file: Path, largest: int) -> Iterator[bytes | None]:
    """Lines of a file, None for one above the limit, whose rest is passed over."""
    with (gzip.open if file.suffix.lower() == ".gz" else open)(file, "rb") as data:
        while line := data.readline(largest + 1):
            if len(line) <= largest:
                yield line
                continue
            while line and not line.endswith(b"\n"):
                line = data.readline(largest)
            yield None


def _separated_rows(file: Path, relative: str, columns: Columns) -> _Found:
    before = csv.field_size_limit(2 * LARGEST)  # of the whole process
    try:
        # what is not UTF-8 costs its own row alone: Python keeps it as halves of surrogates
        with file.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as lines:
            yield from _rows_of(lines, relative, columns)
    finally:
        csv.field_size_limit(before)


def _rows_of(lines: Any, relative: str, columns: Columns) -> _Found:
    head = lines.readline(LARGEST)
    # spreadsheets separate by what their language leaves free
    free = "\t" if relative.lower().endswith(".tsv") else max(",;\t", key=head.count)
    # a quote that is never closed swallows all rows below it: strictly read, that is told
    rows = csv.reader(chain([head], lines), delimiter=free, strict=True)
    try:
        header = next(rows, [])  # a quoted name may have several lines
    except csv.Error as error:
        yield LeftOut(relative, f"no header: {error}")
        return
    problem = columns.missing(header) if header else ""
    if problem:
        yield LeftOut(relative, problem)
    while header and not problem:
        place = f"{relative}:{rows.line_num + 1}"
        try:
            row = next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            yield LeftOut(place, f"no row: {error}")
            continue
        if row and len(row) != len(header):
            yield LeftOut(place, f"{len(row)} columns, expected {len(header)}")
        elif any(half_of_a_pair(value) is not None for value in row):
            yield LeftOut(place, "not UTF-8")
        elif row:
            yield _of_row(dict(zip(header, row, strict=True)), place, columns)


def _parquet_rows(file: Path, relative: str, columns: Columns) -> _Found:
    schema = parquet.read_schema(file)
    if problem := columns.missing(schema.names):
        yield LeftOut(relative, problem)
        return
    # equal texts stay one, row after row: thousands of large ones may take a few bytes of file
    flat = [column.name for column in schema if not is_nested(column.type)]
    with parquet.ParquetFile(file, read_dictionary=flat) as table:
        batches = table.iter_batches(batch_size=256)
        places = ((batch, place) for batch in batches for place in range(batch.num_rows))
        for number, (batch, place) in enumerate(places, start=1):
            row = {name: batch[name][place].as_py() for name in schema.names}
            yield _of_row(row, f"{relative}:{number}", columns)

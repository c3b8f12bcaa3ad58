"""Documents from Python's own containers, from tables, and from files: text, Markdown, JSON lines,
CSV and Parquet, one of them or a folder.

A folder may mix them. It is read in the order of its files' paths, so that two readings give the
same corpus. What is not read is left out and counted by reason, not fatal: a corpus of one's own
has files of other kinds, links, empty documents, bytes that are not UTF-8, rows without a text,
files that may not be opened, and documents above a limit (`LARGEST`), which are mostly not texts.

Cost: one pass over the files. All texts are held in memory; of a table nothing more than a row (of
Parquet, 256 rows).
"""

from __future__ import annotations

import csv
import gzip
import json
import os
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from numbers import Integral, Real
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import pandas as pd

from cde.corpus.rows import Document
from cde.data import RetrievalSet
from cde.data.judgements import read_judgements
from cde.progress import progress
from cde.storage import content_hash
from cde.validation import checked_texts, checked_whole, encodable, half_of_a_pair, shown, unknown

__all__ = ["LARGEST", "Columns", "Source", "judged_set", "left_out_of", "named_documents",
           "read_source"]  # fmt: skip


def named_documents(
    texts: Any,
    ids: Iterable[str] | None = None,
    columns: Mapping[str, str] | None = None,
    before: Sequence[str] = (),
) -> list[Document]:
    """Documents, in whatever form they came."""
    more: list[Mapping[str, Any]] = []
    numbers = (int(name) for name in before if name.isascii() and name.isdigit())
    following = max(numbers, default=-1) + 1
    if isinstance(texts, RetrievalSet | Mapping) and not _is_of_datasets(texts):
        if ids is not None:
            kind = type(texts).__name__
            raise ValueError(f"ids are for a list of texts; this {kind} has ids of its own")
        if isinstance(texts, RetrievalSet):
            names, documents = list(texts.document_ids), list(texts.documents)
        else:
            names = checked_texts(list(texts), "ids")
            documents = [_text_of(row, f"the document {name!r}") for name, row in texts.items()]
            more = [_rest(row, ("text", "title")) for row in texts.values()]
    elif isinstance(texts, list) and texts and all(isinstance(one, Document) for one in texts):
        names, documents = [one.id for one in texts], [one.text for one in texts]
        more = [one.metadata for one in texts]
    elif (table := _table(texts)) is not None:
        names, documents, more = _of_table(*table, columns, following)
        names = names if ids is None else checked_texts(ids, "ids")
    else:
        if isinstance(texts, str | Path):
            raise TypeError(
                f"texts must be a list of strings; {str(texts)[:60]!r} was given: put it in a "
                "list, or read a folder or file by cde.Index.from_folder"
            )
        documents = checked_texts(texts)
        free = range(following, following + len(documents))
        names = list(map(str, free)) if ids is None else checked_texts(ids, "ids")
    names, documents = encodable(names, "ids"), encodable(documents, "texts")
    if len(names) != len(documents):
        raise ValueError(f"{len(names)} ids for {len(documents)} texts: give each text one id")
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ValueError(
            f"ids must be distinct; {len(twice)} occur more than once, such as {_some(twice)}"
        )
    taken = set(before)
    there = [name for name in names if name in taken]
    if there:
        raise ValueError(
            f"{len(there)} of the ids are in the index already, such as {_some(there)}: remove "
            "them first to replace their texts, or give other ids"
        )
    parts = zip(names, documents, more or [{}] * len(names), strict=True)
    return [Document(*some) for some in parts]


def _rest(row: Any, read: Iterable[str]) -> dict[str, Any]:
    """What else a document's row says: its metadata, as far as JSON can hold it."""
    if not isinstance(row, Mapping):
        return {}
    plain = (str, int, float, bool, list, dict)
    return {str(k): v for k, v in row.items() if k not in read and isinstance(v, plain) and v == v}


def judged_set(
    texts: Mapping[str, str],
    queries: Mapping[str, str],
    qrels: Mapping[str, Mapping[str, int]] | None,
    name: str,
) -> RetrievalSet:
    """A corpus with queries, those without a judgement left out where there are judgements."""
    judged = {query: dict(grades) for query, grades in read_judgements(qrels or {}).items()}
    stray = [f"the query {query}" for query in judged if query not in queries]
    for query, grades in judged.items():
        stray += [f"the document {one} of {query}" for one in grades if one not in texts]
    if stray:
        raise ValueError(
            f"{len(stray)} judgements are of what is not there: {_some(stray, '; ')}. Leave them "
            "out of the qrels, or add what is missing"
        )
    asked = [query for query in queries if qrels is None or judged.get(query)]
    wanted = [queries[query] for query in asked]
    return RetrievalSet(list(texts), list(texts.values()), asked, wanted, judged, name=name)


def _table(texts: Any) -> tuple[Iterable[Any], Mapping[str, Sequence[Any]]] | None:
    """Numbers or names of a table's rows, and its columns; None for what is not a table."""
    if isinstance(texts, list) and texts and all(isinstance(row, Mapping) for row in texts):
        fields = dict.fromkeys(name for row in texts for name in row)  # records
        return range(len(texts)), {str(one): [row.get(one) for row in texts] for one in fields}
    if type(texts).__module__.startswith(("polars.", "pyarrow.")) and hasattr(texts, "columns"):
        texts = texts.to_pandas()
    if isinstance(texts, pd.DataFrame):
        plain = texts.index.nlevels > 1 or texts.index.equals(pd.RangeIndex(len(texts)))
        names = range(len(texts)) if plain else texts.index.tolist()
        return names, {str(name): texts[name].tolist() for name in texts.columns}
    if _is_of_datasets(texts):
        if isinstance(texts, Mapping):
            raise TypeError(
                f"{type(texts).__name__} holds several data sets: take one, such as "
                f"texts[{next(iter(texts), 'train')!r}]"
            )
        if not hasattr(texts, "__len__"):
            raise TypeError(
                f"{type(texts).__name__} is a stream, without a length: read it into a list, or "
                "load the data set without streaming"
            )
        return range(len(texts)), {name: texts[name][:] for name in texts.column_names}
    return None


def _is_of_datasets(texts: Any) -> bool:
    # the library is not imported to ask
    return type(texts).__module__.startswith("datasets.") and hasattr(texts, "column_names")


def _of_table(
    names: Iterable[Any],
    table: Mapping[str, Sequence[Any]],
    columns: Mapping[str, str] | None,
    following: int,
) -> tuple[list[str], list[str], list[Mapping[str, Any]]]:
    """Ids, texts and metadata of a table's rows."""
    chosen = Columns.chosen(columns)
    if problem := chosen.missing(table):
        raise ValueError(f"the table has {problem}")
    numbered = isinstance(names, range)
    ids: list[str] = []
    documents: list[str] = []
    more: list[Mapping[str, Any]] = []
    for place, *values in zip(names, *table.values(), strict=True):
        row = dict(zip(table, values, strict=True))
        identifier, text = chosen.of(row)
        if text is None:
            raise TypeError(
                f'row {place} has no string in "{chosen.text}": leave such rows out, as by '
                f"frame.dropna(subset=[{chosen.text!r}])"
            )
        ids.append(identifier or str(place + following if numbered else place))
        documents.append(text)
        more.append(_rest(row, chosen.read))
    return ids, documents, more


def _text_of(row: Any, what: str) -> str:
    """A text, with the title, where there is one, before it."""
    text = row.get("text") if isinstance(row, Mapping) else row
    if not isinstance(text, str):
        raise TypeError(
            f"{what} must be a string, or a mapping with the string 'text'; it is of type "
            f"{type(row).__name__}"
        )
    title = row.get("title") if isinstance(row, Mapping) else None
    if not isinstance(title, str | None):
        raise TypeError(f"the title of {what} must be a string or None; it is {shown(title)}")
    return f"{title} {text}".strip() if title else text


def _some(names: list[str], between: str = ", ", most: int = 3) -> str:
    return between.join(names[:most]) + (between + "…" if len(names) > most else "")


#: bytes that a document may have
LARGEST = 10_000_000

_TABLES = (".jsonl", ".jsonl.gz", ".ndjson", ".csv", ".tsv", ".parquet")
_SUFFIXES = (".txt", ".md", ".markdown", ".rst", *_TABLES)
_ACCEPTED = f"{', '.join(_SUFFIXES[:-1])} or {_SUFFIXES[-1]}"
_MARK = b"\xef\xbb\xbf"  # a byte order mark, as editors on Windows write it, is no part of the text


class LeftOut(NamedTuple):
    """A file or a row that is not read, and why."""

    place: str
    reason: str

    def __str__(self) -> str:
        return f"{self.place} ({self.reason})"


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
        given = dict(columns or {})
        if strange := set(given) - {"text", "title", "id"}:
            raise ValueError(f"columns: {unknown(strange, ('text', 'title', 'id'), 'part')}")
        return cls(**given)

    @property
    def ids(self) -> tuple[str, ...]:
        """Columns that may name the document, the first that is there does; "" for none."""
        return ("id", "_id") if self.id is None else (self.id,) if self.id else ()

    @property
    def read(self) -> tuple[str, ...]:
        """Columns that are no metadata."""
        return (self.text, self.title, *self.ids)

    def missing(self, found: Any) -> str:
        """Why a table with these columns cannot be read; "" if it can."""
        names = [str(name) for name in found]
        for chosen in (self.text, self.id):
            if chosen and chosen not in names:
                part = "text" if chosen == self.text else "id"
                shown = ", ".join(name[:40] for name in names[:12]) or "none"
                return (
                    f'no column "{chosen}"; it has {shown}: name one by columns={{"{part}": …}}, '
                    f"on the shell by --{part}-column"
                )
        return ""

    def of(self, row: Mapping[str, Any]) -> tuple[str, str | None]:
        """Id ("" for none) and text of a row, the title before it; None for a text that is none."""
        text, title = row.get(self.text), row.get(self.title)
        if text is None or not isinstance(text, str):
            return "", None
        titled = f"{title} {text}" if isinstance(title, str) and title else text
        given = next((row[name] for name in self.ids if row.get(name) is not None), "")
        return _exact(given), titled.strip()


def _exact(given: Any) -> str:
    """An id as text, to its last digit."""
    if isinstance(given, str | UUID | date) or (
        isinstance(given, Integral) and not isinstance(given, bool)
    ):
        return str(given)
    if isinstance(given, Real) and not isinstance(given, bool):
        if given != given:
            return ""
        # pandas has floats where a whole number is missing; above 2^53 they skip numbers
        if float(given).is_integer() and abs(float(given)) < 2**53:
            return str(int(float(given)))
    raise ValueError(
        f"the id {shown(given)} is of type {type(given).__name__}: ids are strings, whole numbers, "
        "UUIDs or dates (a float cannot hold all of them: read the column as text)"
    )


@dataclass(frozen=True)
class _Reading:
    """How files are read: which columns, and how large a document may be."""

    columns: Columns
    largest: int

    def too_large(self, size: int) -> str:
        if size <= self.largest:
            return ""
        return f"{size:,} bytes, above the limit of {self.largest:,}"


@dataclass(frozen=True)
class Source:
    """Where documents are read from, and how: what `sync` reads again.

    Attributes:
        path: a folder or file; None for documents that came from Python.
        columns: of tables: the text's, the title's and the id's.
        largest: bytes that a document may have.
        apart: a folder that is not read though it lies within, that of the index.
        root: ids are paths below it; by default `path`, or the folder that the file is in.
    """

    path: Path | None
    columns: Mapping[str, str]
    largest: int = LARGEST
    apart: Path | None = None
    root: Path | None = None

    @classmethod
    def none(cls) -> Source:
        """No source."""
        return cls(None, {})

    @classmethod
    def of(
        cls,
        path: Path | str,
        columns: Mapping[str, str] | None = None,
        largest: int = LARGEST,
        apart: Path | None = None,
    ) -> Source:
        """A folder or file."""
        Columns.chosen(columns)
        largest = checked_whole(largest, "largest")
        place = Path(path).expanduser().absolute()
        return cls(place, dict(columns or {}), largest, apart and apart.absolute())

    def to_json(self) -> dict[str, Any]:
        """As a mapping that JSON can hold."""
        return {k: str(v) if isinstance(v, Path) else v for k, v in asdict(self).items()}

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> Source:
        """What `to_json` gave."""
        places = {name: saved[name] and Path(saved[name]) for name in ("path", "apart", "root")}
        return cls(columns=saved["columns"], largest=saved["largest"], **places)


def read_source(source: Source) -> tuple[list[Document], list[LeftOut]]:
    """Read the text, Markdown, JSON lines, CSV and Parquet files of a folder, or one such file.

    A text file is one document, its id the path below the folder. A row of a table is one, with its
    columns "text", "title" and "id" or "_id", as BEIR has them; without an id it is named by its
    file and a hash of its content. Of a folder in BEIR's layout, which has queries beside its
    corpus, the corpus alone is read.

    Returns:
        Documents in the order of the files' paths; and what was left out, each with its reason.
    """
    path = source.path
    assert path is not None
    reading = _Reading(Columns.chosen(source.columns), source.largest)
    if not path.exists():
        raise FileNotFoundError(f"no folder or file {path}: expected a folder of {_ACCEPTED}")
    left_out: list[LeftOut] = []
    if path.is_dir():
        files = _files(path, left_out, source.apart)
    elif path.name.lower().endswith(_SUFFIXES):
        files = [path]
    else:
        raise ValueError(f"{path} cannot be read: accepted are {_ACCEPTED}, or a folder")
    root = source.root or (path if path.is_dir() else path.parent)
    found: dict[str, Document] = {}
    places: dict[str, Path] = {}
    for file in progress(files, f"reading {len(files):,} files", unit="files"):
        relative = file.relative_to(root).as_posix()
        for some in _documents(file, relative, reading):
            if isinstance(some, LeftOut):
                left_out.append(some)
            elif some.id not in found:
                found[some.id], places[some.id] = some, file
            elif some == found[some.id] and places[some.id] == file:
                left_out.append(LeftOut(relative, "a row that is there already"))
            else:
                raise ValueError(
                    f"{file}: the id {some.id!r} occurs in {places[some.id]} too; ids must be "
                    'distinct. columns={"id": ""} (--id-column "") names rows by file and content'
                )
    if not found:
        more = "; …" if len(left_out) > 3 else ""
        said = f": {'; '.join(map(str, left_out[:3]))}{more}" if left_out else ": it is empty"
        raise ValueError(f"{path} holds no document that can be read ({_ACCEPTED}){said}")
    return list(found.values()), left_out


def counted(left_out: Sequence[LeftOut]) -> str:
    """What was not read, counted by reason."""
    counts = Counter(one.reason for one in left_out)
    return ", ".join(f"{count:,} × {reason}" for reason, count in counts.most_common(8))


def left_out_of(path: Any, read: int, left_out: Sequence[LeftOut], most: int = 20) -> str:
    """What was read and what was not, as a message."""
    more = f"; and {len(left_out) - most:,} more" if len(left_out) > most else ""
    return (
        f"{path}: {read:,} documents were read, {len(left_out):,} left out "
        f"({counted(left_out)}): {'; '.join(map(str, left_out[:most]))}{more}"
    )


def _files(folder: Path, left_out: list[LeftOut], apart: Path | None) -> list[Path]:
    for corpus in (folder / "corpus.jsonl", folder / "corpus.jsonl.gz"):
        if corpus.is_file() and any(folder.glob("queries.jsonl*")):
            return [corpus]

    def told(path: str | Path, reason: str) -> None:
        place = os.path.relpath(path, folder).encode("utf-8", "replace").decode()
        left_out.append(LeftOut(place, reason))

    def unreadable(error: OSError) -> None:
        told(str(error.filename), f"cannot be read: {error.strerror}")

    found = []
    inside = folder.resolve()
    for place, folders, names in os.walk(folder, onerror=unreadable):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in list(folders):
            below = Path(place, name)
            if below.is_symlink():
                told(below, "a link to a folder")
            elif below == apart or any(below.glob("rows-*.lance")):
                told(below, "an index")
                folders.remove(name)
        for name in names:
            file = Path(place, name)
            if name.startswith("."):
                continue
            if half_of_a_pair(str(file)) is not None:
                told(file, "its name is not UTF-8")
            elif not name.lower().endswith(_SUFFIXES):
                told(file, f"files of kind {file.suffix or 'none'} are not read")
            elif file.is_symlink() and not file.resolve().is_relative_to(inside):
                told(file, "a link out of the folder")
            else:
                found.append(file)
    return sorted(found, key=lambda file: file.relative_to(folder).as_posix())


def _documents(file: Path, relative: str, reading: _Reading) -> _Found:
    """The documents of a file, and what of it is left out."""
    name = file.name.lower()
    kinds: dict[str, Callable[[Path, str, _Reading], _Found]] = {
        ".csv": _separated_rows,
        ".tsv": _separated_rows,
        ".parquet": _parquet_rows,
    }
    read = kinds.get(Path(name).suffix, _one_text)
    if name.endswith((".jsonl", ".jsonl.gz", ".ndjson")):
        read = _json_rows
    found = 0
    try:
        if file.exists() and not file.is_file():  # a pipe would be waited for
            yield LeftOut(relative, "no regular file")
            return
        for one in read(file, relative, reading):
            found += 1
            yield one
    except UnicodeDecodeError as error:
        yield LeftOut(relative, f"not UTF-8 at byte {error.start}")
    except (OSError, EOFError, zlib.error) as error:
        after = f" after {found:,} rows" if found else ""
        said = getattr(error, "strerror", None) or error
        yield LeftOut(relative, f"cannot be read{after}: {said}")
    else:
        if not found:
            yield LeftOut(relative, "empty")


def _one_text(file: Path, relative: str, reading: _Reading) -> _Found:
    problem = reading.too_large(file.stat().st_size)
    text = "" if problem else file.read_bytes().removeprefix(_MARK).decode("utf-8").strip()
    yield Document(relative, text, {}) if text else LeftOut(relative, problem or "empty")


def _of_row(row: Mapping[str, Any], place: str, reading: _Reading) -> Document | LeftOut:
    try:
        name, text = reading.columns.of(row)
    except ValueError as error:
        return LeftOut(place, str(error))
    if text is None:
        empty = row.get(reading.columns.text) is None
        return LeftOut(place, "empty" if empty else f'no string in "{reading.columns.text}"')
    # JSON may escape half of a surrogate pair: a string to Python, and to no encoder
    if any(half_of_a_pair(one) is not None for one in (name, text)):
        return LeftOut(place, "half of a surrogate pair, which is no text")
    if isinstance(row.get(reading.columns.title), list | dict):
        return LeftOut(place, f'no string in "{reading.columns.title}"')
    if problem := reading.too_large(len(text.encode())) if text else "empty":
        return LeftOut(place, problem)
    name = name or f"{place.rpartition(':')[0]}#{content_hash([text], 12)}"
    return Document(name, text, _rest(row, reading.columns.read))


def _json_rows(file: Path, relative: str, reading: _Reading) -> _Found:
    wanted = f'expected a JSON object with the string field "{reading.columns.text}"'
    for number, line in enumerate(_lines(file, 8 * reading.largest), start=1):
        place = f"{relative}:{number}"
        if line is None:
            yield LeftOut(place, f"a line above {8 * reading.largest:,} bytes")
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
        if not isinstance(row, dict) or not isinstance(row.get(reading.columns.text), str):
            names = ", ".join(name[:40] for name in list(row)[:12]) if isinstance(row, dict) else ""
            yield LeftOut(place, f"{wanted}{names and f'; it has {names}'}")
        else:
            yield _of_row(row, place, reading)


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


def _separated_rows(file: Path, relative: str, reading: _Reading) -> _Found:
    before = csv.field_size_limit(2 * reading.largest)  # of the whole process
    try:
        # what is not UTF-8 costs its own row alone
        with file.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as lines:
            yield from _rows_of(lines, relative, reading)
    finally:
        csv.field_size_limit(before)


def _rows_of(lines: Any, relative: str, reading: _Reading) -> _Found:
    head = lines.readline(reading.largest)
    # a quote that is never closed swallows all rows below it: strictly read, that is told
    how: dict[str, Any] = {"delimiter": "\t", "strict": True}
    if not relative.lower().endswith(".tsv"):
        # spreadsheets separate by what their language leaves free
        how = {"delimiter": max(",;\t", key=head.count)}
    header = next(csv.reader([head], **how), [])
    if not header:
        return
    if problem := reading.columns.missing(header):
        yield LeftOut(relative, problem)
        return
    rows = csv.reader(lines, **how)
    while True:
        place = f"{relative}:{rows.line_num + 2}"
        try:
            row = next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            yield LeftOut(place, f"no row: {error}")
            continue
        if row and len(row) != len(header):
            yield LeftOut(place, f"{len(row)} columns, expected {len(header)}")
        elif any(not field.isascii() and not _is_decoded(field) for field in row):
            yield LeftOut(place, "not UTF-8")
        elif row:
            yield _of_row(dict(zip(header, row, strict=True)), place, reading)


def _is_decoded(text: str) -> bool:
    """Whether all bytes were UTF-8; Python keeps others as halves of surrogates."""
    return not any("\udc80" <= letter <= "\udcff" for letter in text)


def _parquet_rows(file: Path, relative: str, reading: _Reading) -> _Found:
    # imported here: most corpora have no such file
    import pyarrow
    from pyarrow import parquet

    number = 0
    try:
        names = parquet.read_schema(file).names
        # equal texts stay one, row after row: thousands of large ones may take a few bytes of file
        with parquet.ParquetFile(file, read_dictionary=names) as table:
            if problem := reading.columns.missing(names):
                yield LeftOut(relative, problem)
                return
            for batch in table.iter_batches(batch_size=256):
                for place in range(batch.num_rows):
                    number += 1
                    row = {name: batch[name][place].as_py() for name in names}
                    yield _of_row(row, f"{relative}:{number}", reading)
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        after = f" after {number:,} rows" if number else ""
        yield LeftOut(relative, f"cannot be read{after}: {str(error).splitlines()[0][:120]}")

"""Documents from files: text, Markdown, JSON lines, CSV and Parquet, one of them or a folder.

A folder may mix them. It is read in the order of its files' paths, so that two readings give the
same corpus. What cannot be read is left out and listed, not fatal: a corpus of one's own has such
files. That are empty documents, bytes that are not UTF-8, rows without a text, files that may not
be opened, and documents above a limit (`LARGEST`), which are mostly no documents: an encoder reads
a few hundred tokens of each.

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
from dataclasses import dataclass
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import pandas as pd

from cde.data import RetrievalSet
from cde.progress import progress
from cde.validation import checked_texts, checked_whole, encodable, half_of_a_pair, shown, unknown

__all__ = ["LARGEST", "Columns", "judged_set", "left_out_of", "named_texts", "read_texts"]


def named_texts(
    texts: Any,
    ids: Iterable[str] | None = None,
    columns: Mapping[str, str] | None = None,
    before: Sequence[str] = (),
) -> tuple[list[str], list[str]]:
    """Ids and texts of documents, in whatever form they came."""
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
    elif (table := _table(texts)) is not None:
        names, documents = _of_table(*table, columns, following)
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
    return names, documents


def judged_set(
    ids: Sequence[str],
    texts: Sequence[str],
    queries: Mapping[str, str],
    qrels: Mapping[str, Mapping[str, int]] | None,
    name: str,
) -> RetrievalSet:
    """A corpus with queries, those without a judgement left out where there are judgements."""
    judged = {query: dict(grades) for query, grades in (qrels or {}).items()}
    there = set(ids)
    stray = [f"the query {query}" for query in judged if query not in queries]
    for query, grades in judged.items():
        stray += [f"the document {one} of {query}" for one in grades if one not in there]
    if stray:
        raise ValueError(
            f"{len(stray)} judgements are of what is not there: {_some(stray, '; ')}. Leave them "
            "out of the qrels, or add what is missing"
        )
    asked = [query for query in queries if qrels is None or judged.get(query)]
    return RetrievalSet(ids, texts, asked, [queries[query] for query in asked], judged, name=name)


def _table(texts: Any) -> tuple[Iterable[Any], Mapping[str, Sequence[Any]]] | None:
    """Numbers or names of a table's rows, and its columns; None for what is no table."""
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
) -> tuple[list[str], list[str]]:
    """Ids and texts of a table's rows."""
    chosen = Columns.chosen(columns)
    if problem := chosen.missing(table):
        raise ValueError(f"the table has {problem}")
    wanted = [name for name in (chosen.text, chosen.title, *chosen.ids) if name in table]
    numbered = isinstance(names, range)
    ids, documents = [], []
    for place, *values in zip(names, *(table[name] for name in wanted), strict=True):
        identifier, text = chosen.of(dict(zip(wanted, values, strict=True)))
        if text is None:
            raise TypeError(
                f'row {place} has no string in "{chosen.text}": leave such rows out, as by '
                f"frame.dropna(subset=[{chosen.text!r}])"
            )
        ids.append(identifier or str(place + following if numbered else place))
        documents.append(text)
    return ids, documents


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

_TABLES = (".jsonl", ".jsonl.gz", ".csv", ".tsv", ".parquet")
_SUFFIXES = (".txt", ".md", *_TABLES)
_ACCEPTED = f"{', '.join(_SUFFIXES[:-1])} or {_SUFFIXES[-1]}"
_MARK = b"\xef\xbb\xbf"  # a byte order mark, as editors on Windows write it, is no part of the text

#: place, text and, where there is no text, the reason
_Found = Iterator[tuple[str, str, str]]


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
        """Columns that may name the document, the first that is there does."""
        return ("id", "_id") if self.id is None else (self.id,)

    def missing(self, found: Any) -> str:
        """Why a table with these columns cannot be read; "" if it can."""
        names = [str(name) for name in found]
        for chosen in (self.text, self.id):
            if chosen is not None and chosen not in names:
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
        if isinstance(given, Real) and float(given).is_integer() and not isinstance(given, bool):
            given = int(float(given))  # pandas has floats where a whole number is missing
        whole = isinstance(given, str | Integral) and not isinstance(given, bool)
        return str(given) if whole else "", titled.strip()


@dataclass(frozen=True)
class _Reading:
    """How files are read: which columns, and how large a document may be."""

    columns: Columns
    largest: int

    def too_large(self, size: int) -> str:
        if size <= self.largest:
            return ""
        return f"{size:,} bytes, above the limit of {self.largest:,}"


def read_texts(
    path: Path | str, columns: Mapping[str, str] | None = None, largest: int = LARGEST
) -> tuple[dict[str, str], list[str]]:
    """Read the text, Markdown, JSON lines, CSV and Parquet files of a folder, or one such file.

    A `.txt` or `.md` is one document, its id the path below the folder. A row of a `.jsonl[.gz]`,
    `.csv`, `.tsv` or `.parquet` is one, with its columns "text", "title" and "id" or "_id", as BEIR
    has them; without an id, it is named `<path>:<line>`. Hidden files and folders are passed over.
    Of a folder in BEIR's layout, which has queries beside its corpus, the corpus alone is read.

    Returns:
        Texts by id, in the order of the files' paths; and what was left out, each with its reason.
    """
    path = Path(path).expanduser()
    reading = _Reading(Columns.chosen(columns), checked_whole(largest, "largest"))
    if not path.exists():
        raise FileNotFoundError(f"no folder or file {path}: expected a folder of {_ACCEPTED}")
    left_out: list[str] = []
    if path.is_dir():
        files = _files(path, left_out)
    elif path.name.lower().endswith(_SUFFIXES):
        files = [path]
    else:
        raise ValueError(f"{path} cannot be read: accepted are {_ACCEPTED}, or a folder")
    root = path if path.is_dir() else path.parent
    texts: dict[str, str] = {}
    for file in progress(files, f"reading {len(files):,} files", unit="files"):
        relative = file.relative_to(root).as_posix()
        for name, text, problem in _documents(file, relative, reading):
            if problem:
                left_out.append(f"{name} ({problem})")
            elif name in texts:
                raise ValueError(
                    f"{file}: the id {name!r} occurs more than once in {path}; ids must be distinct"
                )
            else:
                texts[name] = text
    if not texts:
        more = "; …" if len(left_out) > 3 else ""
        said = f": {'; '.join(left_out[:3])}{more}" if left_out else f": it has no {_ACCEPTED}"
        raise ValueError(f"{path} holds no document that can be read{said}")
    return texts, left_out


def left_out_of(path: Path | str, read: int, left_out: Sequence[str], most: int = 20) -> str:
    """What was read and what was not, as a message."""
    more = f"; and {len(left_out) - most:,} more" if len(left_out) > most else ""
    listed = "; ".join(left_out[:most])
    return f"{path}: {read:,} documents were read, {len(left_out):,} left out: {listed}{more}"


def _files(folder: Path, left_out: list[str]) -> list[Path]:
    for corpus in (folder / "corpus.jsonl", folder / "corpus.jsonl.gz"):
        if corpus.is_file() and any(folder.glob("queries.jsonl*")):
            return [corpus]

    def unreadable(error: OSError) -> None:
        place = Path(str(error.filename)).relative_to(folder).as_posix()
        left_out.append(f"{place} (cannot be read: {error.strerror})")

    found = []
    for place, folders, names in os.walk(folder, onerror=unreadable):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [
            Path(place, name)
            for name in names
            if name.lower().endswith(_SUFFIXES) and not name.startswith(".")
        ]
    return sorted(found, key=lambda file: file.relative_to(folder).as_posix())


def _documents(file: Path, relative: str, reading: _Reading) -> _Found:
    """Name, text and, where there is no text, the reason of each document of a file."""
    name = file.name.lower()
    kinds: dict[str, Callable[[Path, str, _Reading], _Found]] = {
        ".csv": _separated_rows,
        ".tsv": _separated_rows,
        ".parquet": _parquet_rows,
    }
    read = kinds.get(Path(name).suffix, _one_text)
    if name.endswith((".jsonl", ".jsonl.gz")):
        read = _json_rows
    found = 0
    try:
        if file.exists() and not file.is_file():  # a pipe would be waited for
            yield relative, "", "no regular file"
            return
        for one in read(file, relative, reading):
            found += 1
            yield one
    except UnicodeDecodeError as error:
        yield relative, "", f"not UTF-8 at byte {error.start}"
    except (OSError, EOFError, zlib.error) as error:
        after = f" after {found:,} rows" if found else ""
        yield relative, "", f"cannot be read{after}: {getattr(error, 'strerror', None) or error}"
    else:
        if not found:
            yield relative, "", "empty"


def _one_text(file: Path, relative: str, reading: _Reading) -> _Found:
    problem = reading.too_large(file.stat().st_size)
    text = "" if problem else file.read_bytes().removeprefix(_MARK).decode("utf-8").strip()
    yield relative, text, "" if text else problem or "empty"


def _of_row(row: Mapping[str, Any], place: str, reading: _Reading) -> tuple[str, str, str]:
    name, text = reading.columns.of(row)
    if text is None:
        empty = row.get(reading.columns.text) is None
        return place, "", "empty" if empty else f'no string in "{reading.columns.text}"'
    # JSON may escape half of a surrogate pair: a string to Python, and to no encoder
    if any(half_of_a_pair(one) is not None for one in (name, text)):
        return place, "", "half of a surrogate pair, which is no text"
    if isinstance(row.get(reading.columns.title), list | dict):
        return place, "", f'no string in "{reading.columns.title}"'
    problem = reading.too_large(len(text.encode())) if text else "empty"
    return (place, "", problem) if problem else (name or place, text, "")


def _json_rows(file: Path, relative: str, reading: _Reading) -> _Found:
    wanted = f'expected a JSON object with the string field "{reading.columns.text}"'
    for number, line in enumerate(_lines(file, 8 * reading.largest), start=1):
        place = f"{relative}:{number}"
        if line is None:
            yield place, "", f"a line above {8 * reading.largest:,} bytes"
            continue
        data = line.removeprefix(_MARK) if number == 1 else line
        if not data.strip():
            continue
        try:
            row = json.loads(data.decode("utf-8"))
        except UnicodeDecodeError as error:
            yield place, "", f"not UTF-8 at byte {error.start} of the line"
            continue
        except (ValueError, RecursionError):
            row = None
        if not isinstance(row, dict) or not isinstance(row.get(reading.columns.text), str):
            names = ", ".join(name[:40] for name in list(row)[:12]) if isinstance(row, dict) else ""
            yield place, "", f"{wanted}{names and f'; it has {names}'}"
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
        yield relative, "", problem
        return
    rows = csv.reader(lines, **how)
    while True:
        place = f"{relative}:{rows.line_num + 2}"
        try:
            row = next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            yield place, "", f"no row: {error}"
            continue
        if row and len(row) != len(header):
            yield place, "", f"{len(row)} columns, expected {len(header)}"
        elif any(not field.isascii() and not _is_decoded(field) for field in row):
            yield place, "", "not UTF-8"
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
        with parquet.ParquetFile(file) as table:
            names = table.schema_arrow.names
            if problem := reading.columns.missing(names):
                yield relative, "", problem
                return
            columns = reading.columns
            wanted = [one for one in (columns.text, columns.title, *columns.ids) if one in names]
            for batch in table.iter_batches(batch_size=256, columns=wanted):
                for row in batch.to_pylist():
                    number += 1
                    yield _of_row(row, f"{relative}:{number}", reading)
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        after = f" after {number:,} rows" if number else ""
        yield relative, "", f"cannot be read{after}: {str(error).splitlines()[0][:120]}"

"""Documents from what a user has: lists, mappings, retrieval sets, and folders of files.

A folder is read in the order of its files' paths, so that two readings give the same corpus. What
cannot be read is left out and listed, not fatal: a corpus of one's own has such files.

Cost: one pass over the files; all texts are held in memory.
"""

from __future__ import annotations

import gzip
import json
import os
import zlib
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cde.data import RetrievalSet
from cde.validation import checked_texts

__all__ = ["judged_set", "named_texts", "read_texts"]

_SUFFIXES = (".txt", ".md", ".jsonl", ".jsonl.gz")
_ACCEPTED = ".txt, .md, .jsonl or .jsonl.gz"


def named_texts(
    texts: Any, ids: Iterable[str] | None = None, taken: Container[str] = (), following: int = 0
) -> tuple[list[str], list[str]]:
    """Ids and texts of documents, in whatever form they came.

    Args:
        texts: strings; or a mapping of id → text or of id → {"title"?, "text"}, as BEIR has it; or
            a `RetrievalSet`, whose corpus is taken.
        ids: ids of the strings; by default whole numbers from `following` on.
        taken: ids that other documents have.
        following: the first number that is free.

    Raises:
        TypeError: one string, a set, or an id or text that is no string.
        ValueError: as many ids as texts were not given, ids beside a mapping, or an id twice.

    Example:
        >>> named_texts({"a": {"title": "Boats", "text": "are red."}})
        (['a'], ['Boats are red.'])
    """
    if isinstance(texts, RetrievalSet | Mapping):
        if ids is not None:
            kind = type(texts).__name__
            raise ValueError(f"ids are for a list of texts; this {kind} has ids of its own")
        if isinstance(texts, RetrievalSet):
            names, documents = list(texts.document_ids), list(texts.documents)
        else:
            names = checked_texts(list(texts), "ids")
            documents = [_text_of(row, f"the document {name!r}") for name, row in texts.items()]
    else:
        if isinstance(texts, str | Path):
            raise TypeError(
                f"texts must be a list of strings; {str(texts)[:60]!r} was given: put it in a "
                "list, or read a folder or file by cde.Index.from_folder"
            )
        documents = checked_texts(texts)
        numbers = range(following, following + len(documents))
        names = list(map(str, numbers)) if ids is None else checked_texts(ids, "ids")
    if len(names) != len(documents):
        raise ValueError(f"{len(names)} ids for {len(documents)} texts: give each text one id")
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ValueError(
            f"ids must be distinct; {len(twice)} occur more than once, such as {_some(twice)}"
        )
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
    """A corpus with queries, those without a judgement left out where there are judgements.

    Raises:
        ValueError: judgements of queries or documents that are not there.

    Example:
        >>> judged_set(["a"], ["red boats"], {"q": "ships"}, {"q": {"a": 1}}, "boats")
        RetrievalSet(name='boats', 1 documents, 1 queries, 1 judgements)
    """
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


def read_texts(path: Path | str) -> tuple[dict[str, str], list[str]]:
    """Read a folder's `.txt`, `.md` and `.jsonl[.gz]` files, or one such file.

    A `.txt` or `.md` is one document, its id the path below the folder. A line of a `.jsonl` is one
    document, `{"id"?, "text"}` or BEIR's `{"_id", "title"?, "text"}`; without an id, it is named
    `<path>:<line>`. Hidden files and folders are passed over. Of a folder in BEIR's layout, which
    has queries beside its corpus, the corpus alone is read.

    Args:
        path: the folder or the file. Files are UTF-8; white space at both ends is dropped.

    Returns:
        Texts by id, in the order of the files' paths; and what was left out, each with its reason.

    Raises:
        FileNotFoundError: no such folder or file.
        ValueError: a file of another kind, nothing to read, or an id that occurs twice.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> _ = (folder / "boats.txt").write_text("Boats are red.\\n")
        >>> _ = (folder / "empty.md").write_text("")
        >>> read_texts(folder)
        ({'boats.txt': 'Boats are red.'}, ['empty.md (empty)'])
    """
    path = Path(path).expanduser()
    if not path.exists():
        raise FileNotFoundError(f"no folder or file {path}: expected a folder of {_ACCEPTED}")
    if path.is_file():
        if not path.name.lower().endswith(_SUFFIXES):
            raise ValueError(f"{path} cannot be read: accepted are {_ACCEPTED}, or a folder")
        files = [path]
    else:
        files = _files(path)
    root = path.parent if path.is_file() else path
    texts: dict[str, str] = {}
    left_out: list[str] = []
    for file in files:
        relative = file.relative_to(root).as_posix()
        for name, text, problem in _documents(file, relative):
            if problem:
                left_out.append(f"{name} ({problem})")
            elif name in texts:
                raise ValueError(
                    f"{file}: the id {name!r} occurs more than once in {path}; ids must be distinct"
                )
            else:
                texts[name] = text
    if not texts:
        said = f": {_some(left_out, '; ')}" if left_out else f": it has no {_ACCEPTED}"
        raise ValueError(f"{path} holds no document that can be read{said}")
    return texts, left_out


def _files(folder: Path) -> list[Path]:
    for corpus in (folder / "corpus.jsonl", folder / "corpus.jsonl.gz"):
        if corpus.is_file() and any(folder.glob("queries.jsonl*")):
            return [corpus]
    found = []
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [
            Path(place, name)
            for name in names
            if name.lower().endswith(_SUFFIXES) and not name.startswith(".")
        ]
    return sorted(found, key=lambda file: file.relative_to(folder).as_posix())


def _documents(file: Path, relative: str) -> Iterator[tuple[str, str, str]]:
    """Name, text and, where there is no text, the reason of each document of a file."""
    try:
        data = file.read_bytes()
        # a byte order mark, as editors on Windows write it, is no part of the text
        text = (gzip.decompress(data) if file.suffix == ".gz" else data).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        yield relative, "", f"not UTF-8 at byte {error.start}"
    except (OSError, EOFError, zlib.error) as error:
        yield relative, "", f"cannot be read: {error}"
    else:
        if not text.strip():
            yield relative, "", "empty"
        elif file.name.lower().endswith((".jsonl", ".jsonl.gz")):
            yield from _rows(text, relative)
        else:
            yield relative, text.strip(), ""


def _rows(text: str, relative: str) -> Iterator[tuple[str, str, str]]:
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        place = f"{relative}:{number}"
        try:
            row = json.loads(line)
            said = _text_of(row, "").strip() if isinstance(row, dict) else None
        except (ValueError, TypeError):
            said = None
        if said is None:
            yield place, "", 'expected a JSON object with the string field "text"'
            continue
        given = row.get("id", row.get("_id"))
        name = str(given) if type(given) in (str, int) and given != "" else place
        yield (name, said, "") if said else (place, "", "empty")


def _text_of(row: Any, what: str) -> str:
    """A text, with the title, where there is one, before it."""
    text = row.get("text") if isinstance(row, Mapping) else row
    if not isinstance(text, str):
        raise TypeError(
            f"{what} must be a string, or a mapping with the string 'text'; it is of type "
            f"{type(row).__name__}"
        )
    title = row.get("title") if isinstance(row, Mapping) else None
    return f"{title} {text}".strip() if isinstance(title, str) and title else text


def _some(names: list[str], between: str = ", ", most: int = 3) -> str:
    return between.join(names[:most]) + (between + "…" if len(names) > most else "")

"""Collections of one's own: in folders, and on the Hugging Face Hub.

Retrieval sets in a folder have BEIR's layout:

- `corpus.jsonl[.gz]`: {"_id", "title"?, "text"};
- `queries.jsonl[.gz]`: {"_id", "text"};
- `qrels/<split>.tsv`: query-id, corpus-id, score, with a header line;
- optionally `qrels/exclude.tsv` (or `exclude.tsv`): query-document pairs to drop from rankings
  before scoring.

Pairs: a `.jsonl[.gz]` file, or a folder of them, one {"query", "document", "domain"?} per line;
without a domain, the file's name is the domain. Every error names the file, the line and what was
expected there.

On the Hub, which `datasets` reads, retrieval sets have mteb's layout: configurations `corpus`,
`queries`, and `default` or `qrels`. Pairs are two text columns, found by their names.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import socket
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from cde.data.sets import Pairs, RetrievalSet, checked_grade
from cde.validation import checked_switch, half_of_a_pair, shown


def _stem(path: Path) -> str:
    return path.name.removesuffix(".gz").removesuffix(".jsonl")


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    if not path.is_file():  # a pipe would be waited for
        raise FileNotFoundError(f"{path} is not a regular file")
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rt", encoding="utf-8") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield number, line
    except (gzip.BadGzipFile, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise ValueError(
            f"{path}: cannot be read as {'gzipped ' * (path.suffix == '.gz')}UTF-8: {error}"
        ) from error


def _json_lines(path: Path, required: tuple[str, ...]) -> Iterator[tuple[int, dict[str, Any]]]:
    expected = "a JSON object with the string fields " + ", ".join(f'"{name}"' for name in required)
    for number, line in _lines(path):
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise ValueError(
                f"{path}, line {number}: not JSON ({error.msg} at character {error.pos}); "
                f"expected {expected}"
            ) from error
        except (ValueError, RecursionError) as error:  # a number too long, brackets too deep
            raise ValueError(
                f"{path}, line {number}: JSON that cannot be read ({error}); expected {expected}"
            ) from error
        if not isinstance(row, dict) or not all(
            isinstance(row.get(name), str) for name in required
        ):
            raise ValueError(f"{path}, line {number}: expected {expected}, got {line.strip()[:80]}")
        for name, value in row.items():
            if isinstance(value, str) and (place := half_of_a_pair(value)) is not None:
                raise ValueError(
                    f'{path}, line {number}: "{name}" has half of a surrogate pair, '
                    f"{value[place]!r}, at character {place}, which is no text: leave it out"
                )
        yield number, row


def _optional(path: Path, number: int, row: dict[str, Any], name: str) -> str:
    """A field that may be missing, null or empty, and else is text; a whole number is read as
    text.
    """
    value = row.get(name)
    if value is None or value == "":
        return ""
    if not isinstance(value, str | int) or isinstance(value, bool):
        raise ValueError(
            f'{path}, line {number}: "{name}" must be a string or null; it is {str(value)[:80]!r}'
        )
    return str(value)


def _name(path: Path, number: int, text: str) -> str:
    """An id, as trec_eval can hold it: C ends a name at NUL."""
    if "\0" in text:
        raise ValueError(f"{path}, line {number}: an id must not hold NUL; it is {shown(text)}")
    return text


def _find(folder: Path, stem: str) -> Path:
    for candidate in (folder / f"{stem}.jsonl", folder / f"{stem}.jsonl.gz"):
        if candidate.exists():
            return candidate
    held = ", ".join(sorted(p.name for p in folder.iterdir())[:8]) or "nothing"
    raise FileNotFoundError(
        f"{folder} has no {stem}.jsonl or {stem}.jsonl.gz; a BEIR folder needs one. It has {held}"
    )


def _tab_separated(path: Path, columns: int) -> Iterator[tuple[int, list[str]]]:
    for number, line in _lines(path):
        row = line.rstrip("\r\n").split("\t")
        if number == 1 and row[0] in ("query-id", "query_id", "qid"):
            continue
        if len(row) < columns:
            raise ValueError(
                f"{path}, line {number}: expected {columns} columns separated by tabs, got "
                f"{line.strip()[:80]!r}"
            )
        yield number, row


def _by_id(path: Path) -> dict[str, str]:
    """Texts by id, with the title, where there is one, before the text."""
    texts: dict[str, str] = {}
    for number, row in _json_lines(path, ("_id", "text")):
        name, title = _name(path, number, row["_id"]), _optional(path, number, row, "title")
        if name in texts:
            raise ValueError(
                f"{path}, line {number}: the id {shown(name)} occurs more than once; ids must be "
                "distinct"
            )
        texts[name] = f"{title} {row['text']}".strip() if title else row["text"]
    return texts


def _grade(where: str, text: str) -> int:
    # `int` alone takes 1_0, and digits of every script
    if not re.fullmatch(r"\s*[+-]?[0-9]{1,99}\s*", text, re.ASCII):
        raise ValueError(f"{where}: a relevance grade must be a whole number; got {shown(text)}")
    return checked_grade(int(text), f"{where}: a relevance grade")


def _judge(
    qrels: dict[str, dict[str, int]], query: str, document: str, grade: int, where: str
) -> None:
    if (before := qrels.setdefault(query, {}).setdefault(document, grade)) != grade:
        raise ValueError(
            f"{where}: {shown(query)} → {shown(document)} is judged {grade} here and {before} "
            "before: keep one of the two"
        )


def folder_retrieval(
    folder: Path | str, split: str = "test", drop_unknown: bool = False, name: str | None = None
) -> RetrievalSet:
    """Read a BEIR folder; only queries with a judgement in `qrels/<split>.tsv` are kept."""
    folder = Path(os.path.expanduser(folder))
    if not isinstance(split, str) or not re.fullmatch(r"[^/\\\0]{1,100}", split):
        raise ValueError(
            f"split must be the name of a file of {folder}/qrels, such as 'test'; it is "
            f"{shown(split)}"
        )
    drop_unknown = checked_switch(drop_unknown, "drop_unknown")
    if not os.path.isdir(folder):
        raise FileNotFoundError(
            f"no folder {str(folder)[:300]}: expected one in BEIR's layout (corpus, queries, qrels)"
        )
    judgements = folder / "qrels" / f"{split}.tsv"
    if not judgements.exists():
        splits = sorted(
            path.stem for path in (folder / "qrels").glob("*.tsv") if path.stem != "exclude"
        )
        raise FileNotFoundError(
            f"{folder} has no qrels/{split}.tsv; it has {', '.join(splits) or 'none'}"
        )
    corpus = _by_id(_find(folder, "corpus"))
    texts = _by_id(_find(folder, "queries"))
    qrels: dict[str, dict[str, int]] = {}
    for number, (query, document, grade, *_) in _tab_separated(judgements, 3):
        if drop_unknown and (query not in texts or document not in corpus):
            continue
        _name(judgements, number, query + document)
        where = f"{judgements}, line {number}"
        _judge(qrels, query, document, _grade(where, grade), where)
    excluded: dict[str, set[str]] = {}
    for path in (folder / "qrels" / "exclude.tsv", folder / "exclude.tsv"):
        if path.exists():
            for number, (query, document, *_rest) in _tab_separated(path, 2):
                _name(path, number, query + document)
                excluded.setdefault(query, set()).add(document)
    asked = [query for query in texts if query in qrels]
    if not corpus:
        raise ValueError(f"{folder} holds no documents: its corpus is empty")
    # queries that are judged but missing reach RetrievalSet, which reports them together
    return RetrievalSet(
        document_ids=list(corpus),
        documents=list(corpus.values()),
        query_ids=asked,
        queries=[texts[query] for query in asked],
        qrels=qrels,
        excluded={query: frozenset(documents) for query, documents in excluded.items()},
        name=name or folder.name,
    )


def folder_pairs(path: Path | str, name: str | None = None) -> Pairs:
    """Read pairs from a `.jsonl[.gz]` file, or from every such file of a folder."""
    path = Path(os.path.expanduser(path))
    if os.path.isdir(path):
        files = sorted([*path.glob("*.jsonl"), *path.glob("*.jsonl.gz")])
        if not files:
            raise FileNotFoundError(f"{path} holds no .jsonl or .jsonl.gz file of pairs")
    elif os.path.isfile(path):
        files = [path]
    else:
        raise FileNotFoundError(
            f"no file or folder {str(path)[:300]}: expected .jsonl[.gz] with query and document "
            "per line"
        )
    queries, documents, domains, ids = [], [], [], []
    for file in files:
        for count, (number, row) in enumerate(_json_lines(file, ("query", "document")), start=1):
            queries.append(row["query"])
            documents.append(row["document"])
            domains.append(_optional(file, number, row, "domain") or _stem(file))
            ids.append(f"{_stem(file)}:{count}")
    return Pairs(queries, documents, domains, ids, name=name or _stem(path))


_QUERY_COLUMNS = ("query", "anchor", "question", "title", "sentence1")
_DOCUMENT_COLUMNS = ("document", "positive", "answer", "passage", "text", "body", "sentence2")


def notice_being_offline() -> None:
    """Without a route to the Hub, let `datasets` look in its cache at once, not retry for 25 s."""
    import datasets
    from huggingface_hub import constants

    address = urlsplit(constants.ENDPOINT)
    try:
        socket.create_connection((address.hostname or "", address.port or 443), timeout=5).close()
    except OSError:
        datasets.config.HF_HUB_OFFLINE = constants.HF_HUB_OFFLINE = True


def _dataset(repository: str, configuration: str | None, split: str) -> Any:
    # imported here: `datasets` takes a second to import and most sessions never read from the Hub
    import datasets

    notice_being_offline()
    where = (
        f"{repository}{f', configuration {configuration}' if configuration else ''}, split {split}"
    )[:300]
    try:
        return datasets.load_dataset(repository, configuration, split=split)
    except (ConnectionError, datasets.exceptions.DatasetNotFoundError, OSError) as error:
        raise ConnectionError(
            f"hub:{where} cannot be loaded: the Hub is out of reach, or there is no such set "
            f"({type(error).__name__}: {str(error).splitlines()[0][:160]}). Offline, use `pydocs`, "
            "`folder:<path>`, or a name below $CDE_DATA"
        ) from error
    except ValueError as error:  # an unknown configuration or split: datasets names those there are
        raise ValueError(f"hub:{where}: {error}") from error


def _column(columns: list[str], candidates: tuple[str, ...], kind: str, where: str) -> str:
    for candidate in candidates:
        if candidate in columns:
            return candidate
    raise ValueError(
        f"hub:{where} has no column for the {kind}: expected one of {candidates}, it has {columns}"
    )


def hub_retrieval(
    repository: str,
    configuration: str | None = None,
    split: str = "test",
    drop_unknown: bool = False,
) -> RetrievalSet:
    """Load a retrieval set in mteb's layout; `configuration` is a prefix of its configurations,
    for repositories that hold several sets.
    """
    where = f"hub:{repository}"
    prefix = f"{configuration}-" if configuration else ""
    corpus = _dataset(repository, f"{prefix}corpus", "corpus")
    queries = _dataset(repository, f"{prefix}queries", "queries")
    judgements = _dataset(repository, f"{prefix}qrels" if configuration else "default", split)
    for table, needed in (
        (corpus, {"_id", "text"}),
        (queries, {"_id", "text"}),
        (judgements, {"query-id", "corpus-id", "score"}),
    ):
        if not needed <= set(table.column_names):
            there = ", ".join(table.column_names)
            raise ValueError(
                f"{where}: expected columns {', '.join(sorted(needed))}, it has {there}"
            )
    qrels: dict[str, dict[str, int]] = {}
    known_queries = {str(name) for name in queries["_id"]}
    known_documents = {str(name) for name in corpus["_id"]}
    for row in judgements:
        query, document = str(row["query-id"]), str(row["corpus-id"])
        if drop_unknown and (query not in known_queries or document not in known_documents):
            continue
        grade = checked_grade(row["score"], f"{where}: the grade of {query} → {document}")
        _judge(qrels, query, document, grade, where)
    asked = [row for row in queries if str(row["_id"]) in qrels]
    return RetrievalSet(
        document_ids=[str(row["_id"]) for row in corpus],
        documents=[_titled(row, where) for row in corpus],
        query_ids=[str(row["_id"]) for row in asked],
        queries=[row["text"] for row in asked],
        qrels=qrels,
        name=_hub_name(repository, configuration),
    )


def _hub_name(repository: str, configuration: str | None) -> str:
    return f"hub:{repository}{f':{configuration}' if configuration else ''}"


def _titled(row: dict[str, Any], where: str) -> str:
    """A document with its title, where it has one, before its text."""
    title, text = row.get("title") or "", row["text"]
    if not isinstance(title, str) or not isinstance(text, str):
        raise ValueError(
            f"{where}: document {shown(row['_id'])} must have a text, and a title that is text or "
            f"null; they are {str(text)[:40]!r} and {str(title)[:40]!r}"
        )
    return f"{title} {text}".strip()


def hub_pairs(repository: str, configuration: str | None = None, split: str = "train") -> Pairs:
    """Load pairs: the first columns that are named like a query and like a document."""
    rows = _dataset(repository, configuration, split)
    query = _column(rows.column_names, _QUERY_COLUMNS, "query", repository)
    document = _column(rows.column_names, _DOCUMENT_COLUMNS, "document", repository)
    name = _hub_name(repository, configuration)
    domains = rows["domain"] if "domain" in rows.column_names else [repository] * len(rows)
    return Pairs(
        list(rows[query]),
        list(rows[document]),
        list(domains),
        [f"{name}:{i}" for i in range(len(rows))],
        name=name,
    )

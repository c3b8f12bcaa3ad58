"""Collections of one's own: in folders, and on the Hugging Face Hub.

Retrieval sets in a folder have BEIR's layout: `corpus.jsonl[.gz]` with "_id", "title"? and "text";
`queries.jsonl[.gz]` with "_id" and "text"; `qrels/<split>.tsv` with query-id, corpus-id and score
below a header; perhaps `qrels/exclude.tsv` (or `exclude.tsv`), pairs to drop from rankings before
scoring. Pairs are a `.jsonl[.gz]` file, or a folder of them, with "query", "document" and
"domain"?, by default the file's name.

On the Hub, which `datasets` reads, retrieval sets have mteb's layout: configurations `corpus`,
`queries`, and `default` or `qrels`. Pairs are two text columns, found by their names.
"""

from __future__ import annotations

import json
import os
import re
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

from cde.data.sets import (
    Pairs,
    RetrievalSet,
    gathered,
    grade_in,
    lines_of,
    read_judgements,
    rows_of,
)
from cde.validation import checked_switch, half_of_a_pair, shown


def _stem(path: Path) -> str:
    return path.name.removesuffix(".gz").removesuffix(".jsonl")


def _json_lines(path: Path, required: tuple[str, ...]) -> Iterator[tuple[str, dict[str, Any]]]:
    expected = "a JSON object with the string fields " + ", ".join(f'"{name}"' for name in required)
    for where, line in lines_of(path):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:  # also a number too long, brackets too deep
            reason = str(error).replace("line 1 ", "")
            raise ValueError(f"{where}: not JSON ({reason}); expected {expected}") from error
        if not isinstance(row, dict) or not all(isinstance(row.get(key), str) for key in required):
            raise ValueError(f"{where}: expected {expected}, got {line.strip()[:80]}")
        for name, value in row.items():
            if isinstance(value, str) and (place := half_of_a_pair(value)) is not None:
                raise ValueError(
                    f'{where}: "{name}" has half of a surrogate pair, {value[place]!r}, at '
                    f"character {place}, which is not text: leave it out"
                )
        yield where, row


def _optional(where: str, row: dict[str, Any], name: str) -> str:
    """A field that may be missing, null or empty; a whole number is read as text."""
    value = row.get(name)
    if value is None or value == "":
        return ""
    if not isinstance(value, str | int) or isinstance(value, bool):
        raise ValueError(f'{where}: "{name}" must be a string or null; it is {str(value)[:80]!r}')
    return str(value)


def _titled(where: str, row: dict[str, Any]) -> str:
    """A text with its title, where it has one, before it."""
    title, text = _optional(where, row, "title"), row["text"]
    if not isinstance(text, str):
        raise ValueError(f'{where}: "text" must be a string; it is {shown(text)}')
    return f"{title} {text}".strip() if title else text


def _refuse_nul(where: str, name: str) -> None:
    """trec_eval is written in C, which ends a name at NUL."""
    if "\0" in name:
        raise ValueError(f"{where}: an id must not hold NUL; it is {shown(name)}")


def _find(folder: Path, stem: str) -> Path:
    for candidate in (folder / f"{stem}.jsonl", folder / f"{stem}.jsonl.gz"):
        if candidate.exists():
            return candidate
    held = ", ".join(sorted(p.name for p in folder.iterdir())[:8]) or "nothing"
    raise FileNotFoundError(f"{folder} has no {stem}.jsonl or {stem}.jsonl.gz. It has {held}")


def _tab_separated(path: Path, columns: int) -> Iterator[tuple[str, list[str]]]:
    for where, row in rows_of(path, separator="\t"):
        if len(row) < columns:
            got = shown(" ".join(row), 80)
            raise ValueError(f"{where}: expected {columns} columns separated by tabs, got {got}")
        _refuse_nul(where, row[0] + row[1])
        yield where, row


def _by_id(path: Path) -> dict[str, str]:
    texts: dict[str, str] = {}
    for where, row in _json_lines(path, ("_id", "text")):
        name = row["_id"]
        _refuse_nul(where, name)
        if name in texts:
            raise ValueError(f"{where}: the id {shown(name)} occurs more than once")
        texts[name] = _titled(where, row)
    return texts


def folder_retrieval(
    folder: Path | str, split: str = "test", drop_unknown: bool = False, name: str | None = None
) -> RetrievalSet:
    """Read a BEIR folder; only queries with a judgement in `qrels/<split>.tsv` are kept."""
    folder = Path(os.path.expanduser(folder))
    if not isinstance(split, str) or not re.fullmatch(r"[^/\\\0]{1,100}", split):
        file = f"the name of a file of {folder}/qrels, such as 'test'"
        raise ValueError(f"split must be {file}; it is {shown(split)}")
    drop_unknown = checked_switch(drop_unknown, "drop_unknown")
    if not os.path.isdir(folder):
        raise FileNotFoundError(
            f"no folder {str(folder)[:300]}: expected one in BEIR's layout (corpus, queries, qrels)"
        )
    judgements = folder / "qrels" / f"{split}.tsv"
    if not judgements.exists():
        splits = {path.stem for path in judgements.parent.glob("*.tsv")} - {"exclude"}
        there = ", ".join(sorted(splits)) or "none"
        raise FileNotFoundError(f"{folder} has no qrels/{split}.tsv; it has {there}")
    corpus = _by_id(_find(folder, "corpus"))
    texts = _by_id(_find(folder, "queries"))
    qrels = gathered(
        (where, query, document, grade_in(where, grade))
        for where, (query, document, grade, *_) in _tab_separated(judgements, 3)
        if not drop_unknown or (query in texts and document in corpus)
    )
    excluded: dict[str, set[str]] = {}
    for path in (folder / "qrels" / "exclude.tsv", folder / "exclude.tsv"):
        if path.exists():
            for _, (query, document, *_rest) in _tab_separated(path, 2):
                excluded.setdefault(query, set()).add(document)
    asked = [query for query in texts if query in qrels]
    if not corpus:
        raise ValueError(f"{folder} holds no documents: its corpus is empty")
    # queries that are judged but missing reach RetrievalSet, which reports them together
    parts = list(corpus), list(corpus.values()), asked, [texts[query] for query in asked]
    dropped = {query: frozenset(documents) for query, documents in excluded.items()}
    return RetrievalSet(*parts, qrels, dropped, name or folder.name)


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
        lines = "expected .jsonl[.gz] with query and document per line"
        raise FileNotFoundError(f"no file or folder {str(path)[:300]}: {lines}")
    queries, documents, domains, ids = [], [], [], []
    for file in files:
        for count, (where, row) in enumerate(_json_lines(file, ("query", "document")), start=1):
            queries.append(row["query"])
            documents.append(row["document"])
            domains.append(_optional(where, row, "domain") or _stem(file))
            ids.append(f"{_stem(file)}:{count}")
    return Pairs(queries, documents, domains, ids, name=name or _stem(path))


_QUERY_COLUMNS = ("query", "anchor", "question", "title", "sentence1")
_DOCUMENT_COLUMNS = ("document", "positive", "answer", "passage", "text", "body", "sentence2")


def notice_being_offline() -> None:
    """Without a route to the Hub, let libraries look in their cache at once, not retry for 25 s."""
    from huggingface_hub import constants

    if {"https", "all"} & getproxies().keys():  # then no address is reached but by the proxy
        return
    address = urlsplit(constants.ENDPOINT)
    try:
        socket.create_connection((address.hostname or "", address.port or 443), timeout=5).close()
    except OSError:
        constants.HF_HUB_OFFLINE = True
        if datasets := sys.modules.get("datasets"):
            datasets.config.HF_HUB_OFFLINE = True


def _dataset(
    repository: str, configuration: str | None, split: str, needed: tuple[str, ...] = ()
) -> Any:
    # imported here: `datasets` takes a second to import and most sessions never read from the Hub
    import datasets

    notice_being_offline()
    part = f", configuration {configuration}" if configuration else ""
    where = f"{repository}{part}, split {split}"[:300]
    try:
        table = datasets.load_dataset(repository, configuration, split=split)
    except (ConnectionError, datasets.exceptions.DatasetNotFoundError, OSError) as error:
        raise ConnectionError(
            f"hub:{where} cannot be loaded: the Hub is out of reach, or there is no such set "
            f"({type(error).__name__}: {str(error).splitlines()[0][:160]}). Offline, use `pydocs`, "
            "`folder:<path>`, or a name below $CDE_DATA"
        ) from error
    except ValueError as error:  # an unknown configuration or split: datasets names those there are
        raise ValueError(f"hub:{where}: {error}") from error
    if not set(needed) <= set(table.column_names):
        there = ", ".join(table.column_names)
        raise ValueError(f"hub:{where}: expected columns {', '.join(needed)}, it has {there}")
    return table


def _column(columns: list[str], candidates: tuple[str, ...], kind: str, where: str) -> str:
    for candidate in candidates:
        if candidate in columns:
            return candidate
    missing = f"hub:{where} has no column for the {kind}"
    raise ValueError(f"{missing}: expected one of {candidates}, it has {columns}")


def _hub_parts(name: str) -> tuple[str, str | None]:
    repository, _, configuration = name.removeprefix("hub:").partition(":")
    if not repository:
        raise ValueError(f"{shown(name)} is not hub:<repo> or hub:<repo>:<config>")
    return repository, configuration or None


def hub_retrieval(name: str, split: str = "test", drop_unknown: bool = False) -> RetrievalSet:
    """Load a retrieval set in mteb's layout; a configuration is the prefix of the set's own."""
    repository, configuration = _hub_parts(name)
    prefix = f"{configuration}-" if configuration else ""
    corpus = _dataset(repository, f"{prefix}corpus", "corpus", ("_id", "text"))
    queries = _dataset(repository, f"{prefix}queries", "queries", ("_id", "text"))
    columns, qrels = ("query-id", "corpus-id", "score"), f"{prefix}qrels" if prefix else "default"
    judged = _dataset(repository, qrels, split, columns).to_pandas()[list(columns)]
    document_ids = [str(one) for one in corpus["_id"]]
    if drop_unknown:
        known = judged["query-id"].astype(str).isin({str(one) for one in queries["_id"]})
        judged = judged[known & judged["corpus-id"].astype(str).isin(set(document_ids))]
    judgements = read_judgements(judged)
    asked = [row for row in queries if str(row["_id"]) in judgements]
    documents = [_titled(f"{name}, {shown(row['_id'])}", row).strip() for row in corpus]
    ids, texts = [str(row["_id"]) for row in asked], [row["text"] for row in asked]
    return RetrievalSet(document_ids, documents, ids, texts, judgements, name=name)


def hub_pairs(name: str, split: str = "train") -> Pairs:
    """Load pairs: the first columns that are named like a query and like a document."""
    repository, configuration = _hub_parts(name)
    rows = _dataset(repository, configuration, split)
    query = _column(rows.column_names, _QUERY_COLUMNS, "query", repository)
    document = _column(rows.column_names, _DOCUMENT_COLUMNS, "document", repository)
    domains = rows["domain"] if "domain" in rows.column_names else [repository] * len(rows)
    ids = [f"{name}:{i}" for i in range(len(rows))]
    return Pairs(rows[query], rows[document], domains, ids, name=name)

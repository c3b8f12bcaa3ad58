"""Collections in folders: BEIR's layout for retrieval, JSON lines for pairs.

Retrieval:

- `corpus.jsonl[.gz]`: {"_id", "title"?, "text"};
- `queries.jsonl[.gz]`: {"_id", "text"};
- `qrels/<split>.tsv`: query-id, corpus-id, score, with a header line;
- optionally `qrels/exclude.tsv` (or `exclude.tsv`): query-document pairs to drop from rankings
  before scoring.

Pairs: a `.jsonl[.gz]` file, or a folder of them, one {"query", "document", "domain"?} per line;
without a domain, the file's name is the domain.

Every error names the file, the line and what was expected there.
"""

from __future__ import annotations

import csv
import gzip
import json
import os
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cde.data.sets import Pairs, RetrievalSet, checked_grade
from cde.validation import checked_switch, half_of_a_pair, shown

__all__ = ["load_pairs", "load_retrieval"]


def _stem(path: Path) -> str:
    return path.name.removesuffix(".gz").removesuffix(".jsonl")


def _lines(path: Path) -> Iterator[tuple[int, str]]:
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
        raise ValueError(f"{path}, line {number}: an id must not hold NUL; it is {text!r}")
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
        row = next(csv.reader([line.rstrip("\r\n")], delimiter="\t", quoting=csv.QUOTE_NONE))
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
                f"{path}, line {number}: the id {name!r} occurs more than once; ids must be "
                "distinct"
            )
        texts[name] = f"{title} {row['text']}".strip() if title else row["text"]
    return texts


def _grade(path: Path, number: int, text: str) -> int:
    # `int` alone takes 1_0, and digits of every script
    if not re.fullmatch(r"\s*[+-]?[0-9]{1,99}\s*", text, re.ASCII):
        raise ValueError(
            f"{path}, line {number}: a relevance grade must be a whole number; got {text!r}"
        )
    return checked_grade(int(text), f"{path}, line {number}: a relevance grade")


def load_retrieval(
    folder: Path | str, split: str = "test", drop_unknown: bool = False, name: str | None = None
) -> RetrievalSet:
    """Read a BEIR folder.

    Args:
        folder: the folder.
        split: which `qrels/<split>.tsv`; only queries with a judgement there are kept.
        drop_unknown: drop judgements whose query or document is not there, instead of failing.
        name: what the set is called; by default the folder's name.

    Raises:
        FileNotFoundError: the folder, a file or the split is missing (what there is, is named).
        ValueError: a malformed line, an id that occurs twice or that trec_eval cannot hold,
            judgements that point nowhere, that disagree, or whose grade is no whole number within
            ±1,000,000 (which file, and which line).

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> _ = (folder / "corpus.jsonl").write_text(
        ...     '{"_id": "d", "title": "Boats", "text": "are red."}')
        >>> _ = (folder / "queries.jsonl").write_text('{"_id": "q", "text": "red boats"}')
        >>> (folder / "qrels").mkdir()
        >>> judgements = "query-id\\tcorpus-id\\tscore\\nq\\td\\t1\\n"
        >>> _ = (folder / "qrels" / "test.tsv").write_text(judgements)
        >>> load_retrieval(folder).documents
        ['Boats are red.']
    """
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
        judged, own = qrels.setdefault(query, {}), _grade(judgements, number, grade)
        if judged.setdefault(document, own) != own:
            raise ValueError(
                f"{judgements}, line {number}: {query!r} → {document!r} is judged {own} here and "
                f"{judged[document]} before: keep one of the two"
            )
    excluded: dict[str, set[str]] = {}
    for path in (folder / "qrels" / "exclude.tsv", folder / "exclude.tsv"):
        if path.exists():
            for number, (query, document, *_rest) in _tab_separated(path, 2):
                _name(path, number, query + document)
                excluded.setdefault(query, set()).add(document)
    asked = [query for query in texts if query in qrels]
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


def load_pairs(path: Path | str, name: str | None = None) -> Pairs:
    """Read pairs from a `.jsonl[.gz]` file, or from every such file of a folder.

    Raises:
        FileNotFoundError: no such file, or a folder without any `.jsonl[.gz]`.
        ValueError: a malformed line.
    """
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

"""Collections on the Hugging Face Hub, through `datasets`; never needed, never called implicitly.

Retrieval sets in mteb's layout: configurations `corpus` (_id, title?, text), `queries` (_id, text)
and `default` or `qrels` (query-id, corpus-id, score). Pairs: two text columns, by name. A local
folder in either layout is read by the same calls, which is how the tests reach this code offline.
"""

from __future__ import annotations

import socket
from typing import Any
from urllib.parse import urlsplit

from cde.data.sets import Pairs, RetrievalSet, checked_grade

__all__ = ["load_pairs", "load_retrieval", "notice_being_offline"]

_JUDGEMENT_COLUMNS = ("query-id", "corpus-id", "score")
_QUERY_COLUMNS = ("query", "anchor", "question", "title", "sentence1")
_DOCUMENT_COLUMNS = ("document", "positive", "answer", "passage", "text", "body", "sentence2")


def notice_being_offline() -> None:
    """Without a route to the Hub, let `datasets` look in its cache at once instead of retrying for
    25 s.
    """
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
    )
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


def load_retrieval(
    repository: str,
    configuration: str | None = None,
    split: str = "test",
    drop_unknown: bool = False,
) -> RetrievalSet:
    """Load a retrieval set in mteb's layout.

    Args:
        repository: repository on the Hub, such as "mteb/scifact", or a local folder.
        configuration: a prefix of the three configurations, for repositories that hold several
            sets.
        split: the split of the judgements.
        drop_unknown: drop judgements that point nowhere instead of failing.

    Raises:
        ConnectionError: the Hub is out of reach, or there is no such repository.
        ValueError: an unknown configuration or split, judgements that point nowhere or disagree, or
            a document without a text.
    """
    prefix = f"{configuration}-" if configuration else ""
    corpus = _dataset(repository, f"{prefix}corpus", "corpus")
    queries = _dataset(repository, f"{prefix}queries", "queries")
    judgements = _dataset(repository, f"{prefix}qrels" if configuration else "default", split)
    for table, needed in (
        (corpus, {"_id", "text"}),
        (queries, {"_id", "text"}),
        (judgements, set(_JUDGEMENT_COLUMNS)),
    ):
        if not needed <= set(table.column_names):
            there = ", ".join(table.column_names)
            raise ValueError(
                f"hub:{repository}: expected columns {', '.join(sorted(needed))}, it has {there}"
            )
    qrels: dict[str, dict[str, int]] = {}
    known_queries = {str(name) for name in queries["_id"]}
    known_documents = {str(name) for name in corpus["_id"]}
    for row in judgements:
        if drop_unknown and (
            str(row["query-id"]) not in known_queries
            or str(row["corpus-id"]) not in known_documents
        ):
            continue
        query, document = str(row["query-id"]), str(row["corpus-id"])
        own = checked_grade(row["score"], f"hub:{repository}: the grade of {query} → {document}")
        judged = qrels.setdefault(query, {})
        if judged.setdefault(document, own) != own:
            raise ValueError(
                f"hub:{repository}: {query} → {document} is judged {judged[document]} and {own}: "
                "one of the two has to go"
            )
    asked = [row for row in queries if str(row["_id"]) in qrels]
    return RetrievalSet(
        document_ids=[str(row["_id"]) for row in corpus],
        documents=[_titled(row, f"hub:{repository}") for row in corpus],
        query_ids=[str(row["_id"]) for row in asked],
        queries=[row["text"] for row in asked],
        qrels=qrels,
        name=f"hub:{repository}{f':{configuration}' if configuration else ''}",
    )


def _titled(row: dict[str, Any], where: str) -> str:
    """A document with its title, where it has one, before its text."""
    title, text = row.get("title") or "", row["text"]
    if not isinstance(title, str) or not isinstance(text, str):
        raise ValueError(
            f"{where}: document {row['_id']!r} must have a text, and a title that is text or null; "
            f"they are {str(text)[:40]!r} and {str(title)[:40]!r}"
        )
    return f"{title} {text}".strip()


def load_pairs(repository: str, configuration: str | None = None, split: str = "train") -> Pairs:
    """Load pairs: the first columns that are named like a query and like a document.

    Raises:
        ConnectionError: the Hub is out of reach, or there is no such repository.
        ValueError: an unknown configuration or split, or no column for a query or a document.

    Example:
        >>> import pathlib, tempfile
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> _ = (folder / "train.jsonl").write_text(
        ...     '{"question": "what is it?", "answer": "a test"}')
        >>> load_pairs(str(folder)).queries
        ['what is it?']
    """
    rows = _dataset(repository, configuration, split)
    query = _column(rows.column_names, _QUERY_COLUMNS, "query", repository)
    document = _column(rows.column_names, _DOCUMENT_COLUMNS, "document", repository)
    name = f"hub:{repository}{f':{configuration}' if configuration else ''}"
    domains = rows["domain"] if "domain" in rows.column_names else [repository] * len(rows)
    return Pairs(
        list(rows[query]),
        list(rows[document]),
        list(domains),
        [f"{name}:{i}" for i in range(len(rows))],
        name=name,
    )

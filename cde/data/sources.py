"""Collections by name, from `pydocs` to the Hub, and how folders and the Hub are read; what is
loaded is entered in the process' account.

Names: `folder:<path>`, `hub:<repo>[:<config>]`; where `$CDE_DATA` is a folder with `beir/` and
`pairs/` in it, `beir/<name>` and `pairs/<source>`; and those that packages offer (`Offer`). The
book offers `pydocs`, `pydocs/<package>`, `manuals`, `manuals/<corpus>` (`manuals/aws/sqs`), and the
same with `manuals-sentences`.

Retrieval sets in a folder have BEIR's layout: `corpus.jsonl[.gz]` with "_id", "title"? and "text";
`queries.jsonl[.gz]` with "_id" and "text"; `qrels/<split>.tsv` with query-id, corpus-id and score
below a header; perhaps `qrels/exclude.tsv` (or `exclude.tsv`), pairs to drop from rankings before
scoring. Pairs are a `.jsonl[.gz]` file, or a folder of them, with "query", "document" and
"domain"?, by default the file's name. Every error names the file, the line and what was expected
there.

On the Hub, which `datasets` reads, retrieval sets have mteb's layout: configurations `corpus`,
`queries`, and `default` or `qrels`. Pairs are two text columns, found by their names.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Literal, Protocol
from urllib.parse import urlsplit

from cde.data.sets import (
    Pairs,
    RetrievalSet,
    Split,
    gathered,
    grade_in,
    lines_of,
    read_judgements,
    rows_of,
)
from cde.provenance import account
from cde.storage import content_hash
from cde.validation import checked_switch, checked_text, half_of_a_pair, shown

__all__ = [
    "Offer",
    "Source",
    "data_folder",
    "is_available",
    "list_sources",
    "load_pairs",
    "load_retrieval",
]


@dataclass(frozen=True)
class Source:
    """A collection that can be loaded here: its name, what it offers, and where it is."""

    name: str
    kind: str  # "pairs", "retrieval" or "pairs, retrieval"
    location: str


class Offer(Protocol):
    """Collections that an installed package offers: a class that an entry point of the group
    `cde.collections` names. The entry point is called as the part of the names before a slash is.
    """

    def sources(self) -> list[Source]:
        """Those that can be loaded on this machine."""

    def load_pairs(self, name: str, split: Any, deduplicate: bool) -> Pairs | None:
        """The pairs of that name; None if there are none."""

    def load_retrieval(self, name: str) -> RetrievalSet | None:
        """The retrieval set of that name; None if there is none."""

    def source_key(self, name: str) -> str:
        """A hash that changes when the collection does, made without reading it; else "missing"."""

    def entry(self, name: str, loaded: Pairs | RetrievalSet) -> tuple[str, str]:
        """The name and the fingerprint under which what was loaded stands in the account."""


@cache
def _offers() -> dict[str, Offer]:
    """Each offer by the names of its entry points."""
    made: dict[type[Offer], Offer] = {}
    points = [(point.name, point.load()) for point in entry_points(group="cde.collections")]
    return {name: made.setdefault(offer, offer()) for name, offer in points}


def _offer(name: str) -> Offer | None:
    return _offers().get(name.partition("/")[0])


def data_folder() -> Path | None:
    """The folder that `$CDE_DATA` names, None where it is not set."""
    value = os.environ.get("CDE_DATA")
    if not value:
        return None
    path = Path(value).expanduser()
    if not path.is_dir():
        raise FileNotFoundError(
            f"CDE_DATA is set to {value}, which is no folder; unset it, or point it at one with "
            "beir/ and pairs/"
        )
    return path


def list_sources() -> list[Source]:
    """Every collection that can be loaded on this machine without the network.

    Example:
        >>> [source.kind for source in list_sources() if source.name == "pydocs"]
        ['pairs, retrieval']
    """
    sources = [source for offer in dict.fromkeys(_offers().values()) for source in offer.sources()]
    if (data := data_folder()) is not None:
        for path in sorted((data / "beir").glob("*/")):
            sources.append(Source(f"beir/{path.name}", "retrieval", str(path)))
        for path in sorted((data / "pairs").glob("*.jsonl*")):
            sources.append(Source(f"pairs/{path.name.split('.jsonl')[0]}", "pairs", str(path)))
    return sources


def _unknown(name: str, kind: str) -> ValueError:
    names = [source.name for source in list_sources() if kind in source.kind]
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(close)}? " if close else ""
    if os.path.exists(name):
        hint = f"for the file or folder of that name say folder:{name}. "
    if name.startswith(("beir/", "pairs/")) and not os.environ.get("CDE_DATA"):
        hint += f"{name} is looked for below $CDE_DATA, which is not set. "
    offered = "".join(f"{top}[/<part>], " for top in _offers())
    return ValueError(
        f"no collection of {kind} is called {shown(name)}: {hint}Accepted are {offered}"
        "folder:<path>, hub:<repo>[:<config>], and beir/<name> or pairs/<source> below $CDE_DATA; "
        "`cde sources` lists those on this machine"
    )


def _path(name: str) -> Path | None:
    """The path of a `folder:…` name; the file or folder of a `beir/…`, `pairs/…` or `labelled/…`
    name, None if there is none.
    """
    if name.startswith("folder:"):
        return Path(os.path.expanduser(name.removeprefix("folder:")))
    data = data_folder()
    top, _, rest = name.partition("/")
    if data is None or not rest or ".." in Path(rest).parts:
        return None
    if name == "pairs/*" and (data / "pairs").is_dir():
        return data / "pairs"
    if top == "beir" and os.path.isdir(data / name):
        return data / name
    if top in ("pairs", "labelled"):
        for suffix in (".jsonl.gz", ".jsonl"):
            if os.path.exists(data / f"{name}{suffix}"):
                return data / f"{name}{suffix}"
    return None


def load_pairs(
    name: str = "pydocs",
    split: Split | Literal["validation"] | None = None,
    deduplicate: bool = True,
) -> Pairs:
    """Load training pairs by name.

    Args:
        name: `pydocs` (the packages that training may see), `pydocs/<package>`, `pydocs/*` (all of
            them, those held out too), `manuals`, `manuals/<corpus>`, `manuals-sentences`,
            `folder:<path>`, `hub:<repo>[:<config>]`, or `pairs/<source>` below `$CDE_DATA`
            (`pairs/*`: all of those).
        split: "train", "test" (one document in ten, by a stable hash of its text) or "all";
            default "train" for `pydocs` and `manuals`, "all" for everything else. For `manuals`
            these are whole corpora, and there is a "validation". For the Hub, the split's name.
        deduplicate: drop exact and near duplicates (pydocs).

    Example:
        >>> load_pairs("pydocs/rich").queries[0].count(" ") >= 2
        True
    """
    name = checked_text(name, "name")
    checked_switch(deduplicate, "deduplicate")
    if split is not None:
        checked_text(split, "split")
    pairs: Pairs | None = None
    if (offer := _offer(name)) is not None:
        pairs = offer.load_pairs(name, split, deduplicate)
    elif name.startswith("hub:"):
        pairs = hub_pairs(name, split or "train")
    elif name.startswith(("folder:", "pairs/")) and (path := _path(name)) is not None:
        pairs = folder_pairs(path, name=name).split(split or "all")  # type: ignore[arg-type]
    if pairs is None:
        raise _unknown(name, "pairs")
    _enter(name, pairs)
    return pairs


def load_retrieval(
    name: str = "pydocs", split: str = "test", drop_unknown: bool = False
) -> RetrievalSet:
    """Load a retrieval set by name.

    Args:
        name: `pydocs`, `pydocs/<package>`, `manuals/<corpus>` (`manuals`: those of the test part
            as one corpus), `folder:<path>` (BEIR's layout), `hub:<repo>[:<config>]` (mteb's
            layout), or `beir/<name>` below `$CDE_DATA`.
        split: which judgements, for folders and the Hub. (pydocs asks only what no training sees.)
        drop_unknown: drop judgements that point nowhere instead of failing (folders and the Hub).

    Example:
        >>> load_retrieval("pydocs/mpmath").name
        'pydocs/mpmath'
    """
    name, split = checked_text(name, "name"), checked_text(split, "split")
    collection: RetrievalSet | None = None
    if (offer := _offer(name)) is not None:
        collection = offer.load_retrieval(name)
    elif name.startswith("hub:"):
        collection = hub_retrieval(name, split, drop_unknown)
    elif name.startswith(("folder:", "beir/")) and (path := _path(name)) is not None:
        collection = folder_retrieval(path, split, drop_unknown, name=name)
    if collection is None:
        raise _unknown(name, "retrieval")
    _enter(name, collection)
    return collection


def _enter(name: str, loaded: Pairs | RetrievalSet) -> None:
    offer = _offer(name)
    name, fingerprint = offer.entry(name, loaded) if offer else (name, loaded.fingerprint)
    account.asked.add(name)
    account.loaded[name] = fingerprint


def is_available(*names: str) -> bool:
    """Whether all these collections are here, without reading them; those on the Hub count as here.

    Example:
        >>> is_available("pydocs"), is_available("pydocs", "beir/no-such-collection")
        (True, False)
    """
    account.asked.update(names)
    return all(source_key(name) != "missing" for name in names)


def source_key(name: str) -> str:
    """A hash that changes when the files behind a name do (their names, sizes and times of change);
    "missing" if there are none.
    """
    if (offer := _offer(name)) is not None:
        return offer.source_key(name)
    if name.startswith("hub:"):
        return name
    path = _path(name)
    if path is None or not path.exists():
        return "missing"
    files = sorted([path] if path.is_file() else filter(Path.is_file, path.rglob("*")))
    stats = [(file.name, file.stat()) for file in files]
    # where a folder lies does not matter: a page stays fresh when its data are moved
    return content_hash(f"{name} {stat.st_size} {stat.st_mtime_ns}" for name, stat in stats)


# --- folders


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
                    f"character {place}, which is no text: leave it out"
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
    raise FileNotFoundError(
        f"{folder} has no {stem}.jsonl or {stem}.jsonl.gz; a BEIR folder needs one. It has {held}"
    )


def _tab_separated(path: Path, columns: int) -> Iterator[tuple[str, list[str]]]:
    for where, row in rows_of(path, separator="\t"):
        if len(row) < columns:
            raise ValueError(
                f"{where}: expected {columns} columns separated by tabs, got "
                f"{shown(' '.join(row), 80)}"
            )
        _refuse_nul(where, row[0] + row[1])
        yield where, row


def _by_id(path: Path) -> dict[str, str]:
    """Texts by id, with the title, where there is one, before the text."""
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
        for count, (where, row) in enumerate(_json_lines(file, ("query", "document")), start=1):
            queries.append(row["query"])
            documents.append(row["document"])
            domains.append(_optional(where, row, "domain") or _stem(file))
            ids.append(f"{_stem(file)}:{count}")
    return Pairs(queries, documents, domains, ids, name=name or _stem(path))


# --- the Hub


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


def _dataset(
    repository: str, configuration: str | None, split: str, needed: tuple[str, ...] = ()
) -> Any:
    # imported here: `datasets` takes a second to import and most sessions never read from the Hub
    import datasets

    notice_being_offline()
    where = (
        f"{repository}{f', configuration {configuration}' if configuration else ''}, split {split}"
    )[:300]
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
    raise ValueError(
        f"hub:{where} has no column for the {kind}: expected one of {candidates}, it has {columns}"
    )


def _hub_parts(name: str) -> tuple[str, str | None]:
    """Repository and configuration of a name."""
    repository, _, configuration = name.removeprefix("hub:").partition(":")
    if not repository:
        raise ValueError(
            f"{shown(name)} names no repository; expected hub:<repo> or hub:<repo>:<config>"
        )
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
    return RetrievalSet(
        document_ids=document_ids,
        documents=[_titled(f"{name}, {shown(row['_id'])}", row).strip() for row in corpus],
        query_ids=[str(row["_id"]) for row in asked],
        queries=[row["text"] for row in asked],
        qrels=judgements,
        name=name,
    )


def hub_pairs(name: str, split: str = "train") -> Pairs:
    """Load pairs: the first columns that are named like a query and like a document."""
    repository, configuration = _hub_parts(name)
    rows = _dataset(repository, configuration, split)
    query = _column(rows.column_names, _QUERY_COLUMNS, "query", repository)
    document = _column(rows.column_names, _DOCUMENT_COLUMNS, "document", repository)
    domains = rows["domain"] if "domain" in rows.column_names else [repository] * len(rows)
    ids = [f"{name}:{i}" for i in range(len(rows))]
    return Pairs(rows[query], rows[document], domains, ids, name=name)

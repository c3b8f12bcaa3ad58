"""Documents from what a user has in memory: lists, mappings, tables, retrieval sets.

Cost: one pass over the texts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from cde.corpus.files import Columns
from cde.data import RetrievalSet
from cde.validation import checked_texts, shown
from cde.validation.texts import encodable

__all__ = ["judged_set", "named_texts"]


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

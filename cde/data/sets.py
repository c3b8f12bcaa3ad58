"""The two shapes of data, training pairs and retrieval sets, and judgements in whatever form people
keep them.

Two sets with the same fingerprint, a hash of their content, hold the same texts.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cached_property
from numbers import Integral
from pathlib import Path
from typing import Any, Literal, get_args
from uuid import UUID

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cde.storage import content_hash
from cde.validation import checked_ids, checked_text, checked_whole, encodable, shown

__all__ = ["Pairs", "RetrievalSet", "Split", "read_judgements"]

#: trec_eval keeps a place for every grade up to the largest: at this one 8 MB and a millisecond a
#: query. From 2³⁰ on it ends the interpreter, and 2⁴⁰ scores nought
LARGEST_GRADE = 1_000_000


def checked_grade(value: Any, what: str) -> int:
    """A grade of relevance as Python's whole number: of any library, and true is 1."""
    plain = int(value) if isinstance(value, bool | np.bool_) else value
    grade = checked_whole(plain, what, -LARGEST_GRADE)
    if grade > LARGEST_GRADE:
        raise ValueError(f"{what} must be {LARGEST_GRADE} or less; it is {shown(value)}")
    return grade


def lines_of(path: Path) -> Iterator[tuple[str, str]]:
    """The lines of a text file, gzipped or not, that are not blank, each after where it stands."""
    if not os.path.isfile(path):  # a pipe would be waited for
        raise FileNotFoundError(f"{str(path)[:300]} is not a regular file")
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rt", encoding="utf-8-sig") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield f"{path}, line {number}", line
    except (gzip.BadGzipFile, EOFError, zlib.error, UnicodeDecodeError) as error:
        kind = "gzipped UTF-8" if path.suffix == ".gz" else "UTF-8"
        raise ValueError(f"{path}: cannot be read as {kind}: {error}") from error


def rows_of(path: Path, separator: str | None = None) -> Iterator[tuple[str, list[str]]]:
    """The fields of each line of a file of judgements, by tabs or else blanks, without a header."""
    for count, (where, line) in enumerate(lines_of(path)):
        fields = line.rstrip("\r\n").split(separator or ("\t" if "\t" in line else None))
        named = fields[0] in ("query-id", "query_id", "qid", "query")
        if count or not named or fields[-1].strip().isdigit():  # a query may be called so
            yield where, fields


def grade_in(where: str, text: str) -> int:
    """The grade that a file has at a place: a whole number, `2.0` too."""
    # `int` alone takes 1_0, and digits of every script
    whole = re.fullmatch(r"\s*([+-]?[0-9]{1,99})(\.0*)?\s*", text, re.ASCII)
    return checked_grade(int(whole[1]) if whole else text, f"{where}: a relevance grade")


def gathered(rows: Iterable[tuple[str, str, str, Any]]) -> dict[str, dict[str, Any]]:
    """Judgements, one a row (where it stands, query, document, grade), by query and document."""
    qrels: dict[str, dict[str, Any]] = {}
    for where, query, document, grade in rows:
        before = qrels.setdefault(query, {}).setdefault(document, grade)
        if before != grade:
            both = f"is judged {shown(grade)} here and {before} before: keep one of the two"
            raise ValueError(f"{where}: {shown(query)} → {shown(document)} {both}")
    return qrels


def read_judgements(given: Any, name: str = "judgements") -> dict[str, dict[str, int]]:
    """Judgements as query id → document id → grade, a whole number of Python's.

    Args:
        given: a mapping of query ids to mappings of grades, or to relevant documents (a set, a
            list, one id), whose grade is 1; a data frame, or the path of a file, with the columns
            query, document and grade, or TREC's four.
        name: what they are called in errors.

    Raises:
        TypeError: what is none of these.
        ValueError: columns or a line that are not those, a document that is judged twice, with two
            grades, or a grade that is not a whole number.
        FileNotFoundError: a path that is not that of a file.

    Example:
        >>> read_judgements({"q": ["d1", "d2"], "r": {"d3": 2}})
        {'q': {'d1': 1, 'd2': 1}, 'r': {'d3': 2}}
    """
    if isinstance(given, str | Path):
        rows = (_columns(*row) for row in rows_of(Path(given)))
        return gathered((*row[:3], grade_in(row[0], row[3])) for row in rows)
    if isinstance(given, pd.DataFrame):
        rows = (
            _columns(f"qrels, row {number}", list(row))
            for number, row in enumerate(given.itertuples(index=False, name=None))
        )
        judged = [
            (where, id_text(query), id_text(document), checked_grade(grade, f"{where}: a grade"))
            for where, query, document, grade in rows
        ]
        if missing := [where for where, query, document, _ in judged if "" in (query, document)]:
            raise ValueError(f"{missing[0]}: an id is missing; frame.dropna() leaves such rows out")
        given = gathered(judged)
    if not isinstance(given, Mapping):
        accepted = "a mapping of query ids → document ids → grades, a file or a data frame"
        raise TypeError(f"{name}: qrels must be {accepted}; it is {shown(given)}")
    return {query: _graded(query, judged, name) for query, judged in given.items()}


def _columns(where: str, row: list[Any]) -> tuple[str, Any, Any, Any]:
    if len(row) not in (3, 4):
        accepted = "query, document and grade, or TREC's four columns"
        raise ValueError(f"{where}: judgements are {accepted}; got {shown(row)}")
    return where, row[0], row[-2], row[-1]


def id_text(given: Any) -> str:
    """An id as text, to its last digit; "" where it is missing."""
    if pd.api.types.is_scalar(given) and pd.isna(given):
        return ""
    if isinstance(given, str | UUID | date | Integral) and not isinstance(given, bool):
        return str(given)
    # pandas has floats where a whole number is missing; above 2^53 they skip numbers
    whole = isinstance(given, float | np.floating) and float(given).is_integer()
    if whole and abs(float(given)) < 2**53:
        return str(int(given))
    raise ValueError(
        f"the id {shown(given)} is of type {type(given).__name__}: ids are strings, whole numbers, "
        "UUIDs or dates (a float cannot hold all of them: read the column as text)"
    )


def _graded(query: Any, judged: Any, name: str) -> dict[str, int]:
    if isinstance(judged, str):
        return {judged: 1}
    if isinstance(judged, Set | Sequence) and all(isinstance(one, str) for one in judged):
        return dict.fromkeys(sorted(judged) if isinstance(judged, Set) else judged, 1)
    if not isinstance(judged, Mapping):
        what = f"{name}: qrels of the query {shown(query)}"
        raise TypeError(f"{what} must be document ids → grades; it is {shown(judged)}")
    return {
        document: grade
        if type(grade) is int and abs(grade) <= LARGEST_GRADE
        else checked_grade(grade, f"{name}: the grade of {shown(query)} → {shown(document)}")
        for document, grade in judged.items()
    }


#: which part of a collection
Split = Literal["train", "test", "all"]
_NOT_GIVEN: Any = None  # is then made as the class says
_COLUMNS = ("queries", "documents", "domains", "ids")
_TEST_SHARE = 10  # per cent of the documents


def is_held_out(document: str) -> bool:
    """Whether a document is of the test split: by a hash of its text alone, one in ten."""
    digest = hashlib.blake2b(document.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little") % 100 < _TEST_SHARE


@dataclass(frozen=True)
class Pairs:
    """Query-document pairs for contrastive training, each from one domain.

    Attributes:
        queries, documents, domains, ids: lists of the same length n. A domain is the source that a
            pair comes from (CDE §4.1: batches never cross it), by default one for all; an id names
            the pair for a reader, by default its number.
        name: the name it was loaded by.

    Example:
        >>> pairs = Pairs(["what is it"], ["a test"], ["toy"], ["toy/1"], name="toy")
        >>> len(pairs), pairs.fingerprint[:4]
        (1, '8d8b')
    """

    queries: Sequence[str]
    documents: Sequence[str]
    domains: Sequence[str] = _NOT_GIVEN
    ids: Sequence[str] = _NOT_GIVEN
    name: str = "pairs"

    def __post_init__(self) -> None:
        checked_text(self.name, "name")
        for name in _COLUMNS:
            texts = getattr(self, name)
            if texts is _NOT_GIVEN and name in ("domains", "ids"):
                rows = range(len(self.queries))
                texts = [self.name if name == "domains" else f"{self.name}/{n}" for n in rows]
            object.__setattr__(self, name, encodable(texts, name))
        lengths = [len(getattr(self, name)) for name in _COLUMNS]
        if len(set(lengths)) > 1:
            raise ValueError(
                "queries, documents, domains and ids must have the same length; they have "
                "{}, {}, {} and {}".format(*lengths)
            )

    def __len__(self) -> int:
        return len(self.queries)

    def __repr__(self) -> str:
        sources = len(set(self.domains))
        return f"Pairs({self.name!r}: {len(self):,} pairs of {sources:,} domains)"

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return zip(self.queries, self.documents, strict=True)

    @cached_property
    def fingerprint(self) -> str:
        """Hash of queries, documents and domains, in order (16 hexadecimal digits)."""
        rows = zip(self.queries, self.documents, self.domains, strict=True)
        return content_hash(part for row in rows for part in row)

    def select(self, rows: Sequence[int] | NDArray[np.integer] | NDArray[np.bool_]) -> Pairs:
        """The pairs at these positions (or where a boolean array is true), in that order."""
        try:
            chosen = np.asarray(rows)
            chosen = chosen if chosen.size else chosen.astype(np.int64)
            positions = np.arange(len(self))[chosen].tolist()
            if chosen.ndim != 1:
                raise IndexError("no row of numbers")
        except (IndexError, TypeError, ValueError) as error:
            raise ValueError(
                f"rows must be positions of the {len(self)} pairs, or true and false for each; "
                f"they are {shown(rows)}"
            ) from error
        chosen_lists: dict[str, Any] = {
            name: [getattr(self, name)[i] for i in positions] for name in _COLUMNS
        }
        return replace(self, **chosen_lists)

    def split(self, split: Split) -> Pairs:
        """The pairs of "train", of "test" (one document in ten, by a hash of its text) or "all"."""
        if not isinstance(split, str) or split not in get_args(Split):
            raise ValueError(f"split must be 'train', 'test' or 'all'; it is {shown(split)}")
        if split == "all":
            return self
        held = np.array([is_held_out(document) for document in self.documents], dtype=bool)
        return self.select(held if split == "test" else ~held)

    def sample(self, size: int, seed: int = 0) -> Pairs:
        """`size` pairs drawn without replacement, in their old order; all if there are fewer."""
        size, seed = checked_whole(size, "size", 0), checked_whole(seed, "seed", 0)
        if size >= len(self):
            return self
        rows = np.random.default_rng(seed).choice(len(self), size=size, replace=False)
        return self.select(np.sort(rows))

    def sample_per_domain(self, size: int, seed: int = 0) -> Pairs:
        """At most `size` pairs of each domain, drawn without replacement, in their old order; what
        is drawn from a domain does not depend on which others are there.
        """
        size = checked_whole(size, "size", 0)
        marks = [content_hash([str(seed), identifier]) for identifier in self.ids]
        frame = pd.DataFrame({"domain": list(self.domains), "mark": marks}, dtype=object)
        place = frame.groupby("domain")["mark"].rank(method="first")
        return self.select((place <= min(size, len(self))).to_numpy())


@dataclass(frozen=True)
class RetrievalSet:
    """A corpus, queries, and judgements of which documents answer which query.

    Attributes:
        document_ids, documents: the corpus. A title, where there is one, stands before the text
            with a space between, as in BEIR.
        query_ids, queries: the queries; those without a judgement are left out of scores.
        qrels: query id → document id → grade, a whole number (0: judged, not relevant). Grades of
            numpy, and true and false, become Python's; relevant documents alone, a data frame or a
            file are read as `read_judgements` does.
        excluded: query id → documents to drop from that query's ranking before scoring.
        name: the name it was loaded by.

    Example:
        >>> toy = RetrievalSet(["d1"], ["a test"], ["q1"], ["what?"], {"q1": {"d1": 1}}, name="toy")
        >>> toy
        RetrievalSet(name='toy', 1 documents, 1 queries, 1 judgements)
    """

    document_ids: Sequence[str]
    documents: Sequence[str]
    query_ids: Sequence[str]
    queries: Sequence[str]
    qrels: Mapping[str, Mapping[str, int]]
    excluded: Mapping[str, frozenset[str]] = field(default_factory=dict)
    name: str = "retrieval set"

    def __post_init__(self) -> None:
        checked_text(self.name, "name")
        for kind, column in (("document", "documents"), ("query", "queries")):
            ids = checked_ids(getattr(self, f"{kind}_ids"), f"{self.name}: {kind} ids")
            texts = encodable(getattr(self, column), f"{self.name}: texts of {kind} ids")
            object.__setattr__(self, f"{kind}_ids", ids)
            object.__setattr__(self, column, texts)
            if len(ids) != len(texts):
                raise ValueError(f"{self.name}: {len(ids)} {kind} ids for {len(texts)} texts")
            if len(set(ids)) != len(ids):
                twice, _ = Counter(ids).most_common(1)[0]
                raise ValueError(f"{self.name}: {kind} id {shown(twice)} occurs more than once")
        object.__setattr__(self, "qrels", read_judgements(self.qrels, self.name))
        given: Any = self.excluded
        if not (isinstance(given, Mapping) and all(isinstance(s, Set) for s in given.values())):
            accepted = "a mapping of query ids → sets of document ids"
            raise TypeError(f"{self.name}: excluded must be {accepted}; it is {shown(given)}")
        known_queries, known_documents = set(self.query_ids), set(self.document_ids)
        stray = [
            (query, document)
            for query, judged in self.qrels.items()
            for document in judged
            if query not in known_queries or document not in known_documents
        ]
        if stray:
            checked_ids([one for both in stray for one in both], f"{self.name}: ids of qrels")
            first = ", ".join(f"{query[:80]} → {document[:80]}" for query, document in stray[:3])
            raise ValueError(
                f"{self.name}: {len(stray)} judgements name a query or document that is not there, "
                f"such as {first}. Mend the qrels, or load with drop_unknown=True"
            )

    @classmethod
    def from_pairs(cls, pairs: Pairs, queries: int | None = None, seed: int = 0) -> RetrievalSet:
        """A retrieval set of pairs: all documents are the corpus, and each query has one judged
        document, its own; `queries` of them are asked, by default all.
        """
        corpus, asked = (pairs.ids, pairs.documents), (pairs.ids, pairs.queries)
        made = cls(*corpus, *asked, {one: {one: 1} for one in pairs.ids}, name=pairs.name)
        return made if queries is None else made.select_queries(queries, seed)

    def __repr__(self) -> str:
        judgements = sum(map(len, self.qrels.values()))
        sizes = f"{len(self.documents)} documents, {len(self.queries)} queries"
        return f"RetrievalSet(name={self.name!r}, {sizes}, {judgements} judgements)"

    @cached_property
    def fingerprint(self) -> str:
        """Hash of corpus, queries and judgements (16 hexadecimal digits)."""

        def parts() -> Iterator[str]:
            # how many there are comes first, so that no text can pass for one of another kind
            yield from (str(len(self.document_ids)), *self.document_ids, *self.documents)
            yield from (str(len(self.query_ids)), *self.query_ids, *self.queries)
            for query, judged in sorted(self.qrels.items()):
                yield from ("judged", query, str(len(judged)))
                for document, grade in sorted(judged.items()):
                    yield from (document, str(grade))
            for query, dropped in sorted(self.excluded.items()):
                yield from ("excluded", query, str(len(dropped)), *sorted(dropped))

        return content_hash(parts())

    def select_queries(self, size: int, seed: int = 0) -> RetrievalSet:
        """The same corpus with `size` queries drawn without replacement; all if there are fewer."""
        size, seed = checked_whole(size, "size", 0), checked_whole(seed, "seed", 0)
        if size >= len(self.queries):
            return self
        rows = np.random.default_rng(seed).choice(len(self.queries), size=size, replace=False)
        return self.asking([self.query_ids[i] for i in np.sort(rows)])

    def asking(self, query_ids: Sequence[str]) -> RetrievalSet:
        """The same corpus with these of its queries, in this order; a ValueError for others."""
        query_ids = checked_ids(query_ids, f"{self.name}: query_ids")
        if query_ids == self.query_ids:
            return self
        texts = dict(zip(self.query_ids, self.queries, strict=True))
        if stray := [one for one in query_ids if one not in texts]:
            raise ValueError(f"{self.name} has no query {shown(stray[0])}")
        return replace(
            self,
            query_ids=query_ids,
            queries=[texts[query] for query in query_ids],
            qrels={query: self.qrels[query] for query in query_ids if query in self.qrels},
        )

    def shrink(self, documents: int, queries: int, seed: int = 0) -> RetrievalSet:
        """A smaller set: `queries` queries, every document relevant to them, and others at random,
        `documents` in all (more where more are relevant).

        A smaller corpus is easier to search: numbers on it compare with each other only.
        """
        documents = checked_whole(documents, "documents", 0)
        asked = self.select_queries(checked_whole(queries, "queries", 0), seed)
        judged = {d for grades in asked.qrels.values() for d, grade in grades.items() if grade > 0}
        order = np.random.default_rng(seed).permutation(len(self.documents))
        others = [i for i in order if self.document_ids[i] not in judged]
        others = others[: max(0, documents - len(judged))]
        names = judged | {self.document_ids[i] for i in others}
        kept = [i for i, name in enumerate(self.document_ids) if name in names]
        return replace(
            asked,
            document_ids=[self.document_ids[i] for i in kept],
            documents=[self.documents[i] for i in kept],
            qrels={
                q: {d: g for d, g in grades.items() if d in names}
                for q, grades in asked.qrels.items()
            },
        )

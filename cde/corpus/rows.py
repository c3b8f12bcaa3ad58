"""Rows of an index: passages of documents, each with its vector.

A document that is short enough is one passage. Passages are slices of their document, in its order,
and begin at `starts`; put together again they are the document.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from cde.validation import Vectors

__all__ = ["Document", "Rows"]


@dataclass(frozen=True)
class Document:
    """A text with its id, and what else is known of it."""

    id: str
    text: str
    metadata: Mapping[str, Any]


@dataclass(frozen=True)
class Rows:
    """Passages, those of a document together.

    Attributes:
        ids: of the passage's document.
        places: number of the passage in its document, from 0.
        starts: where it begins in the document, in characters.
        headings: the heading above it, "" for none.
        texts: the passage.
        metadata: of the document, as JSON.
        built: whether it was there when the index was built.
        vectors: `(n, dim)` float32.
    """

    ids: list[str]
    places: list[int]
    starts: list[int]
    headings: list[str]
    texts: list[str]
    metadata: list[str]
    built: list[bool]
    vectors: Vectors

    @classmethod
    def none(cls, dim: int) -> Rows:
        """No rows, of vectors of a length."""
        return cls([], [], [], [], [], [], [], np.zeros((0, dim), np.float32))

    def __len__(self) -> int:
        return len(self.ids)

    def __add__(self, other: Rows) -> Rows:
        mine, others = self.columns(), other.columns()
        vectors = np.concatenate([self.vectors, other.vectors])
        return Rows(**{name: mine[name] + others[name] for name in mine}, vectors=vectors)

    def columns(self) -> dict[str, list[Any]]:
        """The columns but the vectors."""
        return {name: value for name, value in vars(self).items() if isinstance(value, list)}

    def take(self, rows: Sequence[int]) -> Rows:
        """The rows at these positions."""
        columns = {name: [values[row] for row in rows] for name, values in self.columns().items()}
        return Rows(**columns, vectors=self.vectors[list(rows)])

    def without(self, ids: set[str]) -> Rows:
        """The rows of other documents."""
        return self.take([row for row, name in enumerate(self.ids) if name not in ids])

    def renamed(self, new: Mapping[str, str]) -> Rows:
        """With other ids."""
        return replace(self, ids=[new[name] for name in self.ids])

    def grouped(self) -> Rows:
        """The passages of a document together and in their order, documents as they first occur."""
        if all(place == 0 for place in self.places):
            return self
        first: dict[str, int] = {}
        for row, name in enumerate(self.ids):
            first.setdefault(name, row)
        order = sorted(range(len(self)), key=lambda row: (first[self.ids[row]], self.places[row]))
        return self.take(order)

    @cached_property
    def documents(self) -> dict[str, Document]:
        """The documents by id, put together from their passages."""
        found: dict[str, Document] = {}
        rows = zip(self.ids, self.starts, self.texts, self.metadata, strict=True)
        for name, start, text, more in rows:
            before = found[name].text[:start] if start else ""
            found[name] = Document(name, before + text, json.loads(more) if more else {})
        return found

    @cached_property
    def most_passages(self) -> int:
        """Passages of the document that has most."""
        return 1 + max(self.places, default=0)

    def digests(self) -> Iterator[bytes]:
        """A hash of each row, over all that it holds."""
        vectors = np.ascontiguousarray(self.vectors, dtype="<f4")
        for columns, vector in zip(
            zip(*self.columns().values(), strict=True), vectors, strict=True
        ):
            text = json.dumps(columns).encode()  # half a surrogate pair is escaped
            yield hashlib.blake2b(text + vector.tobytes(), digest_size=16).digest()

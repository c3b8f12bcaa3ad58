"""One corpus under several models: a folder that holds an index, and others of the same documents.

The folder is that of the first index; a second model's is its subfolder `also-<name>`, and so on.
Each is an index that `cde.Index.load` reads. They are searched together by reciprocal rank fusion
(`cde.Hybrid`).

What is added or removed goes into the first index. The others follow it: documents that they lack
are embedded, those that are gone are removed. They do so whenever the folder is opened, so that a
change which was interrupted between two models is made good by the next command. `states` says what
each index is, and how far its corpus has moved since its context was drawn (`drift`).

Cost: that of each index.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cde.corpus.building import build_index, seconds_per_text
from cde.corpus.encoders import describe, named_system
from cde.corpus.index import Index
from cde.corpus.saving import Origin, locked
from cde.hardware import Precision
from cde.models import CorpusEncoder
from cde.retrieval import Hybrid

__all__ = [
    "Drift",
    "State",
    "build_folder",
    "change_folder",
    "drift",
    "named_model",
    "open_folder",
    "search_folder",
    "states",
]


_ALSO = "also-"


def named_model(
    name: str,
    context: int | None = None,
    max_tokens: int | None = None,
    precision: Precision = "auto",
) -> Any:
    """A model by the name that a user of the shell knows it by."""
    # the index keeps the vectors: a second copy in the cache would serve nobody
    model = named_system(name, max_tokens, cache=False, precision=precision)
    if context is not None:
        if not hasattr(model, "with_context"):
            raise ValueError(f"{name} is bound to no context here: only a ContextualEncoder is")
        model = _Bound(model, context)
    return model


@dataclass(frozen=True)
class _Bound:
    """A contextual encoder that is to be bound to so many documents."""

    model: Any
    size: int

    def with_context(self, texts: Sequence[str], seed: int) -> Any:
        return self.model.with_context(texts, size=self.size, seed=seed)


def build_folder(
    texts: Any,
    folder: Path | str,
    models: Mapping[str, Any],
    part: int = 512,
    replace: bool = False,
) -> list[Index]:
    """Index a corpus under several models.

    Returns:
        The indexes.
    """
    folder = Path(folder).expanduser()
    (_, first), *others = models.items()
    places = [folder / f"{_ALSO}{_file_name(name)}" for name, _ in others]
    if len(set(places)) < len(places):
        named = ", ".join(name for name, _ in others)
        raise ValueError(f"two of these models would be kept under one name; rename one: {named}")
    indexes = [build_index(texts, folder, encoder=first, part=part, replace=replace)]
    own = dict(zip(indexes[0].ids, indexes[0].texts, strict=True))
    for place in set(_others(folder)) - set(places) if replace else ():
        shutil.rmtree(place)
    for place, (_, model) in zip(places, others, strict=True):
        indexes.append(build_index(own, place, encoder=model, part=part, replace=replace))
    return indexes


def _file_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", Path(name).name) or "model"


def open_folder(folder: Path | str) -> list[Index]:
    """The indexes of a folder, the others brought to the documents of the first."""
    folder = Path(folder).expanduser()
    first = Index.load(folder)
    places = _others(folder)
    return [first, *(_follow(Index.load(place), first, place) for place in places)]


def _others(folder: Path) -> list[Path]:
    found = sorted(folder.glob(f"{_ALSO}*"))
    return [place for place in found if (place / "index.json").is_file()]


def _follow(index: Index, first: Index, place: Path) -> Index:
    """Give an index the documents of the first one, and save it if it had others."""
    wanted = dict(zip(first.ids, first.texts, strict=True))
    found = dict(zip(index.ids, index.texts, strict=True))
    if list(wanted.items()) == list(found.items()):
        return index
    # documents are added at the end: kept are those of the beginning, in the wanted order
    places = iter(found)
    fits = takewhile(lambda name: found.get(name) == wanted[name] and name in places, wanted)
    kept = set(fits)
    index.remove([name for name in found if name not in kept])
    index.add({name: text for name, text in wanted.items() if name not in kept})
    index.save(place)
    return index


def change_folder(
    folder: Path | str,
    add: Mapping[str, str] | None = None,
    remove: Sequence[str] = (),
    update: bool = False,
) -> tuple[list[Index], int, int]:
    """Add documents to a folder of indexes, or remove some; only what is new is embedded.

    Returns:
        The indexes, how many documents came, and how many went.
    """
    with locked(_index_folder(folder)):
        return _changed(folder, add, remove, update)


def _index_folder(folder: Path | str) -> Path:
    """The folder, if it is one that holds an index: a lock is put into no other."""
    place = Path(folder).expanduser()
    if not (place / "index.json").is_file():
        Index.load(place)  # says what is wrong
    return place


def _changed(
    folder: Path | str, add: Mapping[str, str] | None, remove: Sequence[str], update: bool
) -> tuple[list[Index], int, int]:
    indexes = open_folder(folder)
    first, new, gone = indexes[0], dict(add or {}), list(remove)
    if update:
        own = dict(zip(first.ids, first.texts, strict=True))
        new = {name: text for name, text in new.items() if own.get(name) != text}
        gone += [name for name in new if name in own]
    if gone:
        first.remove(gone)
    if new:
        first.add(new)
    if gone or new:
        first.save(folder)
    places = _others(Path(folder).expanduser())
    others = [_follow(one, first, place) for one, place in zip(indexes[1:], places, strict=True)]
    return [first, *others], len(new), len(gone)


def search_folder(
    indexes: Sequence[Index], query: str | Sequence[str], depth: int = 10
) -> pd.DataFrame:
    """As `Index.search`; of several indexes the rankings are fused by their ranks.

    Returns:
        A frame as `Index.search` gives; the score of several is that of `cde.Hybrid`.
    """
    if len(indexes) == 1:
        return indexes[0].search(query, depth)
    if depth < 1:
        raise ValueError(f"depth must be 1 or more; it is {depth}")
    queries = [query] if isinstance(query, str) else list(query)
    asked = indexes[0].retrieval_set({str(place): text for place, text in enumerate(queries)})
    # a document that one system has far down may be the best of all together
    rankings = Hybrid(indexes).rank(asked, max(depth, 1000))
    texts = dict(zip(asked.document_ids, asked.documents, strict=True))
    rows = [
        (queries[int(place)], name, score, texts[name])
        for place, ranking in rankings.items()
        for name, score in list(ranking.items())[:depth]
    ]
    frame = pd.DataFrame(rows, columns=["query", "id", "score", "text"])
    return frame.drop(columns="query") if isinstance(query, str) else frame


@dataclass(frozen=True)
class Drift:
    """What `drift` finds."""

    newer: float
    gone: float
    distance: float | None


def drift(origin: Origin, vectors: NDArray[np.float32], context_size: int) -> Drift:
    """How far a corpus is from the one that its context was drawn from.

    A contextual encoder reads a sample of the corpus as that was when the index was built.
    Documents come and go, the context stays. That a distance does harm is not said here: it has to
    be measured on judged queries.

    Returns:
        `newer`, the share of today's documents that came later; `gone`, the share of the earlier
        ones that are gone; and `distance`, from the mean vector of the origin to that of today's
        documents, in units of what chance does: the mean of `context_size` documents, drawn from
        today's corpus, lies one unit from its mean (root mean square, √(tr Σ / J)). Below 1 a fresh
        context could as well have been the old one, as far as means can tell; far above 1 it could
        not. The mean sees a change of topic, not every change. None where all vectors are alike, or
        there are none.
    """
    count = len(vectors)
    newer = (count - origin.still) / count if count else 0.0
    gone = (origin.documents - origin.still) / origin.documents if origin.documents else 0.0
    if not count or not vectors.shape[1]:
        return Drift(newer, gone, None)
    mean = vectors.mean(axis=0, dtype=np.float64)
    square = np.einsum("ij,ij->", vectors, vectors, dtype=np.float64) / count
    spread = max(float(square - mean @ mean), 0.0)
    moved = float(np.linalg.norm(mean - origin.mean.astype(np.float64)))
    moved = moved if moved > 1e-6 * np.sqrt(square) else 0.0  # the mean is kept in float32
    unit = float(np.sqrt(spread / context_size))
    distance = moved / unit if unit > 1e-6 * np.sqrt(square) else None
    return Drift(newer, gone, distance)


@dataclass(frozen=True)
class State:
    """What there is to say of an index."""

    folder: str
    documents: int
    dim: int
    model: str
    fingerprint: str
    index: str
    context: str
    drift: Drift | None
    seconds: float | None


def states(folder: Path | str) -> list[State]:
    """What there is to say of each index of a folder; no document is embedded, none changed."""
    folder = Path(folder).expanduser()
    found = []
    for place in [folder, *_others(folder)]:
        index = Index.load(place)
        encoder, origin = index.encoder, index._origin
        context = encoder.drawn if isinstance(encoder, CorpusEncoder) else ""
        size = 1
        if isinstance(encoder, CorpusEncoder):
            size = len(encoder.context) if encoder.context is not None else 1
        each = seconds_per_text(place)
        found.append(
            State(
                str(place),
                len(index),
                index.vectors.shape[1],
                describe(encoder),
                index._record["fingerprint"] or "",
                index.fingerprint,
                context,
                drift(origin, index.vectors, size) if origin else None,
                None if each is None else each * len(index),
            )
        )
    return found

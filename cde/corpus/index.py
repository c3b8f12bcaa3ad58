"""An index: one's own documents with their vectors, searched exactly, kept in step with a source.

Cost: the embedding of the documents, once; n × dim multiply-adds a query; all texts and vectors in
memory (100,000 passages of 384 dimensions: 150 MB).
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pandas as pd

from cde import retrieval  # whose parts are loaded on first use: a search by words needs no torch
from cde.corpus.chunks import OnLong, limit_of, passages
from cde.corpus.encoders import Model, checked_encoder, embedded, record_of, require_same, restored
from cde.corpus.files import (
    UNREADABLE,
    LeftOut,
    Source,
    named_documents,
    read_and_warn,
    read_source,
)
from cde.corpus.table import (
    Document,
    Drift,
    Origin,
    Row,
    Rows,
    Table,
    drift,
    locked,
    read_settings,
    require_free,
)
from cde.data import RetrievalSet
from cde.lexical import BM25
from cde.progress import progress
from cde.storage import folder_hash, set_aside
from cde.validation import Vectors, called, checked_path, checked_whole, encodable, shown

__all__ = ["Changes", "Index", "Status"]

#: documents that are embedded between two writes of an index in a folder
PART = 512
_FOUND = ["query", "id", "score", "text", "passage", "heading", "metadata"]


@dataclass(frozen=True)
class Changes:
    """What `sync` or `add_from` did: ids of documents, and what of the source was not read."""

    added: list[str]
    changed: list[str]
    removed: list[str]
    moved: list[str]
    kept: int
    left_out: list[LeftOut]

    def __str__(self) -> str:
        names = ("added", "changed", "removed", "moved")
        counts = [f"{len(getattr(self, name)):,} {name}" for name in names]
        return ", ".join([*counts, f"{self.kept:,} kept"])


@dataclass(frozen=True)
class Status:
    """What there is to say of an index."""

    documents: int
    passages: int
    dim: int
    model: str
    fingerprint: str
    source: str
    context: str
    #: what adapting its encoder is expected to gain; "" where it is not adapted
    adapted: str
    drift: Drift


class Index:
    """Documents that can be searched.

    Args:
        texts: a list of strings; or a mapping of id → text, or of id → {"title"?, "text", …} as
            BEIR has it, whose other fields are metadata; or a `RetrievalSet`, whose corpus is
            taken; or a table, a `DataFrame` of pandas or polars, a `Table` of Arrow, a `Dataset` of
            datasets or a list of records, with a column "text" and perhaps "title", "id" or "_id".
        ids: a string for each text of a list or row of a table; by default "0", "1", …, for a
            frame without a column of ids, and for a `Series`, its own index.
        encoder: anything with `encode_queries` and `encode_documents`, or a `SentenceTransformer`
            (give it to `load` again); by default `cde.Surrogate()`, MiniLM, which works offline and
            keeps its vectors on disk. `cde.BM25()` has no vectors. A `ContextualEncoder` is bound
            to the texts, as `.with_context(texts)` does with seed 0, once: documents that are added
            leave its context as it is. Bind it yourself for another size, seed or context.
        columns: names of a table's columns, such as ``{"text": "body", "id": "key"}``.
        on_long: what becomes of documents that are longer than the encoder reads: "chunk" indexes
            them in passages, "warn" and "truncate" leave them whole, so that the encoder cuts off
            the rest, and "error" refuses them.
        sample_queries: some of what people ask, without judgements: the encoder is adapted to the
            corpus by them (`cde.adapted`), which is worth points on some kinds of text.

    Raises:
        TypeError: texts or ids that are not strings; another ranker, or no encoder at all.
        ValueError: an id that occurs twice, or not as many ids as texts.

    The order of documents with equal scores is not fixed.

    Example:
        >>> index = Index({"a": "red boats", "b": "a green house", "c": "soup with leeks"})
        >>> index
        Index(3 documents, 384 dimensions; Surrogate('minilm'))
        >>> index.search("scarlet ships", depth=1)["id"].tolist()
        ['a']
        >>> index["b"].text
        'a green house'
    """

    _rows: Rows | None
    _origin: Origin

    def __init__(
        self,
        texts: Any,
        ids: Sequence[str] | None = None,
        encoder: Any = None,
        columns: Mapping[str, str] | None = None,
        on_long: OnLong = "chunk",
        sample_queries: Sequence[str] | None = None,
    ) -> None:
        documents = named_documents(texts, ids, columns)
        self._begin(_fitted(encoder, documents, sample_queries), on_long)
        self._rows = self._embedded(documents, built=True)
        self._origin = Origin.of(self._rows.vectors)

    def _begin(self, encoder: Model, on_long: OnLong, record: Any = None) -> None:
        if on_long not in get_args(OnLong):
            raise ValueError(f"on_long must be one of {get_args(OnLong)}; it is {shown(on_long)}")
        self._encoder, self._on_long = encoder, on_long
        self._record = record or record_of(encoder)
        self._limit = limit_of(encoder)
        self._rows = None  # replaced, never changed: a search keeps what it has
        self._table: Table | None = None
        self._version, self._source = -1, Source()
        self._words: tuple[Rows, BM25] | None = None

    @classmethod
    def from_folder(
        cls,
        path: Path | str,
        encoder: Any = None,
        columns: Mapping[str, str] | None = None,
        on_long: OnLong = "chunk",
    ) -> Index:
        """An index in memory of a folder of files, mixed as they are, or of one such file.

        A text file is one document, its id the path below the folder; a row of a `.jsonl[.gz]`,
        `.csv`, `.tsv` or `.parquet` is one. Hidden files are passed over; of a folder in BEIR's
        layout the corpus alone is read. A warning counts by reason what was left out, documents
        above 10 MB among it.

        Raises:
            FileNotFoundError: no such folder or file.
            ValueError: nothing that can be read, or an id that occurs twice.
        """
        source = Source.of(path, columns)
        index = cls(read_and_warn(source), encoder=encoder, on_long=on_long)
        index._source = source
        return index

    @classmethod
    def build(
        cls,
        texts: Any,
        folder: Path | str,
        ids: Sequence[str] | None = None,
        encoder: Any = None,
        columns: Mapping[str, str] | None = None,
        on_long: OnLong = "chunk",
        sample_queries: Sequence[str] | None = None,
        replace: bool = False,
    ) -> Index:
        """An index in a folder, written while it is embedded.

        A build that is killed at any moment goes on, when it is begun again, after the last part.

        Args:
            texts: as for `Index`, or the path of a folder or file, as for `from_folder`, which
                `sync` reads again.
            folder: a new folder, an empty one, or one with this index.
            ids, encoder, columns, on_long, sample_queries: as for `Index`; no ids for a path.
            replace: put it in the place of another index, which is there until this one is done
                (one of the same encoder is changed document by document, as by `sync`).

        Raises:
            FileExistsError: a file, a folder with something else in it, or another index.
        """
        folder, source = checked_path(folder).expanduser(), Source()
        require_free(folder)
        if isinstance(texts, Path | str):
            if ids is not None:
                raise ValueError("ids are for a list of texts; files have ids of their own")
            source = Source.of(texts, columns)
            documents = read_and_warn(source)
        else:
            documents = named_documents(texts, ids, columns)
        index = cls.__new__(cls)
        index._begin(_fitted(encoder, documents, sample_queries), on_long)
        index._source = source
        with locked(folder):
            return index._built(folder, documents, replace)

    def _built(self, folder: Path, documents: list[Document], replace: bool) -> Index:
        before = read_settings(folder)
        dim = 0 if isinstance(self.encoder, BM25) else getattr(self.encoder, "dim", None)
        if dim is None:
            probe = [one.text for one in documents[:1]]
            dim = embedded(self.encoder, probe, "documents").shape[1]
        self._table = Table(folder, self._record, dim, found=False)
        try:
            rows = self._read_rows()
        except ValueError as error:
            if before:
                raise
            set_aside(folder / f"{self._table.name}.lance", str(error))
            self._table = Table(folder, self._record, dim, found=False)
            rows = self._read_rows()
        if len(rows):  # of an encoder without a fingerprint the vectors are asked
            require_same(self._record, self.encoder, rows.texts, rows.vectors)
        # in passages, or whole
        cut_alike = not before or (before["on_long"] == "chunk") == (self._on_long == "chunk")
        if before and not replace:
            same = before["encoder"]["fingerprint"] == self._record["fingerprint"] and cut_alike
            if not same or rows.documents != {one.id: one for one in documents}:
                raise FileExistsError(
                    f"{folder} holds another index, of {before['encoder']['name']}: "
                    "index.sync(…) brings it up to date, replace=True (--replace) replaces it"
                )
            return Index.load(folder, self.encoder)
        self._table.keep(self.encoder)
        self._bring(documents, built=True, prune=True, anew=not cut_alike)
        rows = self._read_rows()
        if not all(row.built for row in rows.passages):  # added since an earlier build
            rows = Rows([row._replace(built=True) for row in rows.passages], rows.vectors)
            self._table.overwrite(rows)
            self._rows = rows
        self._origin = Origin.of(rows.vectors)
        self._table.finish(self._settings())
        self._version = self._table.version
        return self

    def _settings(self) -> dict[str, Any]:
        return {
            "encoder": self._record,
            "on_long": self._on_long,
            "source": asdict(self._source),
            "origin": asdict(self._origin),
        }

    @classmethod
    def load(cls, folder: Path | str, encoder: Any = None) -> Index:
        """An index in a folder; changes to it are written at once.

        Args:
            folder: the folder.
            encoder: the encoder that made the vectors, at hand already. By default it is made
                again: an encoder of `cde.models` from the folder, a `Surrogate` from its settings.
                It must be given where it is of a class of its own.

        Raises:
            FileNotFoundError: no such folder.
            ValueError: a folder without an index, or with a damaged one (what, and what to do); an
                encoder that did not make the vectors, or is missing.
        """
        folder = checked_path(folder).expanduser()
        if not folder.is_dir():
            raise FileNotFoundError(f"no folder {folder}: Index.build(texts, folder) makes one")
        if (settings := read_settings(folder)) is None:
            how = "Index.build(texts, folder) makes one"
            if any(folder.glob("rows-*.lance")):
                how = "a build was interrupted, and the same one goes on from there"
            raise ValueError(f"{folder} holds no index: {how}")
        record = settings["encoder"]
        table = Table(folder, record, settings["dim"], found=True)
        index = cls.__new__(cls)
        try:
            if encoder is None:
                if folder_hash(kept := table.encoder_folder) != settings["kept"]:
                    raise ValueError(f"{kept} is damaged: build the index again from its texts")
                made = restored(record, kept)
            else:
                made = checked_encoder(encoder, None)
            index._begin(made, settings["on_long"], record)
            index._table, index._source = table, Source(**settings["source"])
            index._origin = Origin(**settings["origin"])
            rows = index._read_rows()
            if encoder is not None:
                require_same(record, made, rows.texts, rows.vectors)
        except ValueError as error:
            raise ValueError(f"the index {folder} cannot be loaded: {error}") from error
        return index

    def save(self, folder: Path | str) -> Path:
        """Write the index into a folder, with the encoder where `cde.models` defines it: a new
        folder, an empty one, or one with an index, which is replaced.

        Raises:
            FileExistsError: a file, or a folder with something else in it.
            ValueError: the encoder has changed since the documents were embedded.
        """
        self._require_unchanged_encoder()
        folder, rows = checked_path(folder).expanduser(), self._read_rows()
        if self._table is not None and folder.resolve() == self._table.folder.resolve():
            return folder  # changes are written as they are made
        require_free(folder)
        with locked(folder):
            table = Table(folder, self._record, rows.vectors.shape[1], found=False)
            table.keep(self.encoder)
            table.overwrite(rows)
            table.finish(self._settings())
        return folder

    # what is in it

    def _read_rows(self) -> Rows:
        """The rows, read again where another process has changed them."""
        if self._table is not None and (version := self._table.version) != self._version:
            self._rows, self._version = self._table.read(), version
        assert self._rows is not None
        return self._rows

    def __len__(self) -> int:
        return len(self._read_rows().documents)

    def __contains__(self, document_id: object) -> bool:
        return document_id in self._read_rows().documents

    def __iter__(self) -> Iterator[Document]:
        return iter(self._read_rows().documents.values())

    def __getitem__(self, document_id: str) -> Document:
        return self._read_rows().documents[document_id]

    def __repr__(self) -> str:
        rows = self._read_rows()
        several = f" in {len(rows):,} passages" if rows.most_passages > 1 else ""
        of = f"{len(self):,} documents{several}, {rows.vectors.shape[1]} dimensions"
        return f"Index({of}; {called(self.encoder)})"

    @property
    def encoder(self) -> Model:
        """What embeds documents and queries, or BM25."""
        return self._encoder

    @property
    def ids(self) -> tuple[str, ...]:
        """Ids of the documents, in their order."""
        return tuple(self._read_rows().documents)

    @property
    def texts(self) -> tuple[str, ...]:
        """Texts of the documents, in their order."""
        return tuple(one.text for one in self)

    @property
    def vectors(self) -> Vectors:
        """Vectors of the passages, `(n, dim)` float32, not to be written to."""
        view = self._read_rows().vectors.view()
        view.flags.writeable = False
        return view

    @property
    def folder(self) -> Path | None:
        """The folder that it is kept in; None in memory."""
        return None if self._table is None else self._table.folder

    @property
    def fingerprint(self) -> str:
        """sha256 of passages, vectors and encoder, in any order: of indexes that answer alike."""
        mark = f"{self._record['fingerprint']}".encode()
        return hashlib.sha256(mark + b"".join(sorted(self._read_rows().digests()))).hexdigest()

    def status(self) -> Status:
        """What there is to say of it."""
        rows, encoder = self._read_rows(), self.encoder
        read = getattr(encoder, "context", None)  # of one that is bound to a corpus
        size = 1 if read is None else len(read)
        still = sum(row.built for row in rows.passages)
        return Status(
            documents=len(self),
            passages=len(rows),
            dim=rows.vectors.shape[1],
            model=called(encoder),
            fingerprint=self._record["fingerprint"] or "",
            source=self._source.path,
            context=getattr(encoder, "drawn", ""),
            adapted=getattr(encoder, "expected", ""),
            drift=drift(self._origin, still, rows.vectors, size),
        )

    # searching

    def search(
        self,
        query: str | Sequence[str],
        depth: int = 10,
        where: Mapping[str, Any] | Callable[[Document], bool] | None = None,
        words: bool = False,
    ) -> pd.DataFrame:
        """The documents nearest to a query, or to each of several.

        Args:
            query: one query, or a list of them.
            depth: how many documents to return; at most as many as there are.
            where: only documents with these values of metadata, or for which a function is true. A
                warning names what is in no document's metadata.
            words: fuse the ranking with that of BM25, by reciprocal ranks.

        Returns:
            A frame with a row for each document, best first: its id, its score (float32, the inner
            product; of BM25 its own; with `words` a sum of reciprocal ranks), its best passage
            (number, heading and text), and its metadata. BM25 finds only documents with a score
            above 0. For several queries, in their order, the first column, `query`, has their text.

        Raises:
            TypeError: queries that are not strings.
            ValueError: a depth below 1.

        Example:
            >>> index = Index({"a": {"text": "red boats", "year": 1}, "b": "a green house"})
            >>> index.search(["ships", "a building"], depth=1)[["query", "id"]].to_numpy().tolist()
            [['ships', 'a'], ['a building', 'b']]
            >>> index.search("a building", where={"year": 1})["id"].tolist()
            ['a']
        """
        queries = encodable([query] if isinstance(query, str) else query, "queries")
        rows, depth = self._read_rows(), checked_whole(depth, "depth")
        if where is not None:
            if not callable(where) and not isinstance(where, Mapping):
                raise TypeError(f"where must be a mapping or a function; it is {shown(where)}")
            holds = where if callable(where) else lambda one: where.items() <= one.metadata.items()
            wanted = {name for name, one in rows.documents.items() if holds(one)}
            if not wanted and isinstance(where, Mapping):
                known = {name for one in rows.documents.values() for name in one.metadata}
                if strange := sorted(set(where) - known, key=str):
                    said = f"no document's metadata have {strange}; they have {sorted(known)}"
                    warnings.warn(said, stacklevel=2)
            rows = rows.where(wanted.__contains__)
        found = self._found(rows, queries, max(depth, 1000) if words else depth)
        if words:
            by_words = self._found(rows, queries, max(depth, 1000), words=True)
            found = [_fused(both, rows, depth) for both in zip(found, by_words, strict=True)]
        lines = []
        for text, scores in zip(queries, found, strict=True):
            for place, score in scores.items():
                row = rows.passages[place]
                more = json.loads(row.metadata or "{}")
                lines.append((text, row.id, score, row.text, row.place, row.heading, more))
        frame = pd.DataFrame(lines, columns=_FOUND).astype({"score": np.float32})
        return frame.drop(columns="query") if isinstance(query, str) else frame

    def _found(
        self, rows: Rows, queries: Sequence[str], depth: int, words: bool = False
    ) -> list[dict[int, float]]:
        """The best passage of each of the best documents, with its score, best first."""
        # a document has so many passages at most: among these there are enough documents
        most = depth * rows.most_passages
        if words or isinstance(self.encoder, BM25):
            if self._words is None or self._words[0] is not rows:
                own = self.encoder if isinstance(self.encoder, BM25) else BM25()
                self._words = rows, BM25(rows.texts, own.k1, own.b)
            found = self._words[1].search(queries, most)
        else:
            vectors = embedded(self.encoder, queries, "queries", rows.vectors.shape[1])
            scores, places = retrieval.search(vectors, rows.vectors, most)
            pairs = zip(places.tolist(), scores.tolist(), strict=True)
            found = [dict(zip(*both, strict=True)) for both in pairs]
        for row, ranking in enumerate(found):
            first: dict[str, int] = {}  # passage of each document
            for place in ranking:
                first.setdefault(rows.passages[place].id, place)
            found[row] = {place: ranking[place] for place in [*first.values()][:depth]}
        return found

    def retrieval_set(
        self, queries: Mapping[str, str], qrels: Any = None, name: str = "index"
    ) -> RetrievalSet:
        """This corpus with queries (id → text) and perhaps judgements, in any form that
        `RetrievalSet` takes: then queries without one are left out, as in BEIR.
        """
        if not isinstance(queries, Mapping):
            raise TypeError(f"queries must be a mapping of ids → texts; they are {shown(queries)}")
        texts = _texts(self._read_rows())
        corpus, asked = (list(texts), list(texts.values())), (list(queries), list(queries.values()))
        made = RetrievalSet(*corpus, *asked, {} if qrels is None else qrels, name=name)
        return made if qrels is None else made.asking([q for q in queries if made.qrels.get(q)])

    def rank(self, retrieval_set: RetrievalSet, depth: int = 1000) -> retrieval.Rankings:
        """Rank this corpus for the queries of a set: query id → document id → score. So an index
        stands wherever a ranker does: in `cde.evaluate`, `cde.compare`, `cde.Hybrid`.

        Raises:
            ValueError: a set with another corpus.
        """
        rows = self._read_rows()
        asked = zip(retrieval_set.document_ids, retrieval_set.documents, strict=True)
        if dict(asked) != _texts(rows):
            how = "index.retrieval_set(queries, qrels) makes a set of this corpus"
            raise ValueError(f"{retrieval_set!r} has another corpus than {self!r}: {how}")
        found = self._found(rows, retrieval_set.queries, checked_whole(depth, "depth"))
        return {
            query: {rows.passages[place].id: score for place, score in scores.items()}
            for query, scores in zip(retrieval_set.query_ids, found, strict=True)
        }

    def evaluate(
        self,
        queries: Mapping[str, str],
        qrels: Any,
        metrics: str | Sequence[str] = ("ndcg@10",),
        depth: int = 1000,
        drop_own: bool = False,
    ) -> dict[str, float]:
        """`cde.evaluate` on `retrieval_set(queries, qrels)`; documents with a query's id count."""
        collection = self.retrieval_set(queries, qrels)
        return retrieval.evaluate(self, collection, metrics, depth, drop_own=drop_own)

    # changing

    def add(
        self, texts: Any, ids: Sequence[str] | None = None, columns: Mapping[str, str] | None = None
    ) -> list[str]:
        """Add documents, given as for `Index`; these alone are embedded. Without ids, numbers go on
        after the largest. Their ids are returned.

        Raises:
            ValueError: an id that is there already (nothing is added then), or an encoder that has
                changed since the other documents were embedded.

        Example:
            >>> index = Index(["red boats"])
            >>> index.add(["a green house", "soup"])
            ['1', '2']
        """
        with self._alone():
            documents = named_documents(texts, ids, columns, self.ids)
            self._require_unchanged_encoder()
            self._put(self._embedded(documents), set())
        return [one.id for one in documents]

    def add_from(self, path: Path | str, columns: Mapping[str, str] | None = None) -> Changes:
        """Add the documents of a folder or file. Below the folder that the index was built of they
        have the same ids and columns as there, and those that changed replace the earlier ones.

        Raises:
            ValueError: a document whose id another source's document has.
            FileNotFoundError: no such folder or file.
        """
        given, below = self._source_at(path, columns)
        documents, left_out = read_source(given, self._source.path if below else "")
        with self._alone():
            have = self._read_rows().documents
            clash = [one.id for one in documents if one.id in have and one != have[one.id]]
            if clash and not below:
                raise ValueError(
                    f"{len(clash)} ids of {path} are those of other documents, such as "
                    f"{', '.join(clash[:3])}: index the folder above both, or rename them"
                )
            self._require_unchanged_encoder()
            return Changes(**self._bring(documents), left_out=left_out)

    def remove(self, ids: str | Sequence[str]) -> None:
        """Remove one document or several; the others keep their vectors and their order.

        Raises:
            ValueError: an id that is not there (nothing is removed then).
        """
        with self._alone():
            gone = set([ids] if isinstance(ids, str) else encodable(ids, "ids"))
            if stray := sorted(gone - set(self.ids)):
                some = ", ".join(one[:60] for one in stray[:3])
                raise ValueError(f"ids that are not among index.ids: {len(stray)}, such as {some}")
            if gone:
                self._put(None, gone)

    def sync(self, source: Any = None, columns: Mapping[str, str] | None = None) -> Changes:
        """Make the index equal to its source: what is new or changed is embedded, what is gone is
        removed, and a text that has moved to another id keeps its vectors. While a file cannot be
        opened or is damaged, nothing is removed, with a warning. What is read and left out (text
        that is not UTF-8 or above 10 MB, a table without the text column) counts as gone.

        Args:
            source: as for `build`; by default the folder or file that it was built of.
            columns: as for `Index`; within the index's own source by default its own.

        Raises:
            ValueError: no source, or one in which nothing can be read; an encoder that has changed.
            FileNotFoundError: the folder or file is gone.

        Example:
            >>> index = Index({"a": "red boats", "b": "a green house"})
            >>> print(index.sync({"a": "red boats", "c": "soup"}))
            1 added, 0 changed, 1 removed, 0 moved, 1 kept
        """
        left_out: list[LeftOut] = []
        given = None
        if source is None or isinstance(source, Path | str):
            given, _ = self._source_at(self._source.path if source is None else source, columns)
            documents, left_out = read_source(given)
        else:
            documents = named_documents(source, None, columns)
        unread = [one for one in left_out if one.reason.startswith(UNREADABLE)]
        if unread:
            some = f"{len(unread):,} of the source {UNREADABLE}, such as {unread[0]}"
            warnings.warn(f"nothing is removed, as {some}", stacklevel=2)
        with self._alone():
            self._require_unchanged_encoder()
            done = self._bring(documents, prune=not unread)
            if given is not None:
                self._source = given
            if self._table is not None:
                self._table.finish(self._settings())
        return Changes(**done, left_out=left_out)

    def _source_at(
        self, path: Path | str, columns: Mapping[str, str] | None
    ) -> tuple[Source, bool]:
        """A folder or file; whether it lies in the index's source, whose columns it then has."""
        if path == "":
            return Source(), False
        own, given = self._source, Source.of(path, columns)
        below = bool(own.path) and Path(given.path).is_relative_to(own.path)
        return (replace(given, columns={**own.columns, **given.columns}) if below else given), below

    def _alone(self) -> AbstractContextManager[Any]:
        return nullcontext() if self._table is None else locked(self._table.folder)

    def _put(self, rows: Rows | None, gone: set[str]) -> None:
        """Rows of documents come, those of replaced and removed ones go; one step for a reader."""
        if self._table is not None:
            self._table.put(rows, gone)
            return
        kept = self._read_rows()
        if gone:
            kept = kept.where(lambda name: name not in gone)
        self._rows = kept if rows is None else kept + rows

    def _bring(
        self,
        documents: Sequence[Document],
        built: bool = False,
        prune: bool = False,
        anew: bool = False,
    ) -> dict[str, Any]:
        """Bring documents in, those that are there too if `anew`; if `prune`, others go."""
        rows = self._read_rows()
        have = rows.documents
        wanted = {one.id for one in documents}
        new = [one for one in documents if anew or one != have.get(one.id)]
        gone = sorted(set(have) - wanted) if prune else []
        places = {} if anew else {have[name].text: name for name in gone}
        moved = {places[one.text]: one for one in new if one.id not in have and one.text in places}
        if moved:
            before = rows.where(moved.__contains__)
            passages = [
                row._replace(id=moved[row.id].id, metadata=_as_json(moved[row.id].metadata))
                for row in before.passages
            ]
            self._put(Rows(passages, before.vectors), set(moved))
        came = {one.id for one in moved.values()}
        rest = [one for one in new if one.id not in came]
        parts = [rest[start : start + PART] for start in range(0, len(rest), PART)]
        for some in progress(parts, f"indexing {len(rest):,} documents", unit="parts"):
            self._put(self._embedded(some, built), {one.id for one in some if one.id in have})
        left = [name for name in gone if name not in moved]
        for start in range(0, len(left), 1000):
            self._put(None, set(left[start : start + 1000]))
        return {
            "added": [one.id for one in rest if one.id not in have],
            "changed": [one.id for one in rest if one.id in have],
            "removed": left,
            "moved": [one.id for one in moved.values()],
            "kept": len(wanted) - len(new),
        }

    def _embedded(self, documents: Sequence[Document], built: bool = False) -> Rows:
        dim = None if self._rows is None else self._rows.vectors.shape[1]
        found = passages([one.text for one in documents], self._limit, self._on_long)
        rows = [
            Row(one.id, place, part.start, part.heading, part.text, _as_json(one.metadata), built)
            for one, parts in zip(documents, found, strict=True)
            for place, part in enumerate(parts)
        ]
        return Rows(rows, embedded(self.encoder, [row.text for row in rows], "documents", dim))

    def _require_unchanged_encoder(self) -> None:
        if record_of(self.encoder)["fingerprint"] != self._record["fingerprint"]:
            changed = "has changed since the documents were embedded: make a new index with it"
            raise ValueError(f"{called(self.encoder)} {changed}")


def _fitted(encoder: Any, documents: list[Document], sample_queries: Any) -> Model:
    """The encoder to index with, adapted to the corpus where there are sample queries."""
    texts = [one.text for one in documents]
    model = checked_encoder(encoder, texts)
    if sample_queries is None:
        return model
    if isinstance(model, BM25):
        raise ValueError("sample_queries adapt an encoder, and BM25 has no vectors: leave them out")
    from cde.adaptation import adapted

    return adapted(model, texts, sample_queries)


def _as_json(metadata: Mapping[str, Any]) -> str:
    return json.dumps(metadata) if metadata else ""  # half a surrogate pair is escaped


def _texts(rows: Rows) -> dict[str, str]:
    return {name: one.text for name, one in rows.documents.items()}


def _fused(both: Sequence[Mapping[int, float]], rows: Rows, depth: int) -> dict[int, float]:
    """Two rankings of documents as one; of a document's two passages the first ranking's counts."""
    from cde.retrieval.ranking import fused

    passage: dict[str, int] = {}
    scores: list[dict[str, float]] = []
    for ranking in both:
        scores.append({rows.passages[place].id: score for place, score in ranking.items()})
        passage = dict(zip(scores[-1], ranking, strict=True)) | passage
    best = fused(scores, len(rows))
    return {passage[name]: best[name] for name in [*best][:depth]}

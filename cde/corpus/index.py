"""An index: documents of one's own with their vectors, searched exactly, saved and updated.

`Index(texts)` embeds each document once. A search embeds the query and takes the largest inner
products with all documents (`cde.retrieval.search`); nothing is approximated. What is added is
embedded alone; what is removed is forgotten.

An index is also a ranker: `cde.compare(index, cde.BM25(), collection)` and
`cde.Hybrid([index, cde.BM25()])` take it, with `index.retrieval_set(…)` as what is searched.

Cost: the embedding of the documents, once; n × dim multiply-adds a query; all texts and n × dim
float32 in memory (100,000 documents of 384 dimensions: 150 MB). Adding and removing copy the
vectors: give many documents at a time.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cde.corpus.encoders import (
    Model,
    checked_encoder,
    describe,
    embedded,
    record_of,
    require_same,
    restored,
)
from cde.corpus.files import LARGEST, judged_set, left_out_of, named_texts, read_texts
from cde.corpus.saving import Origin, Saved, encoder_folder, fingerprint, read_index, write_index
from cde.data import RetrievalSet
from cde.lexical import BM25
from cde.retrieval import Rankings, evaluate, search
from cde.validation import checked_whole, encodable

__all__ = ["Index"]


class Index:
    """Documents that can be searched.

    Args:
        texts: a list of strings; or a mapping of id → text, or of id → {"title"?, "text"} as BEIR
            has it; or a `RetrievalSet`, whose corpus is taken; or a table, a `DataFrame` of pandas
            or a `Dataset` of datasets, with a column "text" and perhaps "title", "id" or "_id".
        ids: a string for each text of a list or row of a table; by default "0", "1", …, for a
            frame without a column of ids its own index.
        encoder: anything with `encode_queries` and `encode_documents`, or a `SentenceTransformer`
            (give it to `load` again); by default `cde.Surrogate()`, MiniLM, which works offline and
            keeps its vectors on disk. `cde.BM25()` has no vectors. A `ContextualEncoder` is bound
            to the texts, as `.with_context(texts)` does with seed 0, once: documents that are added
            leave its context as it is. Bind it yourself for another size, seed or context.
        columns: names of a table's columns, such as ``{"text": "body", "id": "key"}``.

    Raises:
        TypeError: texts or ids that are no strings; another ranker, or no encoder at all.
        ValueError: an id that occurs twice, or not as many ids as texts.

    The order of documents with equal scores is not fixed.

    Example:
        >>> index = Index({"a": "red boats", "b": "a green house", "c": "soup with leeks"})
        >>> index
        Index(3 documents, 384 dimensions; Surrogate('minilm'))
        >>> index.search("scarlet ships", depth=1)["id"].tolist()
        ['a']
    """

    def __init__(
        self,
        texts: Any,
        ids: Sequence[str] | None = None,
        encoder: Any = None,
        columns: Mapping[str, str] | None = None,
    ) -> None:
        self._ids, self._texts = named_texts(texts, ids, columns)
        self._encoder = checked_encoder(encoder, self._texts)
        self._vectors = embedded(self._encoder, self._texts, "documents")
        self._record = record_of(self._encoder)
        self._origin: Origin | None = Origin.of(self._vectors)
        self._words: BM25 | None = None

    @classmethod
    def from_folder(
        cls,
        path: Path | str,
        encoder: Any = None,
        columns: Mapping[str, str] | None = None,
        largest: int = LARGEST,
    ) -> Index:
        """An index of a folder of files, mixed as they are, or of one such file.

        Args:
            path: the folder or file. A `.txt` or `.md` is one document, its id the path below the
                folder. A row of a `.jsonl[.gz]`, `.csv`, `.tsv` or `.parquet` is one: columns
                "text", "title" and "id" or "_id", as BEIR has them. Hidden files are passed over;
                of a folder in BEIR's layout the corpus alone is read.
            encoder, columns: as for `Index`.
            largest: bytes that a document may have; larger ones are left out.

        Raises:
            FileNotFoundError: no such folder or file.
            ValueError: nothing that can be read, or an id that occurs twice.

        Warns:
            UserWarning: listing what was left out: files and rows that are empty, not UTF-8, too
                large or not to be opened, and rows that are no documents.

        Example:
            >>> import tempfile
            >>> folder = Path(tempfile.mkdtemp())
            >>> _ = (folder / "boats.md").write_text("Boats are red.")
            >>> Index.from_folder(folder).ids
            ('boats.md',)
        """
        texts, left_out = read_texts(path, columns, largest)
        if left_out:
            said = left_out_of(path, len(texts), left_out)
            warnings.warn(said, UserWarning, stacklevel=2)
        return cls(texts, encoder=encoder)

    @classmethod
    def load(cls, folder: Path | str, encoder: Any = None) -> Index:
        """An index that `save` wrote.

        Args:
            folder: the folder.
            encoder: the encoder that made the vectors, at hand already. By default it is made anew:
                an encoder of `cde.models` from the folder, a `Surrogate` from its settings. It must
                be given where it is of a class of its own.

        Raises:
            FileNotFoundError: no such folder.
            ValueError: a folder without an index, or with a damaged one (which file, and what to
                do); an encoder that did not make the vectors, or is missing.

        Example:
            >>> import tempfile
            >>> folder = Index(["red boats"], ids=["a"]).save(Path(tempfile.mkdtemp()) / "boats")
            >>> Index.load(folder).search("ships")["text"].tolist()
            ['red boats']
        """
        saved = read_index(folder, with_encoder=encoder is None)
        try:
            if encoder is None:
                encoder = restored(saved.encoder, encoder_folder(folder, saved.encoder))
            else:
                encoder = checked_encoder(encoder, None)
                require_same(saved.encoder, encoder, saved.texts, saved.vectors)
        except ValueError as error:
            raise ValueError(f"the index {folder} cannot be loaded: {error}") from error
        return cls._of(saved, encoder)

    @classmethod
    def _of(cls, saved: Saved, encoder: Any) -> Index:
        index = cls.__new__(cls)
        index._ids, index._texts = saved.ids, saved.texts
        index._encoder, index._vectors = encoder, saved.vectors
        index._record, index._origin, index._words = saved.encoder, saved.origin, None
        return index

    def save(self, folder: Path | str) -> Path:
        """Write documents, vectors and, where `cde.models` defines it, the encoder into a folder.

        Args:
            folder: a new folder, an empty one, or one with an index, which is replaced: a reader
                finds the old index or the new one, never a mixture.

        Returns:
            The folder.

        Raises:
            FileExistsError: a file, or a folder with something else in it.
            ValueError: the encoder has changed since the documents were embedded.
        """
        self._require_unchanged_encoder()
        saved = Saved(self._ids, self._texts, self._vectors, self._record, self._origin)
        return write_index(folder, saved, self._encoder)

    def __len__(self) -> int:
        return len(self._ids)

    def __contains__(self, document_id: object) -> bool:
        return document_id in self._ids

    def __repr__(self) -> str:
        count, dim = self._vectors.shape
        return f"Index({count:,} documents, {dim} dimensions; {describe(self._encoder)})"

    @property
    def ids(self) -> tuple[str, ...]:
        """Ids of the documents, in their order."""
        return tuple(self._ids)

    @property
    def texts(self) -> tuple[str, ...]:
        """Texts of the documents, in their order."""
        return tuple(self._texts)

    @property
    def vectors(self) -> NDArray[np.float32]:
        """Vectors of the documents, `(n, dim)` float32, not to be written to."""
        view = self._vectors.view()
        view.flags.writeable = False
        return view

    @property
    def encoder(self) -> Model:
        """What embeds documents and queries, or BM25."""
        return self._encoder

    @property
    def fingerprint(self) -> str:
        """sha256 of documents, vectors and encoder: that of two indexes which answer alike."""
        return fingerprint(self._ids, self._texts, self._vectors, self._record)

    def search(self, query: str | Sequence[str], depth: int = 10) -> pd.DataFrame:
        """The documents nearest to a query, or to each of several.

        Args:
            query: one query, or a list of them.
            depth: how many documents to return; at most as many as there are.

        Returns:
            A frame with a row for each document, best first: its id, its score (float32, the inner
            product; a cosine for encoders that give unit vectors), its text. BM25 finds only
            documents with a score above 0. For a list of queries
            the first column, `query`, is the query's text; rows stand in the order of the queries.

        Raises:
            TypeError: queries that are no strings.
            ValueError: a depth below 1.

        Example:
            >>> index = Index(["red boats", "a green house"])
            >>> index.search(["ships", "a building"], depth=1)[["query", "id"]].to_numpy().tolist()
            [['ships', '0'], ['a building', '1']]
        """
        queries = encodable([query] if isinstance(query, str) else query, "queries")
        found = self._found(queries, depth)
        rows = [
            (text, self._ids[row], score, self._texts[row])
            for text, scores in zip(queries, found, strict=True)
            for row, score in scores.items()
        ]
        frame = pd.DataFrame(rows, columns=["query", "id", "score", "text"])
        frame["score"] = frame["score"].astype(np.float32)
        return frame.drop(columns="query") if isinstance(query, str) else frame

    def add(
        self, texts: Any, ids: Sequence[str] | None = None, columns: Mapping[str, str] | None = None
    ) -> list[str]:
        """Add documents; these alone are embedded.

        Args:
            texts, ids, columns: as for `Index`. Without ids, numbers go on after the largest.

        Returns:
            The ids of the new documents.

        Raises:
            TypeError: texts or ids that are no strings.
            ValueError: an id that is there already (nothing is added then), or an encoder that has
                changed since the other documents were embedded.

        Example:
            >>> index = Index(["red boats"])
            >>> index.add(["a green house", "soup"])
            ['1', '2']
        """
        names, documents = named_texts(texts, ids, columns, self._ids)
        self._require_unchanged_encoder()
        new = embedded(self._encoder, documents, "documents", self._vectors.shape[1])
        self._vectors, self._words = np.concatenate([self._vectors, new]), None
        self._ids, self._texts = self._ids + names, self._texts + documents
        return names

    def remove(self, ids: str | Sequence[str]) -> None:
        """Remove documents; the others keep their vectors and their order.

        Args:
            ids: one id, or a list of them.

        Raises:
            TypeError: ids that are no strings.
            ValueError: an id that is not there (nothing is removed then).

        Example:
            >>> index = Index({"a": "red boats", "b": "a green house"})
            >>> index.remove("a")
            >>> index.ids
            ('b',)
        """
        gone = set([ids] if isinstance(ids, str) else encodable(ids, "ids"))
        if stray := sorted(gone - set(self._ids)):
            raise ValueError(
                f"{len(stray)} of the ids are not in the index, such as {', '.join(stray[:3])}; "
                "index.ids has those that are"
            )
        kept = [row for row, name in enumerate(self._ids) if name not in gone]
        self._vectors, self._words = self._vectors[kept], None
        self._origin = self._origin and self._origin.keeping(kept)
        self._ids = [self._ids[row] for row in kept]
        self._texts = [self._texts[row] for row in kept]

    def retrieval_set(
        self,
        queries: Mapping[str, str],
        qrels: Mapping[str, Mapping[str, int]] | None = None,
        name: str = "index",
    ) -> RetrievalSet:
        """This corpus with queries, and judgements where there are some: what systems are scored
        on.

        Args:
            queries: query id → text.
            qrels: query id → document id → grade. Queries without a judgement are then left out, as
                in BEIR. By default all stay, unjudged.
            name: what the set is called.

        Raises:
            ValueError: judgements of queries or documents that are not there.

        Example:
            >>> index = Index({"a": "red boats", "b": "a green house"})
            >>> index.retrieval_set({"q": "ships"}, {"q": {"a": 1}})
            RetrievalSet(name='index', 2 documents, 1 queries, 1 judgements)
        """
        return judged_set(self._ids, self._texts, queries, qrels, name)

    def rank(self, retrieval_set: RetrievalSet, depth: int = 1000) -> Rankings:
        """Rank this corpus for the queries of a set: query id → document id → score.

        So an index stands wherever a ranker does: in `cde.evaluate`, `cde.compare`, `cde.Hybrid`.
        No document is embedded.

        Raises:
            ValueError: a set with another corpus.

        Example:
            >>> index = Index({"a": "red boats", "b": "a green house"})
            >>> list(index.rank(index.retrieval_set({"q": "ships"}))["q"])
            ['a', 'b']
        """
        corpus = list(retrieval_set.document_ids), list(retrieval_set.documents)
        if corpus != (self._ids, self._texts):
            raise ValueError(
                f"{retrieval_set!r} has another corpus than this index of {len(self):,} documents: "
                "index.retrieval_set(queries, qrels) makes a set of it"
            )
        found = self._found(retrieval_set.queries, depth)
        return {
            query: {self._ids[row]: score for row, score in scores.items()}
            for query, scores in zip(retrieval_set.query_ids, found, strict=True)
        }

    def evaluate(
        self,
        queries: Mapping[str, str],
        qrels: Mapping[str, Mapping[str, int]],
        metrics: str | Sequence[str] = ("ndcg@10",),
        depth: int = 1000,
        drop_own: bool = False,
    ) -> dict[str, float]:
        """Mean of trec_eval's measures over queries, by `cde.evaluate`; no document is embedded.

        Args:
            queries: query id → text; those without a judgement are left out.
            qrels: query id → document id → grade.
            metrics: one or several of ndcg@k, map@k, recall@k, p@k, mrr@k.
            depth: how many documents are ranked.
            drop_own: drop a document with the query's own id unless it is judged relevant, as BEIR
                does. Here that is not the default: ids of one's own often begin at 0 for both.

        Raises:
            ValueError: an unknown metric, no judged query, or judgements of what is not there.

        Example:
            >>> index = Index({"a": "red boats", "b": "a green house"})
            >>> index.evaluate({"q": "ships"}, {"q": {"a": 1}}, "mrr@10")
            {'mrr@10': 1.0}
        """
        collection = self.retrieval_set(queries, qrels)
        return evaluate(self, collection, metrics, depth, drop_own=drop_own)

    def _found(self, queries: Sequence[str], depth: int) -> list[dict[int, float]]:
        """Rows of the documents with their scores, best first, of each query."""
        if isinstance(self._encoder, BM25):
            own = self._encoder
            self._words = self._words or BM25(self._texts, own.k1, own.b, own.unspaced)
            return self._words.search(queries, checked_whole(depth, "depth"))
        vectors = embedded(self._encoder, queries, "queries", self._vectors.shape[1])
        scores, rows = (one.tolist() for one in search(vectors, self._vectors, depth))
        return [dict(zip(*both, strict=True)) for both in zip(rows, scores, strict=True)]

    def _require_unchanged_encoder(self) -> None:
        if record_of(self._encoder)["fingerprint"] != self._record["fingerprint"]:
            raise ValueError(
                f"{describe(self._encoder)} has changed since the documents were embedded (was it "
                "trained?): make a new index with it"
            )

"""Long documents searched by one vector or by several: NDCG@10 by where the answer stands.

Ways to search, of one encoder:

- `cut at 128`, `cut at 256`, …: a document is the vector of its beginning;
- `read whole`: one vector, the mean of all its tokens' states, read in windows that overlap;
- `chunks`: a document scores as its best chunk, each embedded by itself;
- `chunks of the beginning`: those alone that begin within the longest cut, which so reads as much;
- `late chunks`: the same chunks, read with what stands around them (`late_chunks`);
- `late chunks elsewhere`, a control: each is read within chunks of other documents.

`BM25` stands beside them, which counts the words of whole documents. Each way of an encoder is
searched twice: as it is, and with the corpus' *own* directions, the mean of its vectors taken off
both sides and W multiplied (`cde.adaptation`), where nothing is fitted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice, pairwise
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cde.adaptation import Shift, tempered
from cde.corpus.chunks import limit_of, passages
from cde.lexical import BM25
from cde.models import BiEncoder
from cde.progress import progress
from cde.retrieval import score_queries
from cde_studies.dwell.natural_places import written_place
from cde_studies.dwell.passages import Passages
from cde_studies.motivation.score_matrices import JudgedMatrix
from cde_studies.package.late_chunks import encode_chunks
from cde_studies.package.long_documents import tokens_of

Vectors = NDArray[np.float32]
Spans = list[list[tuple[int, int]]]

#: vectors whose covariance tempers
_READ = 256
_EVERYWHERE = "anywhere"


def search_in_chunks(
    collections: Sequence[Passages], cuts: Sequence[int] = (128, 256, 512), seed: int = 0
) -> pd.DataFrame:
    """NDCG@10 and MRR@100 of every collection with every way; chunks have as many tokens as the
    shortest of `cuts`.

    Returns:
        A row for each collection, way, `directions` ("none", "own") and `place` of what answers (a
        third of the document, or "anywhere"): `ndcg` and `mrr` (0 to 1), `queries`; and of the way
        `tokens` that are computed, `vectors` that are kept, and `seconds`; `documents`.
    """
    encoders = {cut: BiEncoder.from_backbone("minilm", max_tokens=cut) for cut in sorted(cuts)}
    rows: list[dict[str, Any]] = []
    for one in progress(collections, "searching long documents", unit="collections"):
        rows += _search(one, encoders, np.random.default_rng(seed))
    return pd.DataFrame(rows)


def _search(
    placed: Passages, encoders: dict[int, BiEncoder], generator: np.random.Generator
) -> list[dict[str, Any]]:
    collection, texts = placed.collection, placed.collection.documents
    longest = encoders[max(encoders)]
    spans = _spans(texts, encoders[min(encoders)])
    places = np.array([written_place(placed, query, True) for query in collection.query_ids])
    queries = longest.encode_queries(collection.queries)
    judged = JudgedMatrix.of(collection)
    own = [collection.document_ids.index(placed.document_of(q)) for q in collection.query_ids]
    rows: list[dict[str, Any]] = []

    def enter(ndcg: Any, mrr: Any, **head: Any) -> None:
        for place in (_EVERYWHERE, *dict.fromkeys(sorted(places))):
            some = np.ones(len(places), bool) if place == _EVERYWHERE else places == place
            rows.append(
                {
                    "collection": collection.name,
                    **head,
                    "place": place,
                    "ndcg": float(np.mean(ndcg[some])),
                    "mrr": float(np.mean(mrr[some])),
                    "queries": int(some.sum()),
                    "documents": len(texts),
                }
            )

    def search(way: str, vectors: list[Vectors], tokens: int, seconds: float) -> None:
        flat = np.concatenate(vectors)
        mean, sample = flat.mean(axis=0), generator.permutation(len(flat))[:_READ]
        shifts = {"none": None, "own": Shift(mean, mean, tempered(flat[sample]))}
        begins = np.cumsum([0, *map(len, vectors[:-1])])
        for directions, shift in shifts.items():
            asked = queries if shift is None else shift.of(queries, "query")
            found = flat if shift is None else shift.of(flat, "document")
            scores = np.maximum.reduceat(asked @ found.T, begins, axis=1)
            ranks = 1 + (scores > scores[np.arange(len(own)), own][:, None]).sum(axis=1)
            mrr = np.where(ranks <= 100, 1 / ranks, 0.0)
            cost = {"tokens": tokens, "vectors": len(flat), "seconds": seconds}
            enter(judged.ndcg(scores), mrr, way=way, directions=directions, **cost)

    for cut, encoder in encoders.items():
        vectors, seconds = _timed(partial(encoder.encode_documents, texts))
        tokens = sum(min(count, cut) for count in tokens_of(texts))
        search(f"cut at {cut}", list(vectors[:, None]), tokens, seconds)

    chunks = [
        text[start:end] for text, some in zip(texts, spans, strict=True) for start, end in some
    ]
    apart, seconds = _timed(lambda: encoders[min(encoders)].encode_documents(chunks))
    counts, owners = tokens_of(chunks), np.repeat(np.arange(len(texts)), [*map(len, spans)])
    ends = np.cumsum([*map(len, spans)])[:-1]
    search("chunks", np.split(apart, ends), sum(counts), seconds)
    reach = _reach(texts, longest)
    early = [start < reach[owner] for owner, some in enumerate(spans) for start, _ in some]
    first = [apart[(owners == owner) & early] for owner in range(len(texts))]
    search("chunks of the beginning", first, sum(np.array(counts)[early].tolist()), seconds)

    late, seconds = _timed(
        lambda: encode_chunks(
            longest,
            texts,
            [[*some, (0, len(text))] for text, some in zip(texts, spans, strict=True)],
        )
    )
    tokens = _in_windows(tokens_of(texts), longest)
    search("read whole", [one[-1:] for one in late], tokens, seconds)
    search("late chunks", [one[:-1] for one in late], tokens, seconds)
    moved, tokens, seconds = _elsewhere(chunks, [*map(len, spans)], longest, generator)
    search("late chunks elsewhere", np.split(moved, ends), tokens, seconds)

    scored = score_queries(BM25().rank(collection, 100), collection, ("ndcg@10", "mrr@100"))
    cost = {"tokens": 0, "vectors": 0, "seconds": 0.0}
    enter(*scored.to_numpy().T, way="BM25", directions="none", **cost)
    return rows


def _timed(work: Callable[[], Any]) -> tuple[Any, float]:
    begun = time.perf_counter()
    return work(), time.perf_counter() - begun


def _spans(texts: Sequence[str], encoder: BiEncoder) -> Spans:
    """Chunks as `cde.Index` cuts them for an encoder."""
    return [
        [(one.start, one.start + len(one.text)) for one in some if one.text.strip()]
        for some in passages(texts, limit_of(encoder))
    ]


def _reach(texts: Sequence[str], encoder: BiEncoder) -> list[int]:
    """The character at which an encoder stops to read each text."""
    read = encoder.tokenizer(
        list(texts), truncation=True, max_length=encoder.most_tokens, return_offsets_mapping=True
    )
    return [max(end for _, end in ends) for ends in read["offset_mapping"]]


def _in_windows(counts: Sequence[int], encoder: BiEncoder) -> int:
    """Tokens computed of texts with so many, in windows that repeat an eighth."""
    room = encoder.most_tokens - 2
    overlap = room // 8
    windows = [1 + max(0, -(-(count - 2 - room) // (room - overlap))) for count in counts]
    return sum(
        count - 2 + (some - 1) * overlap + 2 * some
        for count, some in zip(counts, windows, strict=True)
    )


def _elsewhere(
    chunks: Sequence[str], sizes: Sequence[int], encoder: BiEncoder, generator: np.random.Generator
) -> tuple[Vectors, int, float]:
    """Late chunks in texts of chunks from all documents, as many in each as a document has."""
    order = iter(generator.permutation(len(chunks)).tolist())
    groups = [list(islice(order, size)) for size in sizes]
    texts = ["\n".join(chunks[row] for row in group) for group in groups]
    spans: Spans = []
    for group in groups:
        begins = np.cumsum([0, *(len(chunks[row]) + 1 for row in group)]).tolist()
        spans.append([(start, stop - 1) for start, stop in pairwise(begins)])
    found, seconds = _timed(lambda: encode_chunks(encoder, texts, spans))
    vectors = np.concatenate(found)
    placed = np.empty_like(vectors)
    placed[[row for group in groups for row in group]] = vectors
    return placed, _in_windows(tokens_of(texts), encoder), seconds

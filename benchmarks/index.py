"""Whether an index of 50,000 documents keeps its promises, and what a user would take instead.

The promises: built within 2 GB of memory, and searched in less than 50 ms a query on 2 cores, the
embedding of the query included. Both are printed as shares of the promise. Texts are passages of
pydocs: its documents, cut by paragraphs; then, if there are too few, the same with a number before
them. MiniLM reads the first `--tokens` of each, which moves the time of the build, and not that of
a search.

Instead a user would take sentence-transformers and FAISS: the same model, which embeds all texts,
and an exact index, which is written to a folder. Its seconds stand beside ours, from texts to a
folder and from a query to ten documents.

The search of `cde.Index` is exact, and reads all vectors for each query. FAISS' exact index does
the same on a copy of the vectors; its approximate one reads a part of them. Their times are printed
as ratios to ours, with the share of the best ten documents that the approximate one finds.

On a machine with other work the clock says more of that work: the least of the rounds, and the
seconds of the processor, say what a query costs.

    python benchmarks/index.py [--documents 50000] [--tokens 32] [--rounds 50] [--random]

At 50,000 documents the two builds take some minutes; `--random` draws the documents' vectors in
place of MiniLM's, is quick, and leaves sentence-transformers out.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import tempfile
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import faiss
import numpy as np
from measuring import in_turns, memory, ratio
from sentence_transformers import SentenceTransformer

import cde
from cde.surrogate import minilm_folder


def passages() -> Iterator[str]:
    """Paragraphs of pydocs with some words in them, then the same again, numbered."""
    documents = cde.load_pairs("pydocs/*").documents
    parts = [part for text in documents for part in text.split("\n\n") if len(part.split()) > 7]
    distinct = list(dict.fromkeys(parts))
    for copy in itertools.count():
        yield from distinct if copy == 0 else (f"{copy}. {text}" for text in distinct)


class Instead:
    """sentence-transformers and FAISS, in a folder."""

    def __init__(self, texts: list[str], folder: Path, tokens: int) -> None:
        self.model = SentenceTransformer(str(minilm_folder()), device="cpu")
        self.model.max_seq_length, self.texts = tokens, texts
        self.model.encode(texts[:32])
        begun = time.perf_counter()
        vectors = self.model.encode(texts, show_progress_bar=False)
        self.index = faiss.IndexFlatIP(vectors.shape[1])
        self.index.add(vectors)
        faiss.write_index(self.index, str(folder / "vectors.faiss"))
        (folder / "texts.json").write_text(json.dumps(texts))
        self.seconds = time.perf_counter() - begun

    def search(self, query: str) -> list[str]:
        """The ten nearest texts."""
        places = self.index.search(self.model.encode([query], show_progress_bar=False), 10)[1][0]
        return [self.texts[place] for place in places]


class RandomDocuments:
    """MiniLM for queries, and for documents vectors that cost nothing."""

    def __init__(self, encoder: cde.Surrogate) -> None:
        self.encode_queries = encoder.encode_queries

    def encode_documents(self, texts: list[str]) -> np.ndarray:
        marks = [zlib.crc32(text.encode()) for text in texts]
        vectors = [np.random.default_rng(mark).standard_normal(384) for mark in marks]
        return np.array([one / np.linalg.norm(one) for one in vectors], np.float32)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--documents", type=int, default=50_000)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--random", action="store_true", help="no embedding of documents")
    options = parser.parse_args()
    texts = list(itertools.islice(passages(), options.documents))
    minilm = cde.Surrogate(max_tokens=options.tokens, cache=False)
    minilm.embed(texts[:32])  # load, and warm up
    encoder = RandomDocuments(minilm) if options.random else minilm
    print(f"{len(texts):,} texts, {memory('cpu'):,.0f} MiB before the build")
    place = tempfile.TemporaryDirectory()
    begun = time.perf_counter()
    folder = Path(place.name) / "index"
    cde.Index.build(texts, folder, encoder=encoder, on_long="truncate")
    took = time.perf_counter() - begun
    peak = memory("cpu", peak=True)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    begun = time.perf_counter()
    index = cde.Index.load(folder, encoder=encoder)
    loading = time.perf_counter() - begun
    begun = time.perf_counter()
    changes = index.sync([*texts[:-1], "one text of another kind"])
    syncing = time.perf_counter() - begun
    print(f"sync: {syncing:.1f} s ({changes})")
    print(f"build: {len(texts) / took:.0f} texts a second; {size / 2**20:,.0f} MiB on disk")
    print(f"memory: {peak:,.0f} MiB at the highest, {peak * 2**20 / 2e9:.0%} of 2 GB")
    print(f"load: {loading:.1f} s, every row checked")

    queries = cde.load_pairs("pydocs/*").sample(options.rounds, 1).queries
    index.search(queries[0])
    times, processor = [], []
    for query in queries:
        begun = time.perf_counter(), time.process_time()
        index.search(query)
        times.append(1000 * (time.perf_counter() - begun[0]))
        processor.append(1000 * (time.process_time() - begun[1]))
    for name, some in (("clock", times), ("processor, of all threads", processor)):
        middle, least = statistics.median(some), min(some)
        print(
            f"search, {name}: {middle:.1f} ms a query (median), {middle / 50:.0%} of 50 ms; "
            f"{least:.1f} ms at the least, {least / 50:.0%}"
        )

    if not options.random:
        instead = Instead(texts, Path(place.name), options.tokens)
        ours, theirs = itertools.cycle(queries), itertools.cycle(queries)
        seconds = in_turns(
            {
                "ours": lambda: index.search(next(ours)),
                "theirs": lambda: instead.search(next(theirs)),
            },
            options.rounds,
        )
        print(
            f"instead, sentence-transformers and FAISS: {instead.seconds / took:.2f} times our "
            f"seconds to build, {ratio(seconds['theirs'], seconds['ours'])} times to search"
        )

    documents = np.array(index.vectors)
    exact = faiss.IndexFlatIP(documents.shape[1])
    exact.add(documents)
    lists = int(np.sqrt(len(texts)))
    part = faiss.index_factory(documents.shape[1], f"IVF{lists},Flat", faiss.METRIC_INNER_PRODUCT)
    part.train(documents)
    part.add(documents)
    part.nprobe = max(1, lists // 16)
    vectors = encoder.encode_queries(queries)
    turn = itertools.cycle(range(len(vectors)))
    seconds = in_turns(
        {
            "embedding the query": lambda: encoder.encode_queries([queries[next(turn)]]),
            "ours": lambda: cde.search(vectors[[next(turn)]], documents),
            "faiss, exact": lambda: exact.search(vectors[[next(turn)]], 10),
            "faiss, part": lambda: part.search(vectors[[next(turn)]], 10),
        },
        options.rounds,
    )
    for name, some in seconds.items():
        times_ours = ratio(some, seconds["ours"])
        print(
            f"{name}: {1000 * statistics.median(some):.2f} ms, at least {1000 * min(some):.2f}, "
            f"{times_ours} times ours"
        )
    ours = cde.search(vectors, documents)[1]
    for name, other in (("exact", exact), ("part", part)):
        found = other.search(vectors, 10)[1]
        same = np.mean([len({*a} & {*b}) / 10 for a, b in zip(ours, found, strict=True)])
        print(f"faiss, {name}: {same:.1%} of our best ten")

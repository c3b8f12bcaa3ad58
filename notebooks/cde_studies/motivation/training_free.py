"""What a corpus gives an encoder without training: means taken off, and a linear reader.

Each collection is searched by MiniLM's vectors less a shift of queries and a shift of documents
(`cde.adaptation`). Where the shifts are from:

- `documents' mean`: the mean document, taken off both sides;
- `sample queries`: the mean of so many queries that are not asked, and the mean document;
- `both means`: the mean of the queries that are asked, and the mean document: an upper limit;
- `training corpora`: the means over all corpora that the reader was fitted on;
- `linear reader`: the mean of 64 documents, and the query mean that the reader predicts of it.

BM25 stands beside them, as what needs no encoder.

`own` shifts are of the corpus that is searched, `other` ones of another corpus of the same kind and
of no kin; `strings` are predicted from random letters.

`python -m cde_studies.motivation.training_free` writes the reader that comes with the package.

Cost: a vector for each text, which the surrogate keeps; then milliseconds a collection.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cde.adaptation import LinearReader, unit
from cde.benchmark.contexts import random_texts
from cde.data import Pairs, RetrievalSet, load_pairs, load_retrieval, manuals
from cde.lexical import BM25
from cde.progress import progress
from cde.retrieval import evaluate
from cde_studies.motivation.score_matrices import JudgedMatrix
from cde_studies.recipes import COLLECTIONS

__all__ = [
    "JUDGED",
    "Asked",
    "CorpusMeans",
    "corpus_means",
    "judged",
    "least_near",
    "manuals_of",
    "search_all",
    "sources_of_pairs",
]

Vectors = NDArray[np.float32]

#: collections that people judged: those of the recipes
JUDGED = [f"beir/{name}" for name in COLLECTIONS]
#: of the reader that comes with the package: what `least_near` gives for the record of `hours`
LEAST_NEAR = 0.292


@dataclass(frozen=True)
class Asked:
    """A collection, and queries like those that are asked of it."""

    collection: RetrievalSet
    samples: Sequence[str]
    kin: object  # collections of one kin are no `other` to each other
    part: str


def _asked(pairs: Pairs, sizes: tuple[int, int], seed: int, part: str, kin: object) -> Asked:
    collection = RetrievalSet.from_pairs(pairs).shrink(*sizes, seed)
    chosen = set(collection.query_ids)
    left = [query for query, one in zip(pairs.queries, pairs.ids, strict=True) if one not in chosen]
    order = np.random.default_rng([seed, 1]).permutation(len(left))[:100]
    return Asked(collection, [left[row] for row in order], kin, part)


def manuals_of(
    part: manuals.Part, sizes: tuple[int, int], seed: int, most: int | None = None
) -> list[Asked]:
    """The manuals of a part of the split, of `sizes` documents and queries."""
    kin = manuals.table().drop_duplicates("corpus").set_index("corpus")["family"]
    return [
        _asked(load_pairs(f"manuals/{name}"), sizes, seed, part, int(kin[name]))
        for name in manuals.corpora(part)[:most]
    ]


def sources_of_pairs(sizes: tuple[int, int], seed: int) -> list[Asked]:
    """The sources of `pairs/*`, each as a collection: other kinds of text, and of queries."""
    every = load_pairs("pairs/*")
    domains, found = np.asarray(every.domains), []
    for name in sorted(set(every.domains)):
        pairs = every.select(domains == name).sample(2000, seed)
        first = pd.Series(pairs.documents).drop_duplicates().index  # a text that answers two is one
        named = replace(pairs.select(first.to_numpy()), name=f"pairs/{name}")
        found.append(_asked(named, sizes, seed, "pairs", name))
    return found


def judged(sizes: tuple[int, int], seed: int) -> list[Asked]:
    """Collections that people judged, and queries of theirs that are not asked."""
    found = []
    for name in JUDGED:
        whole = load_retrieval(name)
        asked = whole.shrink(*sizes, seed)
        left = [one for one in whole.queries if one not in set(asked.queries)]
        found.append(Asked(asked, left[:100], name, "judged"))
    return found


@dataclass(frozen=True)
class CorpusMeans:
    """Mean vectors of corpora whose queries are known: `(corpora, dim)` each."""

    names: list[str]
    documents: Vectors
    queries: Vectors

    def reader(self, of: NDArray[Any] | None = None, ridge: float = 0.03) -> LinearReader:
        """The reader that is fitted on these corpora, or on some of them."""
        rows = np.arange(len(self.names)) if of is None else of
        return LinearReader.fit(self.documents[rows], self.queries[rows], ridge)

    def vendor(self, name: str) -> NDArray[np.bool_]:
        """Which corpora are of a vendor, "aws" or "google"."""
        return np.array([one.startswith(f"{name}/") for one in self.names])


def corpus_means(encoder: Any, each: int = 32, least: int = 64, seed: int = 0) -> CorpusMeans:
    """Means over `each` pairs of every training manual that has `least` or more."""
    names = manuals.corpora("train", least)
    documents, queries = [], []
    for name in progress(names, "means of training manuals", unit="corpora"):
        pairs = load_pairs(f"manuals/{name}").sample(each, seed)
        documents.append(encoder.encode_documents(pairs.documents).mean(axis=0))
        queries.append(encoder.encode_queries(pairs.queries).mean(axis=0))
    return CorpusMeans(names, np.array(documents), np.array(queries))


def search_all(
    asked: Sequence[Asked],
    encoder: Any,
    means: CorpusMeans,
    ridge: float = 0.03,
    draws: int = 5,
    context: int = 64,
    seed: int = 0,
) -> pd.DataFrame:
    """NDCG@10 of each collection with every shift.

    Returns:
        A row for each collection, way and context: `part`, `collection`, `way`, `context`, `ndcg`
        (0 to 1, the mean over the draws of context documents), `near`: the
        nearness of the collection's mean document (`LinearReader.nearness`).
    """
    generator, dim = np.random.default_rng(seed), means.documents.shape[1]
    readers = _readers(means, ridge)
    plain = readers["linear reader"]
    letters = encoder.encode_documents(random_texts(context, generator)).mean(axis=0)
    queries, documents, matrices = [], [], []
    for one in progress(asked, "vectors", unit="collections"):
        queries.append(encoder.encode_queries(one.collection.queries))
        documents.append(encoder.encode_documents(one.collection.documents))
        matrices.append(JudgedMatrix.of(one.collection))

    def ndcg(place: int, of_queries: NDArray[Any], of_documents: NDArray[Any]) -> float:
        moved = unit(queries[place] - of_queries) @ unit(documents[place] - of_documents).T
        return float(matrices[place].ndcg(moved).mean())

    centre = means.documents.mean(axis=0)
    middle = means.queries.mean(axis=0)
    nothing = np.zeros(dim, np.float32)
    rows: list[dict[str, object]] = []
    for place, one in enumerate(progress(asked, "searching", unit="collections")):
        mean, other = documents[place].mean(axis=0), _other(asked, place)
        found: dict[tuple[str, str], float] = {
            ("MiniLM", "none"): ndcg(place, nothing, nothing),
            ("BM25", "none"): evaluate(BM25(), one.collection)["ndcg@10"],
            ("documents' mean", "own"): ndcg(place, mean, mean),
            ("both means", "own"): ndcg(place, queries[place].mean(axis=0), mean),
            ("training corpora", "pooled"): ndcg(place, middle, centre),
            ("linear reader", "strings"): ndcg(place, plain.predict(letters), letters),
            ("linear reader, half", "own"): ndcg(place, plain.predict(mean) / 2, mean / 2),
        }
        for count in (5, 20, 100):
            if len(one.samples) >= count:
                sample = encoder.encode_queries(one.samples[:count]).mean(axis=0)
                found[f"sample queries, {count}", "own"] = ndcg(place, sample, mean)
        sources = {"own": documents[place]}
        if other is not None:
            theirs = queries[other].mean(axis=0), documents[other].mean(axis=0)
            found["both means", "other"] = ndcg(place, *theirs)
            sources["other"] = documents[other]
        for where, source in sources.items():
            drawn = [
                source[generator.permutation(len(source))[:context]].mean(axis=0)
                for _ in range(draws)
            ]
            for name, reader in readers.items():
                scores = [ndcg(place, reader.predict(read), read) for read in drawn]
                found[name, where] = float(np.mean(scores))
        about = {
            "part": one.part,
            "collection": one.collection.name.partition("/")[2],
            "near": plain.nearness(mean),
        }
        rows += [
            {**about, "way": way, "context": where, "ndcg": score}
            for (way, where), score in found.items()
        ]
    return pd.DataFrame(rows)


def least_near(rows: pd.DataFrame) -> float:
    """The rule: the nearness from which on the reader is used, that with the highest mean gain over
    MiniLM on manuals of the validation part and sources of public pairs; what is less near gains
    nothing.
    """
    chosen_on = rows[rows["part"].isin(["validation", "pairs"])]
    near = chosen_on.groupby(["part", "collection"])["near"].first()
    scores = chosen_on.pivot_table("ndcg", ["part", "collection"], ["way", "context"])
    gain = scores["linear reader", "own"] - scores["MiniLM", "none"]
    candidates = sorted({round(float(one), 3) for one in near} | {-1.0})
    return max(candidates, key=lambda least: float(gain.where(near >= least, 0.0).mean()))


def _readers(means: CorpusMeans, ridge: float) -> Mapping[str, LinearReader]:
    """The reader, and others: fitted on fewer corpora, or on one vendor's alone."""
    order = np.random.default_rng(0).permutation(len(means.names))
    readers = {"linear reader": means.reader(ridge=ridge)}
    for count in (20, 80, 160, 320):
        if count < len(order):
            readers[f"linear reader, {count} corpora"] = means.reader(order[:count], ridge)
    for vendor in ("aws", "google"):
        if means.vendor(vendor).sum() > 1:
            readers[f"linear reader, {vendor}"] = means.reader(means.vendor(vendor), ridge)
    return readers


def _other(asked: Sequence[Asked], place: int) -> int | None:
    """The next collection of the same part that is no kin."""
    later = [(place + step) % len(asked) for step in range(1, len(asked))]
    one = asked[place]
    fit = (n for n in later if asked[n].part == one.part and asked[n].kin != one.kin)
    return next(fit, None)


def main() -> None:
    """Write the reader that comes with the package."""
    import cde.adaptation
    from cde.surrogate import Surrogate

    reader = corpus_means(Surrogate(max_tokens=128)).reader()
    named = replace(reader, encoder="minilm", least_near=LEAST_NEAR)
    named.save(Path(cde.adaptation.__file__).with_name("linear_reader.safetensors"))


if __name__ == "__main__":
    main()

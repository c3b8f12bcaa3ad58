"""What a corpus gives an encoder without training: means taken off, directions that vary much made
shorter, and a linear reader.

Each collection is searched by MiniLM's vectors less a shift of queries and a shift of documents
(`cde.adaptation`). Where the shifts are from:

- `documents' mean`: the mean document, taken off both sides;
- `sample queries`: the mean of so many queries that are not asked, and the mean document;
- `both means`: the mean of the queries that are asked, and the mean document: an upper limit;
- `training corpora`: the means over all corpora that the reader was fitted on;
- `linear reader`: the mean of 64 documents, and the query mean that the reader predicts of it.

What `, tempered` is added to also multiplies the shifted vectors by `tempered` of 256 documents,
and of the sample queries where there are some; `pooled`, by one matrix for all collections, of the
documents of all training manuals, each less the mean of its manual. Other ways without training,
of other papers:

- `projected`: the mean's direction is projected out, not the mean taken off (Ren et al. 2025, R2);
- `PCA`: vectors are projected on so many principal directions of documents, or of sample queries.

BM25 stands beside them, as what needs no encoder.

`own` shifts are of the corpus that is searched, `other` ones of another corpus of the same kind and
of no kin; `strings` are predicted from random letters.

`python -m cde_studies.motivation.training_free` writes the reader that comes with the package.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cde.adaptation import LinearReader, Shift, tempered, unit
from cde.data import Pairs, RetrievalSet, load_pairs, load_retrieval
from cde.lexical import BM25
from cde.progress import progress
from cde.retrieval import evaluate
from cde_studies.collections import manuals
from cde_studies.motivation.linear_readers import fit_reader, save_reader
from cde_studies.motivation.score_matrices import JudgedMatrix
from cde_studies.recipes import COLLECTIONS
from cde_studies.sweeps import random_texts

Vectors = NDArray[np.float32]

#: collections that people judged: those of the recipes
JUDGED = [f"beir/{name}" for name in COLLECTIONS]
#: documents whose covariance tempers
READ = 256
#: pairs of a corpus that the reader is fitted on
_LEAST = 64
#: of `tempered`, tried on validation manuals
CHOICES = {"strength": (0.0, 0.25, 0.5, 0.75, 1.0), "shrunk": (0.1, 0.3, 0.5, 0.7, 0.9)}
#: of the reader that comes with the package: what `least_near` gives for the record of `hours`
LEAST_NEAR = 0.292


@dataclass(frozen=True)
class Asked:
    """A collection, and queries like those that are asked of it."""

    collection: RetrievalSet
    samples: Sequence[str]
    kin: object  # collections of one kin are not `other` to each other
    part: str


def _asked(pairs: Pairs, sizes: tuple[int, int], seed: int, part: str, kin: object) -> Asked:
    collection = RetrievalSet.from_pairs(pairs).shrink(*sizes, seed)
    chosen = set(collection.query_ids)
    left = [query for query, one in zip(pairs.queries, pairs.ids, strict=True) if one not in chosen]
    order = np.random.default_rng([seed, 1]).permutation(len(left))[:100]
    return Asked(collection, [left[row] for row in order], kin, part)


def manuals_of(
    part: manuals.Part,
    sizes: tuple[int, int],
    seed: int,
    most: int | None = None,
    kind: manuals.Kind = "names",
) -> list[Asked]:
    """The manuals of a part of the split, of `sizes` documents and queries; of those whose queries
    are first sentences, the ones with 100 or more.
    """
    kin = manuals.table().drop_duplicates("corpus").set_index("corpus")["family"]
    name = part if kind == "names" else f"{part}, {kind}"
    return [
        _asked(pairs, sizes, seed, name, int(kin[one]))
        for one, pairs in _by_corpus(manuals.corpora(part)[:most], kind).items()
        if kind == "names" or len(pairs) >= 100
    ]


def _by_corpus(names: Sequence[str], kind: manuals.Kind) -> dict[str, Pairs]:
    """Pairs of manuals, each apart; those without a pair of the kind are left out."""
    source = "manuals" if kind == "names" else f"manuals-{kind}"
    every = load_pairs(source, split="all")
    domains, found = np.asarray(every.domains), {}
    for one in names:
        if (own := domains == one).any():
            found[one] = replace(every.select(own), name=f"{source}/{one}")
    return found


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
    """Mean vectors of corpora whose queries are known: `(corpora, dim)` each; and how documents
    differ from their corpus' mean, `(documents, dim)`.
    """

    names: list[str]
    documents: Vectors
    queries: Vectors
    deviations: Vectors

    def reader(self, of: NDArray[Any] | None = None, ridge: float = 0.03) -> LinearReader:
        """The reader that is fitted on these corpora, or on some of them."""
        rows = np.arange(len(self.names)) if of is None else of
        return fit_reader(self.documents[rows], self.queries[rows], ridge)


def corpus_means(
    encoder: Any,
    each: int = 32,
    seed: int = 0,
    kind: Literal["names", "sentences", "questions"] = "names",
    most: int | None = None,
) -> CorpusMeans:
    """Means over `each` pairs of every training corpus that has 64 or more: manuals, whose queries
    are names or first sentences, or clusters of public pairs; of `most` of them, by a draw.
    """
    if kind == "questions":
        corpora = _clusters_of_pairs(encoder, seed)
    else:
        corpora = _by_corpus(manuals.corpora("train", _LEAST), kind)
    documents, queries, deviations = [], [], []
    kept = {name: pairs for name, pairs in corpora.items() if len(pairs) >= _LEAST}
    if most is not None:
        chosen = np.random.default_rng(seed).permutation(list(kept))[:most]
        kept = {name: kept[name] for name in sorted(chosen)}
    for pairs in progress(kept.values(), f"means of training corpora, {kind}", unit="corpora"):
        some = pairs.sample(each, seed)
        vectors = encoder.encode_documents(some.documents)
        documents.append(vectors.mean(axis=0))
        deviations.append(vectors - documents[-1])
        queries.append(encoder.encode_queries(some.queries).mean(axis=0))
    means = np.array(documents), np.array(queries)
    return CorpusMeans(list(kept), *means, np.concatenate(deviations))


def _clusters_of_pairs(encoder: Any, seed: int) -> dict[str, Pairs]:
    """Sources of `pairs/*`, 800 pairs of each, parted by k-means of their documents into eight:
    corpora whose queries are questions and titles.
    """
    from sklearn.cluster import KMeans

    every, found = load_pairs("pairs/*"), {}
    domains = np.asarray(every.domains)
    for name in progress(sorted(set(every.domains)), "clusters of public pairs", unit="sources"):
        pairs = every.select(domains == name).sample(800, seed)
        vectors = encoder.encode_documents(pairs.documents)
        labels = KMeans(8, n_init=1, random_state=seed).fit_predict(vectors)
        found.update({f"{name}/{label}": pairs.select(labels == label) for label in range(8)})
    return found


class Searched(NamedTuple):
    """A collection's judgements and vectors, and their NDCG@10 (0 to 1) once they are changed."""

    judged: JudgedMatrix
    queries: Vectors
    documents: Vectors

    def shifted(self, *of_both: NDArray[Any]) -> float:
        """With shifts of queries and of documents taken off, and multiplied by weights, if any."""
        shift = Shift(*of_both)
        asked = shift.of(self.queries, "query")
        return float(self.judged.ndcg(asked @ shift.of(self.documents, "document").T).mean())

    def projected(self, change: Callable[[Vectors], NDArray[Any]]) -> float:
        """With both sides projected."""
        scores = unit(change(self.queries)) @ unit(change(self.documents)).T
        return float(self.judged.ndcg(scores).mean())


def search_all(
    asked: Sequence[Asked],
    encoder: Any,
    means: CorpusMeans,
    ridge: float = 0.03,
    draws: int = 5,
    context: int = 64,
    seed: int = 0,
    of_kinds: Mapping[str, CorpusMeans] | None = None,
) -> pd.DataFrame:
    """NDCG@10 of each collection with every shift; `of_kinds`: means of further kinds of queries,
    to fit readers on.

    Returns:
        A row for each collection, way and context: `part`, `collection`, `way`, `context`, `ndcg`
        (0 to 1, the mean over the draws of context documents), and of the collection: `near`, the
        nearness of its mean document (`LinearReader.nearness`), the number of `documents`, the
        length of their `mean`, and the share of their variance that the `largest` direction has.
    """
    generator, dim = np.random.default_rng(seed), means.documents.shape[1]
    readers = dict(_readers(means, ridge))
    for kind, some in (of_kinds or {}).items():
        readers[f"linear reader, of {kind}"] = some.reader(ridge=ridge)
    plain = readers["linear reader"]
    letters = encoder.encode_documents(random_texts(context, generator))
    nonsense = letters.mean(axis=0)
    queries, documents = [], []
    for one in progress(asked, "vectors", unit="collections"):
        queries.append(encoder.encode_queries(one.collection.queries))
        documents.append(encoder.encode_documents(one.collection.documents))
    middle, centre = means.queries.mean(axis=0), means.documents.mean(axis=0)
    nothing, pooled = np.zeros(dim, np.float32), tempered(means.deviations)
    rows: list[dict[str, object]] = []
    for place, one in enumerate(progress(asked, "searching", unit="collections")):
        search = Searched(JudgedMatrix.of(one.collection), queries[place], documents[place])
        ndcg, projected = search.shifted, search.projected
        mean, other = documents[place].mean(axis=0), _other(asked, place)
        read = _drawn(documents[place], READ, generator)
        found: dict[tuple[str, str], float] = {
            ("MiniLM", "none"): ndcg(nothing, nothing),
            ("BM25", "none"): evaluate(BM25(), one.collection)["ndcg@10"],
            ("documents' mean", "own"): ndcg(mean, mean),
            ("documents' mean, projected", "own"): projected(_without(unit(mean[None]))),
            ("documents' mean, tempered", "own"): ndcg(mean, mean, tempered(read)),
            ("documents' mean, whitened", "own"): ndcg(mean, mean, tempered(read, strength=1)),
            ("PCA of documents, 192", "own"): projected(_onto(read, 192)),
            ("both means", "own"): ndcg(queries[place].mean(axis=0), mean),
            ("training corpora", "pooled"): ndcg(middle, centre),
            ("linear reader", "strings"): ndcg(plain.predict(nonsense), nonsense),
            ("linear reader, tempered", "strings"): ndcg(
                plain.predict(nonsense), nonsense, tempered(letters)
            ),
            ("linear reader, half", "own"): ndcg(plain.predict(mean) / 2, mean / 2),
        }
        for count in (5, 20, 100):
            if len(one.samples) >= count:
                sample = encoder.encode_queries(one.samples[:count])
                asked_for, way = sample.mean(axis=0), f"sample queries, {count}"
                both = tempered(read, sample)
                found[way, "own"] = ndcg(asked_for, mean)
                found[f"{way}, tempered", "own"] = ndcg(asked_for, mean, both)
                if count == 100:
                    found["PCA of sample queries, 64", "own"] = projected(_onto(sample, 64))
        sources = {"own": documents[place]}
        if other is not None:
            theirs = queries[other].mean(axis=0), documents[other].mean(axis=0)
            found["both means", "other"] = ndcg(*theirs)
            sources["other"] = documents[other]
            if len(asked[other].samples) >= 20:
                sample = encoder.encode_queries(asked[other].samples[:20])
                both = tempered(documents[other][:READ], sample)
                score = ndcg(sample.mean(axis=0), theirs[1], both)
                found["sample queries, 20, tempered", "other"] = score
        for where, source in sources.items():
            drawn = [_drawn(source, context, generator).mean(axis=0) for _ in range(draws)]
            for name, reader in readers.items():
                scores = [ndcg(reader.predict(some), some) for some in drawn]
                found[name, where] = float(np.mean(scores))
            by = {where: tempered(_drawn(source, READ, generator))}
            if where == "own":
                by["pooled"] = pooled
            for whose, weights in by.items():
                scores = [ndcg(plain.predict(some), some, weights) for some in drawn]
                found["linear reader, tempered", whose] = float(np.mean(scores))
        if one.part == "validation":  # where strength and shrinkage were chosen
            guess = plain.predict(mean)
            for name, values in CHOICES.items():
                for value in values:
                    weights = tempered(read, **{name: value})
                    found[f"{name} {value}", "own"] = ndcg(guess, mean, weights)
        about = {
            "part": one.part,
            "collection": one.collection.name.partition("/")[2],
            "near": plain.nearness(mean),
            "documents": len(documents[place]),
            "mean": float(np.linalg.norm(mean)),
            "largest": _largest_share(read),
        }
        rows += [
            {**about, "way": way, "context": where, "ndcg": score}
            for (way, where), score in found.items()
        ]
    return pd.DataFrame(rows)


def _drawn(vectors: Vectors, count: int, generator: np.random.Generator) -> Vectors:
    return vectors[generator.permutation(len(vectors))[:count]]


def _without(directions: Vectors) -> Callable[[Vectors], NDArray[Any]]:
    """Projects directions out: orthonormal ones, `(n, dim)`."""
    return lambda vectors: vectors - (vectors @ directions.T) @ directions


def _onto(sample: Vectors, count: int) -> Callable[[Vectors], NDArray[Any]]:
    """Projects on principal directions of a sample, about its origin."""
    directions = np.linalg.svd(sample, full_matrices=False)[2][:count]
    return lambda vectors: vectors @ directions.T


def _largest_share(vectors: Vectors) -> float:
    """Of their variance, the share in the direction that has most."""
    variances = np.linalg.svd(vectors - vectors.mean(axis=0), compute_uv=False) ** 2
    return float(variances[0] / variances.sum())


def least_near(rows: pd.DataFrame) -> float:
    """The nearness from which on the reader is used: that with the highest mean gain over MiniLM on
    validation manuals and sources of public pairs; what is less near gains nothing.
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
        of_vendor = np.array([one.startswith(f"{vendor}/") for one in means.names])
        if of_vendor.sum() > 1:
            readers[f"linear reader, {vendor}"] = means.reader(of_vendor, ridge)
    return readers


def _other(asked: Sequence[Asked], place: int) -> int | None:
    """The next collection of the same part that is not kin."""
    later = [(place + step) % len(asked) for step in range(1, len(asked))]
    one = asked[place]
    fit = (n for n in later if asked[n].part == one.part and asked[n].kin != one.kin)
    return next(fit, None)


def main() -> None:
    import cde.adaptation
    from cde.surrogate import Surrogate

    reader = corpus_means(Surrogate(max_tokens=128)).reader()
    named = replace(reader, encoder="minilm", least_near=LEAST_NEAR)
    save_reader(named, Path(cde.adaptation.__file__).with_name("linear_reader.safetensors"))


if __name__ == "__main__":
    main()

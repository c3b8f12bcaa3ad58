"""Docstrings that can only be searched with their corpus: each corpus has boilerplate of its own.

A corpus is a sample of docstrings, each the document of its own summary. Words of boilerplate are
put between their words, and between those of the queries. They are the corpus' own: many stand in
every text of it. They are drawn from words that tell documents apart elsewhere, so that no word is
noise by itself. The corpora of the test have other boilerplate words than those of training, and
docstrings of other packages.

Every training batch is one corpus, and no corpus comes back: `batches="domain"` with a batch as
large as a corpus. So all of it goes through `cde.train`, as in the chapters of results.

Cost: a second for some hundred corpora.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from cde.data import Pairs, RetrievalSet
from cde.data.pydocs import PACKAGES, load_pairs
from cde.experiments.corpus_statistics import Counts
from cde.experiments.headroom import TermMatrix
from cde.experiments.recipes import EvaluationSet, Recipe
from cde.experiments.score_matrices import JudgedMatrix
from cde.experiments.text_game import PACKAGES_KEPT, of_test, text_words
from cde.models.encoder import load_tokenizer

__all__ = ["Boilerplate", "BoilerplateRecipe", "search_by_counting"]

_TEST_SEED = 10**6
#: texts with fewer words of their own are left out
_SHORTEST_QUERY, _SHORTEST_DOCUMENT = 3, 8


@dataclass(frozen=True)
class Boilerplate:
    """The rules: how many words of each kind a text has.

    Attributes:
        packages: names of `pydocs`, every fifth for the test; by default all.
        words: boilerplate words of a corpus.
        in_document: of these in a document; a query has half as many.
        document_words, query_words: words of the docstring, and of its summary, that are kept.

    Raises:
        ValueError: more boilerplate words in a document than the corpus has.

    Used by the chapter `learning_to_read`.

    Example:
        >>> rules = Boilerplate(("rich", "tornado", "sphinx", "networkx", "pandas"))
        >>> corpus = rules.corpus(4, seed=0)
        >>> len(corpus.queries[0].split()) <= rules.query_words + rules.in_document // 2
        True
    """

    packages: tuple[str, ...] | None = None
    words: int = 16
    in_document: int = 12
    document_words: int = 16
    query_words: int = 8

    def __post_init__(self) -> None:
        if not 2 <= self.in_document <= self.words:
            raise ValueError(
                f"a document needs 2 boilerplate words or more, and no more than the corpus has; "
                f"of {self.words} it has {self.in_document}"
            )

    @property
    def _packages(self) -> tuple[str, ...]:
        return self.packages or tuple(PACKAGES)

    def _docstrings(self, unseen: bool) -> Pairs:
        kept = [
            name
            for place, name in enumerate(self._packages)
            if (place % PACKAGES_KEPT == PACKAGES_KEPT - 1) is unseen
        ]
        # near duplicates are dropped across packages; `text_words` enters them in the account
        pairs = load_pairs(kept, split="all")
        long = [
            len(query.split()) >= _SHORTEST_QUERY and len(document.split()) >= _SHORTEST_DOCUMENT
            for query, document in pairs
        ]
        return pairs.select(np.array(long))

    def corpus(self, pairs: int, seed: int, unseen: bool = False, corpora: int = 1) -> Pairs:
        """Corpora of real text with boilerplate of their own.

        Args:
            pairs: of each.
            seed: of every draw.
            unseen: take the packages and the boilerplate words of the test.
            corpora: how many; each is a domain of the result.

        Raises:
            ValueError: fewer docstrings than a corpus has pairs.
        """
        found, docstrings = text_words(self._packages), self._docstrings(unseen)
        if len(docstrings) < pairs:
            raise ValueError(
                f"a corpus of {pairs} pairs was asked for; the packages have {len(docstrings)} "
                "docstrings that are long enough"
            )
        pool = np.flatnonzero(of_test(len(found.words)).numpy() == unseen)
        queries, documents, domains = [], [], []
        for number in range(corpora):
            generator = np.random.default_rng([seed, number])
            own = [found.words[one] for one in generator.choice(pool, self.words, replace=False)]
            for row in generator.choice(len(docstrings), pairs, replace=False):
                texts = docstrings.queries[row], docstrings.documents[row]
                sizes = (
                    (self.query_words, self.in_document // 2),
                    (self.document_words, self.in_document),
                )
                query, document = (
                    _with_words(text.split()[:kept], own, count, generator)
                    for text, (kept, count) in zip(texts, sizes, strict=True)
                )
                queries.append(query)
                documents.append(document)
                domains.append(f"corpus {number}")
        return Pairs(queries, documents, domains, name="pydocs with boilerplate")


def _with_words(
    text: list[str], boilerplate: list[str], count: int, generator: np.random.Generator
) -> str:
    words = list(text)
    for one in generator.choice(len(boilerplate), count, replace=False):
        words.insert(int(generator.integers(len(words) + 1)), boilerplate[one])
    return " ".join(words)


@dataclass(frozen=True)
class BoilerplateRecipe(Recipe):
    """A recipe whose batches and tests are corpora with boilerplate of their own.

    `sizes` are the pairs of a test corpus, and the number of these corpora.

    Used by the chapter `learning_to_read`.
    """

    rules: Boilerplate = Boilerplate()

    @cached_property
    def pairs(self) -> Pairs:
        """A corpus for each step, as large as a batch."""
        return self.rules.corpus(self.base.batch_size, 0, corpora=self.base.steps)

    def tests(self) -> list[EvaluationSet]:
        """Corpora of other packages, with other boilerplate."""
        size, count = self.sizes
        every = self.rules.corpus(size, _TEST_SEED, unseen=True, corpora=count)
        domains, sets = np.asarray(every.domains), []
        for name in dict.fromkeys(every.domains):
            one = every.select(domains == name)
            ids = [f"{place}" for place in range(len(one))]
            qrels = {place: {place: 1} for place in ids}
            corpus = RetrievalSet(
                ids, list(one.documents), ids, list(one.queries), qrels, name=name
            )
            sets.append(EvaluationSet(name, corpus, "out"))
        return sets

    def record_key(self, **chapter: Any) -> dict[str, Any]:
        """The recipe's settings, the rules, and the chapter's own."""
        return {**super().record_key(**chapter), "rules": vars(self.rules)}


def search_by_counting(tests: list[EvaluationSet]) -> dict[str, float]:
    """NDCG@10 of BM25 on corpora, by where its word weights come from: no training.

    Args:
        tests: two or more.

    Returns:
        "equal": all words weigh alike. "own": by IDF in the corpus that is searched. "other": by
        IDF in the next corpus.

    Used by the chapter `learning_to_read`.

    Example:
        >>> from cde.experiments.recipes import recipe
        >>> names = ("rich", "tornado", "sphinx", "networkx", "pandas")
        >>> base = recipe("smoke").base
        >>> small = BoilerplateRecipe("smoke", base, (60, 2), {}, Boilerplate(names))
        >>> found = search_by_counting(small.tests())
        >>> found["own"] > found["equal"]
        True
    """
    tokenizer = load_tokenizer("minilm")
    counts = [Counts.of(test.collection.documents, tokenizer, 64) for test in tests]
    scores: dict[str, list[float]] = {"equal": [], "own": [], "other": []}
    for place, test in enumerate(tests):
        matrix, judged = TermMatrix.of(test.collection), JudgedMatrix.of(test.collection)
        weights = {
            "equal": np.ones(len(matrix.vocabulary)),
            "own": counts[place].term_weights(matrix.vocabulary),
            "other": counts[(place + 1) % len(tests)].term_weights(matrix.vocabulary),
        }
        for name, one in weights.items():
            scores[name].append(float(judged.ndcg(matrix.scores(one)).mean()))
    return {name: float(np.mean(values)) for name, values in scores.items()}

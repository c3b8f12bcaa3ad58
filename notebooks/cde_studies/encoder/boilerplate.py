"""Docstrings that can only be searched with their corpus: each corpus has boilerplate of its own.

A corpus is a sample of docstrings, each the document of its own summary. Words of boilerplate are
put between their words, and between those of the queries. They are the corpus' own: many stand in
every text of it. They are drawn from words that tell documents apart elsewhere, so that no word is
noise by itself. The corpora of the test have other boilerplate words than those of training, and
docstrings of other packages.

In `Boilerplate` all boilerplate words of a corpus are equally common, and tell nothing. In
`GradedBoilerplate` each has a document share of its own, and tells the more the rarer it is.

Every training batch is one corpus, and no corpus comes back: `batches="domain"` with a batch as
large as a corpus. So all of it goes through `cde.train`, as in the chapters of results.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

import cde
from cde.data import Pairs, RetrievalSet
from cde.models.encoder import load_tokenizer
from cde_studies.collections.pydocs import PACKAGES, load_pairs
from cde_studies.motivation.corpus_statistics import Counts
from cde_studies.motivation.headroom import NONE, by_terms
from cde_studies.motivation.score_matrices import JudgedMatrix
from cde_studies.recipes import EvaluationSet, Recipe

#: `cde.TrainConfig` of a lookup in word embeddings, of whatever is trained with it
GATED: dict[str, Any] = {
    "attention": "gated",
    "first_stage_layers": 0,
    "vectors_per_document": 6,
    "model": {"tie_token_embeddings": True},
    "batches": "domain",
    "filter_epsilon": None,
    "temperature": 0.05,
    "checkpoint_every": 0,
}
#: what the recipe's encoder has at every scale
GATED_READER = {**GATED, "null_share": 0.1, "query_tokens": 32}
GATED_READER |= {"document_tokens": 48, "context_tokens": 48}

_TEST_SEED = 10**6
#: texts with fewer words of their own are left out
_SHORTEST_QUERY, _SHORTEST_DOCUMENT = 3, 8
_WORD = re.compile(r"[a-z]{2,}")
#: documents that a word must stand in, and the share of documents that it may stand in
_FEW, _MANY = 20, 0.03
#: one package in so many, and one word in so many, is kept for the test
_PACKAGES_KEPT, _WORDS_KEPT = 5, 4


@cache
def telling_words(packages: tuple[str, ...]) -> list[str]:
    """Words that tell docstrings apart: MiniLM knows them, and they are neither rare nor common."""
    if len(packages) < _PACKAGES_KEPT:
        raise ValueError(
            f"telling_words takes {_PACKAGES_KEPT} packages or more, every fifth for the test; "
            f"{len(packages)} were given"
        )
    known = load_tokenizer("minilm").get_vocab().keys()
    texts = [text for name in packages for text in cde.load_pairs(f"pydocs/{name}").documents]
    counts = Counter(word for text in texts for word in known & _WORD.findall(text.lower()))
    most = _MANY * len(texts)
    return sorted(word for word, count in counts.items() if _FEW <= count <= most)


def of_test(words: int) -> NDArray[np.bool_]:
    """Which of so many words are boilerplate in the test alone, `(words,)` bool."""
    return np.equal(np.arange(words) % _WORDS_KEPT, _WORDS_KEPT - 1)


@dataclass(frozen=True)
class Boilerplate:
    """The rules: how many words of each kind a text has."""

    packages: tuple[str, ...] | None = None
    words: int = 16
    in_document: int = 12
    document_words: int = 16
    query_words: int = 8

    @property
    def _packages(self) -> tuple[str, ...]:
        return self.packages or tuple(PACKAGES)

    def _docstrings(self, unseen: bool) -> Pairs:
        last = self._packages[_PACKAGES_KEPT - 1 :: _PACKAGES_KEPT]
        kept = [name for name in self._packages if (name in last) is unseen]
        # near duplicates are dropped across packages; `telling_words` enters them in the account
        pairs = load_pairs(kept, split="all")
        long = [
            len(query.split()) >= _SHORTEST_QUERY and len(document.split()) >= _SHORTEST_DOCUMENT
            for query, document in pairs
        ]
        return pairs.select(np.array(long))

    def corpus(self, pairs: int, seed: int, unseen: bool = False, corpora: int = 1) -> Pairs:
        """Corpora of real text with boilerplate of their own."""
        words, docstrings = telling_words(self._packages), self._docstrings(unseen)
        if len(docstrings) < pairs:
            raise ValueError(
                f"a corpus of {pairs} pairs was asked for; the packages have {len(docstrings)} "
                "docstrings that are long enough"
            )
        pool = np.flatnonzero(of_test(len(words)) == unseen)
        queries, documents, domains = [], [], []
        for number in range(corpora):
            generator = np.random.default_rng([seed, number])
            insert = self._of_corpus(words, pool, generator)
            for row in generator.choice(len(docstrings), pairs, replace=False):
                query, document = insert(
                    docstrings.queries[row].split()[: self.query_words],
                    docstrings.documents[row].split()[: self.document_words],
                )
                queries.append(query)
                documents.append(document)
                domains.append(f"corpus {number}")
        return Pairs(queries, documents, domains, name="pydocs with boilerplate")

    def _of_corpus(
        self, words: list[str], pool: NDArray[np.int64], generator: np.random.Generator
    ) -> Callable[[list[str], list[str]], tuple[str, str]]:
        """Draw a corpus' own words; what puts them into its queries and documents."""
        own = [words[one] for one in generator.choice(pool, self.words, replace=False)]

        def with_words(text: list[str], count: int) -> str:
            chosen = generator.choice(len(own), count, replace=False)
            return _inserted(text, [own[one] for one in chosen], generator)

        def insert(query: list[str], document: list[str]) -> tuple[str, str]:
            return with_words(query, self.in_document // 2), with_words(document, self.in_document)

        return insert


def _inserted(text: list[str], words: list[str], generator: np.random.Generator) -> str:
    text = list(text)
    for word in words:
        text.insert(int(generator.integers(len(text) + 1)), word)
    return " ".join(text)


@dataclass(frozen=True)
class GradedBoilerplate(Boilerplate):
    """Boilerplate of which some words are rarer than others, and then tell something.

    Each word of a corpus has a document share of its own, drawn evenly on a logarithmic scale. A
    document holds each word with that probability. Its query repeats half of those that it holds,
    and of all words each with half its share, by chance. So a shared word is strong evidence if it
    is rare in the corpus and weak if it is common; how common, only the corpus tells.
    """

    words: int = 64
    shares: tuple[float, float] = (0.03, 0.75)

    def _of_corpus(
        self, words: list[str], pool: NDArray[np.int64], generator: np.random.Generator
    ) -> Callable[[list[str], list[str]], tuple[str, str]]:
        count = int(generator.integers(self.words // 4, self.words + 1))
        own = np.array([words[one] for one in generator.choice(pool, count, replace=False)])
        low, high = np.log(self.shares)
        share = np.exp(generator.uniform(low, high, count))

        def insert(query: list[str], document: list[str]) -> tuple[str, str]:
            held = generator.random(count) < share
            repeated = held & (generator.random(count) < 0.5)
            by_chance = generator.random(count) < share / 2
            asked = _inserted(query, list(own[repeated | by_chance]), generator)
            return asked, _inserted(document, list(own[held]), generator)

        return insert


@dataclass(frozen=True)
class BoilerplateRecipe(Recipe):
    """A recipe whose batches and tests are corpora with boilerplate of their own; `sizes` are the
    pairs of a test corpus, and the number of these corpora.
    """

    rules: Boilerplate = Boilerplate()

    @cached_property
    def pairs(self) -> Pairs:
        """A corpus for each step, as large as a batch."""
        return self.rules.corpus(self.base.batch_size, 0, corpora=self.base.steps)

    def tests(self) -> list[EvaluationSet]:
        size, count = self.sizes
        every = self.rules.corpus(size, _TEST_SEED, unseen=True, corpora=count)
        domains, sets = np.asarray(every.domains), []
        for name in dict.fromkeys(every.domains):
            one = every.select(domains == name)
            numbered = replace(one, ids=[f"{place}" for place in range(len(one))], name=name)
            sets.append(EvaluationSet(name, RetrievalSet.from_pairs(numbered), "out"))
        return sets

    def record_key(self, **chapter: Any) -> dict[str, Any]:
        return {**super().record_key(**chapter), "rules": vars(self.rules)}


def search_by_counting(tests: list[EvaluationSet]) -> dict[str, float]:
    """NDCG@10 of BM25 on corpora, by where its word weights come from: "equal", all weigh alike;
    "own", by IDF in the corpus that is searched; "other", in the next one.
    """
    tokenizer = load_tokenizer("minilm")
    counts = [Counts.of(test.collection.documents, tokenizer, 64) for test in tests]
    found = []
    for place, test in enumerate(tests):
        sources = {"own": counts[place], "other": counts[(place + 1) % len(tests)]}
        found.append(by_terms(test.collection, sources, JudgedMatrix.of(test.collection)))
    names = {"equal": NONE, "own": "own", "other": "other"}
    return {name: float(np.mean([one[of].mean() for one in found])) for name, of in names.items()}

"""The word game on real text: words of docstrings, boilerplate that differs from corpus to corpus.

The word game's words are numbers, and its encoder starts from random embeddings. Here they are
words of docstrings, with MiniLM's embeddings: a document is some of the words of a real docstring,
and a query repeats two of them. Each corpus has boilerplate words of its own: many stand in every
document and query of it. They are chosen among words that tell documents apart elsewhere, so that
no word is noise by itself. The corpora of the test have other boilerplate words than those of
training, and documents of other packages: nothing can be learned by heart.

Embeddings are whitened (principal components, each of variance 1), so that two words are about as
unlike as two words can be, and they are not trained.

Cost: the vocabulary takes a few seconds once in a process, a corpus of 512 pairs milliseconds.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import torch
from torch import Tensor

from cde.data import load_pairs
from cde.models.encoder import load_tokenizer
from cde.models.weights import backbone_weights
from cde.storage import content_hash
from cde_studies.collections.pydocs import PACKAGES
from cde_studies.encoder.word_game import Corpus, choose

_WORD = re.compile(r"[a-z]{2,}")
#: documents that a word must stand in, and the share of documents that it may stand in
_FEW, _MANY = 20, 0.03
#: one package in so many is kept for the test
PACKAGES_KEPT = 5
#: and one word in so many
_WORDS_KEPT = 4


@dataclass(frozen=True)
class TextWords:
    """Words of docstrings, and which of them each docstring has."""

    words: list[str]
    tokens: Tensor
    training: Tensor
    test: Tensor


@cache
def text_words(packages: tuple[str, ...] = tuple(PACKAGES)) -> TextWords:
    """Read the words of docstrings."""
    if len(packages) < PACKAGES_KEPT:
        raise ValueError(
            f"text_words takes {PACKAGES_KEPT} packages or more, every fifth for the test; "
            f"{len(packages)} were given"
        )
    known = load_tokenizer("minilm").get_vocab()
    texts = (load_pairs(f"pydocs/{name}").documents for name in packages)
    found = [[known.keys() & _WORD.findall(text.lower()) for text in some] for some in texts]
    counts = Counter(word for package in found for words in package for word in words)
    most = _MANY * sum(map(len, found))
    words = sorted(word for word, count in counts.items() if _FEW <= count <= most)
    number = {word: place for place, word in enumerate(words)}

    def rows(kept: bool) -> Tensor:
        chosen = [
            [number[word] for word in sorted(one) if word in number]
            for place, package in enumerate(found)
            for one in package
            if (place % PACKAGES_KEPT == PACKAGES_KEPT - 1) is kept
        ]
        table = np.full((len(chosen), max(map(len, chosen))), -1)
        for row, numbers in zip(table, chosen, strict=True):
            row[: len(numbers)] = numbers
        return torch.from_numpy(table)

    return TextWords(words, torch.tensor([known[word] for word in words]), rows(False), rows(True))


def of_test(words: int) -> Tensor:
    """Which of so many words are boilerplate in the test alone, `(words,)` bool."""
    return torch.arange(words) % _WORDS_KEPT == _WORDS_KEPT - 1


@dataclass(frozen=True)
class TextGame:
    """The rules: how many words of each kind a text has, and which corpora are drawn."""

    packages: tuple[str, ...] | None = None
    boilerplate: int = 16
    boilerplate_in_document: int = 6
    content_in_document: int = 3
    unseen: bool = False

    @property
    def _found(self) -> TextWords:
        return text_words(self.packages or tuple(PACKAGES))

    @property
    def words(self) -> int:
        """Size of the vocabulary."""
        return len(self._found.words)

    def vocabulary(self, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """A corpus' boilerplate words, drawn anew, and all words: content may be any."""
        everything = torch.arange(self.words)
        pool = everything[of_test(self.words) == self.unseen]
        return pool[choose(len(pool), self.boilerplate, 1, generator)[0]], everything

    def draw(
        self,
        pairs: int,
        context: int,
        generator: torch.Generator,
        vocabulary: tuple[Tensor, Tensor] | None = None,
    ) -> Corpus:
        """A corpus: pairs, and context documents beside them."""
        boilerplate, _ = vocabulary or self.vocabulary(generator)
        table = self._found.test if self.unseen else self._found.training
        table = table[(table >= 0).sum(dim=1) >= self.content_in_document]
        if len(table) < pairs + context:
            raise ValueError(
                f"{pairs + context} docstrings with {self.content_in_document} words of the "
                f"vocabulary are needed; there are {len(table)}"
            )
        rows = table[choose(len(table), pairs + context, 1, generator)[0]]
        order = torch.rand(rows.shape, generator=generator).masked_fill(rows < 0, -1.0)
        content = rows.gather(1, order.topk(self.content_in_document, dim=1).indices)

        def with_boilerplate(texts: Tensor, count: int) -> Tensor:
            common = boilerplate[choose(len(boilerplate), count, len(texts), generator)]
            both = torch.cat([texts, common], dim=1)
            return both.gather(1, torch.rand(both.shape, generator=generator).argsort(dim=1))

        documents = with_boilerplate(content, self.boilerplate_in_document)
        queries = with_boilerplate(content[:pairs, :2], self.boilerplate_in_document // 2)
        return Corpus(queries, documents[:pairs], documents[pairs:])

    def of_test(self) -> TextGame:
        """The game that is tested on: other packages, other boilerplate."""
        return replace(self, unseen=True)

    def fingerprint(self) -> str:
        """What the vocabulary and the docstrings are known by."""
        found = self._found
        tables = (table.numpy().tobytes().hex() for table in (found.training, found.test))
        return content_hash([*found.words, *tables])

    def embeddings(self, dim: int) -> Tensor:
        """The first principal components of MiniLM's word embeddings, each of variance 1, `(words,
        dim)`.
        """
        _, weights = backbone_weights("minilm", 1)
        [name] = [one for one in weights if one.endswith("word_embeddings.weight")]
        vectors: Tensor = weights[name].float()[self._found.tokens]
        if dim > vectors.shape[1]:
            raise ValueError(f"dim must be at most MiniLM's {vectors.shape[1]}; it is {dim}")
        vectors = vectors - vectors.mean(dim=0)
        directions = torch.linalg.svd(vectors, full_matrices=False).Vh[:dim]
        components: Tensor = vectors @ directions.T
        return components / components.std(dim=0)

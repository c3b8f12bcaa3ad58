"""A game that cannot be played without the corpus: only the corpus tells which words matter.

Each corpus splits one vocabulary anew. Some words are its boilerplate: many stand in every document
and every query, whatever these are about. The others are content: a query repeats some of its
document's. No word is boilerplate by itself, so that an encoder that sees one text alone can do no
better than weigh all words alike. Whoever has counted a sample of the corpus can: a word's weight
is its IDF there. With another corpus' counts the weights are wrong.

That makes three lines that an encoder is measured against: equal weights (what no corpus gives),
the corpus' own IDF (what its statistics give), and another corpus' IDF.

Texts are sets of words in random order, one token a word, so that nothing else is to be learned.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import normalize

_CUT, _TIE = 10, 1e-6


@dataclass(frozen=True)
class Corpus:
    """Pairs of one corpus, and a sample of its other documents."""

    queries: Tensor
    documents: Tensor
    context: Tensor


@dataclass(frozen=True)
class WordGame:
    """The rules: how many words there are, and how many of each kind a text has."""

    words: int = 64
    boilerplate: int = 16
    boilerplate_in_document: int = 6
    content_in_document: int = 3

    def __post_init__(self) -> None:
        content = self.words - self.boilerplate
        common, telling = self.boilerplate_in_document, self.content_in_document
        if not (2 <= common <= self.boilerplate and 2 <= telling <= content):
            raise ValueError(
                f"a document needs 2 words or more of each kind: of {self.boilerplate} boilerplate "
                f"words it has {common}, of {content} content words {telling}"
            )

    def vocabulary(self, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        order = torch.randperm(self.words, generator=generator)
        return order[: self.boilerplate], order[self.boilerplate :]

    def draw(
        self,
        pairs: int,
        context: int,
        generator: torch.Generator,
        vocabulary: tuple[Tensor, Tensor] | None = None,
    ) -> Corpus:
        """A corpus: pairs, and context documents beside them."""
        boilerplate, content = vocabulary or self.vocabulary(generator)

        def some(words: Tensor, count: int, rows: int) -> Tensor:
            return words[choose(len(words), count, rows, generator)]

        def documents(rows: int) -> Tensor:
            common = some(boilerplate, self.boilerplate_in_document, rows)
            return torch.cat([some(content, self.content_in_document, rows), common], dim=1)

        written = documents(pairs)
        asked = written[:, : self.content_in_document - 1]  # in the order of a random choice
        padding = some(boilerplate, self.boilerplate_in_document // 2, pairs)
        queries = torch.cat([asked, padding], dim=1)
        shuffled = (
            rows.gather(1, torch.rand(rows.shape, generator=generator).argsort(dim=1))
            for rows in (queries, written, documents(context))
        )
        return Corpus(*shuffled)


def choose(of: int, count: int, rows: int, generator: torch.Generator) -> Tensor:
    """Choices without repetition, in random order, `(rows, count)` int64, each below `of`."""
    return torch.rand(rows, of, generator=generator).topk(count).indices


def context_idf(corpus: Corpus, words: int) -> Tensor:
    """ln((n + 1) / (df + 1)) of every word over the n context documents, `(words,)` float32."""
    frequency = torch.bincount(corpus.context.flatten(), minlength=words)
    return torch.log((len(corpus.context) + 1) / (frequency + 1))


def bag_scores(corpus: Corpus, weights: Tensor) -> Tensor:
    """Cosines of weighted bags of words, `(queries, documents)` float32."""

    def bags(rows: Tensor) -> Tensor:
        return normalize(torch.zeros(len(rows), len(weights)).scatter_(1, rows, 1.0) * weights)

    return bags(corpus.queries) @ bags(corpus.documents).T


def mean_ndcg(scores: Tensor) -> float:
    """Mean NDCG@10 where document i alone answers query i; of ties the expectation."""
    own = scores.diagonal()[:, None]
    ahead = (scores > own + _TIE).sum(dim=1)
    tied = ((scores - own).abs() <= _TIE).sum(dim=1)  # itself too
    discounts = 1 / torch.log2(torch.arange(_CUT, dtype=torch.float64) + 2)
    gained = torch.cat([torch.zeros(1), discounts.cumsum(0)])  # by the first so many places
    share = gained[(ahead + tied).clamp(max=_CUT)] - gained[ahead.clamp(max=_CUT)]
    return float((share / tied).mean())

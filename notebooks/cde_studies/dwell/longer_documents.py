"""Longer documents: neighbouring paragraphs of an article in one document, so that places in it
are far apart.

From an article's beginning on, each document takes as many paragraphs as fit, eight at most. What
all paragraphs of an article begin with (its title) stands once, at the head of the document. A
passage is the sentence that it was; only its offset changes.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby

from cde_studies.dwell.passages import Passages, Span, texts_of

_BETWEEN = "\n\n"


def join_paragraphs(
    passages: Passages, article_of: Callable[[str], str], fits: Callable[[str], bool], most: int = 8
) -> Passages:
    """The same queries and passages in documents of two to `most` neighbouring paragraphs.

    Every paragraph that fits is in one document. One that fits beside no neighbour stays alone in
    the corpus; its queries are left out and counted, as are those of paragraphs that are too long.
    """
    corpus = passages.collection
    documents: dict[str, str] = {}
    # document, cut from its head, offset there, how many are together
    places: dict[str, tuple[str, int, int, int]] = {}
    for _, some in groupby(texts_of(corpus).items(), lambda one: article_of(one[0])):
        article = dict(some)
        shared = os.path.commonprefix([*article.values()]) if len(article) > 1 else ""  # noqa: RUF071
        head = shared[: shared.rfind(" ") + 1]  # what all begin with, to the last blank
        for names in _together(article, head, fits, most):
            name = names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"
            documents[name] = _joined([article[one] for one in names], head)
            offset = 0
            for number, one in enumerate(names):
                cut = len(head) if number else 0
                places[one] = (name, cut, offset, len(names))
                offset += len(article[one]) - cut + len(_BETWEEN)
    spans: dict[str, Span] = {}
    qrels: dict[str, dict[str, int]] = {}
    left_out: Counter[str] = Counter(passages.left_out)
    for query in corpus.query_ids:
        document, cut, offset, together = places.get(passages.document_of(query), ("", 0, 0, 0))
        start, end = passages.spans[query]
        if not together:
            left_out["paragraph that is too long"] += 1
        elif together < 2:
            left_out["paragraph beside no neighbour"] += 1
        elif start < cut:
            left_out["passage in the title"] += 1
        else:
            spans[query] = (start + offset - cut, end + offset - cut)
            qrels[query] = {document: 1}
    if not spans:
        raise ValueError(f"no query is left in longer documents: {dict(left_out)}")
    joined = replace(
        corpus.asking(list(spans)),
        document_ids=list(documents),
        documents=list(documents.values()),
        qrels=qrels,
        name=f"{corpus.name}, joined",
    )
    return Passages(joined, spans, dict(left_out))


def _joined(texts: Sequence[str], head: str) -> str:
    return _BETWEEN.join([texts[0], *(text[len(head) :] for text in texts[1:])])


def _together(
    article: dict[str, str], head: str, fits: Callable[[str], bool], most: int
) -> list[list[str]]:
    """The paragraphs of each document; one that is too long by itself is in none."""
    groups: list[list[str]] = [[]]
    for name, text in article.items():
        longer = [*groups[-1], name]
        if len(longer) <= most and fits(_joined([article[one] for one in longer], head)):
            groups[-1] = longer
        else:
            groups.append([name] if fits(text) else [])
    return [group for group in groups if group]

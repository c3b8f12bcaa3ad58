"""Texts that do not answer a question against one that does: the biases of a retriever combined.

*Collapse of Dense Retrievers* (ACL 2025, arXiv 2503.05037) finds that dense retrievers prefer texts
that are short, that say the right words early and literally, and that repeat them, answer or none.
Its pairs are made from a corpus of relations. Here they are made from questions with a known
sentence that answers:

- *answer*: the sentence that answers in the middle of eight sentences of other sources;
- *control*: in its place another sentence of the same document, which does not answer;
- *early*: that sentence first, the eight behind it;
- *short*: that sentence alone;
- *literal*: in the middle the question's own words;
- *combined*: the question's words twice and one sentence of another source: short, early, literal
  and repeated.

A bias shows where a foil is preferred to the answer more often than the control is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from cde.lexical import BM25
from cde.retrieval import Encoder, Ranker
from cde.validation import encoded
from cde_studies.dwell.passages import SENTENCE, Passages, texts_of
from cde_studies.intervals import clustered_interval, numbers_of

#: what is set against the answer
FOILS = ("control", "early", "short", "literal", "combined")
_AROUND = 4  # sentences of other sources on either side
_WORDS = 5  # of a sentence, at least


def foils(
    passages: Passages, source_of: Callable[[str], str], seed: int = 0
) -> tuple[dict[str, dict[str, str]], int]:
    """For each question the text that answers it ("answer"), and each of `FOILS`; and how many
    questions were left out, since their document has no other sentence.
    """
    collection = passages.collection
    texts = texts_of(collection)
    asked = dict(zip(collection.query_ids, collection.queries, strict=True))
    stock = [(source_of(name), one) for name, text in texts.items() for one in _sentences(text)]
    if len({source for source, _ in stock}) < 2:
        raise ValueError("sentences of two sources or more are needed")
    generator = np.random.default_rng(seed)
    made: dict[str, dict[str, str]] = {}
    for query, question in asked.items():
        name = passages.document_of(query)
        start, end = passages.spans[query]
        answering = " ".join(texts[name][start:end].split())
        others = _sentences(texts[name][:start]) + _sentences(texts[name][end:])
        rest = [one for one in others if one not in answering]
        around: list[str] = []  # sentences of other sources
        while len(around) < 2 * _AROUND:
            source, sentence = stock[int(generator.integers(len(stock)))]
            if source != source_of(name):
                around.append(sentence)
        if not rest:
            continue
        other = rest[int(generator.integers(len(rest)))]
        words = question.strip().rstrip("?").strip() + "."
        middle = {"answer": answering, "control": other, "literal": words}
        in_middle = {
            kind: " ".join([*around[:_AROUND], one, *around[_AROUND:]])
            for kind, one in middle.items()
        }
        combined = " ".join([words, words, around[0]])
        early = " ".join([other, *around])
        made[query] = {**in_middle, "early": early, "short": other, "combined": combined}
    return made, len(asked) - len(made)


def _sentences(text: str) -> list[str]:
    found = (" ".join(one.group().split()) for one in SENTENCE.finditer(text))
    return [one for one in found if len(one.split()) >= _WORDS]


def foil_rows(
    encoder: Encoder | Ranker,
    passages: Passages,
    source_of: Callable[[str], str],
    seed: int = 0,
    **head: Any,
) -> list[dict[str, Any]]:
    """How often each foil is preferred to the text that answers: for each of `FOILS` a row of foil;
    share of the questions for which it has the higher score (a tie counts half), low, high: over
    documents; questions, documents, left_out.
    """
    made, left_out = foils(passages, source_of, seed)
    queries = list(made)
    kinds = ("answer", *FOILS)
    questions = list(passages.collection.asking(queries).queries)
    scores = _scores(encoder, questions, [[made[one][kind] for one in queries] for kind in kinds])
    owners = [passages.document_of(query) for query in queries]
    rows = []
    for number, foil in enumerate(FOILS, start=1):
        ahead = (scores[number] > scores[0]) + 0.5 * (scores[number] == scores[0])
        share = clustered_interval(ahead, owners)
        counts = {"questions": len(queries), "documents": share.n, "left_out": left_out}
        rows.append({**head, "foil": foil, **numbers_of(share, "share"), **counts})
    return rows


def _scores(
    encoder: Encoder | Ranker, questions: list[str], texts: list[list[str]]
) -> list[np.ndarray]:
    """For each kind of text the score of each question with its own."""
    if isinstance(encoder, Encoder):
        asked = encoded(encoder, questions, "queries")
        return [np.einsum("qd,qd->q", asked, encoded(encoder, some, "documents")) for some in texts]
    every = [text for some in texts for text in some]
    found = BM25(every).search(questions, len(every))
    count = len(questions)
    return [
        np.array([one.get(kind * count + row, 0.0) for row, one in enumerate(found)])
        for kind in range(len(texts))
    ]

"""Where in its document the passage stands that answers a query.

Sources, all real text:

- `pydocs` (offline): long docstrings with sections. A section's first sentence is taken out of the
  document and becomes the query (an inverse cloze task, Lee et al. 2019); the rest of the section
  is the passage.
- `beir/squad-dev` and `beir/covidqa-passages` of `$CDE_DATA`: the sentence that holds the answer,
  if that occurs once.
- `beir/covidqa-docs` with `beir/covidqa-passages`: the passage of the long article, found by exact
  matching, as the paper finds those of MS MARCO (Dwell §4.2).
- any two retrieval sets that ask the same queries, one of documents and one of their passages, by
  exact matching too: MS MARCO's from the Hub (`MSMARCO`), or your own folders.

What cannot be placed is counted by reason, never dropped in silence. A section of a docstring is a
heading, underlined or with a colon, and what follows it.
"""

from __future__ import annotations

import csv
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cde.data import RetrievalSet, load_pairs, load_retrieval
from cde.progress import progress

#: MS MARCO on the Hub, for `load_passages`: its documents, and its passages, which ask the same
#: queries
MSMARCO = {
    "name": "hub:michaeldinzinger/msmarco-document",
    "answers": "hub:mteb/msmarco",
    "split": "dev",
}

#: start and end (exclusive) in a text, in characters
Span = tuple[int, int]

#: to the next full stop before white space, or to an empty line
SENTENCE = re.compile(r".+?(?:[.!?](?=\s)|\n\s*\n|$)", re.DOTALL)
_UNDERLINED = re.compile(r"^[ \t]*[A-Z][A-Za-z ]{2,24}\n[ \t]*[-=~]{3,}[ \t]*\n", re.MULTILINE)
_COLON = re.compile(r"^[ \t]*[A-Z][A-Za-z]{2,16}( \d+)?::?[ \t]*\n", re.MULTILINE)
#: words of a query and of a passage at least; fewer say too little to be found by
_QUERY_WORDS, _PASSAGE_WORDS = 5, 10


@dataclass(frozen=True)
class Passages:
    """A retrieval set of one relevant document a query, and where in it the passage stands."""

    collection: RetrievalSet
    spans: Mapping[str, Span]
    left_out: Mapping[str, int]

    def document_of(self, query: str) -> str:
        """The id of the document that holds a query's passage."""
        return next(name for name, grade in self.collection.qrels[query].items() if grade > 0)

    def starts(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Where passages start, in the order of the queries, without those that fill their
        document: in characters, and as a share of the characters that are not the passage's. That
        is 0 at the document's start and 1 where the passage ends with it; of passages placed at
        random the median is a half, however long they are.
        """
        texts, queries = texts_of(self.collection), self.collection.query_ids
        spans = np.array([self.spans[query] for query in queries], dtype=np.int64).reshape(-1, 2)
        lengths = np.array([len(texts[self.document_of(query)]) for query in queries])
        room = lengths - (spans[:, 1] - spans[:, 0])
        begins, room = spans[room > 0, 0], room[room > 0]
        return begins, np.asarray(begins / room, dtype=np.float64)

    def within(self, fits: Callable[[str], bool], reason: str, corpus: bool = True) -> Passages:
        """The documents that fit, and the queries whose passages they hold; the other queries are
        counted. The corpus may stay as it is.
        """
        asked = {self.document_of(query) for query in self.collection.query_ids}
        named = texts_of(self.collection).items()
        texts = {name: text for name, text in named if (corpus or name in asked) and fits(text)}
        kept = self.held_by(texts)
        dropped = len(self.collection.query_ids) - len(kept.spans)
        left_out = {**self.left_out, reason: dropped}
        return replace(kept.of_corpus(texts) if corpus else kept, left_out=left_out)

    def held_by(self, documents: Container[str]) -> Passages:
        """The same corpus with those queries whose passages are in some of its documents, by id."""
        queries = self.collection.query_ids
        return self.asking([query for query in queries if self.document_of(query) in documents])

    def of_corpus(self, texts: Mapping[str, str]) -> Passages:
        """The same queries in another corpus, which holds their documents."""
        ids, documents = list(texts), list(texts.values())
        return replace(
            self, collection=replace(self.collection, document_ids=ids, documents=documents)
        )

    def asking(self, queries: Sequence[str]) -> Passages:
        """The same corpus with some of its queries, by id and in the given order."""
        spans = {query: self.spans[query] for query in queries}
        return replace(self, collection=self.collection.asking(queries), spans=spans)

    def sample(self, queries: int, seed: int = 0) -> Passages:
        """The same corpus with so many queries, drawn without replacement, or with all."""
        return self.asking(self.collection.select_queries(queries, seed).query_ids)


def texts_of(collection: RetrievalSet) -> dict[str, str]:
    """The documents of a collection by id."""
    return dict(zip(collection.document_ids, collection.documents, strict=True))


def _words(text: str) -> int:
    return sum(word[:1].isalpha() for word in text.split())


def _cloze(text: str, generator: np.random.Generator) -> tuple[str, str, Span] | None:
    """Query, document without it, and the passage in that document; None if no section has both."""
    for place in generator.permutation(len(sections := split_sections(text))):
        start, end = sections[place]
        for match in SENTENCE.finditer(text, start, end):
            sentence = match.group()
            if _words(sentence) < _QUERY_WORDS or ">>>" in sentence:
                continue
            document = text[: match.start()] + text[match.end() :]
            rest = (match.start(), end - len(sentence))
            if _words(document[slice(*rest)]) >= _PASSAGE_WORDS:
                return " ".join(sentence.split()), document, _trimmed(document, rest)
            break
    return None


def _trimmed(text: str, span: Span) -> Span:
    """The span without white space at its ends."""
    start, end = span
    inside = text[start:end]
    return start + len(inside) - len(inside.lstrip()), end - len(inside) + len(inside.rstrip())


def _pydocs(words: Sequence[int], packages: Sequence[str] | None) -> Passages:
    pairs = load_pairs("pydocs/*")
    if packages is not None:
        pairs = pairs.select(np.isin(np.asarray(pairs.domains), list(packages)))
    generator = np.random.default_rng(0)
    documents, queries, spans = [], [], {}
    left_out: Counter[str] = Counter()
    texts = zip(pairs.ids, pairs.documents, strict=True)
    for name, text in progress(texts, "choosing passages", len(pairs), "documents"):
        if not words[0] <= len(text.split()) <= words[1]:
            left_out["shorter or longer than asked for"] += 1
            continue
        cloze = _cloze(text, generator)
        if cloze is None:
            left_out["no section with a sentence and more"] += 1
            continue
        query, document, spans[name] = cloze
        documents.append(document)
        queries.append(query)
    ids, qrels = list(spans), {name: {name: 1} for name in spans}
    collection = RetrievalSet(ids, documents, ids, queries, qrels, name="pydocs sections")
    return Passages(collection, spans, dict(left_out))


def match_passages(collection: RetrievalSet, passages: Mapping[str, str]) -> Passages:
    """The queries whose passage occurs once in their one relevant document, white space aside."""
    texts = {name: " ".join(text.split()) for name, text in texts_of(collection).items()}
    spans: dict[str, Span] = {}
    left_out: Counter[str] = Counter()
    for query in collection.query_ids:
        relevant = [name for name, grade in collection.qrels.get(query, {}).items() if grade > 0]
        passage = " ".join(passages.get(query, "").split())
        if len(relevant) != 1:
            left_out["not one relevant document"] += 1
        elif not passage:
            left_out["no passage given"] += 1
        elif (count := texts[relevant[0]].count(passage)) != 1:
            left_out[f"passage {'more than once' if count else 'not'} in its document"] += 1
        else:
            start = texts[relevant[0]].index(passage)
            spans[query] = (start, start + len(passage))
    plain = replace(collection, documents=list(texts.values()))
    return Passages(plain.asking(list(spans)), spans, dict(left_out))


def _positions(name: str) -> Iterator[dict[str, str]]:
    path = Path(os.environ.get("CDE_DATA", "")) / name / "positions.tsv"
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} is not there: where the answers of {name} stand is read from it"
        )
    with path.open(encoding="utf-8", newline="") as lines:
        yield from csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)


#: a query, the text of its document, where that begins below the title, and the answers that occur
#: in it once
Answered = tuple[str, str, int, list[tuple[int, str]]]


def _squad(collection: RetrievalSet) -> Iterator[Answered]:
    texts = texts_of(collection)
    for row in _positions("beir/squad-dev"):
        text = texts[row["corpus-id"]]
        shift = len(text) - int(row["doc_chars"])  # a title stands before the text
        once = [
            (start + shift, answer)
            for start, answer, count in json.loads(row["answers"])
            if count == 1 and text.startswith(answer, start + shift)
        ]
        yield row["query-id"], text, shift, once


def _covidqa_paragraphs(collection: RetrievalSet) -> Iterator[Answered]:
    articles, parts = texts_of(load_retrieval("beir/covidqa-docs")), texts_of(collection)
    for row in _positions("beir/covidqa-docs"):
        article, part = articles[row["corpus-id"]], parts[row["passage-id"]]
        shift = len(article) - int(row["doc_chars"])
        answer = article[int(row["answer_start"]) + shift : int(row["answer_end"]) + shift].strip()
        # each paragraph repeats the article's title
        below = shift if part.startswith(article[:shift]) else 0
        once = [(part.index(answer), answer)] if part.count(answer) == 1 else []
        yield row["query-id"], part, below, once


def _sentences(name: str) -> Passages:
    """The sentences that hold the answers."""
    collection = load_retrieval(name)
    spans: dict[str, Span] = {}
    left_out: Counter[str] = Counter()
    answered = _squad if name == "beir/squad-dev" else _covidqa_paragraphs
    for query, text, below, once in answered(collection):
        if not once:
            left_out["answer more than once, or not at its offset"] += 1
            continue
        start, answer = once[0]
        found = SENTENCE.finditer(text, below)
        around = next((one for one in found if one.start() <= start < one.end()), None)
        if around is None or around.end() < start + len(answer):
            left_out["answer in no single sentence"] += 1
            continue
        spans[query] = _trimmed(text, around.span())
    return Passages(collection.asking(list(spans)), spans, dict(left_out))


def _covidqa() -> Passages:
    collection = load_retrieval("beir/covidqa-docs")
    articles, parts = (
        {name: " ".join(text.split()) for name, text in texts_of(one).items()}
        for one in (collection, load_retrieval("beir/covidqa-passages"))
    )
    texts = {}
    for row in _positions(collection.name):
        article, part = articles[row["corpus-id"]], parts.get(row["passage-id"], "")
        # a passage carries its article's title, which stands in the article once, at its head
        title = os.path.commonprefix([article, part])  # noqa: RUF071
        texts[row["query-id"]] = part if part in article else part.removeprefix(title)
    return match_passages(collection, texts)


def _of_two_sets(name: str, answers: str, split: str) -> Passages:
    """The passages of one set in the documents of another, for the queries that both ask."""
    documents, passages = (
        load_retrieval(one, split=split, drop_unknown=True) for one in (name, answers)
    )
    texts = texts_of(passages)
    relevant = {
        query: [one for one, grade in grades.items() if grade > 0]
        for query, grades in passages.qrels.items()
    }
    one_each = {query: texts[names[0]] for query, names in relevant.items() if len(names) == 1}
    if not set(one_each) & set(documents.query_ids):
        raise ValueError(
            f"{name} and {answers} have no query id in common with a single relevant passage"
        )
    return match_passages(documents, one_each)


def load_passages(
    name: str,
    words: Sequence[int] = (60, 400),
    packages: Sequence[str] | None = None,
    answers: str | None = None,
    split: str = "test",
) -> Passages:
    """Queries with a known passage; `words` are the least and the most of a docstring."""
    if answers is not None:
        return _of_two_sets(name, answers, split)
    known = {
        "pydocs": lambda: _pydocs(words, packages),
        "beir/squad-dev": lambda: _sentences(name),
        "beir/covidqa-passages": lambda: _sentences(name),
        "beir/covidqa-docs": _covidqa,
    }
    if name not in known:
        raise ValueError(
            f"passages are known for {', '.join(known)}, and of any set with `answers`; the name "
            f"is {name!r}"
        )
    return known[name]()


def split_sections(text: str) -> list[Span]:
    """The sections of a docstring: from below each heading to the next."""
    heads = sorted(
        (heading.start(), heading.end())
        for rule in (_UNDERLINED, _COLON)
        for heading in rule.finditer(text)
    )
    edges = [start for start, _ in heads] + [len(text)]
    return [(below, end) for (_, below), end in zip(heads, edges[1:], strict=True) if end > below]

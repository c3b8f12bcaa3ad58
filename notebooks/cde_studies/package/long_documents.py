"""Collections of long documents, with the place in each document that answers a query.

- manuals: neighbouring descriptions of one web service, joined; a query is the name of what one of
  them describes;
- docstrings: long ones of one package; a query is a sentence that was taken out of a section, whose
  rest is what answers it;
- `beir/squad-dev` of `$CDE_DATA`: neighbouring paragraphs of one article, joined; what answers a
  question is the sentence with the answer;
- `beir/covidqa-docs`: whole articles; what answers a question is the paragraph with the answer.

All documents have `SHORTEST` tokens or more, and all but the articles `LONGEST` or fewer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from hashlib import blake2b
from itertools import islice

import numpy as np

from cde.data import RetrievalSet
from cde.models.encoder import load_tokenizer
from cde_studies.collections import manuals
from cde_studies.dwell.longer_documents import join_paragraphs
from cde_studies.dwell.passages import Passages, load_passages, texts_of

#: tokens of a document, with its two marks
SHORTEST, LONGEST = 512, 2048
#: of `$CDE_DATA`
ARTICLES = ("beir/squad-dev", "beir/covidqa-docs")
#: what a joined document has room for, one of these by a hash of its beginning
_ROOMS = (768, 1024, 1536, LONGEST)
_ANY = 10**9
#: words of a docstring that may have so many tokens
_WORDS = (250, 1600)
#: of a manual, for a document: fewer make none that is long
_LEAST_DESCRIPTIONS = 8

_tokenizer = cache(lambda: load_tokenizer("minilm"))


def tokens_of(texts: Sequence[str]) -> list[int]:
    """How many tokens each text has, marks included."""
    return [len(ids) for ids in _tokenizer()(list(texts), verbose=False)["input_ids"]]


def joined_manuals(most: int, documents: int, queries: int, seed: int) -> list[Passages]:
    """Manuals of the test part, drawn among those that make so many documents."""
    names = manuals.corpora("test", least=_LEAST_DESCRIPTIONS * documents)
    order = np.random.default_rng(seed).permutation(names).tolist()
    made = (_long(_joined(name), documents, queries, seed) for name in order)
    return list(islice((one for one in made if len(one.collection.documents) == documents), most))


def long_docstrings(
    packages: Sequence[str], documents: int, queries: int, seed: int
) -> list[Passages]:
    """Docstrings of each package, whose other ones are left out of the corpus."""
    found = []
    for one in packages:
        made = _long(load_passages("pydocs", _WORDS, packages=[one]), documents, queries, seed)
        named = replace(made.collection, name=f"docstrings/{one}")
        found.append(replace(made, collection=named))
    return found


def articles(name: str, documents: int, queries: int, seed: int) -> Passages:
    """One of `ARTICLES`: parts of SQuAD's articles, or whole ones of COVID-QA."""
    placed = load_passages(name)
    if name == "beir/squad-dev":
        placed = join_paragraphs(placed, lambda one: one.rpartition("_")[0], _fits, _ANY)
        return _long(placed, documents, queries, seed)
    return _long(placed, documents, queries, seed, longest=_ANY)


def _joined(manual: str) -> Passages:
    """A manual's descriptions, joined in the order in which the manual has them."""
    pairs = manuals.load_pairs([manual])
    collection = RetrievalSet.from_pairs(pairs)
    spans = {name: (0, len(text)) for name, text in zip(pairs.ids, pairs.documents, strict=True)}
    placed = Passages(replace(collection, name=f"manuals/{manual}"), spans, {})
    return join_paragraphs(placed, lambda _: manual, _fits, _ANY)


def _fits(text: str) -> bool:
    """Whether a document has room for a text, which it begins with."""
    place = blake2b(text[:40].encode(), digest_size=2).digest()[0] % len(_ROOMS)
    # what is joined has no token across the empty lines between
    return 2 + sum(map(_inner_tokens, text.split("\n\n"))) <= _ROOMS[place]


@cache
def _inner_tokens(text: str) -> int:
    return tokens_of([text])[0] - 2


def _long(
    passages: Passages, documents: int, queries: int, seed: int, longest: int = LONGEST
) -> Passages:
    """So many long documents, drawn, and so many of the queries that they answer."""
    texts = texts_of(passages.collection)
    answering = {passages.document_of(query) for query in passages.collection.query_ids}
    counts = dict(zip(texts, tokens_of(list(texts.values())), strict=True))
    fit = [name for name in texts if name in answering and SHORTEST <= counts[name] <= longest]
    order = np.random.default_rng(seed).permutation(len(fit))[:documents]
    kept = {fit[row]: texts[fit[row]] for row in sorted(order)}
    return passages.held_by(kept).of_corpus(kept).sample(queries, seed)

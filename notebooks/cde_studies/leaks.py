"""What a test set shares with the pairs that were trained on: ids, texts, and texts nearly alike.

A score says how an encoder treats unseen text only as far as the text is unseen. Counted are: the
test set's documents, which are also what a context is drawn from at test time; its queries; and the
answers, queries of which a relevant document was trained on. Two texts are *equal* if they are so
but for case and white space, and *nearly* equal if the sets of their three-word shingles are
(`cde_studies.collections.pydocs`).

Documents of a corpus that were trained on without being asked for are not a leak by themselves.
They are distractors that the encoder knows, and are told apart by the column `answers`.

Cost: a minute for 100,000 training documents and nine collections; `kept_count` keeps the counts.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

import pandas as pd

from cde.data.sets import Pairs, RetrievalSet
from cde.storage import cache_folder, content_hash, read_json, write_json
from cde_studies.collections.duplicates import first_occurrences

_VERSION = "1"  # of what is counted


def shared_with_training(training: Pairs, tests: Iterable[RetrievalSet]) -> pd.DataFrame:
    """What each test set has in common with training, a row for each set, by its name.

    Sizes: `documents`, `queries`. Of the documents: `ids`, which carry the id of a training pair;
    `equal documents`; `near documents`, equal ones among them. Of the queries: `equal queries`;
    `answers`, which ask for a near document that is relevant; `pairs`, whose very pair of query and
    relevant document was trained on.
    """
    tests = list(tests)
    documents = [plain(text) for text in training.documents]
    queries = [plain(text) for text in training.queries]
    trained, asked = set(documents), set(queries)
    together = set(zip(queries, documents, strict=True))
    ids = set(training.ids)
    # copies among them change nothing, and take time; in their order, whatever the hash seed is
    distinct = list(dict.fromkeys(documents))
    searched = [plain(text) for one in tests for text in one.documents]
    # a text is given the earliest one that it is near to, and those of training come first
    first = first_occurrences([*distinct, *searched])
    near_of = first[len(distinct) :] < len(distinct)
    rows, start = [], 0
    for one in tests:
        texts = dict(zip(one.document_ids, map(plain, one.documents), strict=True))
        near = near_of[start : start + len(texts)]
        start += len(texts)
        known = {name for name, is_near in zip(texts, near, strict=True) if is_near}
        questions = {name: plain(q) for name, q in zip(one.query_ids, one.queries, strict=True)}
        relevant = {
            name: [document for document, grade in one.qrels.get(name, {}).items() if grade > 0]
            for name in questions
        }
        rows.append(
            {
                "set": one.name,
                "documents": len(texts),
                "queries": len(questions),
                "ids": len(ids & texts.keys()),
                "equal documents": sum(text in trained for text in texts.values()),
                "near documents": int(near.sum()),
                "equal queries": sum(text in asked for text in questions.values()),
                "answers": sum(not known.isdisjoint(some) for some in relevant.values()),
                "pairs": sum(
                    any((questions[name], texts[document]) in together for document in some)
                    for name, some in relevant.items()
                ),
            }
        )
    return pd.DataFrame(rows).set_index("set")


def kept_count(training: Pairs, tests: Iterable[RetrievalSet]) -> pd.DataFrame:
    """As `shared_with_training`, read from the cache where the same texts were counted before."""
    tests = list(tests)
    named = (part for one in tests for part in (one.name, one.fingerprint))
    key = content_hash([_VERSION, training.fingerprint, content_hash(training.ids), *named])
    path = cache_folder("shared") / f"{key}.json"
    kept = read_json(path)
    if kept is None:
        counted = shared_with_training(training, tests).reset_index()
        kept = {"rows": json.loads(counted.to_json(orient="records"))}
        write_json(path, kept)
    return pd.DataFrame(kept["rows"]).set_index("set")


def plain(text: str) -> str:
    """A text without what two equal ones may differ in: case and white space."""
    return " ".join(text.split()).casefold()

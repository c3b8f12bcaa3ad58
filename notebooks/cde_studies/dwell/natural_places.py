"""Sensitivity to the place that a passage was written at, and to the place that it is moved to.

Grouping questions by where their answers were written, as SQuAD-PosQ does (arXiv 2505.13950),
compares different questions: what is said first may be asked otherwise. These indices tell the two
apart, on the same questions:

- *natural*: documents as they are, questions by where their passage was written;
- *question*: the same groups, but each question has its mean over ten places of its passage, so
  that the groups differ in what is asked alone;
- *moved*: the ten places of the same passage;
- *natural, all*: as *natural*, of all placed passages, not only of those that were moved;
- *short*, *medium* and *long*: the same passages, grouped by the third of their document, among the
  third of the documents of that length alone, as PosIR does (arXiv 2601.08363): late answers stand
  in long documents, which are harder to find wherever the answer is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from cde.progress import progress
from cde.retrieval import Encoder, Ranker
from cde_studies.dwell.fresh import Probed, encoder_of, fresh_passages, unmoved
from cde_studies.dwell.passages import Passages, texts_of
from cde_studies.dwell.sensitivity import index_difference, index_share, position_sensitivity
from cde_studies.intervals import numbers_of

#: characters at which a group begins, as in SQuAD-PosQ
STARTS = (0, 100, 200, 300, 400, 500)
_THIRDS = ("beginning", "middle", "end")
#: of documents of one length: the shortest third of them, and so on
LENGTHS = ("short", "medium", "long")
_METRIC = "ndcg@10"
_OF_ALL = ("index", "low", "high", "without", "limit", "p", "documents")


def written_place(passages: Passages, query: str, thirds: bool) -> str:
    """The group of a question by where its passage was written."""
    start, end = passages.spans[query]
    if thirds:
        document = passages.collection.document_ids.index(passages.document_of(query))
        room = len(passages.collection.documents[document]) - (end - start)
        return _THIRDS[min(2, int(3 * start / max(room, 1)))]
    return _group_of(start)


def _group_of(start: int) -> str:
    least = max(one for one in STARTS if one <= start)
    return f"{least} on" if least == STARTS[-1] else f"{least} to {least + 99}"


def by_written_place(scores: pd.Series[float], groups: Sequence[str]) -> pd.DataFrame:
    """A table with a column for each group, in which each question has its score in its own."""
    order = [*(_group_of(start) for start in STARTS), *_THIRDS]
    names = sorted(set(groups), key=order.index)
    values = np.full((len(scores), len(names)), np.nan)
    values[np.arange(len(scores)), [names.index(group) for group in groups]] = scores
    return pd.DataFrame(values, index=scores.index, columns=names)


def sensitivity_rows(
    queries: Mapping[str, int], words: Sequence[int], packages: Sequence[str], draws: int
) -> pd.DataFrame:
    """Indices of BM25 and MiniLM on fresh queries of several collections.

    A row for each group with `collection`, `model`, `kind` (see above), `group`, `ndcg` (its mean)
    and `queries`; and in each row the same: `index`, `low`, `high`, `without`, `limit`, `p`,
    `documents`; of *question* also `share`, `share_low`, `share_high`, the index as a share of
    *natural*; of *long* also `more`, `more_low`, `more_high`, the index less that of *short*.
    """
    rows: list[dict[str, Any]] = []
    for name, most in progress(queries.items(), "measuring sensitivity", unit="collections"):
        joined = name.endswith("joined")
        probed = Probed(fresh_passages(name, most, words, packages))
        every = fresh_passages(name, 10**9, words, packages)
        for model in ("BM25", "MiniLM"):
            tables = tables_of_scores(probed, every, encoder_of(model), joined)
            for kind, (table, owners) in tables.items():
                if table.shape[1] < 2:
                    continue
                found = position_sensitivity(table, owners, draws)
                head = {"collection": name, "model": model, "kind": kind}
                of_all = {name: getattr(found, name) for name in _OF_ALL}
                if kind == "question":
                    share = index_share(table, tables["natural"][0], owners, draws)
                    of_all |= numbers_of(share, "share", "share_")
                if kind == LENGTHS[-1]:
                    shorter, of_shorter = tables[LENGTHS[0]]
                    more = index_difference(table, shorter, (owners, of_shorter), draws)
                    of_all |= numbers_of(more, "more", "more_")
                counts = table.notna().sum().tolist()
                for (group, mean), count in zip(found.groups.items(), counts, strict=True):
                    own = {"group": str(group), "ndcg": mean, "queries": count}
                    rows.append({**head, **own, **of_all})
    return pd.DataFrame(rows)


def tables_of_scores(
    probed: Probed, every: Passages, encoder: Encoder | Ranker, thirds: bool
) -> dict[str, tuple[pd.DataFrame, list[str]]]:
    """For each kind the table of NDCG@10 and the document of each query."""
    unchanged = unmoved(probed.passages, encoder, probed.queries)[_METRIC]
    if isinstance(encoder, Encoder):
        moved = probed.scores(encoder)[_METRIC].drop(columns="default").loc[probed.queries]
    else:
        moved = pd.DataFrame(dict.fromkeys(range(1, 11), unchanged))
    of_all = unmoved(every, encoder)[_METRIC]
    owners = [every.document_of(query) for query in of_all.index]
    here = [written_place(probed.passages, query, thirds) for query in probed.queries]
    there = [written_place(every, query, thirds) for query in of_all.index]
    return {
        **by_length(every, of_all, owners),
        "natural, all": (by_written_place(of_all, there), owners),
        "natural": (by_written_place(unchanged, here), probed.owners),
        "question": (by_written_place(moved.mean(axis=1), here), probed.owners),
        "moved": (moved, probed.owners),
    }


def by_length(
    passages: Passages, scores: pd.Series[float], owners: Sequence[str]
) -> dict[str, tuple[pd.DataFrame, list[str]]]:
    """The same by third, among documents of one length alone; none where they are too few."""
    texts = texts_of(passages.collection)
    lengths = pd.Series({name: len(texts[name]) for name in dict.fromkeys(owners)})
    if len(lengths) < 2 * len(LENGTHS):
        return {}
    parts = pd.qcut(lengths.rank(method="first"), len(LENGTHS), labels=list(LENGTHS))
    of_query = parts[list(owners)].to_numpy()
    found = {}
    for length in LENGTHS:
        some = scores[of_query == length]
        thirds = [written_place(passages, query, True) for query in some.index]
        kept = [owner for owner, part in zip(owners, of_query, strict=True) if part == length]
        found[length] = (by_written_place(some, thirds), kept)
    return found

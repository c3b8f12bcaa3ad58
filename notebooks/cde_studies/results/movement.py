"""How far embeddings of the same documents move between contexts, and whether together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cde.models import ContextualEncoder
from cde_studies.recipes import EvaluationSet
from cde_studies.results.squares import NULL

Vectors = NDArray[np.float64]
#: difference of cosines that is none: documents that are cut to the same tokens have one vector
TIE = 1e-6
#: kinds of pairs of contexts: two draws from one corpus, two corpora, all of these, null and real
OWN_AGAIN, OTHER_AGAIN = "own, drawn again", "other, drawn again"
OWN_OTHER, TWO_OTHERS = "own and other", "two others"
ALL_REAL = "all real"


def nearest(vectors: Vectors, neighbours: int) -> NDArray[np.bool_]:
    """Which other documents are nearest to each: `(n, dim)` unit vectors to `(n, n)` bool."""
    cosine = vectors @ vectors.T
    np.fill_diagonal(cosine, -np.inf)
    order = np.argsort(-cosine, axis=1, kind="stable")[:, :neighbours]
    marks = np.zeros(cosine.shape, dtype=bool)
    np.put_along_axis(marks, order, True, axis=1)
    return marks


def movement(embedded: Vectors, neighbours: int) -> pd.DataFrame:
    """What each pair of contexts does to documents that are embedded in both, a row for each.

    `first` and `second` are the places of the contexts. `moved` is the mean cosine distance of a
    document from itself, `between` that of two documents in one context. `itself` is the share of
    documents whose nearest point in the other context is themselves; a tie counts. `kept` is the
    share of neighbours that stay. `common` is the squared length of the mean movement, times the
    number of documents; `total` is the summed squared movement.
    """
    count = embedded.shape[1]
    apart = ~np.eye(count, dtype=bool)
    between = [float((1 - vectors @ vectors.T)[apart].mean()) for vectors in embedded]
    near = [nearest(vectors, neighbours) for vectors in embedded]
    rows = []
    for i, one in enumerate(embedded):
        for j, other in enumerate(embedded[:i]):
            cosine, step = one @ other.T, one - other
            itself = np.diag(cosine) + TIE
            hits = [itself >= cosine.max(axis=axis) for axis in (0, 1)]
            rows.append(
                {
                    "first": i,
                    "second": j,
                    "moved": float(np.mean(1 - np.diag(cosine))),
                    "between": (between[i] + between[j]) / 2,
                    "itself": float(np.mean(hits)),
                    "kept": int((near[i] & near[j]).sum()) / (count * neighbours),
                    "common": count * float((step.mean(axis=0) ** 2).sum()),
                    "total": float((step**2).sum()),
                }
            )
    return pd.DataFrame(rows)


def movement_by_kind(
    embedded: Vectors, contexts: Sequence[tuple[str, int]], own: str, neighbours: int
) -> pd.DataFrame:
    """The mean `movement` of each kind. A context is a corpus' name and the number of the
    draw; `own` is the corpus that the documents are of. `common` is a share here.
    """

    def kind_of(pair: tuple[int, int]) -> str:
        names = {contexts[place][0] for place in pair}
        if NULL in names:
            return NULL
        if len(names) == 1:
            return OWN_AGAIN if own in names else OTHER_AGAIN
        return OWN_OTHER if own in names else TWO_OTHERS

    each = movement(embedded, neighbours)
    each["kind"] = [
        kind_of(pair) for pair in zip(each.pop("first"), each.pop("second"), strict=True)
    ]
    real = each[each["kind"] != NULL].assign(kind=ALL_REAL)
    grouped = pd.concat([each, real]).groupby("kind", sort=False)
    table: pd.DataFrame = grouped.mean().assign(pairs=grouped.size(), what="distance")
    table["common"] /= table.pop("total")
    return table.reset_index()


def on_axes(embedded: Vectors, contexts: Sequence[tuple[str, int]], pictured: int) -> pd.DataFrame:
    """Where the first documents lie on the two first principal axes of all documents in all
    contexts: context, draw, document, x, y. In a first row, x and y are what the axes explain.
    """
    flat = embedded.reshape(-1, embedded.shape[-1])
    centred = flat - flat.mean(axis=0)
    _, lengths, axes = np.linalg.svd(centred, full_matrices=False)
    places = (centred @ axes[:2].T).reshape(*embedded.shape[:2], 2)[:, :pictured]
    explained = lengths**2 / (lengths**2).sum()
    rows = [{"what": "axes", "x": float(explained[0]), "y": float(explained[1])}]
    for (name, draw), of_context in zip(contexts, places.tolist(), strict=True):
        place = {"what": "point", "context": name, "draw": draw}
        rows += [{**place, "document": at, "x": x, "y": y} for at, (x, y) in enumerate(of_context)]
    return pd.DataFrame(rows)


def moved_between_corpora(model: ContextualEncoder, tests: Sequence[EvaluationSet]) -> float:
    """How far 50 documents move to the next set's context, in distances between documents."""
    if len(tests) < 2:
        raise ValueError(f"documents move between two corpora or more; {len(tests)} was given")
    shares = []
    for test, other in zip(tests, [*tests[1:], tests[0]], strict=True):
        some = test.collection.documents[:50]
        corpora = (test.collection.documents, other.collection.documents)
        embedded = [model.with_context(one).encode_documents(some) for one in corpora]
        distance = movement(np.stack(embedded).astype(np.float64), 5).iloc[0]
        shares.append(distance["moved"] / distance["between"])
    return float(np.mean(shares))


def moved_and_changed(rows_of: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """What context of another corpus does to encoders, a row for each record, arm and kind of sets:
    how far a run moves documents, least and most, in per cent of the distance between two of them,
    and by how many points NDCG@10 changes, in size, on average over seeds and sets.
    """
    runs, tables = ["arm", "where"], {}
    for name, rows in rows_of.items():
        both = rows[rows["context"].isin(["own", "other"])]
        ndcg = both.pivot_table("ndcg", [*runs, "seed", "set"], "context")
        changed = (100 * (ndcg["own"] - ndcg["other"]).abs()).groupby(runs).mean()
        moved = 100 * both.groupby(runs)["moved"].agg(["min", "max"])
        columns = {"min": "moved at least, per cent", "max": "at most"}
        tables[name] = moved.rename(columns=columns).assign(**{"changes by, points": changed})
    kinds = {"in": "made to need it", "out": "judged collections"}
    table = pd.concat(tables, names=["encoders of", "arm", "sets"]).rename(kinds, level="sets")
    return table.sort_values("moved at least, per cent").reset_index()

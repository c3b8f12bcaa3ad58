"""NDCG@10 of whole matrices of scores: the same queries ranked again and again by other weights.

The measure is trec_eval's, and so are its ties (by document id, descending) and what a query may
not find (`cde.retrieval.score_queries`). Where one set is searched in a hundred ways, building a
ranking for each query takes longer than the search; here judgements are laid out once.

Cost: finding the ten largest of each row, some 20 million scores a second and core.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from cde.data import RetrievalSet

_CUT = 10


@dataclass(frozen=True)
class JudgedMatrix:
    """A retrieval set's judgements as arrays."""

    order: NDArray[np.int64]
    gains: NDArray[np.float32]
    dropped: NDArray[np.bool_]
    ideal: NDArray[np.float64]

    @classmethod
    def of(cls, collection: RetrievalSet) -> JudgedMatrix:
        ids = collection.document_ids
        order = sorted(range(len(ids)), key=ids.__getitem__, reverse=True)
        column = {ids[position]: place for place, position in enumerate(order)}
        shape = (len(collection.query_ids), len(ids))
        gains, dropped = np.zeros(shape, np.float32), np.zeros(shape, bool)
        ideal = np.zeros(shape[0])
        for row, query in enumerate(collection.query_ids):
            judged = collection.qrels.get(query, {})
            for document, grade in judged.items():
                gains[row, column[document]] = max(grade, 0)
            unwanted = set(collection.excluded.get(query, ()))
            if judged.get(query, 0) <= 0:
                unwanted.add(query)
            dropped[row, [column[one] for one in unwanted if one in column]] = True
            best = sorted((max(grade, 0) for grade in judged.values()), reverse=True)[:_CUT]
            ideal[row] = best @ _discounts(len(best))
        return cls(np.array(order, dtype=np.int64), gains, dropped, ideal)

    def ndcg(self, scores: NDArray[np.float32]) -> NDArray[np.float64]:
        """NDCG@10 of each query, `(queries,)` float64."""
        shown = np.where(self.dropped, np.float32(-np.inf), scores[:, self.order])
        _, columns = torch.from_numpy(_keys(shown)).topk(min(_CUT, shown.shape[1]), dim=1)
        found = np.take_along_axis(self.gains, columns.numpy(), axis=1).astype(np.float64)
        found *= np.take_along_axis(shown, columns.numpy(), axis=1) > -np.inf
        gained = found @ _discounts(found.shape[1])
        return np.divide(gained, self.ideal, out=np.zeros_like(gained), where=self.ideal > 0)


def _discounts(count: int) -> NDArray[np.float64]:
    return np.asarray(1 / np.log2(np.arange(count) + 2), dtype=np.float64)


def _keys(scores: NDArray[np.float32]) -> NDArray[np.int64]:
    """Numbers in the order of the scores; of equal scores the one further left is larger."""
    # + 0 makes -0.0 the same as 0.0; bits of negative numbers run backwards
    bits = (np.ascontiguousarray(scores, dtype=np.float32) + np.float32(0)).view(np.int32)
    ordered = np.where(bits < 0, bits ^ np.int32(0x7FFFFFFF), bits).astype(np.int64)
    return np.asarray((ordered << 32) - np.arange(scores.shape[1]))

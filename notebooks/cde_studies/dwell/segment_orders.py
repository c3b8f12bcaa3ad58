"""What each stage adds to the lean to the beginning, on shuffled segments in several orders.

One order alone has a decline of its own: what stands first in it differs by chance from what stands
last. Several orders, the same for all encoders, tell the stage's part.

Cost: a training of the chain, and seconds an order and encoder.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from cde.lexical import BM25
from cde.models import BiEncoder
from cde.progress import progress
from cde.retrieval import evaluate
from cde_studies.dwell.chain import shuffle_segments
from cde_studies.dwell.pretrained_stages import PretrainedStages
from cde_studies.dwell.substrings import substring_similarity
from cde_studies.dwell.tables import declines, room

__all__ = ["STEPS", "rows_of_orders"]

#: chains of which each has one stage more than the one before
STEPS = ("start", "masked", "masked, crops", "masked, crops, tuned", "masked, crops, tuned again")


def rows_of_orders(stages: PretrainedStages, seeds: Sequence[int], orders: int) -> pd.DataFrame:
    """The decline on documents with shuffled segments, in several orders, after each stage.

    One order alone has a decline of its own: what stands first in it differs by chance from
    what stands last.

    Returns:
        A row for each of `STEPS`, seed and order: chain, seed, order, decline, room; and of the
        whole chain `mrr`, MRR@100 on the collection, with a row of BM25's.
    """
    shuffled = [
        shuffle_segments(stages.probed.probed, stages.tokenizer, seed=order)
        for order in range(orders)
    ]
    collection = stages.texts.collection
    rows: list[dict[str, Any]] = [
        {"chain": "BM25", "mrr": evaluate(BM25(), collection, ("mrr@100",))["mrr@100"]}
    ]
    jobs = [(chain, seed) for seed in seeds for chain in STEPS]
    for chain, seed in progress(jobs, "orders of segments", unit="encoders"):
        encoder = BiEncoder.from_pretrained(stages.folder(stages.stages(chain), seed) / "model")
        mrr = evaluate(encoder, collection, ("mrr@100",))["mrr@100"]
        for order, texts in enumerate(shuffled):
            similar = substring_similarity(encoder, texts, stages.tokenizer)
            row = {"chain": chain, "seed": seed, "order": order, "mrr": mrr}
            row |= {"decline": float(declines(similar).mean()), "room": room(similar)}
            rows.append({**row, "documents": len(similar.rows)})
    return pd.DataFrame(rows)

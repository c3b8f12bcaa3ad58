"""What the probes found, as rows for a table: by place of a passage, and by segment."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import quantile_test

from cde.intervals import mean_interval
from cde_studies.dwell.passages import Passages
from cde_studies.dwell.substrings import Similarities
from cde_studies.intervals import numbers_of


def starts_row(passages: Passages, shares: Sequence[int]) -> dict[str, Any]:
    """Where the passages of a collection start: passages, how many were placed, and left_out, how
    many not; characters, the median start; low, high: the interval, from order statistics, of the
    median start as a share of where the passage could start (`Passages.starts`); q0 and so on, the
    quantiles of that share.
    """
    characters, relative = passages.starts()
    interval = quantile_test(relative, p=0.5).confidence_interval()
    return {
        "passages": len(relative),
        "left_out": sum(passages.left_out.values()),
        "characters": float(np.median(characters)),
        "low": float(interval.low),
        "high": float(interval.high),
        **{f"q{share}": float(np.percentile(relative, share)) for share in shares},
    }


def changes(scores: pd.DataFrame) -> pd.DataFrame:
    """For each query (row), the score at each place (column) minus that of the text as it is."""
    return scores.drop(columns="default").sub(scores["default"], axis=0)


def declines(similar: Similarities) -> NDArray[np.float32]:
    """Cosine of each document with its first segment minus that with its last, `(n,)`."""
    return np.asarray(similar.cosines[:, 0] - similar.cosines[:, -1], dtype=np.float32)


def decline_by_order(rows: pd.DataFrame) -> pd.DataFrame:
    """The decline by seed and order of segments (rows) and chain (columns)."""
    return rows.pivot_table("decline", ["seed", "order"], "chain")


def lack_of_decline(rows: pd.DataFrame, chain: str) -> float:
    """One less the absolute decline of a chain, as a share of its room."""
    of = rows[rows["chain"] == chain]
    return float(1 - abs(of["decline"].mean()) / of["room"].mean())


def room(similar: Similarities) -> float:
    """How much nearer segments are to their own document than to another: the most of a decline."""
    return float(np.nanmean(similar.cosines - similar.others))


def rows_by_segment(similar: Similarities) -> list[dict[str, Any]]:
    """A row for each segment of the documents: segment, from 1; cosine, the mean; q5 … q95, the
    quantiles; and the same in each row: room; decline, low, high with the bootstrap over documents;
    documents; left_out.
    """
    decline = mean_interval(declines(similar))
    of_all = {
        "room": room(similar),
        **numbers_of(decline, "decline"),
        "documents": len(similar.rows),
        "left_out": sum(similar.left_out.values()),
    }
    rows = []
    for part, cosines in enumerate(similar.cosines.T, start=1):
        shares = (5, 25, 50, 75, 95)
        quantiles = {f"q{share}": float(np.percentile(cosines, share)) for share in shares}
        rows.append({"segment": part, "cosine": float(cosines.mean()), **quantiles, **of_all})
    return rows


def of_planned_seeds(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows of the chains on long documents (`training_stages-long`) without those of seeds beyond
    the five that are planned: one that is added after a look would test nothing.
    """
    return rows.query("not seed >= 5")


def has_planned_seeds(rows: pd.DataFrame) -> bool:
    """Whether all five are there. Until then they test nothing: who looks at two, and then at five,
    has two chances to find something.
    """
    return set(range(5)) <= set(rows["seed"])


def tested_seeds(seeds: Iterable[int], profile: str) -> list[int]:
    """Those seeds of the chains of pretrained layers (`cde_studies.dwell.pretrained_stages`) that
    test a claim.

    Five at `laptop` had left Table 5 open, and five more were trained. To go on until an interval
    leaves nought behind finds something too often: two or more new ones answer alone.
    """
    every = sorted(set(seeds))
    new = [seed for seed in every if seed >= 5]
    return new if profile == "laptop" and len(new) > 1 else every

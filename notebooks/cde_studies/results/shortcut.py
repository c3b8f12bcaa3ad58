"""A benchmark that searches only what a surrogate finds, beside full search (CDE §10.9).

Each model ranks the whole of a set, and then each query's best candidates at every depth, with the
same scores. Kept are the scores of each pair of models: what a shortcut may not change are
comparisons.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cde.data import RetrievalSet
from cde.intervals import holm, paired_test
from cde.progress import progress
from cde.retrieval import Encoder, Ranker, rank, rerank, score_queries

#: how full search is marked where a depth is asked for
FULL = 0
Scores = NDArray[np.float64]


@dataclass(frozen=True)
class Shortcut:
    """The rows of `search_by_depth`, and ways to read them: each depth on the sets that it cuts."""

    rows: pd.DataFrame

    @property
    def depths(self) -> list[int]:
        """The depths that cut some set."""
        every = sorted(set(self.rows["depth"]) - {FULL})
        return [int(depth) for depth in every if len(self.at(depth))]

    def at(self, depth: int) -> pd.DataFrame:
        rows = self.rows[(self.rows["depth"] == depth) & (self.rows["documents"] > depth)]
        return rows.set_index(["set", "first", "second"])

    def scores(self, depth: int) -> pd.DataFrame:
        """Points of NDCG@10: a row for each set, a column for each model."""
        rows = self.at(depth).reset_index()
        sides = [
            rows[["set", side, f"{side}_score"]].set_axis(["set", "model", "score"], axis=1)
            for side in ("first", "second")
        ]
        each = pd.concat(sides).drop_duplicates(["set", "model"])
        order = list(dict.fromkeys([*rows["first"], *rows["second"]]))
        table = 100 * each.pivot_table(index="set", columns="model", values="score")
        return table.reindex(index=list(dict.fromkeys(rows["set"])), columns=order)

    def change_of_scores(self, depth: int) -> pd.DataFrame:
        """By the shortcut minus by full search, in points."""
        scores = self.scores(depth)
        return scores - self.scores(FULL).loc[scores.index]

    def differences(self, depth: int) -> tuple[pd.Series[float], pd.Series[float]]:
        """Of each set and pair, first minus second: by full search, and by the shortcut."""
        short = self.at(depth)
        whole = self.at(FULL).loc[short.index]
        before, after = (rows["first_score"] - rows["second_score"] for rows in (whole, short))
        return before, after

    def change_of_differences(self, depth: int) -> pd.Series[float]:
        """For each set and pair, how far the difference moves, in points, either way."""
        before, after = self.differences(depth)
        return (100 * (after - before)).abs()

    def conclusions(self, depth: int) -> dict[str, int | str]:
        """How many pairs are what; slope and changes as text.

        A difference is significant at 5 % after Holm's correction over the pairs of its set. It
        vanishes if the shortcut does not find it, appears if only the shortcut does, and flips if
        both are significant with opposite signs. The slope is that of the differences by the
        shortcut on those by full search, through nought. Changes are in points.
        """
        short = self.at(depth)
        full = _signs(self.at(FULL).loc[short.index])
        cut = _signs(short)
        before, after = self.differences(depth)
        moved = self.change_of_differences(depth)
        of_sets = moved.groupby("set", sort=False).mean()
        return {
            "sets": len(of_sets),
            "pairs": len(full),
            "significant by full search": int((full != 0).sum()),
            "vanish": int(((full != 0) & (cut == 0)).sum()),
            "appear": int(((full == 0) & (cut != 0)).sum()),
            "flip": int((full * cut < 0).sum()),
            "slope": f"{(before * after).sum() / (before**2).sum():.3f}",
            "mean change": f"{of_sets.mean():.3f}",
            "largest change": f"{moved.max():.2f}",
        }


def _signs(rows: pd.DataFrame) -> pd.Series[float]:
    """The sign of each difference that is significant in its set, and nought for the others."""
    corrected = rows.groupby("set", sort=False)["p"].transform(holm)
    apart: pd.Series[float] = rows["first_score"] - rows["second_score"]
    return apart.map(np.sign).where(corrected < 0.05, 0.0)


class _Once:
    """An encoder whose vectors of one set are computed once for all depths."""

    def __init__(self, encoder: Encoder, one: RetrievalSet) -> None:
        self.queries = encoder.encode_queries(one.queries)
        vectors = encoder.encode_documents(one.documents)
        self.vectors = dict(zip(one.documents, vectors, strict=True))

    def encode_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return self.queries

    def encode_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return np.stack([self.vectors[text] for text in texts])


def search_by_depth(
    models: Iterable[tuple[str, Callable[[RetrievalSet], Encoder | Ranker]]],
    sets: Mapping[str, RetrievalSet],
    depths: Sequence[int],
    surrogate: Encoder | Ranker,
    tested: int = 1,
    total: int | None = None,
) -> pd.DataFrame:
    """Search every set with every model: whole, and each query's best candidates of the surrogate.

    Returns:
        A row for each `set`, `depth` (`FULL` first) and pair of models. `documents` and `queries`
        are how many the set has. `recall` is that of the surrogate's candidates. `low` and `high`
        are the interval, over queries, of the mean over pairs of how far their difference moves.
        `first` and `second` are the models, `first_score` and `second_score` their NDCG@10
        (0 to 1). `p` is that of the difference, over queries.
    """
    sets = {name: one for name, one in sets.items() if len(one.documents) > depths[0]}
    if not any(len(one.documents) > tested for one in sets.values()):
        raise ValueError(f"no set has more than {tested:,} documents: nothing would change")
    candidates = {name: rank(surrogate, one, max(depths)) for name, one in sets.items()}
    runs: dict[str, dict[int, dict[str, list[Scores]]]]
    runs = {name: {depth: {} for depth in (FULL, *depths)} for name in sets}
    for model, bind in progress(models, "searching", total=total, unit="models"):
        for name, one in sets.items():
            bound = bind(one)
            ranker = bound if isinstance(bound, Ranker) else _Once(bound, one)
            for depth, of_depth in runs[name].items():
                if depth == FULL:
                    rankings = rank(ranker, one)
                else:
                    rankings = rerank(ranker, one, candidates[name], depth)
                scores = score_queries(rankings, one)["ndcg@10"].to_numpy()
                of_depth.setdefault(model, []).append(scores)
    rows: list[dict[str, Any]] = []
    for name, one in progress(sets.items(), "testing differences", unit="sets"):
        means = {
            depth: {model: np.mean(some, axis=0) for model, some in of_depth.items()}
            for depth, of_depth in runs[name].items()
        }
        names = {depth: f"recall@{depth}" for depth in depths}
        recalled = score_queries(candidates[name], one, list(names.values()))
        recalls = {FULL: 1.0, **{depth: recalled[names[depth]].mean() for depth in depths}}
        size = {"set": name, "documents": len(one.documents), "queries": len(one.queries)}
        rows += [{**size, **row} for row in _pairs(means, recalls)]
    return pd.DataFrame(rows)


def _pairs(
    scores: Mapping[int, Mapping[str, Scores]], recalls: Mapping[int, float]
) -> Iterable[dict[str, Any]]:
    """The rows of one set: at each depth, each pair of models."""
    names = list(scores[FULL])
    known: dict[tuple[str, str, bytes], float] = {}
    for depth, of_depth in scores.items():
        changes = np.stack([of_depth[name] - scores[FULL][name] for name in names], axis=1)
        draws = np.random.default_rng(0).integers(0, len(changes), (2000, len(changes)))
        means = np.stack([changes[draw].mean(axis=0) for draw in draws])
        a, b = np.triu_indices(len(names), 1)  # pairs of models: how far their difference moves
        low, high = np.percentile(abs(means[:, a] - means[:, b]).mean(axis=1), [2.5, 97.5])
        of_all = {"depth": depth, "recall": recalls[depth], "low": low, "high": high}
        for first, second in combinations(names, 2):
            one, other = of_depth[first], of_depth[second]
            key = (first, second, (one - other).tobytes())
            if key not in known:  # most do not change from depth to depth
                known[key] = paired_test(one.tolist(), other.tolist()).p_value
            ends = {"first_score": one.mean(), "second_score": other.mean(), "p": known[key]}
            yield {**of_all, "first": first, "second": second, **ends}

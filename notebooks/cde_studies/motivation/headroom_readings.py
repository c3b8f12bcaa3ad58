"""What the rows of `cde_studies.motivation.headroom` say, with intervals over corpora.

Each corpus is in many pairs, as the one that is searched and as the one whose statistics are used,
so pairs are not independent things and n is the number of corpora. The mean over pairs has the
jackknife's interval: each corpus is left out in turn, on both sides, which gives one pseudo-value a
corpus, and these have Student's interval (Efron and Stein 1981 for means over pairs). Where there
is one number a corpus, that is Student's interval of the numbers. A correlation over pairs is
bootstrapped over corpora: a pair counts as often as its two corpora are drawn together (Snijders
and Borgatti 1999).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cde.intervals import RESAMPLES, Interval, run_interval
from cde_studies.motivation.headroom import GENERAL, NONE, OTHERS

Table = NDArray[np.float64]


def mean_over_pairs(table: Table) -> Interval:
    """Mean over ordered pairs of different things, with an interval over things."""
    values = _off_diagonal(table)
    n, total = len(values), values.sum()
    left = total - values.sum(axis=0) - values.sum(axis=1)  # without each thing in turn
    pseudo = total / (n - 1) - left / (n - 2)
    return run_interval(pseudo, "collections")


def correlation_over_pairs(x: Table, y: Table, within: bool = False) -> Interval:
    """Pearson's correlation over ordered pairs of things, bootstrapped over things."""
    first, second = _off_diagonal(x), _off_diagonal(y)
    n = len(first)
    apart = 1.0 - np.eye(n)
    if within:
        first, second = (
            (one - one.sum(1, keepdims=True) / (n - 1)) * apart for one in (first, second)
        )
    drawn = np.random.default_rng(0).multinomial(n, np.full(n, 1 / n), RESAMPLES)
    counts = np.concatenate([np.ones((1, n)), drawn])  # the first: every corpus once
    weights = counts[:, :, None] * counts[:, None] * apart
    weights /= np.maximum(weights.sum(axis=(1, 2), keepdims=True), 1)

    def mean(values: Table) -> Table:
        return np.asarray(np.einsum("kij,ij->k", weights, values))

    with np.errstate(invalid="ignore", divide="ignore"):
        shared = mean(first * second) - mean(first) * mean(second)
        spreads = [np.maximum(mean(one**2) - mean(one) ** 2, 0) for one in (first, second)]
        r = shared / np.sqrt(spreads[0] * spreads[1])
    if not np.isfinite(r[0]):
        raise ValueError("all values of x or of y are equal: they have no correlation")
    low, high = np.nanpercentile(r[1:], [2.5, 97.5])
    method = "pearson over pairs, percentile bootstrap over collections"
    return Interval(float(np.round(r[0], 12)), float(low), float(high), n, method)


def _off_diagonal(table: Table) -> Table:
    """The table with noughts on its diagonal, checked."""
    values = np.array(table, dtype=np.float64)
    np.fill_diagonal(values, 0.0)
    if not np.isfinite(values).all():
        raise ValueError(f"{int((~np.isfinite(values)).sum())} pairs have no number")
    return values


@dataclass(frozen=True)
class Headroom:
    """The rows of `headroom`, and ways to read them. All differences are in NDCG@10 points."""

    rows: pd.DataFrame

    @property
    def names(self) -> list[str]:
        return list(dict.fromkeys(self.rows["searched"]))

    def table(self, way: str, column: str = "ndcg") -> pd.DataFrame:
        """A column of the rows: a line for each corpus searched, a column for each source."""
        part = self.rows[self.rows["way"] == way]
        return part.pivot_table(column, index="searched", columns="source").loc[self.names]

    def gains(self, way: str, over: str) -> pd.Series[float]:
        """Own statistics minus another source's, of each corpus searched."""
        scores = self.table(way)
        own = pd.Series({name: scores.loc[name, name] for name in self.names})
        return 100 * (own - scores[over])

    def losses(self, way: str) -> pd.DataFrame:
        """What each corpus (line) loses with the statistics of each (column); with its own, 0."""
        scores = self.table(way)[self.names]
        own = np.diag(scores.to_numpy())
        return -100 * scores.sub(own, axis=0)

    def gain(self, way: str, over: str) -> Interval:
        """Mean over corpora of own statistics minus another source's."""
        if over == OTHERS:
            return mean_over_pairs(self.losses(way).to_numpy())
        return run_interval(self.gains(way, over), "collections")

    def correlation(self, way: str, within: bool = False) -> Interval:
        """Correlation over pairs of the IDF distance with the loss."""
        distances = self.table(way, "divergence")[self.names]
        return correlation_over_pairs(distances.to_numpy(), self.losses(way).to_numpy(), within)

    def of_corpora(self) -> pd.DataFrame:
        """Each way and corpus: own NDCG@10 points, gains with intervals over queries, as text."""
        lines = []
        for (way, name), some in self.rows.groupby(["way", "searched"], sort=False):
            points = {row["source"]: row for row in some.to_dict("records")}
            own = float(points[name]["ndcg"])
            line: dict[str, object] = {"way": way, "corpus": name, "own": round(100 * own, 1)}
            for over in (NONE, GENERAL, OTHERS):
                one = {key: float(points[over][key]) for key in ("ndcg", "low", "high")}
                ends = f"{100 * one['low']:.1f}, {100 * one['high']:.1f}"
                line[f"own − {over}"] = f"{100 * (own - one['ndcg']):.1f} [{ends}]"
            lines.append(line)
        return pd.DataFrame(lines)

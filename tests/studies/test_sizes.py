"""Reading the sweep of batch and cluster sizes, and correlations of loss and score."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from cde_studies.results.sizes import SizeSweep, loss_and_score, r_of_seeds

ENCODERS = ("bi-encoder", "contextual")


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    """Two encoders, two batch and three cluster sizes, two sets, three seeds, random scores."""
    factors = itertools.product(
        ENCODERS, (True, False), (8, 16), (4, 8, 32), range(3), ("one", "two")
    )
    columns = ["encoder", "filtered", "batch_size", "cluster_size", "seed", "set"]
    table = pd.DataFrame(factors, columns=columns).assign(where="out")
    table["context"] = table["encoder"].map({"bi-encoder": "none", "contextual": "own"})
    draw = np.random.default_rng(0)
    loss = draw.uniform(1, 3, len(table) // 2)
    return table.assign(ndcg=draw.uniform(size=len(table)), loss=np.repeat(loss, 2))


def test_sizes_gains_and_cells_are_means_over_what_is_not_named(rows: pd.DataFrame) -> None:
    sweep = SizeSweep(rows)
    some = rows[(rows["encoder"] == "contextual") & ~rows["filtered"]]

    def points(column: str, size: int, seed: int) -> float:
        chosen = some[(some[column] == size) & (some["seed"] == seed)]
        return 100 * float(chosen["ndcg"].mean())

    for seed in range(3):
        clusters = points("cluster_size", 4, seed) - points("cluster_size", 32, seed)
        gains = sweep.gain_of_clusters("contextual", False).groupby("seed").mean()
        assert gains[seed] == pytest.approx(clusters)
        batches = points("batch_size", 16, seed) - points("batch_size", 8, seed)
        gains = sweep.gain_of_batches("contextual", False).groupby("seed").mean()
        assert gains[seed] == pytest.approx(batches)
    one = some[(some["batch_size"] == 8) & (some["cluster_size"] == 32)]["ndcg"]
    assert sweep.cells()["contextual", False, 8, 32] == pytest.approx(100 * one.mean())
    by_cluster = sweep.by_size("cluster", "contextual", False, batch_size=8)
    assert by_cluster[32].mean() == pytest.approx(100 * one.mean())


def test_the_best_batch_is_placed_between_its_neighbours(rows: pd.DataFrame) -> None:
    sweep = SizeSweep(rows.assign(ndcg=rows["batch_size"] / 100))
    best = sweep.best_batch("bi-encoder", True, pairs_seen=1000)
    ends = np.log10([16, 8, 1000])
    assert [best.estimate, best.low, best.high] == pytest.approx(ends.tolist())


def test_r_of_a_seed_is_pearsons_within_a_batch_size(rows: pd.DataFrame) -> None:
    runs = loss_and_score(rows[(rows["encoder"] == "bi-encoder") & rows["filtered"]])
    assert len(runs) == 2 * 3 * 3
    for seed, r in r_of_seeds(runs).items():
        each = [
            stats.pearsonr(some["loss"], some["ndcg"]).statistic
            for _, some in runs[runs["seed"] == seed].groupby("batch_size")
        ]
        assert r == pytest.approx(np.mean(each))


def test_where_nothing_varies_there_is_no_r() -> None:
    runs = pd.DataFrame({"seed": 0, "batch_size": 8, "loss": 1.0, "ndcg": [1.0, 2.0, 3.0, 4.0]})
    assert r_of_seeds(runs).empty

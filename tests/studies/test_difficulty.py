"""Difficulty of batches where it is known: of well separated groups, and of clusters of them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from pairs_in_groups import groups

from cde_studies.batches.difficulty import (
    SHUFFLED,
    by_size,
    from_largest_batches,
    from_largest_clusters,
)


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    queries, documents, truth = groups(8, 20)
    clusters = {20: truth, 1000: np.zeros_like(truth)}
    return by_size(queries, documents, clusters.__getitem__, clusters, [20, 40, 999], 12, 20, 0)


def test_a_line_for_each_setting_that_fits(rows: pd.DataFrame) -> None:
    settings = rows[["order", "cluster size", "batch size"]].to_records(index=False).tolist()
    arms = [("random", "20"), ("random", "1,000"), ("tsp", "20"), ("tsp", "1,000")]
    assert settings == [(*arm, b) for arm in [*arms, ("random", SHUFFLED)] for b in (20, 40)]
    held = rows.set_index("cluster size")[["clusters", "largest", "smallest"]]
    assert held.loc["20"].iloc[0].tolist() == [8, 20, 20]
    assert held.loc[SHUFFLED].iloc[0].tolist() == [1, 160, 160]


def test_differences_are_those_of_the_means(rows: pd.DataFrame) -> None:
    means = rows.set_index(["order", "cluster size", "batch size"])["mean"]
    found = from_largest_clusters(rows, 12)
    harder = found["greedy traveller, batches of 20: clusters of 20 minus 1,000"]
    assert len(found) == 4 and harder.n == 12
    assert harder.estimate == pytest.approx(means["tsp", "20", 20] - means["tsp", "1,000", 20])
    assert harder.low > 0.5
    found = from_largest_batches(rows, 12)
    assert len(found) == 5
    harder = found["random order, clusters of 20: batches of 20 minus 40"]
    assert harder.estimate == pytest.approx(means["random", "20", 20] - means["random", "20", 40])
    assert harder.low > 0.2
    assert abs(found["shuffled pairs (baseline): batches of 20 minus 40"].estimate) < 0.1

"""The position sensitivity index finds the bias that an encoder was built with, and no other."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cde_studies.dwell.sensitivity import (
    Sensitivity,
    index_of_means,
    index_share,
    position_sensitivity,
)


def natural(groups: Any, scores: Any, names: str) -> pd.DataFrame:
    """A table of queries that have a score in one group each."""
    table = np.full((len(scores), len(names)), np.nan)
    table[np.arange(len(scores)), groups] = scores
    return pd.DataFrame(table, columns=list(names))


def of_queries(scores: pd.DataFrame, draws: int) -> Sensitivity:
    """The sensitivity where each query has a document of its own."""
    return position_sensitivity(scores, range(len(scores)), draws)


def best_of(found: Sensitivity) -> Hashable:
    return max(found.groups, key=found.groups.__getitem__)


def test_small_answers_by_hand() -> None:
    moved = pd.DataFrame({"a": [1.0, 0.6], "b": [0.5, 0.3], "c": [0.4, 0.4]})
    found = of_queries(moved, draws=50)
    assert found.index == pytest.approx(0.5)
    assert found.groups == pytest.approx({"a": 0.8, "b": 0.4, "c": 0.4})
    found = of_queries(natural([0, 0, 1], [1.0, 0.5, 0.25], "ab"), draws=50)
    assert found.index == pytest.approx(1 - 0.25 / 0.75)
    assert (best_of(found), min(found.groups, key=found.groups.__getitem__)) == ("a", "b")


def test_one_that_finds_nothing_or_everything_is_not_sensitive() -> None:
    for value in (0.0, 1.0):
        found = of_queries(pd.DataFrame(np.full((9, 4), value)), draws=50)
        assert (found.index, found.low, found.high, found.without, found.p) == (0, 0, 0, 0, 1)


@given(
    st.lists(st.tuples(*[st.floats(0, 1)] * 3), min_size=3, max_size=12), st.sampled_from([0.25, 8])
)
def test_the_unit_of_the_scores_is_of_no_matter(
    rows: list[tuple[float, ...]], factor: float
) -> None:
    scores = pd.DataFrame(rows).round(3)
    one, other = (of_queries(table, draws=40) for table in (scores, scores * factor))
    for name in ("index", "low", "high", "without", "p", "limit"):
        assert getattr(other, name) == pytest.approx(getattr(one, name))


@pytest.mark.parametrize("kind", ["moved", "natural"])
@pytest.mark.slow
def test_without_sensitivity_one_in_twenty_is_below_five_per_cent(kind: str) -> None:
    """Noise alone, where queries of one document are alike and ask about one place."""
    generator = np.random.default_rng(5)
    below, indices, expected = 0, [], []
    for _ in range(200):
        owners = np.repeat(np.arange(60), generator.integers(1, 5, 60))
        if kind == "moved":
            noise = generator.normal(0, 0.2, (60, 5))[owners]
            scores = pd.DataFrame((0.5 + noise).clip(0, 1))
        else:
            groups = generator.integers(0, 5, 60)[owners]
            noise = generator.normal(0, 0.2, 60)[owners]
            scores = natural(groups, (0.5 + noise).clip(0, 1), "abcde")
        found = position_sensitivity(scores, owners, draws=99)
        below += found.p <= 0.05
        indices.append(found.index)
        expected.append(found.without)
    assert 2 <= below <= 20  # 10 expected; 0.1 % of binomial draws are outside on either side
    assert np.mean(indices) == pytest.approx(np.mean(expected), rel=0.06)
    assert np.mean(indices) > 0.05  # an index above 0 is not sensitivity yet


def test_power_with_200_queries() -> None:
    """Four in five or more are seen where the worst place is 30 % below the best."""
    generator = np.random.default_rng(6)
    means = np.linspace(0.60, 0.42, 10)
    seen = 0
    for _ in range(40):
        scores = pd.DataFrame(generator.binomial(1, means, (200, 10)).astype(float))
        seen += of_queries(scores, draws=99).p <= 0.05
    assert seen >= 32


def test_the_interval_covers_a_large_index_and_is_wider_for_few_documents() -> None:
    generator = np.random.default_rng(7)
    covered = 0
    for _ in range(100):
        scores = pd.DataFrame(generator.beta([4, 2], [2, 4], (60, 2)))
        found = of_queries(scores, draws=200)
        covered += found.low <= 0.5 <= found.high
    assert covered >= 88
    alone = of_queries(scores, draws=400)
    alike = position_sensitivity(
        pd.concat([scores] * 4, ignore_index=True), [*range(60)] * 4, draws=400
    )
    apart = of_queries(pd.concat([scores] * 4, ignore_index=True), draws=400)
    width = alone.high - alone.low
    assert alike.high - alike.low == pytest.approx(width, rel=0.1)
    assert apart.high - apart.low == pytest.approx(width / 2, rel=0.2)


def test_a_sample_without_a_query_of_some_group_has_no_index() -> None:
    """It would count as an index of nought, and push the reflected interval far too high."""
    assert np.isnan(index_of_means(np.array([0.5, np.nan, 0.4])))
    groups = np.repeat([0, 1, 2], [100, 100, 3])
    values = np.full((203, 3), np.nan)
    values[np.arange(203), groups] = np.array([0.8, 0.8, 0.4])[groups]
    found = of_queries(pd.DataFrame(values), draws=1000)
    assert found.index == pytest.approx(0.5) and found.high < 0.6
    assert index_share(pd.DataFrame(values), pd.DataFrame(values), range(203), 1000).low == 1.0

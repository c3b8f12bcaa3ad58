"""A sweep is read the same whatever the order of its rows, and each encoder in its own context."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest

from cde_studies.sweeps import Sweep

CONTEXTS = {"bi-encoder": ("none",), "contextual": ("own", "other", "null")}
ROWS = [
    (arm, seed, name, where, context)
    for arm, seed, (name, where) in itertools.product(
        CONTEXTS, (3, 4), (("boats", "out"), ("hills", "out"), ("lamps", "in"))
    )
    for context in CONTEXTS[arm]
]


def sweep(seed: int = 0) -> Sweep:
    generator = np.random.default_rng(seed)
    rows = pd.DataFrame(ROWS, columns=["arm", "seed", "set", "where", "context"])
    rows["ndcg"] = generator.random(len(rows))
    rows["loss"] = rows["seed"] + rows["arm"].eq("contextual")
    return Sweep(rows)


def by_hand(runs: Sweep, seed: int, **wanted: str) -> float:
    rows = runs.rows[runs.rows["seed"] == seed]
    for column, value in wanted.items():
        rows = rows[rows[column] == value]
    return 100 * float(rows["ndcg"].mean())


@pytest.mark.parametrize(("arm", "own"), [("bi-encoder", "none"), ("contextual", "own")])
def test_a_score_is_the_mean_over_sets_of_each_seed_in_the_encoders_own_context(
    arm: str, own: str
) -> None:
    runs = sweep()
    for seed in (3, 4):
        expected = by_hand(runs, seed, arm=arm, where="out", context=own)
        assert runs.score(arm=arm)[seed] == pytest.approx(expected)
    shuffled = Sweep(runs.rows.sample(frac=1, random_state=1))
    pd.testing.assert_series_equal(shuffled.score(arm=arm), runs.score(arm=arm))
    within = runs.score(arm=arm, where="in")
    assert within[3] == pytest.approx(by_hand(runs, 3, arm=arm, where="in", context=own))


def test_a_gain_is_antisymmetric_and_made_seed_by_seed() -> None:
    runs = sweep()
    one, other = {"arm": "contextual"}, {"arm": "contextual", "context": "null"}
    there, back = runs.gain(one, other), runs.gain(other, one)
    pd.testing.assert_series_equal(there, -back)
    assert there[4] == pytest.approx(runs.score(**one)[4] - runs.score(**other)[4])
    apart = runs.gain(one, other, by=["seed", "set"])
    assert apart.groupby("seed").mean()[3] == pytest.approx(there[3])

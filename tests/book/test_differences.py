"""Arms compared at every profile: means over seeds and sets, and what stands where there are none."""

from __future__ import annotations

import numpy as np
import pandas as pd

from cde.intervals import Interval, crossed_interval
from cde_book.account import account
from cde_book.differences import deciding, difference, difference_table, show_differences
from cde_studies.sweeps import Sweep

PAIR = ({"arm": "a"}, {"arm": "b"})


def sweep_of(gains: np.ndarray, floor: float = 0.3) -> Sweep:
    """Arm a has so many points more than b, by seed and set."""
    rows = [
        {"arm": arm, "seed": seed, "set": f"set {place}", "where": "out", "context": "none"}
        | {"ndcg": floor + 0.1 * place + (arm == "a") * gains[seed, place] / 100}
        for seed, place in np.ndindex(*gains.shape)
        for arm in "ab"
    ]
    return Sweep(pd.DataFrame(rows))


def test_a_line_has_the_crossed_interval_of_the_gains_whatever_the_scores() -> None:
    gains = np.random.default_rng(0).normal(2, 1, (4, 5))
    found = difference_table({"laptop": sweep_of(gains)}, {"a − b": PAIR}).iloc[0]
    assert found["points"] == str(crossed_interval(pd.DataFrame(gains)))
    assert (found["seeds"], found["sets"]) == (4, 5)
    moved = difference_table({"laptop": sweep_of(gains, floor=0.1)}, {"a − b": PAIR}).iloc[0]
    assert moved["points"] == found["points"]


def test_a_single_seed_has_a_mean_and_no_interval() -> None:
    one = sweep_of(np.array([[1.0, 2.0]]))
    line = difference_table({"laptop": one}, {"a − b": PAIR}).iloc[0]
    assert (line["points"], line["seen with 80 % power"]) == ("1.50", "")
    assert difference(one, PAIR) == 1.5
    drawn = show_differences({"laptop": one}, {"a − b": PAIR}, "One seed.", "CDE Fig. 4")
    assert "a − b" in drawn.markup and "1.5" in drawn.markup


def test_a_larger_scale_decides_where_it_has_an_interval() -> None:
    own, single = sweep_of(np.ones((2, 2))), sweep_of(np.full((1, 2), 3.0))
    several = sweep_of(np.full((2, 2), 3.0) + np.eye(2))
    for at_day, expected in ((single, 1.0), (several, 3.5)):
        found = deciding({account.profile: own, "day": at_day}, PAIR)
        assert isinstance(found, Interval) and round(found.estimate, 6) == expected
    assert deciding({account.profile: single}, PAIR) == 3.0

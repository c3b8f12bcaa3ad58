"""What may change the preference for the beginning is compared seed by seed; what has no seed, with
every one of them.
"""

from __future__ import annotations

import pandas as pd
import pytest

from cde_studies.dwell.other_causes import BEFORE, DIFFERENCES, change_of_decline


def rows(seeds: int) -> pd.DataFrame:
    arms = [(BEFORE, 0, 0.5)]
    arms += [(arm, seed, 2.0 * place + seed) for seed in range(seeds) for place, arm in ARMS_HERE]
    return pd.DataFrame(arms, columns=["arm", "seed", "decline"])


ARMS = {arm: None for pair in DIFFERENCES.values() for arm in pair if arm != BEFORE}
ARMS_HERE = list(enumerate(ARMS))


@pytest.mark.parametrize("words", DIFFERENCES)
def test_a_change_is_that_of_the_same_seed_and_of_every_seed_against_the_untrained(
    words: str,
) -> None:
    one, other = DIFFERENCES[words]
    places = {arm: 2.0 * place for place, arm in ARMS_HERE}
    found = change_of_decline(rows(3), words)
    # seeds shift both arms of a pair alike, and the untrained encoder not at all
    less, spread = (0.5 - 1.0, 1.0) if other == BEFORE else (places[other], 0.0)
    assert found.estimate == pytest.approx(places[one] - less) and found.n == 3
    assert (found.high > found.low) == (spread > 0)


def test_a_single_seed_has_a_change_without_an_interval() -> None:
    for words in DIFFERENCES:
        found = change_of_decline(rows(1), words)
        assert found.low == found.estimate == found.high and found.n == 1

"""Plans of batches: curricula, and pairs beside their hardest negatives."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cde_studies.clustering.groupings import join_plans, plan_with_hardest


@given(steps=st.integers(1, 30), count=st.integers(1, 4))
def test_a_curriculum_has_equal_parts_in_order(steps: int, count: int) -> None:
    plans = [np.full((30, 2), number) for number in range(count)]
    joined = join_plans(plans, steps)
    assert joined.shape == (steps, 2)
    assert (np.diff(joined[:, 0]) >= 0).all()
    parts = np.bincount(joined[:, 0], minlength=count)
    assert parts.max() - parts.min() <= 1


@given(n=st.integers(8, 40), half=st.integers(1, 4), seed=st.integers(0, 5))
def test_each_drawn_pair_stands_beside_one_of_its_hardest_where_one_is_free(
    n: int, half: int, seed: int
) -> None:
    hardest = np.stack([(np.arange(n) + 1) % n, (np.arange(n) + 2) % n], axis=1)
    plan = plan_with_hardest(hardest, 2 * half, steps=2 * n, seed=seed)
    for batch in plan:
        members = set(batch.tolist())
        assert len(members) == 2 * half
        for drawn in batch[:half]:
            assert members & set(hardest[drawn].tolist())
    drawn = plan[:, :half].ravel()[: n // half * half]
    assert len(set(drawn.tolist())) == len(drawn)  # an epoch draws no pair twice

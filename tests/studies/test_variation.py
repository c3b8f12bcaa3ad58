"""Sources of spread are told apart when each is put in by itself."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from cde_studies.recipes import recipe
from cde_studies.results.variation import sources_of_variation, variation


def rows(seed: float, collection: float, arithmetic: float, query: float) -> pd.DataFrame:
    """A difference of forty seeds on thirty sets, with so much of each source."""
    generator = np.random.default_rng(0)
    of_seed, of_set = generator.normal(0, seed, 40), generator.normal(0, collection, 30)
    return pd.DataFrame(
        {"seed": i, "set": j, "precision": precision, "gain": a + b + c, "query_error": query}
        for i, a in enumerate(of_seed)
        for precision in ("auto", "float32")
        for c in [generator.normal(0, arithmetic)]
        for j, b in enumerate(of_set)
    )


@pytest.mark.parametrize(
    "parts", [(2.0, 0.0, 0.0, 1.0), (0.0, 3.0, 0.0, 0.5), (0.0, 0.0, 1.0, 0.0)]
)
def test_each_source_is_told_from_the_others(parts: tuple[float, ...]) -> None:
    seed, collection, arithmetic, query = parts
    sources = sources_of_variation(rows(*parts))
    assert sources["queries"] == pytest.approx(query)
    assert sources["arithmetic"] == pytest.approx(arithmetic, rel=0.25)
    assert sources["collections"] == pytest.approx(collection, rel=0.25, abs=1e-9)
    assert sources["seeds"] == pytest.approx(np.hypot(seed, arithmetic), rel=0.25, abs=1e-9)


def test_an_arm_differs_from_itself_by_nothing_whatever_the_seed() -> None:
    small = recipe("smoke", steps=2, batch_size=8, context_size=4)
    arm = {"architecture": "bi-encoder", "batches": "random"}
    same = variation(small, arm, arm, [0])
    assert set(same["gain"]) == {0.0} and set(same["query_error"]) == {0.0}
    assert len(same) == 2 * len([test for test in small.tests() if test.where == "out"])

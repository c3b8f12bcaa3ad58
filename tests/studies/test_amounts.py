"""How near a collection is to a cluster of the training data, by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cde_studies.clustering.amounts import nearness


def test_a_collection_like_one_cluster_is_nearer_to_it_than_to_all() -> None:
    """Passages in two places at right angles; one collection is in the first, one between them."""
    east, north = np.float32([1, 0]), np.float32([0, 1])
    passages = np.stack([east] * 4 + [north] * 4)
    texts = {"like the first": [east, east], "like both": [east, north], "kept out": [east]}

    def encode(documents: list[np.ndarray]) -> np.ndarray:
        return np.stack(documents)

    tests = [
        SimpleNamespace(
            name=name,
            where="in" if name == "kept out" else "out",
            collection=SimpleNamespace(documents=documents),
        )
        for name, documents in texts.items()
    ]
    of: Any = SimpleNamespace(
        surrogate=SimpleNamespace(encode_documents=encode),
        vectors=(passages, passages),
        out_of_domain=lambda: [one for one in tests if one.where == "out"],
    )
    found = nearness(of, cluster_size=4, seed=0).set_index("set")["nearer"]
    between = np.sqrt(0.5)
    assert found.to_dict() == pytest.approx(
        {"like the first": 1 - between, "like both": between - 1}, abs=1e-6
    )

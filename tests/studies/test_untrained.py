"""Small encoders with random weights: the seed decides them, and patterns share them."""

from __future__ import annotations

import pytest
import torch

from cde_studies.encoder.untrained import UNTRAINED_FAMILIES, untrained_encoder


@pytest.mark.parametrize("family", UNTRAINED_FAMILIES)
def test_patterns_have_the_weights_of_one_seed(family: str) -> None:
    full, cached = (
        untrained_encoder(family, seed=3, attention=pattern, context_size=4)
        for pattern in ("full", "cached")
    )
    other = untrained_encoder(family, seed=4, context_size=4)
    for name, tensor in full.state_dict().items():
        assert torch.equal(tensor, cached.state_dict()[name])
    assert not torch.equal(full.second_stage.null_embedding, other.second_stage.null_embedding)
    assert not full.training
    assert cached.config.attention == "cached"

"""Small encoders with random weights: the seed decides them, and patterns and passes share them."""

from __future__ import annotations

import pytest
import torch

from cde_studies.encoder.untrained import UNTRAINED_FAMILIES, untrained_encoder, untrained_published


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


def test_two_published_passes_share_weights_and_give_other_vectors() -> None:
    ids = torch.arange(1000, 1012)[None]
    context = torch.randn(4, 64, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        hub, train = (
            untrained_published(variant, 4).cpu().second_stage(ids, None, context)
            for variant in ("hub", "train")
        )
    assert hub.shape == train.shape == (1, 64)
    assert (hub - train).abs().max() > 1e-3
    assert untrained_published("v2", 4).config.second_backbone["model_type"] == "modernbert"

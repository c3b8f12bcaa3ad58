"""A setting that no encoder has is refused with the nearest one; transformers would forget it."""

from __future__ import annotations

from typing import Any

import pytest

from cde.models import BiEncoder, ContextualEncoder
from cde_studies.dwell.encoder_decoder import EncoderDecoder


@pytest.mark.parametrize(
    ("encoder", "settings", "nearest"),
    [
        (ContextualEncoder, {"contextsize": 4}, "context_size"),
        (ContextualEncoder, {"sequence_dropuot": 0.1}, "sequence_dropout"),
        (BiEncoder, {"layer": 1}, "layers"),
        (BiEncoder, {"querry_prefix": "q: "}, "query_prefix"),
    ],
)
def test_a_misspelt_setting_is_answered_with_the_nearest(
    encoder: Any, settings: dict[str, Any], nearest: str
) -> None:
    (name,) = settings
    with pytest.raises(ValueError, match=rf"there is no setting {name} \({nearest}\?\)"):
        encoder.from_backbone("minilm", **settings)


def test_the_encoder_decoder_refuses_them_as_well() -> None:
    with pytest.raises(ValueError, match=r"there is no setting poolin \(pooling\?\)"):
        EncoderDecoder.small(poolin="mean")

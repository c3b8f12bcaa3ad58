"""A reader has the tokenizer of its model and reads no further than the model or the recipe."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cde.models import BiEncoder
from cde_studies.dwell.readers import Kept, reader
from cde_studies.dwell.recipe import dwell_recipe


@pytest.mark.parametrize(("longest", "expected"), [(100, 100), (2046, 510)])
def test_minilm_reads_what_its_positions_allow(longest: int, expected: int) -> None:
    minilm = reader("MiniLM", replace(dwell_recipe("smoke"), longest=longest), 0)
    assert minilm.longest == expected
    assert minilm.tokenizer is minilm.encoder.tokenizer


def test_kept_vectors_are_computed_once_and_are_the_encoders_own(private_cache: Path) -> None:
    encoder = BiEncoder.from_backbone("minilm", 1, max_tokens=32, precision="float32")
    kept, again = Kept(encoder), Kept(encoder)
    texts = ["red boats", "a longer text on boats", "red boats"]
    vectors = kept.encode_documents(texts)
    np.testing.assert_allclose(vectors, encoder.encode_documents(texts), atol=1e-6)
    np.testing.assert_array_equal(vectors[0], vectors[2])
    assert (kept.asked, len(kept.distinct)) == (3, 2)
    encoder.forward = None  # type: ignore[assignment, method-assign]
    np.testing.assert_array_equal(again.encode_documents(texts[::-1]), vectors[::-1])


def test_kept_vectors_are_not_those_of_another_encoder(private_cache: Path) -> None:
    texts = ["red boats sail in the wind"]
    settings = ((1, 32), (2, 32), (1, 4))
    vectors = [
        Kept(
            BiEncoder.from_backbone("minilm", layers, max_tokens=most, precision="float32")
        ).encode_documents(texts)[0]
        for layers, most in settings
    ]
    assert all(float(vectors[0] @ other) < 0.999 for other in vectors[1:])

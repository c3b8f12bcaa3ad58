"""A reader is trained once, and added to MiniLM in any dose; a tiny one stands in here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import cde
from cde.data import Pairs
from cde_studies.collections.pydocs import HELD_OUT
from cde_studies.results import ready_reader as module

TEXTS = ["a red boat", "green trees by the water", "the shortest path between two nodes"]


Vectors = Callable[[float, list[str] | None], np.ndarray]


@pytest.fixture(scope="module")
def rich() -> Pairs:
    """What the reader is trained on, read before a test has a cache folder of its own."""
    return cde.load_pairs("pydocs/rich")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache folder of these tests' own, in which the reader is trained once."""
    return tmp_path_factory.mktemp("store")


@pytest.fixture
def vectors(rich: Pairs, monkeypatch: pytest.MonkeyPatch, store: Path) -> Vectors:
    """The texts in a context with a gate, by the reader of that store."""
    monkeypatch.setenv("CDE_CACHE", str(store))
    monkeypatch.setenv("CDE_PRECISION", "float32")
    config = module.reader_config("smoke")

    def encode(gate: float, context: list[str] | None) -> np.ndarray:
        model = module.with_trained_reader(config, rich, gate, 256)
        return model.with_context(context, seed=0).encode_documents(TEXTS)

    return encode


def test_without_context_or_gate_it_is_the_transformer_to_the_bit(vectors: Vectors) -> None:
    plain = cde.BiEncoder.from_backbone("minilm", 1, max_tokens=256).encode_documents(TEXTS)
    np.testing.assert_array_equal(vectors(1.0, None), plain)
    np.testing.assert_array_equal(vectors(0.0, TEXTS), plain)
    assert not np.array_equal(vectors(1.0, TEXTS), plain)


def test_half_the_gate_adds_about_half(vectors: Vectors) -> None:
    plain, half, whole = (vectors(gate, TEXTS) for gate in (0.0, 0.5, 1.0))
    apart = [np.linalg.norm(one - plain, axis=1) for one in (half, whole)]
    np.testing.assert_allclose(apart[0], apart[1] / 2, rtol=0.1)


def test_no_text_that_it_is_tested_or_tuned_on_is_trained_on() -> None:
    pairs = module.reading_pairs()
    assert not {*HELD_OUT, *module.VALIDATION} & set(pairs.domains)
    assert not set(cde.load_retrieval("pydocs").query_ids) & set(pairs.ids)
    assert len(pairs) > 10_000

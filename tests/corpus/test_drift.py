"""How far a corpus is from the one that its context was drawn from."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_encoders import CORPUS, TEXTS, bi_encoder

from cde import Index
from cde.corpus.table import Drift, Origin, drift

SEEDS = st.integers(0, 2**16)


def cloud(seed: int, count: int = 400, dim: int = 8, centre: float = 0.0) -> np.ndarray:
    noise = np.random.default_rng(seed).standard_normal((count, dim))
    return (noise + centre).astype(np.float32)


def moved_to(origin: Origin, vectors: np.ndarray, size: int) -> Drift:
    """Where all that was there is there still."""
    return drift(origin, min(origin.rows, len(vectors)), vectors, size)


@given(SEEDS, st.integers(1, 64))
def test_the_corpus_of_the_build_has_not_moved(seed: int, size: int) -> None:
    vectors = cloud(seed, 50)
    moved = moved_to(Origin.of(vectors), vectors, size)
    assert (moved.newer, moved.gone, moved.distance) == (0, 0, 0)


@given(SEEDS)
def test_the_order_of_documents_does_not_matter(seed: int) -> None:
    vectors, new = cloud(seed, 60), cloud(seed + 1, 30, centre=1.0)
    origin = Origin.of(vectors)
    one = moved_to(origin, np.concatenate([vectors, new]), 8)
    other = moved_to(origin, np.concatenate([vectors, new[::-1]]), 8)
    assert one.distance == pytest.approx(other.distance, rel=1e-5)
    assert one.newer == 1 / 3


@given(SEEDS, st.floats(0.1, 100))
def test_neither_scale_nor_place_of_the_vectors_matters(seed: int, factor: float) -> None:
    vectors, new = cloud(seed, 60), cloud(seed + 1, 30, centre=1.0)
    plain = moved_to(Origin.of(vectors), np.concatenate([vectors, new]), 8)
    scaled = moved_to(
        Origin.of(np.float32(factor) * (vectors + 1)),
        np.float32(factor) * (np.concatenate([vectors, new]) + 1),
        8,
    )
    assert scaled.distance == pytest.approx(plain.distance, rel=1e-3)


@pytest.mark.parametrize("size", [8, 32])
def test_one_unit_is_what_drawing_a_context_does(size: int) -> None:
    """Root mean square over draws of J documents, from the mean of all."""
    vectors = cloud(0, 2_000)
    generator = np.random.default_rng(1)
    squares = []
    for _ in range(500):
        drawn = vectors[generator.choice(len(vectors), size)]
        squares.append(moved_to(Origin.of(drawn), vectors, size).distance ** 2)
    assert np.sqrt(np.mean(squares)) == pytest.approx(1, rel=0.05)


def test_documents_of_the_same_kind_move_it_less_than_others() -> None:
    vectors = cloud(0)
    origin = Origin.of(vectors)
    moves = [
        moved_to(origin, np.concatenate([vectors, cloud(1, centre=centre)]), 16).distance
        for centre in (0.0, 0.5, 1.0)
    ]
    assert moves[0] < 0.5 < moves[1] < moves[2]


def test_equal_and_missing_vectors_have_no_unit() -> None:
    same = np.ones((3, 2), np.float32)
    assert moved_to(Origin.of(same), same, 4).distance is None
    assert moved_to(Origin.of(same), same[:0], 4).distance is None
    assert moved_to(Origin.of(same[:, :0]), same[:, :0], 4).distance is None
    assert Origin.of(same[:0]).mean == [0, 0]


def test_an_index_knows_its_origin_after_every_change(tmp_path: Path) -> None:
    index = Index(CORPUS, encoder=bi_encoder())
    index.add(TEXTS)
    index.remove(["0", str(len(CORPUS))])  # an early one and a late one
    moved = Index.load(index.save(tmp_path / "index")).status().drift
    assert moved == index.status().drift and moved is not None
    assert moved.newer == (len(TEXTS) - 1) / (len(CORPUS) + len(TEXTS) - 2)
    assert moved.gone == 1 / len(CORPUS) and moved.distance is not None and moved.distance > 0

"""Pairs in well separated groups, for tests of clusters and batches."""

import numpy as np


def unit(rows: np.ndarray) -> np.ndarray:
    return (rows / np.linalg.norm(rows, axis=-1, keepdims=True)).astype(np.float32)


def drawn(n: int, dim: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Pairs in no groups: query vectors, document vectors."""
    queries, documents = unit(np.random.default_rng(seed).normal(size=(2, n, dim)))
    return queries, documents


def groups(
    number: int, size: int, noise: float = 0.05, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Pairs in well separated groups: query vectors, document vectors, group of each."""
    generator = np.random.default_rng(seed)
    centres = unit(generator.normal(size=(number, 16)))
    truth = np.repeat(np.arange(number), size)
    noisy = [
        unit(centres[truth] + noise * generator.normal(size=(number * size, 16))) for _ in range(2)
    ]
    return noisy[0], noisy[1], truth

"""A probe reads what vectors tell: all of it from bags of words, nothing from one vector for all."""

import numpy as np
import pytest

from cde.data import RetrievalSet
from cde_studies.motivation.word_probe import probe_words

WORDS = [f"{first}{second}" for first in "abcdef" for second in "uvwxyz"]


def texts(seed: int, count: int) -> list[str]:
    """Texts of words whose shares differ by seed."""
    generator = np.random.default_rng(seed)
    shares = generator.uniform(0.02, 0.19, len(WORDS))
    return [" ".join(np.array(WORDS)[generator.random(len(WORDS)) < shares]) for _ in range(count)]


class Bag:
    """Which of the words a text has, or always the same."""

    def __init__(self, tells: bool) -> None:
        self.tells = tells

    def encode_documents(self, some: list[str]) -> np.ndarray:
        rows = [[word in text.split() for word in WORDS] if self.tells else [1] for text in some]
        return np.asarray(rows, np.float32)


NAMES = [str(number) for number in range(200)]
CORPUS = RetrievalSet(NAMES, texts(1, 200), ["q"], ["x"], {"q": {"0": 1}})


def test_bags_of_words_tell_all() -> None:
    row = probe_words(Bag(True), texts(0, 400), [CORPUS], samples=(200,), ridge=1e-3).iloc[0]
    assert row["area"] > 0.999
    assert row["read"] == pytest.approx(1, abs=0.01) == row["counted"]
    assert row["training"] < 0.5


def test_one_vector_for_all_tells_the_training_text_s_frequencies_alone() -> None:
    row = probe_words(Bag(False), texts(0, 400), [CORPUS], samples=(8,)).iloc[0]
    assert row["area"] == pytest.approx(0.5)
    assert row["read"] == pytest.approx(row["training"], abs=1e-3)


def test_a_sample_tells_less_than_the_corpus_and_is_drawn_by_the_seed() -> None:
    made = [
        probe_words(Bag(True), texts(0, 400), [CORPUS], samples=(8, 200), seed=seed)
        for seed in range(3)
    ]
    few = [one.set_index("sample").loc[8, "counted"] for one in made]
    assert max(few) < 0.9 and len(set(few)) == 3
    assert all(one.set_index("sample").loc[200, "counted"] > 0.999 for one in made)


def test_words_of_every_text_and_of_almost_none_are_not_probed() -> None:
    training = [f"always {text}" for text in texts(0, 400)]
    training[0] += " once"
    probed = probe_words(Bag(True), training, [CORPUS], samples=(8,)).iloc[0]["words"]
    plain = probe_words(Bag(True), texts(0, 400), [CORPUS], samples=(8,)).iloc[0]["words"]
    assert probed == plain <= len(WORDS)

"""What a word weighs, and how common it is: small answers that are known."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from tiny_encoders import gated_minilm

from cde_studies.results.word_weights import document_shares, shares_read, word_weights


class WordCounts:
    """An encoder whose vector of a text is its counts of four words, each with a weight."""

    def __init__(self, **weights: float) -> None:
        self.weights = weights

    def encode_documents(self, texts: Sequence[str]) -> np.ndarray:
        counts = [[text.split().count(word) for word in self.weights] for text in texts]
        vectors = np.array(counts) * np.array(list(self.weights.values()))
        return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def test_a_word_weighs_the_angle_that_the_vector_turns_without_it() -> None:
    found = word_weights(WordCounts(red=1.0, boat=3.0), ["red boat", "boat", "boat boat"])
    assert found[["text", "word"]].to_numpy().tolist() == [
        [0, "red"],
        [0, "boat"],
        [2, "boat"],  # a word that stands twice is missed by nobody; a word alone is not a row
        [2, "boat"],
    ]
    expected = [1 - 3 / np.sqrt(10), 1 - 1 / np.sqrt(10), 0, 0]
    np.testing.assert_allclose(found["weight"], expected, atol=1e-6)


def test_words_behind_the_most_that_are_kept_count_nowhere() -> None:
    encoder = WordCounts(red=1.0, boat=1.0, big=1.0)
    short, cut = (word_weights(encoder, [text], 2) for text in ("red boat", "red boat big big"))
    assert short.equals(cut)


def test_a_document_holds_a_word_whatever_its_case_and_stops_and_however_often() -> None:
    shares = document_shares(["Red, red: RED!", "a boat", "(boat)"])
    np.testing.assert_allclose(shares(["red", "Boat.", "green"]), [1.5 / 4, 2.5 / 4, 0.5 / 4])


def test_an_untrained_reader_reads_most_of_the_words_that_most_documents_hold() -> None:
    model = gated_minilm(context_size=100, vectors_per_document=1)
    rest = ["ship", "tide", "bell", "sail", "moon", "cook", "oar", "wind", "coal", "net", "rain"]
    context = [f"{one} {other} harbour" for one, other in combinations(rest, 2)] + [
        "storm ship tide bell harbour"
    ]
    read = shares_read(model, ["harbour storm volcano"], context).set_index("piece")["read"]
    harbour, storm, volcano = (
        read[model.tokenizer.convert_tokens_to_ids(word)]
        for word in ("harbour", "storm", "volcano")
    )
    assert harbour > storm + 0.05
    assert storm > volcano + 0.1
    assert harbour < 1
    assert model.tokenizer.cls_token_id not in read.index

"""BM25's lead over dense models: an encoder of one corpus' words, and correlations of the lead."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from cde.data import Pairs, RetrievalSet
from cde_studies.motivation.bm25_lead import LatentSemanticAnalysis, lead_correlations, unseen_leads

TEXTS = ["red boats sail", "red boats float", "green houses stand", "green houses burn"] * 2


def test_lsa_knows_the_words_of_its_training_texts_alone() -> None:
    model = LatentSemanticAnalysis(TEXTS, 3)
    vectors = model.encode_documents(["red boats", "boats sail", "houses", "unheard words"])
    assert np.linalg.norm(vectors, axis=1) == pytest.approx([1, 1, 1, 0], abs=1e-6)
    assert vectors[0] @ vectors[1] > 0.5 > abs(vectors[0] @ vectors[2])


def test_a_lead_that_grows_with_one_distance_alone_is_found_there() -> None:
    distance = np.arange(12.0)
    other = np.tile([0.0, 1.0, 1.0, 0.0], 3)
    rows = pd.DataFrame({"expected": distance, "sum": other, "shared": other})
    found = lead_correlations(rows, pd.Series(0.01 * distance**3))
    assert found["expected", "spearman"].estimate == pytest.approx(1)
    assert 0.8 < found["expected", "pearson"].estimate < 1
    assert abs(found["sum", "pearson"].estimate) < 0.2


def test_a_collection_is_searched_by_what_the_others_know() -> None:
    def collection(name: str, letters: str) -> RetrievalSet:
        texts = [f"{a * 4} {b * 4} word" for a in letters for b in letters]
        return RetrievalSet.from_pairs(Pairs(texts, [f"{one} {one}" for one in texts], name=name))

    alike = [collection("x/first", "bcdf"), collection("x/second", "bcdf")]
    rows = unseen_leads([*alike, collection("x/alone", "ghjk")], 4, 0).set_index("collection")
    assert rows["BM25"].min() > 0.6
    assert rows["LSA"]["first"] > 0.6 > 2 * rows["LSA"]["alone"]
    assert rows["expected"]["first"] < rows["expected"]["alone"]

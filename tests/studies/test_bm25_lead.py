"""BM25's lead over dense models: an encoder of one corpus' words, and correlations of the lead."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from cde_studies.motivation.bm25_lead import LatentSemanticAnalysis, lead_correlations

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

"""The papers' printed scores, against the means that the papers print of them."""

from __future__ import annotations

import pytest

from cde_studies.benchmark.printed import retrieval_scores, task_scores

#: CDE Table 2, cde-small-v1: the mean of each type in a random context and in its own
TYPES = {
    "Classification": (81.3, 81.7), "Clustering": (46.6, 48.3), "PairClassification": (84.1, 84.7),
    "Reranking": (55.3, 56.7), "Retrieval": (51.1, 53.3), "STS": (81.4, 81.6),
    "Summarization": (31.6, 31.2),
}  # fmt: skip


@pytest.mark.parametrize("kind", TYPES)
def test_the_scores_of_a_type_have_the_printed_mean(kind: str) -> None:
    found = task_scores().query("type == @kind")[["random", "own"]].mean()
    assert tuple(found) == pytest.approx(TYPES[kind], abs=0.051)


def test_all_tasks_have_the_printed_mean() -> None:
    scores = task_scores()
    assert len(scores) == 56 and scores.index.is_unique
    assert tuple(scores[["random", "own"]].mean()) == pytest.approx((63.81, 65.00), abs=0.0051)


def test_the_columns_of_table_7_have_the_printed_means() -> None:
    means = retrieval_scores().mean()
    assert tuple(means) == pytest.approx((48.0, 51.2, 52.8, 54.0), abs=0.051)

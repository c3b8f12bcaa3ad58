"""BM25's side is BM25, a reader that does not read follows nothing, and only order counts."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from tiny_encoders import gated_minilm

import cde
from cde_studies.recipes import EvaluationSet
from cde_studies.results.context_sources import follows_statistics, search_in_every_context


@pytest.fixture(scope="module")
def tests() -> list[EvaluationSet]:
    return [
        EvaluationSet(name, cde.load_retrieval(f"pydocs/{name}").shrink(40, 20, 0), "out")
        for name in ("networkx", "rich", "tornado")
    ]


pytestmark = pytest.mark.filterwarnings("ignore:.* are duplicates of others")


@pytest.mark.slow
def test_in_its_own_weights_bm25_is_bm25_and_an_untrained_reader_is_the_plain_encoder(
    tests: list[EvaluationSet],
) -> None:
    untrained = gated_minilm()
    rows = search_in_every_context(untrained, tests, tests)
    assert len(rows) == 9
    own = rows[rows["searched"] == rows["source"]].set_index("searched")
    for test in tests:
        expected = cde.evaluate(cde.BM25(), test.collection)["ndcg@10"]
        assert own.loc[test.name, "bm25"] == pytest.approx(expected, abs=1e-6)
        plain = cde.evaluate(untrained.with_context(None), test.collection)["ndcg@10"]
        assert rows.query("searched == @test.name")["ndcg"].tolist() == [plain] * 3
    assert follows_statistics(rows).isna().all(), "no source is worth more than another"
    assert rows.groupby("searched")["bm25"].nunique().max() > 1


def test_a_few_sources_are_the_same_few_and_the_own_one_is_among_them(
    tests: list[EvaluationSet],
) -> None:
    untrained = gated_minilm()
    every = search_in_every_context(untrained, tests[:2], tests)
    few = search_in_every_context(untrained, tests[:2], tests, others=1)
    assert few.groupby("searched").size().tolist() == [2, 2]
    assert (few["searched"] == few["source"]).groupby(few["searched"]).sum().tolist() == [1, 1]
    joined = few.merge(every, on=["searched", "source"], suffixes=("", "_of_all"))
    assert len(joined) == len(few) and (joined["bm25"] == joined["bm25_of_all"]).all()


def test_the_correlation_asks_for_order_within_a_corpus_alone() -> None:
    generator = np.random.default_rng(0)
    bm25 = generator.random((4, 9))
    table = pd.DataFrame(
        {
            "searched": np.repeat([f"corpus {one}" for one in range(4)], 9),
            "source": np.tile([f"corpus {one}" for one in range(9)], 4),
            "bm25": bm25.ravel(),
        }
    )
    hardness = np.repeat(10 * generator.random(4), 9)
    same = table.assign(ndcg=np.exp(table["bm25"]) - hardness)
    assert follows_statistics(same).tolist() == pytest.approx([1.0] * 4)
    against = table.assign(ndcg=hardness - table["bm25"] ** 3)
    assert follows_statistics(against).tolist() == pytest.approx([-1.0] * 4)
    apart = table.assign(ndcg=np.repeat(bm25.mean(axis=1), 9))
    assert follows_statistics(apart).isna().all(), "corpora differ, sources do not"

"""Full power: fresh queries, the bias of encoders built to have one, and honest intervals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from biased_encoders import ALL, FIRST, LAST, Bag, marked_passages

from cde.data import is_available
from cde.lexical import BM25
from cde.models.encoder import load_tokenizer
from cde_studies.collections.pydocs import HELD_OUT
from cde_studies.dwell.fresh import Probed, fresh_passages, rows_with_clusters, unmoved
from cde_studies.dwell.passages import load_passages
from cde_studies.dwell.probes import moved_versions, scores_by_place
from cde_studies.dwell.recipe import dwell_recipe


def rows_of(kind: Any) -> pd.DataFrame:
    probed = Probed(marked_passages())
    scores = probed.scores(Bag(load_tokenizer("minilm"), kind[0]))
    return pd.DataFrame(rows_with_clusters(scores, probed.owners)).set_index("place")


def test_encoders_built_to_be_biased_are_told_apart() -> None:
    first, last, every = (rows_of(kind) for kind in (FIRST, LAST, ALL))
    assert first["ends_low"][0] > 0.5 and first["tail_high"][0] < 0.1
    assert last["ends_high"][0] < -0.5 and last["tail_low"][0] > 0.5
    assert last["later"][0] > 0.5 > first["later"][0]
    assert (every[["change", "ends", "tail", "later"]] == 0).all().all()


def test_means_are_those_of_the_probe_and_gains_follow_from_ranks() -> None:
    tokenizer, passages = load_tokenizer("minilm"), marked_passages()
    bag = Bag(tokenizer, FIRST[0])
    versions = moved_versions(passages, tokenizer)
    scores = scores_by_place(bag, passages, versions, ["mrr@100"])["mrr@100"]
    np.testing.assert_allclose(rows_of(FIRST)["mrr"], scores.mean())
    both = Probed(passages).scores(bag)
    rank = np.round(1 / both["mrr@100"].to_numpy())  # one relevant document a query
    np.testing.assert_allclose(
        both["ndcg@10"], np.where(rank <= 10, 1 / np.log2(1 + rank), 0), atol=1e-6
    )


def test_a_single_corpus_gives_unmoved_documents_the_same_scores() -> None:
    probed = Probed(marked_passages())
    for encoder in (BM25(), Bag(load_tokenizer("minilm"), ALL[0])):
        alone = unmoved(probed.passages, encoder, probed.queries)
        moved = probed.scores(encoder)
        for metric, series in alone.items():
            pd.testing.assert_series_equal(
                series, moved[metric]["default"].loc[series.index], check_names=False
            )


@pytest.mark.slow
def test_the_best_place_by_chance_gains_nothing() -> None:
    """Noise without any bias: the best of nine places looks better, but not on other documents."""
    generator = np.random.default_rng(0)
    seen, best = [], []
    for _ in range(60):
        noise = pd.DataFrame(generator.normal(0.5, 0.2, (80, 10)), columns=list(range(1, 11)))
        table = pd.concat([pd.DataFrame({"default": np.full(80, 0.5)}), noise], axis=1)
        rows = rows_with_clusters({"mrr@100": table, "ndcg@10": table}, list(range(80)))
        seen.append(rows[0]["later"])
        best.append(max(row["change"] for row in rows[2:]))
    error = 0.2 / np.sqrt(80 * 60)
    assert abs(np.mean(seen)) < 4 * error
    assert np.mean(best) > 6 * error


@pytest.mark.skipif(not is_available("beir/squad-dev"), reason="needs $CDE_DATA/beir/squad-dev")
@pytest.mark.slow
def test_no_query_that_was_looked_at_is_among_the_fresh_ones() -> None:
    recipe = dwell_recipe("laptop")
    short = load_passages("beir/squad-dev").within(recipe.fits, "longer", corpus=False)
    seen = set(short.sample(recipe.queries, 0).spans)
    assert len(seen) == 150
    for name in ("squad-dev", "squad-dev joined"):
        every = fresh_passages(name, 100_000, (60, 400), HELD_OUT)
        assert not seen & set(every.spans)
        assert every.left_out["looked at before"] == 150

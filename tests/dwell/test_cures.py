"""Arms differ in what they say they differ in, and the index finds the bias that an encoder has."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from biased_encoders import ALL, Bag

from cde.models.encoder import load_tokenizer
from cde_studies.collections.pydocs import HELD_OUT
from cde_studies.dwell.cures import ARMS, cure_recipe, source_of, thirds
from cde_studies.dwell.probes import PLACES, scores_by_place

SMOKE, TOKENIZER = cure_recipe("smoke"), load_tokenizer("minilm")


def row_of(encoder) -> pd.DataFrame:
    """One row as `CureRecipe.rows` has it, of an encoder at hand."""
    recipe = cure_recipe("smoke", queries=40)
    _, tested = recipe.placed("pydocs")
    means = scores_by_place(encoder, tested.passages, tested.versions, ["ndcg@10"])[
        "ndcg@10"
    ].mean()
    return pd.DataFrame([{f"ndcg {place}": 100 * mean for place, mean in enumerate(means)}])


def test_an_encoder_of_first_words_leans_to_the_beginning_one_of_last_words_to_the_end() -> None:
    first = thirds(row_of(Bag(TOKENIZER, lambda ids: ids[:20]))).iloc[0]
    last = thirds(row_of(Bag(TOKENIZER, lambda ids: ids[-20:]))).iloc[0]
    assert first["beginning"] > first["middle"] > first["end"]
    assert last["beginning"] < last["middle"] < last["end"]
    assert first["beginning"] > first["end"] + 5
    assert last["end"] > last["beginning"] + 5
    assert min(first["index"], last["index"]) > 0.15


def test_words_without_an_order_have_no_place() -> None:
    found = thirds(row_of(Bag(TOKENIZER, ALL[0]))).iloc[0]
    assert found["mean"] > 20
    assert found["index"] == pytest.approx(0, abs=1e-6)


def test_the_index_is_of_thirds_has_no_unit_and_is_nought_where_nothing_is_found() -> None:
    rows = pd.DataFrame([{f"ndcg {place}": 60.0 - place for place in range(PLACES + 1)}])
    for factor, index in ((1, 1 - 51 / 58), (3, 1 - 51 / 58), (0, 0)):
        assert thirds(rows * factor)["index"].item() == pytest.approx(index)


def test_arms_of_a_seed_see_the_same_queries_in_documents_of_the_same_words() -> None:
    every = {arm: SMOKE.training_pairs("pydocs", arm, 3) for arm in ARMS}
    one = every["all first"]
    for pairs in every.values():
        assert pairs.queries == one.queries
        assert pairs.ids == one.ids
        for text, other in zip(pairs.documents, one.documents, strict=True):
            assert sorted(text.split()) == sorted(other.split())
    assert len({pairs.fingerprint for pairs in every.values()}) == 5  # placements


def test_training_and_test_share_no_package() -> None:
    learned, tested = SMOKE.placed("pydocs")
    package = source_of("pydocs")
    tested_on = {package(name) for name in tested.passages.collection.document_ids}
    assert tested_on <= set(HELD_OUT)
    assert not tested_on & {package(name) for name in learned.passages.collection.document_ids}


def test_arms_without_settings_of_their_own_are_trained_alike() -> None:
    plain = SMOKE.config("all first", 2)
    for arm, is_a in ARMS.items():
        assert (SMOKE.config(arm, 2) == plain) == (not is_a.settings)
    assert SMOKE.config("context", 2).first_stage_layers == SMOKE.layers


def test_a_cure_at_embedding_trains_nothing_new_and_moves_vectors() -> None:
    texts = SMOKE.placed("pydocs")[1].passages.collection.documents[:4]
    vectors = {}
    for arm in ("all first", "chunks", "evened", "both orders"):
        with SMOKE.encoder("pydocs", arm, 5) as encoder:
            vectors[arm] = encoder.encode_documents(texts)
    for arm, moved in vectors.items():
        assert (np.abs(moved - vectors["all first"]).max() > 1e-4) == (arm != "all first")

"""Passages stand where the placement says, in documents of the same tokens; halves share nothing."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from biased_encoders import text_of

from cde.data import RetrievalSet
from cde.models.encoder import load_tokenizer
from cde_studies.collections.pydocs import HELD_OUT
from cde_studies.dwell.cures import source_of
from cde_studies.dwell.passages import Passages, load_passages
from cde_studies.dwell.placement import Placed, at_the_beginning, halves, placed_pairs
from cde_studies.dwell.probes import PLACES
from cde_studies.dwell.substrings import token_spans

PACKAGE = source_of("pydocs")


@pytest.fixture(scope="module")
def placed() -> Placed:
    passages = load_passages("pydocs", (40, 60), packages=HELD_OUT).sample(40, 0)
    return Placed.of(passages, load_tokenizer("minilm"))


def test_at_the_beginning_every_document_begins_with_its_passage(placed: Placed) -> None:
    first = placed_pairs(placed, at_the_beginning(1), PACKAGE)
    last = placed_pairs(placed, at_the_beginning(0), PACKAGE)
    for name, early, late in zip(first.ids, first.documents, last.documents, strict=True):
        passage = " ".join(text_of(placed.passages, name).split())
        assert early.startswith(passage)
        assert late.endswith(passage)


def test_a_moved_document_has_the_tokens_of_the_one_that_was_written(placed: Placed) -> None:
    tokenizer = load_tokenizer("minilm")
    written = placed_pairs(placed, None, PACKAGE)
    moved = placed_pairs(placed, [1 / PLACES] * PLACES, PACKAGE, seed=3)
    assert written.documents != moved.documents
    for one, other in zip(written.documents, moved.documents, strict=True):
        assert Counter(token_spans(one, tokenizer)[0]) == Counter(token_spans(other, tokenizer)[0])


def test_a_dose_holds_those_of_a_smaller_one() -> None:
    names = [f"q{n}" for n in range(2000)]
    qrels = {name: {"d": 1} for name in names}
    collection = RetrievalSet(["d"], ["text"], names, ["?"] * 2000, qrels)
    toy = Passages(collection, dict.fromkeys(names, (0, 1)), {})
    versions = {name: [str(place) for place in range(PLACES + 1)] for name in names}
    placed = Placed(toy, versions)
    documents = {
        share: np.array(placed_pairs(placed, at_the_beginning(share), str, seed=5).documents)
        for share in (0, 0.25, 0.75, 1)
    }
    for share, drawn in documents.items():
        assert set(drawn) <= {"1", "10"}
        # six standard deviations of a share of 2,000 draws
        assert abs((drawn == "1").mean() - share) <= 6 * (0.25 / 2000) ** 0.5
    assert (documents[0] == "10").all()
    assert (documents[1] == "1").all()
    assert ((documents[0.25] == "1") <= (documents[0.75] == "1")).all()
    anywhere = Counter(placed_pairs(placed, [1 / PLACES] * PLACES, str, seed=5).documents)
    assert set(anywhere) == {str(place) for place in range(1, PLACES + 1)}
    assert max(anywhere.values()) < 2 * min(anywhere.values())


def test_halves_share_no_source_and_lose_no_query(placed: Placed) -> None:
    one, other = halves(placed.passages, PACKAGE)
    sources = [{PACKAGE(name) for name in part.collection.document_ids} for part in (one, other)]
    assert not sources[0] & sources[1]
    assert set(one.spans) | set(other.spans) == set(placed.passages.spans)
    assert not set(one.spans) & set(other.spans)
    documents = set(one.collection.document_ids) | set(other.collection.document_ids)
    assert documents == set(placed.passages.collection.document_ids)

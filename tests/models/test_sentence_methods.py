"""The methods of sentence-transformers give what that library gives, and what `encode_queries` gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from tiny_encoders import CORPUS, TEXTS, bi_encoder, contextual

from cde.surrogate import Surrogate, minilm_folder

QUERY, DOCUMENT = {"query_prefix": "query: "}, {"document_prefix": "text: "}


@pytest.fixture(scope="module")
def peer() -> SentenceTransformer:
    return SentenceTransformer(str(minilm_folder()), device="cpu")


@pytest.fixture(scope="module")
def minilm() -> Surrogate:
    return Surrogate(precision="float32", device="cpu", cache=False)


@pytest.fixture(scope="module", params=["bi-encoder", "bound", "surrogate"])
def encoder(request: Any, minilm: Surrogate) -> Any:
    if request.param == "surrogate":
        return minilm
    if request.param == "bi-encoder":
        return bi_encoder(**QUERY, **DOCUMENT)
    return contextual(**QUERY, **DOCUMENT).with_context(CORPUS, size=4)


@pytest.mark.parametrize(
    ("given", "options"),
    [
        ("red boats", {}),
        (TEXTS, {}),
        (tuple(TEXTS), {"normalize_embeddings": True}),
        (np.array(TEXTS), {"convert_to_tensor": True}),
        (TEXTS, {"convert_to_numpy": False}),
        (TEXTS, {"prompt": "query: ", "batch_size": 2, "show_progress_bar": False}),
        (TEXTS, {"truncate_dim": 32, "normalize_embeddings": True}),
    ],
)
def test_minilm_s_vectors_have_the_form_and_values_of_the_library(
    given: Any, options: dict[str, Any], peer: SentenceTransformer, minilm: Surrogate
) -> None:
    for name in ("encode", "encode_query", "encode_document"):
        theirs, ours = (
            getattr(peer, name)(given, **options),
            getattr(minilm, name)(given, **options),
        )
        assert type(ours) is type(theirs)
        if isinstance(ours, list):
            theirs, ours = torch.stack(theirs), torch.stack(ours)
        assert ours.dtype == theirs.dtype
        assert ours.shape == theirs.shape
        np.testing.assert_allclose(ours, theirs, atol=1e-5)


def test_similarities_are_those_of_the_library(
    peer: SentenceTransformer, minilm: Surrogate
) -> None:
    generator = np.random.default_rng(0)
    some, others = generator.normal(size=(2, 3, 8)).astype(np.float32)
    for first, second in ((some, others), (some[0], others), (torch.tensor(some), list(others))):
        np.testing.assert_allclose(
            minilm.similarity(first, second), peer.similarity(first, second), atol=1e-6
        )
    for first, second in ((some, others), (some[0], others[0])):
        ours, theirs = (one.similarity_pairwise(first, second) for one in (minilm, peer))
        np.testing.assert_allclose(ours, theirs.reshape(-1), atol=1e-6)


def test_they_are_the_vectors_of_encode_queries_and_encode_documents(encoder: Any) -> None:
    queries, documents = encoder.encode_queries(TEXTS), encoder.encode_documents(TEXTS)
    assert (encoder.encode_query(TEXTS) == queries).all()
    assert (encoder.encode_document(TEXTS) == documents).all()
    assert (encoder.encode(TEXTS, prompt_name="query") == queries).all()
    assert (encoder.encode(TEXTS) == encoder.embed(TEXTS)).all()
    np.testing.assert_allclose(encoder.encode_query(TEXTS[1]), queries[1], atol=1e-5)
    np.testing.assert_allclose(encoder.encode_query(TEXTS, batch_size=1), queries, atol=1e-5)
    spelt_out = ["text: " + text for text in TEXTS]
    prompted = encoder.encode_query(TEXTS, prompt="text: ")
    np.testing.assert_allclose(prompted, encoder.encode(spelt_out), atol=1e-5)
    if not isinstance(encoder, Surrogate):
        np.testing.assert_allclose(prompted, documents, atol=1e-5)
        assert np.abs(queries - documents).max() > 0.01


def test_what_an_encoder_does_not_know_is_told(encoder: Any) -> None:
    with pytest.raises(
        TypeError, match=r"no option normalise_embeddings \(normalize_embeddings\?\)"
    ):
        encoder.encode(TEXTS, normalise_embeddings=True)
    with pytest.raises(
        ValueError, match="prompt_name must be 'query' or 'document'; it is 'passage'"
    ):
        encoder.encode(TEXTS, prompt_name="passage")

"""The contrastive loss against the authors' eight cases, and its laws."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

from cde.batching.negatives import false_negatives
from cde.training import loss as module
from cde.training.loss import contrastive_loss

GOLDEN = Path(__file__).parents[1] / "golden"
CASES: dict[str, Any] = json.loads((GOLDEN / "loss_cases.json").read_text())
TENSORS = load_file(GOLDEN / "loss_cases.safetensors")


def tensors(name: str) -> dict[str, torch.Tensor]:
    return {
        key.removeprefix(f"{name}."): value
        for key, value in TENSORS.items()
        if key.startswith(f"{name}.")
    }


@pytest.mark.parametrize("name", CASES)
def test_loss_and_gradients_are_the_authors(name: str) -> None:
    case, given_tensors = CASES[name], tensors(name)
    queries = given_tensors["e1"].clone().requires_grad_()
    documents = given_tensors["e2"].clone().requires_grad_()
    contrastive = contrastive_loss(
        queries,
        documents,
        1 / case["logit_scale"],
        masked=given_tensors["mask_out"].bool(),
        positives=given_tensors["one_hot"] > 0,
    )
    contrastive.loss.backward()
    assert contrastive.loss.item() == pytest.approx(case["loss"], rel=1e-6)
    for own, name_of_gradient in ((queries, "grad_e1"), (documents, "grad_e2")):
        torch.testing.assert_close(own.grad, given_tensors[name_of_gradient], rtol=1e-5, atol=5e-6)


@pytest.mark.parametrize(
    "name", [name for name, case in CASES.items() if case["use_in_batch_negatives"]]
)
def test_the_filter_masks_what_the_authors_mask(name: str) -> None:
    case, given_tensors = CASES[name], tensors(name)
    threshold = case["hn_tune_threshold"]
    if threshold is None:
        filtered = torch.zeros_like(given_tensors["mask_out"], dtype=torch.bool)
    else:
        scores = given_tensors["filter_scores"]  # dot products of these vectors
        queries, documents = np.eye(len(scores), dtype=np.float32), scores.T.numpy()
        absolute = None if threshold == 1.0 else threshold
        filtered = torch.from_numpy(false_negatives(queries, documents, 0.0, absolute))
    labelled = given_tensors["one_hot"] > 0
    assert torch.equal(filtered & ~labelled, given_tensors["mask_out"].bool())


@given(
    n=st.integers(1, 7),
    hard=st.integers(0, 2),
    seed=st.integers(0, 10**6),
    temperature=st.floats(0.02, 2),
)
def test_it_is_the_mean_of_minus_log_softmax(
    n: int, hard: int, seed: int, temperature: float
) -> None:
    generator = torch.Generator().manual_seed(seed)
    queries = torch.randn(n, 5, generator=generator, dtype=torch.float64)
    documents = torch.randn(n * (1 + hard), 5, generator=generator, dtype=torch.float64)
    masked = torch.rand(n, len(documents), generator=generator) < 0.3
    expected, right = [], 0
    for row in range(n):
        cosines = torch.nn.functional.cosine_similarity(queries[row], documents)
        kept = [
            column for column in range(len(documents)) if column == row or not masked[row, column]
        ]
        logits = cosines[kept] / temperature
        expected.append(-torch.log_softmax(logits, 0)[kept.index(row)])
        right += kept[int(logits.argmax())] == row
    contrastive = contrastive_loss(queries, documents, temperature, masked)
    assert contrastive.loss.item() == pytest.approx(
        torch.stack(expected).mean().item(), rel=1e-4, abs=1e-5
    )
    assert contrastive.accuracy == pytest.approx(right / n)
    outside = ~torch.eye(n, len(documents), dtype=torch.bool)
    assert contrastive.masked == pytest.approx(
        (masked & outside).sum().item() / max(1, int(outside.sum()))
    )


@given(n=st.integers(2, 9), seed=st.integers(0, 10**6))
def test_blocks_change_nothing(n: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    losses_and_gradients = []
    for least in (1000, 2):
        queries = torch.randn(n, 4, generator=generator.manual_seed(seed)).requires_grad_()
        documents = torch.randn(2 * n, 4, generator=generator).requires_grad_()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "_LEAST", least)
            patch.setattr(module, "_LOGITS", 1)
            value = contrastive_loss(queries, documents, 0.1, symmetric=True)
            value.loss.backward()
        losses_and_gradients.append((value.loss.detach(), queries.grad, documents.grad))
    for whole, in_blocks in zip(*losses_and_gradients, strict=True):
        torch.testing.assert_close(whole, in_blocks, rtol=1e-5, atol=1e-6)


def test_symmetric_is_the_mean_of_both_directions() -> None:
    queries, documents = torch.randn(6, 4), torch.randn(6, 4)
    masked = torch.rand(6, 6) < 0.3
    there = contrastive_loss(queries, documents, 0.1, masked).loss
    back = contrastive_loss(documents, queries, 0.1, masked.T).loss
    both = contrastive_loss(queries, documents, 0.1, masked, symmetric=True).loss
    torch.testing.assert_close(both, (there + back) / 2)


def test_a_labelled_document_is_never_masked() -> None:
    generator = torch.Generator().manual_seed(0)
    queries, documents = torch.randn(2, 3, 4, generator=generator)
    masked = torch.ones(3, 3, dtype=torch.bool)
    masked[:, 0] = False
    # left are the first document and the labelled one, of the first query that one alone
    cosines = torch.nn.functional.cosine_similarity(queries[:, None], documents[None], dim=-1)
    expected = torch.stack([cosines[1:, 0], cosines.diagonal()[1:]], dim=1) / 0.1
    loss = contrastive_loss(queries, documents, 0.1, masked).loss
    torch.testing.assert_close(loss, -expected.log_softmax(dim=1)[:, 1].sum() / 3)


def test_a_target_of_several_documents_is_uniform_over_them() -> None:
    generator = torch.Generator().manual_seed(0)
    queries, documents = (torch.randn(n, 4, generator=generator) for n in (2, 4))
    positives = torch.tensor([[True, True, False, True], [False, True, False, False]])
    target = positives / positives.sum(dim=1, keepdim=True)
    cosines = torch.nn.functional.cosine_similarity(queries[:, None], documents[None], dim=-1)
    expected = torch.nn.functional.cross_entropy(cosines / 0.5, target)
    loss = contrastive_loss(queries, documents, 0.5, positives=positives).loss
    torch.testing.assert_close(loss, expected)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"masked": torch.zeros(2, 2, dtype=torch.bool)}, r"masked must be of shape \(3, 3\)"),
        ({"positives": torch.zeros(3, 3, dtype=torch.bool)}, "no labelled document"),
        ({"positives": torch.eye(3).bool()[[0] * 3], "symmetric": True}, "labelled query for each"),
        ({"documents": torch.randn(2, 4)}, "m >= n > 0"),
        ({"documents": torch.randn(3, 5)}, "must be"),
    ],
)
def test_what_does_not_fit_is_refused(options: dict[str, Any], message: str) -> None:
    arguments = {"queries": torch.randn(3, 4), "documents": torch.randn(3, 4), **options}
    with pytest.raises(ValueError, match=message):
        contrastive_loss(**arguments)


@pytest.mark.parametrize("hardness", [0.0, 1.0, 9.0])
def test_a_hardness_weighted_loss_is_that_of_sentence_transformers(hardness: float) -> None:
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

    generator = torch.Generator().manual_seed(0)
    given_vectors = torch.randn(2, 6, 5, generator=generator)
    given_vectors[1] += given_vectors[0]  # half of the queries find their documents
    ours, theirs = (given_vectors.clone().requires_grad_() for _ in range(2))
    mode: Any = {"hardness_mode": "all_negatives", "hardness_strength": hardness}
    peer = MultipleNegativesRankingLoss(
        model=torch.nn.Identity(),  # type: ignore[arg-type]
        scale=10.0,
        **(mode if hardness else {}),
    )
    expected = peer.compute_loss_from_embeddings([theirs[0], theirs[1]], None)
    expected.backward()
    found = contrastive_loss(ours[0], ours[1], 0.1, hardness=hardness)
    found.loss.backward()
    assert found.accuracy == 0.5
    assert float(found.loss.detach()) == pytest.approx(float(expected.detach()), rel=1e-5)
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-4, atol=1e-6)

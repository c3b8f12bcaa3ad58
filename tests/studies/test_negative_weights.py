"""The weight of a negative is the derivative of the loss with respect to its logit."""

import numpy as np
import pytest
import torch
from pairs_in_groups import drawn

from cde.training.loss import contrastive_loss
from cde_studies.clustering.negative_weights import printed_loss, stated_loss, weights_of_negatives

SIDES = drawn(24, 8)


def test_weights_are_what_the_loss_of_training_differentiates_to() -> None:
    queries, documents = map(torch.from_numpy, SIDES)
    cosines = (queries @ documents.T).requires_grad_()
    # scores as cosines of unit vectors: the loss sees them through an identity of documents
    loss = torch.nn.functional.cross_entropy(cosines / 0.1, torch.arange(24))
    assert loss.item() == pytest.approx(
        float(contrastive_loss(queries, documents, 0.1).loss), abs=1e-5
    )
    (slope,) = torch.autograd.grad(loss, cosines)
    weights = slope.numpy() * 0.1  # a row's mean has 1/n of each query
    negatives = ~np.eye(24, dtype=bool)
    easy = negatives & (cosines.detach().numpy() < np.diagonal(cosines.detach().numpy())[:, None])
    row = weights_of_negatives(*SIDES, [np.arange(24)], [0.1]).iloc[0]
    assert row["all"] == pytest.approx(weights[negatives].sum(), abs=1e-5)
    assert row["of_easy"] == pytest.approx(weights[easy].sum() / weights[negatives].sum(), abs=1e-5)


def test_the_bracket_of_equation_2_belongs_before_the_own_score() -> None:
    scores = SIDES[0] @ SIDES[1].T
    outside = np.log(np.exp(scores.astype(float)).sum(axis=1)) - np.diagonal(scores)
    np.testing.assert_allclose(stated_loss(scores), outside, atol=1e-6)
    assert np.abs(printed_loss(scores) - outside).max() > 0.01


def test_at_a_temperature_near_nought_the_best_negative_has_all_of_the_weight() -> None:
    """No exponential overflows: the batch's weight is the share of queries that a negative beats."""
    row = weights_of_negatives(*SIDES, [np.arange(24)], [1e-3]).iloc[0]
    scores = SIDES[0] @ SIDES[1].T
    beaten = scores.argmax(axis=1) != np.arange(24)
    assert row["all"] == pytest.approx(beaten.mean(), abs=0.02)

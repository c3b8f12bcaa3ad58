"""Greedy batches: each pair is the one that raises the loss of its batch most."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from pairs_in_groups import unit

from cde.training.loss import contrastive_loss
from cde_studies.clustering.greedy import greedy_plan

TEMPERATURE = 0.05


def near(generator: np.random.Generator, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Queries near their own documents."""
    documents, noise = unit(generator.standard_normal((2, rows, 6)))
    return unit(documents + 0.3 * noise), documents


def loss(queries: np.ndarray, documents: np.ndarray, rows: list[int]) -> float:
    """Eq. 1 of a batch, its false negatives by Eq. 4 masked, as the trainer has it: a sum."""
    asked, answers = torch.from_numpy(queries[rows]), torch.from_numpy(documents[rows])
    scores = asked @ answers.T
    masked = scores >= scores.diagonal()[:, None]
    masked.fill_diagonal_(False)
    found = contrastive_loss(asked, answers, TEMPERATURE, masked=masked)
    return float(found.loss) * len(rows)


@pytest.mark.parametrize("seed", range(5))
def test_every_pair_is_the_one_that_raises_the_loss_most(seed: int) -> None:
    queries, documents = near(np.random.default_rng(seed), 12)
    first = greedy_plan(queries, documents, np.full(12, "one"), 12, 1, TEMPERATURE, seed=seed)[0]
    chosen = [first[0]]
    for following in first[1:]:
        rest = [row for row in range(12) if row not in chosen]
        losses = {row: loss(queries, documents, [*chosen, row]) for row in rest}
        assert losses[following] == pytest.approx(max(losses.values()), abs=1e-4)
        chosen.append(following)


def test_what_answers_as_well_is_not_sought() -> None:
    """The same question and answer again adds nothing, however near it is."""
    queries, documents = near(np.random.default_rng(0), 3)
    queries[1], documents[1] = queries[0], documents[0]
    plan = greedy_plan(queries, documents, np.full(3, "one"), 2, 30, TEMPERATURE)
    assert {frozenset(batch) for batch in plan.tolist()} == {frozenset({0, 2}), frozenset({1, 2})}


def test_batches_are_harder_than_chance_in_every_domain_and_mix_none() -> None:
    generator = np.random.default_rng(1)
    queries, documents = near(generator, 120)
    domains = np.array(["a", "b", "c"])[np.arange(120) % 3]
    plan = greedy_plan(queries, documents, domains, 8, 15, TEMPERATURE)
    assert sorted(plan.ravel().tolist()) == list(range(120)), "an epoch has every pair once"
    for domain in "abc":
        rows = np.flatnonzero(domains == domain)
        greedy = [
            loss(queries, documents, one) for one in plan.tolist() if domains[one[0]] == domain
        ]
        drawn = np.split(np.random.default_rng(2).permutation(rows), 5)
        assert {*domains[plan[np.isin(plan[:, 0], rows)].ravel()]} == {domain}
        assert np.mean(greedy) > np.mean([loss(queries, documents, one.tolist()) for one in drawn])

"""What stands in the filter's place leaves out as many negatives, and never an answer."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.feature_extraction.text import TfidfVectorizer

import cde
from cde.models.encoder import load_tokenizer
from cde.training.loss import contrastive_loss
from cde_studies.batches import filter_controls
from cde_studies.batches.tf_idf_judge import save_tf_idf


def batch() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Queries, documents of which 3 is a copy of 0, and a mask that knows the copy."""
    generator = torch.Generator().manual_seed(0)
    queries, documents = torch.randn(2, 12, 6, generator=generator)
    documents[3] = documents[0]
    masked = torch.rand(12, 12, generator=generator) < 0.3
    masked[0, 3] = masked[3, 0] = True
    masked.fill_diagonal_(False)
    return queries, documents, masked


def test_the_hardest_negatives_leave_the_loss_and_never_the_labelled_document() -> None:
    queries, documents, masked = batch()
    unit = torch.nn.functional.normalize
    scores = unit(queries) @ unit(documents).T
    instead = torch.zeros_like(masked)
    instead[0, 3] = instead[3, 0] = True  # copies of the labelled document stay out
    for row in range(12):
        left = int(masked[row].sum() - instead[row].sum())
        others = [one for one in range(12) if one != row and not instead[row, one]]
        for column in sorted(others, key=lambda one: -float(scores[row, one]))[:left]:
            instead[row, column] = True
    expected = contrastive_loss(queries, documents, 0.1, masked=instead).loss
    found = filter_controls.as_many_left_out(
        *(queries, documents, 0.1), masked=masked, symmetric=False, hardness=0.0, choice="hardest"
    )
    torch.testing.assert_close(found.loss, expected)


def test_what_counts_as_an_answer_is_drawn_near_and_no_longer_left_out() -> None:
    queries, documents, masked = batch()
    queries.requires_grad_()
    loss = filter_controls.counted_as_answers(
        queries, documents, 0.1, masked=masked, symmetric=False, hardness=0.0
    )
    (gradient,) = torch.autograd.grad(loss.loss, queries)
    closer = (queries - 0.01 * gradient).detach()
    answers = masked | torch.eye(12, dtype=torch.bool)
    unit = torch.nn.functional.normalize
    before, after = (unit(one) @ unit(documents).T for one in (queries.detach(), closer))
    assert float((after - before)[answers].mean()) > 0 > float((after - before)[~answers].mean())
    assert loss.masked == 0


def test_both_losses_leave_out_as_much_as_the_filter_and_draw_the_same_again() -> None:
    queries, documents, masked = batch()
    settings: dict[str, Any] = {"masked": masked, "symmetric": False, "hardness": 0.0}
    losses: dict[str, float] = {}
    for choice in ("random", "hardest"):
        loss = functools.partial(
            filter_controls.as_many_left_out, queries, documents, 0.1, choice=choice, **settings
        )
        found = loss()
        assert found.masked == float(masked.sum()) / (12 * 11)
        assert torch.equal(found.loss, loss().loss)
        losses[choice] = float(found.loss)
    # without its hardest negatives a loss is lowest
    assert losses["hardest"] < losses["random"]


def test_the_judge_that_knows_words_alone_scores_as_tf_idf_does(
    pydocs_pairs: cde.Pairs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a dimension for each text its cosines are those of scikit-learn's whole table."""
    monkeypatch.setenv("CDE_CACHE", str(tmp_path))
    pairs = pydocs_pairs.sample(30)
    judge = cde.Surrogate(save_tf_idf(pairs, 24), max_tokens=24, precision="float32")
    found = judge.encode_queries(pairs.queries) @ judge.encode_documents(pairs.documents).T
    words = load_tokenizer("minilm")
    table = TfidfVectorizer(analyzer=lambda text: words.tokenize(text)[:24])
    table.fit([*pairs.queries, *pairs.documents])
    expected = table.transform(pairs.queries) @ table.transform(pairs.documents).T
    np.testing.assert_allclose(found, expected.toarray(), atol=1e-4)

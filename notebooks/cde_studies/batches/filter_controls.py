"""What a doubter would put in the filter's place: as many negatives left out of the loss, but not
those that the surrogate finds; and what the surrogate finds counted as answers.

If negatives drawn at random do as well, the loss only wanted fewer; if those that the encoder
scores highest itself do as well, no surrogate is needed; and if tf-idf judges as well, no model is.
Copies of the labelled document stay out in every arm; here a copy is what the filter finds with an
equal vector (a cosine above 0.999), as texts have that differ after the cut alone.

Cost: that of a run for each arm and seed.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Literal
from zlib import crc32

import pandas as pd
import torch
from torch import Tensor
from torch.nn.functional import normalize

from cde.training.loss import ContrastiveLoss, contrastive_loss
from cde_studies.batches.tf_idf_judge import save_tf_idf
from cde_studies.recipes import Recipe
from cde_studies.sweeps import sweep


def as_many_left_out(
    queries: Tensor,
    documents: Tensor,
    temperature: float,
    *,
    masked: Tensor,
    symmetric: bool,
    hardness: float,
    choice: Literal["random", "hardest"],
) -> ContrastiveLoss:
    """The loss without as many negatives of each query as the filter found: drawn at random, or
    those that the encoder in training scores highest.
    """
    # all of it stands here: a run's key knows this function's own text
    asked, answers = (normalize(side.detach().float(), dim=-1) for side in (queries, documents))
    own = answers[: len(masked)]
    copies = masked & (own @ answers.T > 0.999)
    if choice == "random":  # from the batch alone, so that a resumed run draws the same
        generator = torch.Generator().manual_seed(crc32(masked.cpu().numpy().tobytes()))
        order = torch.rand(masked.shape, generator=generator).to(masked.device)
    else:
        order = asked @ answers.T
    order = order.masked_fill(copies, -torch.inf)
    order.fill_diagonal_(-torch.inf)  # the labelled document
    places = order.argsort(dim=1, descending=True, stable=True).argsort(dim=1)
    instead = copies | (places < (masked & ~copies).sum(dim=1, keepdim=True))
    return contrastive_loss(
        queries, documents, temperature, masked=instead, symmetric=symmetric, hardness=hardness
    )


def counted_as_answers(
    queries: Tensor,
    documents: Tensor,
    temperature: float,
    *,
    masked: Tensor,
    symmetric: bool,
    hardness: float,
) -> ContrastiveLoss:
    """The loss in which what the filter finds is an answer, and not left out."""
    answers = masked | torch.eye(*masked.shape, dtype=torch.bool, device=masked.device)
    return contrastive_loss(
        queries, documents, temperature, positives=answers, symmetric=symmetric, hardness=hardness
    )


#: the filter, none, and what stands in its place
ARMS: Mapping[str, Mapping[str, Any]] = {
    "filter": {"filter_epsilon": 0.0},
    "none": {"filter_epsilon": None},
    "random": {"filter_epsilon": 0.0, "loss": partial(as_many_left_out, choice="random")},
    "hardest": {"filter_epsilon": 0.0, "loss": partial(as_many_left_out, choice="hardest")},
    "margin": {"filter_epsilon": -0.05},
    "answers": {"filter_epsilon": 0.0, "loss": counted_as_answers},
}


def train_controls(
    recipe: Recipe, batch_size: int, cluster_size: int, steps: int, seed: int, seeds: int
) -> pd.DataFrame:
    """Rows of `sweep` for a bi-encoder with each of `ARMS`, and with tf-idf as the filter's judge
    ("tf-idf"), on the sets out of domain; and `left_out`, the share of negatives that each run's
    loss leaves out.
    """
    length = {"steps": steps, "warmup_steps": max(1, steps // 10)}
    sizes = {"batch_size": batch_size, "cluster_size": cluster_size, **length}
    shared = {"architecture": "bi-encoder", "batches": "cluster", **sizes}
    judge = save_tf_idf(recipe.pairs, recipe.base.surrogate_tokens)
    every = {**ARMS, "tf-idf": {"filter_epsilon": 0.0, "filter_surrogate": judge}}
    arms = {name: {**shared, **arm} for name, arm in every.items()}
    rows = sweep(arms, range(seed, seed + seeds), recipe, tests=recipe.out_of_domain())
    shares = [
        {"arm": arm, "seed": one, "left_out": recipe.train(arms[arm], one).metrics["masked"].mean()}
        for arm, one in rows[["arm", "seed"]].drop_duplicates().itertuples(index=False)
    ]
    return rows.merge(pd.DataFrame(shares), on=["arm", "seed"])

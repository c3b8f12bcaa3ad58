"""The contrastive loss (InfoNCE) with filtered negatives, hard negatives and a symmetric form.

For unit vectors q_i and d_j, logits are cos(q_i, d_j) / τ (CDE: τ = 0.02), and the loss is the mean
over queries of −log softmax at the labelled document (Eq. 4). What is masked is left out of the
denominator. Documents are those of the batch, then the hard negatives, those of query 0 first.

Of many rows, the logits of a block (4 MiB) are held at a time, and computed again for the backward
pass.
"""

from __future__ import annotations

import functools
import inspect
import json
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import normalize
from torch.utils.checkpoint import checkpoint

from cde.storage import content_hash
from cde.validation import checked_number, checked_switch, shown

__all__ = ["ContrastiveLoss", "contrastive_loss"]

#: what a masked logit loses: as in the authors' code, enough for any temperature
_MASKED = 1e10
_LOGITS, _LEAST = 2**20, 64  # logits held at once (4 MiB), and at least so many rows of them


@dataclass(frozen=True)
class ContrastiveLoss:
    """The loss of a batch and what goes with it.

    Attributes:
        loss: a scalar tensor, in nats, with its graph.
        accuracy: the share of queries whose best unmasked document is a labelled one.
        masked: the share of in-batch negatives that were left out.
    """

    loss: Tensor
    accuracy: float
    masked: float


class Loss(Protocol):
    """What `Trainer` and `cde.train` take in place of `contrastive_loss`, and how they call it."""

    def __call__(
        self,
        queries: Tensor,
        documents: Tensor,
        temperature: float,
        *,
        masked: Tensor,
        symmetric: bool,
        hardness: float,
    ) -> ContrastiveLoss:
        """The loss of a batch; arguments as for `contrastive_loss`."""


_PLAIN = str | int | float


def loss_key(loss: Loss) -> str:
    """What tells a loss apart from others (`source_of`)."""
    return content_hash(source_of(loss, "loss"))


def source_of(given: object, name: str) -> tuple[str, str]:
    """A function's own source, and the settings that it has by `functools.partial` and by names of
    its module for numbers and texts. What it calls is not looked into.
    """
    function, settings = given, ""
    try:
        if isinstance(given, functools.partial):
            function = given.func
            settings = json.dumps([given.args, given.keywords], sort_keys=True)
        if not inspect.isfunction(function):
            raise TypeError("no function")
        source = inspect.getsource(function)
    except (OSError, TypeError) as error:
        raise ValueError(
            f"{name} must be a function whose source can be read, or functools.partial of one with "
            f"numbers and texts; it is {shown(given)}"
        ) from error
    if function.__closure__:
        raise ValueError(
            f"{name} uses variables of the function around it: make them arguments, and give them "
            "with functools.partial"
        )
    named = inspect.getclosurevars(function).globals
    if plain := {name: value for name, value in named.items() if isinstance(value, _PLAIN)}:
        settings += json.dumps(plain, sort_keys=True)
    return source, settings


def contrastive_loss(
    queries: Tensor,
    documents: Tensor,
    temperature: float = 0.02,
    masked: Tensor | None = None,
    positives: Tensor | None = None,
    symmetric: bool = False,
    hardness: float = 0.0,
) -> ContrastiveLoss:
    """InfoNCE over a batch.

    Args:
        queries: `(n, dim)`, of any length: they are brought to length 1 here.
        documents: `(m, dim)`, m ≥ n; document i is labelled for query i.
        temperature: τ.
        masked: `(n, m)` bool, negatives to leave out (`cde.batching.negatives.false_negatives`); a
            labelled document is never left out.
        positives: `(n, m)` bool, where a query has several labelled documents: the target is
            uniform over them. By default document i alone.
        symmetric: add the loss of finding the query for each of the first n documents, and halve.
        hardness: α of a hardness-weighted loss: a negative's logit gains α times its cosine, which
            no gradient flows through. So it counts exp(α · cosine) times (Lan et al. 2025, Eq. 5;
            `hardness_mode="all_negatives"` in sentence-transformers).

    Returns:
        A `ContrastiveLoss`.

    Raises:
        ValueError: shapes that do not fit, a temperature that is not a number above 0, a query
            without a labelled document, or (symmetric) one of the first n documents without a
            labelled query.

    Example:
        >>> loss = contrastive_loss(torch.eye(2), torch.eye(2))
        >>> round(float(loss.loss), 3), loss.accuracy
        (0.0, 1.0)
    """
    n, m = len(queries), len(documents)
    tables = queries.ndim == documents.ndim == 2 and queries.shape[1] == documents.shape[1]
    if not tables or not 0 < n <= m:
        raise ValueError(
            f"queries {tuple(queries.shape)} and documents {tuple(documents.shape)} must be "
            "(n, dim) and (m, dim), m >= n > 0"
        )
    symmetric = checked_switch(symmetric, "symmetric")
    if checked_number(hardness, "hardness") < 0:
        raise ValueError(f"hardness must be 0 or more; it is {hardness}")
    if checked_number(temperature, "temperature") <= 0:
        raise ValueError(f"temperature must be above 0; it is {temperature}")
    for name, mask in (("masked", masked), ("positives", positives)):
        if mask is not None and not (isinstance(mask, Tensor) and mask.dtype == torch.bool):
            raise TypeError(f"{name} must be a bool tensor; it is {shown(mask)}")
        if mask is not None and mask.shape != (n, m):
            raise ValueError(f"{name} must be of shape {(n, m)}; it is {tuple(mask.shape)}")
    if positives is not None and not bool(positives.any(dim=1).all()):
        raise ValueError("a query has no labelled document among `positives`")
    if symmetric and positives is not None and not bool(positives[:, :n].any(dim=0).all()):
        raise ValueError(
            "a symmetric loss needs a labelled query for each of the first n documents of positives"
        )
    # in float32 whatever the encoder computed in: at a temperature of 0.02 bfloat16 rounds logits
    # to 0.2
    with torch.autocast(queries.device.type, enabled=False):
        queries, documents = (normalize(rows.float(), dim=-1) for rows in (queries, documents))
        scales = temperature, hardness
        loss, accuracy, left_out = _mean_loss(queries, documents, scales, masked, positives)
        if symmetric:
            turned, labels = (
                None if mask is None else mask[:, :n].T for mask in (masked, positives)
            )
            back, _, _ = _mean_loss(documents[:n], queries, scales, turned, labels)
            loss = (loss + back) / 2
    negatives = n * m - (n if positives is None else int(torch.count_nonzero(positives)))
    return ContrastiveLoss(loss, accuracy, left_out / negatives if negatives else 0.0)


def _mean_loss(
    queries: Tensor,
    documents: Tensor,
    scales: tuple[float, float],
    masked: Tensor | None,
    positives: Tensor | None,
) -> tuple[Tensor, float, int]:
    """Mean loss of rows, the share whose best document is a labelled one, and what was masked."""
    total, right, left_out = queries.new_zeros(()), 0, 0
    block = max(_LEAST, _LOGITS // len(documents))
    for start in range(0, len(queries), block):
        arguments = (queries, documents, scales, masked, positives, slice(start, start + block))
        if len(queries) > block:
            summed, hits, out = checkpoint(
                _loss_of_rows, *arguments, use_reentrant=False, preserve_rng_state=False
            )
        else:
            summed, hits, out = _loss_of_rows(*arguments)
        total, right, left_out = total + summed, right + int(hits), left_out + int(out)
    return total / len(queries), right / len(queries), left_out


def _loss_of_rows(
    queries: Tensor,
    documents: Tensor,
    scales: tuple[float, float],
    masked: Tensor | None,
    positives: Tensor | None,
    rows: slice,
) -> tuple[Tensor, Tensor, Tensor]:
    """Summed loss of a block of queries, how many are right, and how many negatives are masked."""
    temperature, hardness = scales
    cosines = queries[rows] @ documents.T
    # made here, so that the masks too are one block's at a time
    if positives is None:
        labelled = torch.zeros_like(cosines, dtype=torch.bool)
        labelled.diagonal(rows.start).fill_(True)
    else:
        labelled = positives[rows]
    left_out = torch.zeros_like(labelled) if masked is None else masked[rows] & ~labelled
    logits = cosines / temperature
    if hardness:
        logits = logits + hardness * cosines.detach().masked_fill(labelled, 0)
    if masked is not None:
        logits = logits.masked_fill(left_out, -_MASKED)
    # cross entropy with a target that is uniform over the labelled documents
    target = (logits * labelled).sum(dim=1) / torch.count_nonzero(labelled, dim=1)
    losses = logits.logsumexp(dim=1) - target
    best = cosines.detach().masked_fill(left_out, -_MASKED).argmax(dim=1, keepdim=True)
    return losses.sum(), labelled.gather(1, best).sum(), torch.count_nonzero(left_out)

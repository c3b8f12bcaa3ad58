"""Masked modelling, BERT's language-model task: name the tokens that a text lacks.

*Masking* (Devlin et al. 2019, §3.1). Of n tokens, round(0.15 n) are asked for. Of these 80 % are
replaced by the mask and 10 % by a random token; 10 % stay, so that a token that is there has to be
understood too. A token is named by the product of its place's state with the word embeddings, and a
bias that is thrown away after training. The loss is the mean over all tokens asked for.

It stands between a transformer with new positions and its training as an encoder, where the paper's
T5 has span corruption (`cde_studies.dwell.span_corruption`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, linear

from cde.hardware import half_precision
from cde.models import BiEncoder
from cde.models.encoder import padded, tokenise
from cde_studies.dwell.language_modelling import Ids, bare_ids, train_on_stretches


class Masked(NamedTuple):
    """A text of which some tokens are asked for."""

    text: Ids
    places: NDArray[np.int64]
    target: Ids


def mask_tokens(ids: Ids, words: Ids, mark: int, generator: np.random.Generator) -> Masked:
    """Ask for some of a text's tokens."""
    count = max(1, round(0.15 * len(ids)))
    places = np.sort(generator.choice(len(ids), count, replace=False))
    kind, drawn = generator.random(count), generator.choice(words, count)
    text = ids.copy()
    text[places[kind < 0.8]] = mark
    others = kind >= 0.9
    text[places[others]] = drawn[others]
    return Masked(text, places, ids[places])


def masked_loss(
    model: BiEncoder, rows: Sequence[Masked], bias: Tensor | None = None
) -> tuple[Tensor, float]:
    """Mean loss of a token asked for, in nats, and the share of them that is ranked first."""
    first, last = (row[None] for row in tokenise(model.tokenizer, [""], 2)[0])
    whole = [np.concatenate([first, row.text, last]) for row in rows]
    ids, mask = padded(whole, model.tokenizer.pad_token_id or 0, model.device)
    which = np.repeat(np.arange(len(rows)), [len(row.places) for row in rows])
    places = np.concatenate([row.places for row in rows]) + len(first)
    target = torch.from_numpy(np.concatenate([row.target for row in rows]).astype(np.int64))
    target = target.to(model.device)
    half = half_precision(model.precision)
    with torch.autocast(model.device.type, torch.bfloat16, enabled=half):
        states, _ = model.token_states(ids, mask)
        words = model.backbone.get_input_embeddings().weight
        scores = linear(states[torch.from_numpy(which), torch.from_numpy(places)], words, bias)
    accuracy = float((scores.argmax(dim=-1) == target).float().mean())
    return cross_entropy(scores.float(), target), accuracy


def pretrain_masked(
    model: BiEncoder, texts: Sequence[str], folder: Path, **settings: Any
) -> list[dict[str, float]]:
    """Train an encoder on masked modelling, in place; see `train_on_stretches`."""
    tokenizer = model.tokenizer
    every = np.arange(len(tokenizer), dtype=np.int32)
    words = np.setdiff1d(every, np.array(tokenizer.all_special_ids, dtype=np.int32))
    size = model.backbone.get_input_embeddings().weight.shape[0]
    bias = nn.Parameter(torch.zeros(size, device=model.device))
    trained = nn.Module()  # what the optimiser moves: the encoder, and a bias of its vocabulary
    trained.encoder, trained.bias = model, bias

    def gradients(batch: list[Masked]) -> tuple[float, float]:
        loss, accuracy = masked_loss(model, batch, bias)
        loss.backward()  # type: ignore[no-untyped-call]
        return float(loss.detach()), accuracy

    return train_on_stretches(
        trained,
        [row for row in bare_ids(tokenizer, texts) if len(row)],
        texts,
        folder,
        lambda ids, generator: mask_tokens(ids, words, tokenizer.mask_token_id, generator),
        gradients,
        task="masked modelling",
        **settings,
    )

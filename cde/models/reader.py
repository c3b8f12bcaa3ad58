"""A gated reader: text tokens read the context vectors once, before the first layer (ours).

The paper puts context vectors into the sequence (§4.2), and the layers have to find out what they
are for. Here a token x_i asks the J context vectors c_j how common it is among them::

    s_ij = β cos(W_q x_i + b_q, W_k c_j + b_k)
    a_ij = exp(s_ij) / (J exp(σ) + Σ_j exp(s_ij))
    x_i  ← x_i + γ Σ_j a_ij (W_v c_j + u)

The place σ takes what fits nothing. So Σ_j a_ij is a soft document frequency: near 0 for a token
that no context vector holds, near 1 for one that many hold, whatever J is. Two choices make the
skill easy to learn, as the chapter `learning_to_read` shows:

- γ starts at zero. An untrained encoder is the plain transformer, and no context costs nothing.
- W_q and W_k start equal, and whiten the embeddings of words: a token fits the context vectors that
  hold its word, and hardly any other. This asks for context vectors made of word embeddings: a
  first stage of no layers, with shared word embeddings.

Cost: J times the width a token, once: of the order of one attention head of one layer.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

__all__ = ["ContextReader", "context_as_tokens"]

#: Adam's steps do not grow with what they change: γ, u, β and σ are multiples of their parameters,
#: so that the gate opens within a hundred steps
_PACE = 32.0
_WIDTH = 128
_BETA, _SIGMA = 10.0, 1.5


class ContextReader(nn.Module):
    """Reads context vectors into text tokens, through a gate that starts at zero."""

    def __init__(self, dim: int, matched: bool = True) -> None:
        super().__init__()
        width = min(_WIDTH, dim)
        self.matched = matched
        self.query, self.key = nn.Linear(dim, width), nn.Linear(dim, width)
        self.value = nn.Linear(dim, dim, bias=False)
        self.direction = nn.Parameter(torch.randn(dim) / 2 / _PACE)
        self.scale = nn.Parameter(torch.tensor(_BETA / _PACE))
        self.nothing = nn.Parameter(torch.tensor(_SIGMA / _PACE))
        self.gate = nn.Parameter(torch.zeros(()))

    @torch.no_grad()
    def match(self, words: Tensor) -> None:
        """Let queries and keys whiten these vectors: their first principal components, each of
        variance 1. Nothing happens if the reader is not `matched`.
        """
        if not self.matched:
            return
        words = words.float()
        mean = words.mean(dim=0)
        variances, directions = torch.linalg.eigh(torch.cov(words.T))
        kept = slice(-self.query.out_features, None)
        # a component without variance tells no words apart
        scales = variances[kept].clamp(min=1e-6 * float(variances[-1])).rsqrt()
        whitening = scales[:, None] * directions[:, kept].T
        for part in (self.query, self.key):
            part.weight.copy_(whitening)
            part.bias.copy_(-whitening @ mean)

    def shares(self, text: Tensor, context: Tensor, dropped: Tensor | None = None) -> Tensor:
        """The shares a_ij of each context vector in what each token reads; what is missing to 1 is
        read nowhere.

        Returns:
            `(batch, T, J)`. Their sum over J is a token's soft document frequency.
        """
        asked, keys = normalize(self.query(text), dim=-1), normalize(self.key(context), dim=-1)
        scores = _PACE * self.scale * (asked @ keys.transpose(1, 2)).float()
        if dropped is not None:
            scores = scores.masked_fill(dropped[:, None], -torch.inf)
        nothing = _PACE * self.nothing + math.log(max(1, context.shape[1]))
        nowhere = nothing.expand(*scores.shape[:2], 1)
        return torch.cat([scores, nowhere], dim=-1).softmax(dim=-1)[..., :-1]

    def forward(self, text: Tensor, context: Tensor, dropped: Tensor | None = None) -> Tensor:
        """Text tokens that have read the context.

        Returns:
            `(batch, T, dim)`.
        """
        context = context.to(text.dtype)
        shares = self.shares(text, context, dropped).to(text.dtype)
        told = self.value(context) + _PACE * self.direction
        added: Tensor = _PACE * self.gate * (shares @ told.expand(len(text), -1, -1))
        return text + added.to(text.dtype)


def context_as_tokens(context: Tensor, per_document: int, dim: int, batch: int) -> Tensor:
    """Context vectors as tokens, `(1, J, dim)` where a batch shares them, else `(batch, J,
    dim)`.
    """
    shared = 2 if per_document == 1 else 3
    if context.ndim not in (shared, shared + 1) or context.shape[-1] != dim:
        part = "" if per_document == 1 else f"{per_document}, "
        raise ValueError(
            f"the context must be of shape (documents, {part}{dim}), or (batch, documents, "
            f"{part}{dim}) with one context a text; it is of shape {tuple(context.shape)}"
        )
    if per_document > 1 and context.shape[-2] != per_document:
        raise ValueError(
            f"the model takes {per_document} vectors a context document; this context has "
            f"{context.shape[-2]}"
        )
    tokens = context[None] if context.ndim == shared else context
    tokens = tokens.flatten(1, 2) if per_document > 1 else tokens
    if len(tokens) not in (1, batch):
        raise ValueError(
            f"{len(tokens)} contexts were given for a batch of {batch} texts: one each, or "
            "one for all"
        )
    return tokens

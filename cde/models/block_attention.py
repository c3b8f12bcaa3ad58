"""Attention in bfloat16 on a CPU over many keys: scores of a block of queries, softmax, sum.

torch's fused kernel never writes scores down, which is what a GPU needs. On a CPU with fast
bfloat16 products it multiplies small tiles at a seventh of the speed of whole matrices, and from
some hundred keys on takes longer than all other work of a small encoder. Here each text's scores
are one product of matrices for 128 queries at a time, few enough to stay in the cache. Padding is
cut off, text by text, not masked.

Cost: n queries over m keys in d dimensions and h heads are 4 n m d h operations in products, and
n m h exponentials, which limit it; 128 m h scores are in memory. Half the time of torch's kernel at
512 keys, a fifth to a third less in all of a six-layer encoder (`benchmarks/encode.py`). Scores and
weights are rounded to bfloat16, where torch's kernel keeps scores: a text's vector stays at a
cosine of 0.9999 to the one in float32 either way.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["attend_in_blocks", "blocks_are_faster"]

#: from so many keys on; shorter texts, and so the numbers of all chapters, stay with torch's kernel
_LEAST_KEYS = 256
_QUERIES = 128  # in one block


def blocks_are_faster(query: Tensor, key: Tensor, mask: Tensor | None) -> bool:
    """Whether a call is one for `attend_in_blocks`: many keys, bfloat16, a CPU, no gradient, and a
    mask that hides keys from all queries alike.
    """
    if query.device.type != "cpu" or key.shape[2] < _LEAST_KEYS or torch.is_grad_enabled():
        return False
    if torch.is_autocast_enabled("cpu"):
        if torch.get_autocast_dtype("cpu") != torch.bfloat16:
            return False
    elif query.dtype != torch.bfloat16:
        return False
    return mask is None or (mask.dtype == torch.bool and mask.shape[2] == 1)


def attend_in_blocks(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scaling: float | None
) -> Tensor:
    """Scaled dot product attention in bfloat16, without a gradient.

    Returns:
        `(batch, n, heads, head_dim)` bfloat16. A query that the mask hides as a key gets zeros: no
        one reads it.
    """
    query, key, value = (states.to(torch.bfloat16) for states in (query, key, value))
    batch, heads, count, head_dim = query.shape
    scaling = head_dim**-0.5 if scaling is None else scaling
    attended = query.new_zeros(batch, count, heads, head_dim)
    for text in range(batch):
        queries, keys, values = query[text], key[text], value[text]
        into = attended[text]
        own = None
        if mask is not None:
            seen = mask[text if len(mask) > 1 else 0, 0, 0]
            if not bool(seen.all()):
                keys, values = keys[:, seen], values[:, seen]
                own = seen[len(seen) - count :].nonzero().flatten()
                queries = queries[:, own]
        turned = keys.transpose(1, 2)
        blocks = [
            torch.bmm(
                torch.softmax(
                    torch.baddbmm(queries.new_empty(1), block, turned, beta=0, alpha=scaling),
                    dim=-1,
                ),
                values,
            )
            for block in torch.split(queries, _QUERIES, dim=1)
        ]
        done = torch.cat(blocks, dim=1).transpose(0, 1)
        if own is None:
            into.copy_(done)
        else:
            into.index_copy_(0, own, done)
    return attended

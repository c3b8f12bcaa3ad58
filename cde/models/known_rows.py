"""Weights without the rows of word embeddings that are MiniLM's own.

An encoder that starts from MiniLM and trains for some minutes meets a few hundred words of thirty
thousand. Without weight decay all other rows of its word embeddings stay what they were, to the
bit, and they are nine tenths of its file. The store of runs keeps the changed rows alone, and
`from_pretrained` takes the others from the package that carries MiniLM, whose digest is checked.

Cost: one comparison of the table with MiniLM's, 12 million numbers; reading it, some hundredths of
a second.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from safetensors import safe_open
from torch import Tensor

from cde.surrogate import minilm_folder

__all__ = ["with_known_rows", "without_known_rows"]

_CHANGED, _VALUES = "@changed-rows-of-minilm", "@values"
_WORDS = "embeddings.word_embeddings.weight"


def _known() -> Tensor:
    """MiniLM's word embeddings, `(30522, 384)` float32."""
    with safe_open(minilm_folder() / "model.safetensors", "pt") as file:
        words: Tensor = file.get_tensor(_WORDS)
    return words


def without_known_rows(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors by name, in which a table of word embeddings of which most rows are MiniLM's, bit by
    bit, is replaced by its other rows and their numbers. All else stays as it is.
    """
    kept = dict(tensors)
    names = [name for name, tensor in tensors.items() if _alike(name, tensor)]
    if not names:
        return kept
    known = _known()
    for name in names:
        table = tensors[name].detach().cpu()
        if table.shape != known.shape:
            continue
        # as whole numbers: 0.0 equals -0.0, and a NaN equals nothing
        differs = (table.view(torch.int32) != known.view(torch.int32)).any(dim=1)
        rows = differs.nonzero().flatten().to(torch.int32)
        if 2 * len(rows) < len(known):
            del kept[name]
            kept[name + _CHANGED], kept[name + _VALUES] = rows, table[rows.long()]
    return kept


def _alike(name: str, tensor: Tensor) -> bool:
    return name.endswith(_WORDS) and tensor.ndim == 2 and tensor.dtype == torch.float32


def with_known_rows(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What `without_known_rows` left out, put back: the same tensors, to the bit."""
    whole = dict(tensors)
    for changed in [name for name in tensors if name.endswith(_CHANGED)]:
        name = changed.removesuffix(_CHANGED)
        rows, values = whole.pop(changed).long(), whole.pop(name + _VALUES, None)
        table = _known().clone()
        if (
            values is None
            or values.shape != (len(rows), table.shape[1])
            or (len(rows) and not (0 <= int(rows.min()) <= int(rows.max()) < len(table)))
        ):
            raise ValueError(
                f"{name} is kept as rows that differ from MiniLM's {tuple(table.shape)}, and these "
                "rows do not fit it: the file is damaged, or another program wrote it"
            )
        table[rows] = values
        whole[name] = table
    return whole

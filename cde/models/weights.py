"""Weights from files and dictionaries into encoders: complete, of the right shape, finite, or an
error.

`transformers` fills what a checkpoint lacks with random numbers and a warning. An embedding from
such a model looks like any other, so here every tensor must be found, and nothing may be left over.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import AutoModel
from transformers.utils import logging

from cde.data.readers import notice_being_offline
from cde.models.backbones import family_of, truncate
from cde.surrogate import minilm_folder
from cde.validation import checked_path, shown

_CHANGED, _VALUES = "@changed-rows-of-minilm", "@values"
_WORD_ROWS = "embeddings.word_embeddings.weight"


def _known() -> Tensor:
    """MiniLM's word embeddings, `(30522, 384)` float32."""
    with safe_open(minilm_folder() / "model.safetensors", "pt") as file:
        words: Tensor = file.get_tensor(_WORD_ROWS)
    return words


def without_minilm_rows(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors by name; of a table of words that is mostly MiniLM's, bit by bit, the other rows."""
    kept = dict(tensors)
    for name, tensor in tensors.items():
        if not name.endswith(_WORD_ROWS) or tensor.dtype != torch.float32:
            continue
        table, known = tensor.detach().cpu(), _known()
        if table.shape != known.shape:
            continue
        # as whole numbers: 0.0 equals -0.0, and a NaN equals nothing
        differs = (table.view(torch.int32) != known.view(torch.int32)).any(dim=1)
        rows = differs.nonzero().flatten().to(torch.int32)
        if 2 * len(rows) < len(known):
            del kept[name]
            kept[name + _CHANGED], kept[name + _VALUES] = rows, table[rows.long()]
    return kept


def with_minilm_rows(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What `without_minilm_rows` left out, put back: the same tensors, to the bit."""
    whole = dict(tensors)
    for changed in [name for name in tensors if name.endswith(_CHANGED)]:
        name = changed.removesuffix(_CHANGED)
        rows, values = whole.pop(changed).long(), whole.pop(name + _VALUES, None)
        table = _known().clone()
        inside = not len(rows) or 0 <= int(rows.min()) <= int(rows.max()) < len(table)
        if values is None or values.shape != (len(rows), table.shape[1]) or not inside:
            raise ValueError(
                f"{name} is kept as rows that differ from MiniLM's {tuple(table.shape)}, and these "
                "rows do not fit it: the file is damaged, or another program wrote it"
            )
        table[rows] = values
        whole[name] = table
    return whole


def fetch_folder(path_or_repository: str | Path, revision: str | None = None, **hub: Any) -> Path:
    """The folder of a model, by path, by the name "minilm", or from the Hub."""
    checked_path(path_or_repository, "model")
    name = str(path_or_repository)
    if os.path.isdir(name):  # Path's own raises on a name that is too long
        return Path(name)
    if name == "minilm":
        return minilm_folder()
    from huggingface_hub import snapshot_download

    notice_being_offline()
    try:
        patterns = ["*.json", "*.safetensors", "*.txt", "*.model"]
        return Path(snapshot_download(name, revision=revision, allow_patterns=patterns, **hub))
    except Exception as error:  # of a dozen kinds; all mean that there is no model
        raise ConnectionError(
            f"no model {shown(name)}: it is not a folder here, and the Hub has none of that "
            f"name or is out of reach ({type(error).__name__}). Accepted are 'minilm' (offline), "
            "the path of a folder, or a Hub repository"
        ) from error


def start_folder(path_or_repository: str | Path) -> Path:
    """As `fetch_folder`; "minilm" is the one that is built in, whatever folders are here."""
    return minilm_folder() if path_or_repository == "minilm" else fetch_folder(path_or_repository)


def read_config(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    if not path.is_file():
        raise FileNotFoundError(f"{folder} holds no model: there is no config.json in it")
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON: {error}") from error
    if not isinstance(values, dict):
        raise ValueError(f"{path} must hold an object; it holds a {type(values).__name__}")
    return values


def read_weights(folder: Path) -> dict[str, Tensor]:
    """All tensors of a folder's `model.safetensors`, or else of all its `.safetensors`."""
    whole = folder / "model.safetensors"
    parts = [whole] if whole.is_file() else sorted(folder.glob("*.safetensors"))
    if not parts:
        unread = "; pytorch_model.bin is not read, since it can run code: convert it"
        hint = unread if (folder / "pytorch_model.bin").is_file() else ""
        raise FileNotFoundError(f"{folder} holds no weights: no file ends in .safetensors{hint}")
    tensors: dict[str, Tensor] = {}
    for part in parts:
        try:
            tensors.update(load_file(part))
        except (SafetensorError, OSError) as error:
            raise ValueError(f"{part} is cut short or damaged ({error}): get it again") from error
    return with_minilm_rows(tensors)


def fill(
    model: nn.Module,
    tensors: Mapping[str, Tensor],
    source: str,
    names: Mapping[str, str] | None = None,
    unplaced: Sequence[str] = (),
) -> None:
    """Copy tensors into a model: each must have its place and each place its tensor."""
    places = model.state_dict()
    called = {name: name for name in (*places, *tensors)} | dict(names or {})
    both = [(called[name], one, places[name]) for name, one in tensors.items() if name in places]
    problems = {
        "missing": [called[name] for name in places if name not in tensors],
        "unexpected": [*(called[name] for name in tensors if name not in places), *unplaced],
        "of another shape": [
            f"{name} {tuple(tensor.shape)}, expected {tuple(place.shape)}"
            for name, tensor, place in both
            if tensor.shape != place.shape
        ],
        "with NaN or infinite numbers": [
            name for name, tensor, _ in both if not bool(torch.isfinite(tensor).all())
        ],
        # copying would cast them: quantised weights come out as numbers that mean something else
        "of another kind of number": [
            f"{name} {tensor.dtype}, expected {place.dtype}".replace("torch.", "")
            for name, tensor, place in both
            if tensor.is_floating_point() != place.is_floating_point()
        ],
    }
    lines = [
        f"{kind}: {', '.join(dict.fromkeys(listed[:20]))}{', …' * (len(listed) > 20)}"
        for kind, listed in problems.items()
        if listed
    ]
    if lines:
        raise ValueError(f"the weights of {source} do not fit the model.\n" + "\n".join(lines))
    model.load_state_dict(dict(tensors))


def backbone_weights(
    path_or_repository: str | Path, layers: int | None = None, least: int = 1
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Config dictionary and tensors of a pretrained backbone, of its first `layers` layers."""
    folder = start_folder(path_or_repository)
    family = family_of(read_config(folder).get("model_type"))
    level = logging.get_verbosity()
    logging.set_verbosity_error()  # a pooler or a language-modelling head is left behind on purpose
    logging.disable_progress_bar()
    try:
        model, report = AutoModel.from_pretrained(
            folder, dtype=torch.float32, output_loading_info=True, trust_remote_code=False
        )
    except Exception as error:  # what three libraries raise for missing and damaged files
        raise ValueError(
            f"{folder} holds no weights that transformers can read: {str(error)[:300]}"
        ) from error
    finally:
        logging.set_verbosity(level)
    missing = [name for name in report["missing_keys"] if not name.startswith("pooler.")]
    if missing:
        lacking = f"missing: {', '.join(sorted(missing))}"
        raise ValueError(f"the weights of {path_or_repository} do not fit the model.\n{lacking}")
    values = truncate(model.config.to_dict(), layers, least)
    del model.get_submodule(family.layers)[values["num_hidden_layers"] :]
    tensors = model.state_dict().items()
    return values, {name: tensor for name, tensor in tensors if not name.startswith("pooler.")}

"""What searches, by the name that a user of the shell knows it by.

Cost: that of loading it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cde.hardware import Precision
from cde.lexical import BM25
from cde.models import ContextualEncoder, CorpusEncoder
from cde.models.encoder import kinds
from cde.models.weights import fetch_folder, read_config
from cde.surrogate import Surrogate

__all__ = ["named_system"]


def named_system(
    name: str, max_tokens: int | None = None, cache: bool = True, precision: Precision = "auto"
) -> Any:
    """An encoder or ranker by name."""
    path = Path(name).expanduser()
    if name != "minilm" and name != "bm25" and not path.is_dir() and "/" not in name:
        raise FileNotFoundError(
            f"no model {name!r}: accepted are minilm, bm25, a repository of the Hub, and the "
            "folder of a BiEncoder, ContextualEncoder, CorpusEncoder or sentence-transformers model"
        )
    system: Any = BM25() if name == "bm25" else None
    if name not in ("minilm", "bm25"):
        folder = fetch_folder(path if path.is_dir() else name)
        values = read_config(folder) if (folder / "config.json").is_file() else {}
        kind = kinds.get(str(values.get("model_type")))
        if kind is not None:
            kind = CorpusEncoder if values.get("context_drawn") else kind
            system = kind.from_pretrained(folder, precision=precision)
        elif "embedder" in values or values.get("architecture") == "transductive":
            system = ContextualEncoder.from_pretrained(folder, precision=precision)
        else:
            name = str(folder)
    if system is None:
        return Surrogate(name, max_tokens, precision, cache=cache)
    if max_tokens is not None:
        raise ValueError(f"{name} has a limit on tokens of its own: max_tokens is for minilm")
    return system

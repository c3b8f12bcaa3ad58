"""The cache folder, files that appear whole or not at all, and hashes of content.

Everything that `cde` computes once and keeps (embeddings, parsed docstrings, trained models)
lives below one folder, `$CDE_CACHE`, by default the platform's user cache. Deleting that folder
costs time and nothing else.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from cde.storage.disk import cache_root
from cde.storage.temporary import alone, atomic_path, remove_leftovers, temporary_folder

__all__ = [
    "alone",
    "atomic_path",
    "cache_folder",
    "content_hash",
    "remove_leftovers",
    "temporary_folder",
]


def cache_folder(*parts: str) -> Path:
    """Return a folder below the cache, made if it is missing."""
    folder = cache_root().joinpath(*parts)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PermissionError(
            f"cannot make the cache folder {folder} ({error.strerror}): "
            "set CDE_CACHE to a folder that can be written to"
        ) from error
    return folder


def content_hash(parts: Iterable[str | bytes], length: int = 16) -> str:
    """Hash a sequence of texts or bytes; where one part ends and the next begins counts."""
    state = hashlib.blake2b()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        state.update(len(data).to_bytes(8, "little"))
        state.update(data)
    return state.hexdigest()[:length]

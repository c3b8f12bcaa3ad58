"""What lies on a disk for long may come back changed: digests, and what to do with damaged files.

A file of the cache is believed only if it is what was written. A damaged one is told of in a
warning that names it, set aside under another name, and made again by whoever asked for it.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cde.storage.disk import disk_error
from cde.storage.temporary import atomic_path

__all__ = [
    "DamageWarning",
    "differing_file",
    "digest_of",
    "read_json",
    "read_sealed",
    "set_aside",
    "signed",
    "unsigned",
    "write_json",
    "write_sealed",
]

_SEAL = b"cde sealed "


class DamageWarning(UserWarning):
    """A file of the cache was damaged; it was set aside, and is made again."""


def digest_of(path: Path | str) -> str:
    """sha256 of a file's content."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def differing_file(folder: Path, files: Mapping[str, str]) -> tuple[str, str] | None:
    """The first file that is not what it was, and what is the matter with it; None if all are
    whole.
    """
    for name, expected in files.items():
        if not (folder / name).is_file():
            return name, "is missing"
        if (found := digest_of(folder / name)) != expected:
            return name, f"is damaged (its sha256 is {found[:8]}…, expected {expected[:8]}…)"
    return None


def set_aside(path: Path | str, reason: str) -> Path:
    """Rename a damaged file or folder, so that it is made again, with a warning that names it.

    Returns:
        Its new path, `<name>.damaged-<number>`, which may be deleted.
    """
    path = Path(path)
    number = 1
    while (aside := path.with_name(f"{path.name}.damaged-{number}")).exists():
        number += 1
    try:
        path.rename(aside)
    except FileNotFoundError:  # another process has set it aside
        return aside
    except OSError as error:
        raise disk_error(path, error.errno, f"it is damaged, {reason}; {error.strerror}") from error
    warnings.warn(
        f"{path} is damaged ({reason}): it was set aside as {aside.name}, which may be deleted, "
        "and its content is made again",
        DamageWarning,
        stacklevel=2,
    )
    return aside


def signed(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values with a sha256 over them all, by which `read_json` knows them again."""
    rest = {name: value for name, value in values.items() if name != "sha256"}
    text = json.dumps(rest, sort_keys=True)
    return {**rest, "sha256": hashlib.sha256(text.encode()).hexdigest()}


def unsigned(values: Any, since: str = "") -> dict[str, Any]:
    """The values without their sha256, which is checked."""
    if not isinstance(values, dict):
        raise ValueError("it is no JSON object")
    earlier = bool(since) and not {"sha256", since} & set(values)
    if not earlier and signed(values) != values:
        raise ValueError("its sha256 is not that of its content")
    return {name: value for name, value in values.items() if name != "sha256"}


def write_json(path: Path | str, values: Mapping[str, Any]) -> None:
    """Write values as JSON with their own sha256, whole or not at all."""
    # as they will be read: tuples are lists, and keys are strings
    kept = json.loads(json.dumps(values))
    with atomic_path(path) as temporary:
        temporary.write_text(json.dumps(signed(kept), indent=1) + "\n", encoding="utf-8")


def read_json(path: Path | str, since: str = "") -> dict[str, Any] | None:
    """The values that `write_json` wrote; None where there are none.

    A damaged file is set aside, with a warning.
    """
    path = Path(path)
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError) as error:
        set_aside(path, f"it is no JSON: {error}")
        return None
    try:
        return unsigned(values, since)
    except ValueError as error:
        set_aside(path, str(error))
        return None


def write_sealed(path: Path | str, data: bytes) -> None:
    """Write bytes after a line with their sha256, whole or not at all."""
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        file.write(_SEAL + hashlib.sha256(data).hexdigest().encode() + b"\n")
        file.write(data)


def read_sealed(path: Path | str) -> bytes | None:
    """The bytes that `write_sealed` wrote; None where there are none.

    A damaged file, or one without a seal, is set aside, with a warning.
    """
    path = Path(path)
    try:
        head, _, data = path.read_bytes().partition(b"\n")
    except FileNotFoundError:
        return None
    if head == _SEAL + hashlib.sha256(data).hexdigest().encode():
        return data
    set_aside(path, "its sha256 is not that of its content")
    return None

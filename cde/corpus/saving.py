"""An index as a folder: `index.json`, and beside it the texts, the vectors and the encoder.

The files' names hold a hash of what is in them, and `index.json` names them, with the sha256 of
each. It is written last: whoever reads the folder while it is saved, or after that was interrupted,
finds the old index or the new one. What the new one does not name is then deleted. Of the corpus
that the index was built of, its *origin*, the number of documents and their mean vector stay, so
that `cde.corpus.folders.drift` can tell how far the corpus has moved since.

Texts are lines of `{"id", "text"}`; vectors are a `.npy` of float32: other programs read both.

Cost: writing and hashing what is saved; a save writes the whole index.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cde.corpus.encoders import is_kept
from cde.storage import alone, atomic_path, differing_file, digest_of

__all__ = [
    "Origin",
    "Saved",
    "encoder_folder",
    "fingerprint",
    "locked",
    "read_index",
    "replaceable",
    "write_index",
]

_MANIFEST = "index.json"
_FORMAT, _VERSION = "cde.Index", 1
_OWN = re.compile(r"(texts-[0-9a-f]{16}\.jsonl|vectors-[0-9a-f]{16}\.npy|encoder-[0-9a-f]{16})")
_AGAIN = "take a copy of the folder, or build the index again from its texts and save it"


@dataclass(frozen=True)
class Origin:
    """The corpus that an index was built of: what is kept of it as documents come and go."""

    documents: int
    still: int
    mean: NDArray[np.float32]

    @classmethod
    def of(cls, vectors: NDArray[np.float32]) -> Origin:
        """That of a new index, from the vectors `(n, dim)` of its documents."""
        total = vectors.sum(axis=0, dtype=np.float64)
        mean = (total / max(len(vectors), 1)).astype(np.float32)
        return cls(len(vectors), len(vectors), mean)

    def keeping(self, rows: list[int]) -> Origin:
        """When only the documents at these rows stay."""
        return replace(self, still=sum(row < self.still for row in rows))

    def to_json(self) -> dict[str, Any]:
        """As a mapping that JSON can hold; the mean to its last bit."""
        mean = base64.b64encode(self.mean.astype("<f4").tobytes()).decode("ascii")
        return {"documents": self.documents, "still": self.still, "mean": mean}

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> Origin:
        """What `to_json` gave."""
        mean = np.frombuffer(base64.b64decode(saved["mean"]), "<f4").astype(np.float32)
        return cls(int(saved["documents"]), int(saved["still"]), mean)


@dataclass(frozen=True)
class Saved:
    """What a folder holds."""

    ids: list[str]
    texts: list[str]
    vectors: NDArray[np.float32]
    encoder: dict[str, Any]
    origin: Origin | None = None

    @classmethod
    def of(
        cls, ids: list[str], texts: list[str], vectors: NDArray[np.float32], encoder: dict[str, Any]
    ) -> Saved:
        """A new index, which is its own origin."""
        return cls(ids, texts, vectors, encoder, Origin.of(vectors))


def fingerprint(
    ids: Sequence[str],
    texts: Sequence[str],
    vectors: NDArray[np.float32],
    encoder: Mapping[str, Any],
) -> str:
    """sha256 over documents, vectors and the encoder's fingerprint."""
    state = hashlib.sha256(f"{encoder['fingerprint']} {vectors.shape}\n".encode())
    for line in _lines(ids, texts):
        state.update(line)
    state.update(np.ascontiguousarray(vectors).data)
    return state.hexdigest()


def write_index(folder: Path | str, saved: Saved, encoder: Any) -> Path:
    """Write an index into a new folder, an empty one, or one that holds an index."""
    folder = Path(folder).expanduser()
    replaceable(folder)
    with locked(folder):
        return _written(folder, saved, encoder)


def _written(folder: Path, saved: Saved, encoder: Any) -> Path:
    before = replaceable(folder)
    mark = fingerprint(saved.ids, saved.texts, saved.vectors, saved.encoder)
    files: dict[str, str] = {}
    texts, vectors = folder / f"texts-{mark[:16]}.jsonl", folder / f"vectors-{mark[:16]}.npy"
    with atomic_path(texts) as temporary, temporary.open("wb") as file:
        file.writelines(_lines(saved.ids, saved.texts))
    with atomic_path(vectors) as temporary, temporary.open("wb") as file:
        np.save(file, saved.vectors.astype("<f4", copy=False), allow_pickle=False)
    kept = [texts, vectors]
    if is_kept(saved.encoder):
        place = encoder_folder(folder, saved.encoder)
        known = {name: sha for name, sha in before.items() if Path(name).parent.name == place.name}
        # weights are many times a corpus: those that lie there whole are not written again
        if not known or differing_file(folder, known):
            encoder.save_pretrained(place)
        kept += sorted(path for path in place.iterdir() if path.is_file())
    for path in kept:
        files[path.relative_to(folder).as_posix()] = digest_of(path)
    manifest: dict[str, Any] = {
        "format": _FORMAT,
        "version": _VERSION,
        "documents": len(saved.ids),
        "dim": int(saved.vectors.shape[1]),
        "fingerprint": mark,
        "encoder": saved.encoder,
        "files": files,
        "origin": saved.origin and saved.origin.to_json(),
    }
    manifest["sha256"] = _own_sha256(manifest)
    with atomic_path(folder / _MANIFEST) as temporary:
        temporary.write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
    named = {Path(name).parts[0] for name in files}
    for path in folder.iterdir():
        if _OWN.fullmatch(path.name) and path.name not in named:
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    return folder


def read_index(folder: Path | str, with_encoder: bool = True) -> Saved:
    """Read what `write_index` wrote, each file checked against its sha256."""
    folder = Path(folder).expanduser()
    if not folder.is_dir():
        raise FileNotFoundError(f"no folder {folder}: index.save(folder) makes one")
    manifest = _read_manifest(folder)
    while True:
        try:
            return _read(folder, manifest, with_encoder)
        except (OSError, ValueError):
            # another process may have saved it meanwhile, and deleted what was named before
            before, manifest = manifest, _read_manifest(folder)
            if manifest == before:
                raise


def _read(folder: Path, manifest: Mapping[str, Any], with_encoder: bool) -> Saved:
    files = {
        name: sha
        for name, sha in manifest["files"].items()
        if with_encoder or not name.startswith("encoder-")
    }
    if damaged := differing_file(folder, files):
        raise ValueError(f"{folder / damaged[0]} {damaged[1]}: {_AGAIN}")
    texts, vectors = (
        next(folder / name for name in files if name.startswith(start))
        for start in ("texts-", "vectors-")
    )
    lines = texts.read_bytes().decode("utf-8", "surrogatepass").split("\n")[:-1]
    rows = [json.loads(line) for line in lines]
    return Saved(
        ids=[row["id"] for row in rows],
        texts=[row["text"] for row in rows],
        vectors=np.load(vectors, allow_pickle=False).astype(np.float32, copy=False),
        encoder=manifest["encoder"],
        origin=Origin.from_json(manifest["origin"]) if manifest.get("origin") else None,
    )


def locked(folder: Path) -> AbstractContextManager[bool]:
    """Change an index's folder in one process at a time; others wait."""
    return alone(folder / ".lock", f"the index {folder}")


def encoder_folder(folder: Path | str, record: Mapping[str, Any]) -> Path:
    """Where in an index's folder its encoder is, if it is kept."""
    return Path(folder).expanduser() / f"encoder-{record['fingerprint']}"


def _lines(ids: Sequence[str], texts: Sequence[str]) -> Iterator[bytes]:
    for name, text in zip(ids, texts, strict=True):
        line = json.dumps({"id": name, "text": text}, ensure_ascii=False)
        # half a pair of surrogates is a string to Python and no UTF-8
        yield f"{line}\n".encode("utf-8", "surrogatepass")


def _own_sha256(manifest: Mapping[str, Any]) -> str:
    """Of all that `index.json` says beside this."""
    rest = {name: value for name, value in manifest.items() if name != "sha256"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def _read_manifest(folder: Path) -> dict[str, Any]:
    path = folder / _MANIFEST
    if not path.is_file():
        held = ", ".join(sorted(entry.name for entry in folder.iterdir())[:5]) or "nothing"
        raise ValueError(
            f"{folder} holds no index: there is no {_MANIFEST} in it, but {held}. "
            "cde.Index.from_folder makes an index of a folder of texts"
        )
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is damaged ({error}): {_AGAIN}") from error
    if not isinstance(manifest, dict) or manifest.get("format") != _FORMAT:
        raise ValueError(f"{path} was not written by cde.Index.save: {folder} holds no index")
    if manifest.get("version") != _VERSION:
        raise ValueError(
            f"{folder} holds an index of version {manifest.get('version')!r}, and this cde reads "
            f"version {_VERSION}: use a newer cde, or build the index again with this one"
        )
    if _own_sha256(manifest) != manifest.get("sha256"):
        raise ValueError(f"{path} is damaged (its sha256 is not that of its content): {_AGAIN}")
    return manifest


def replaceable(folder: Path) -> dict[str, str]:
    """The files, with their sha256, of the index that a folder holds; none for a new one, which is
    made.
    """
    if folder.exists() and not folder.is_dir():
        raise FileExistsError(f"{folder} is a file; an index is saved as a folder: name another")
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / _MANIFEST).exists():
        # what a first save leaves that was interrupted is its own, and not in the way
        others = sorted(
            path.name
            for path in folder.iterdir()
            if not _OWN.fullmatch(path.name) and not path.name.startswith(".")
        )
        if others:
            raise FileExistsError(
                f"{folder} holds other files ({', '.join(others[:3])}) and no index: name a new "
                "folder, or an empty one"
            )
        return {}
    try:
        return dict(_read_manifest(folder)["files"])
    except ValueError as error:
        raise FileExistsError(f"{error}. To save here, empty the folder first") from error

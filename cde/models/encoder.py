"""What all encoders have in common: tokenizer, saving and loading, attention kernel, precision.

And what a trainer asks of any of them: how to embed a batch, whether it reads a corpus, and how
many tokens of context stand beside each text.
"""

from __future__ import annotations

import copy
import errno
import json
import os
from abc import abstractmethod
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import AutoTokenizer, PreTrainedModel
from transformers.utils import is_flash_attn_2_available

from cde.hardware import Precision
from cde.models.weights import fetch_folder
from cde.progress import progress
from cde.quantised import multiplying
from cde.retrieval.systems import Role, SentenceMethods
from cde.storage import disk_error, temporary_folder
from cde.validation import encodable

__all__ = [
    "SENTENCE_FILES",
    "Encoder",
    "PromptedEncoder",
    "TextEncoder",
    "encode_texts",
    "encoder_class",
    "load_tokenizer",
    "padded",
    "prefixed",
    "save_folder",
    "token_batches",
    "tokenise",
    "write_sentence_files",
]

#: names of the files
SENTENCE_FILES = ("config_sentence_transformers.json", "modules.json", "sentence_bert_config.json")


def write_sentence_files(folder: Path, config: Any, max_tokens: int) -> None:
    """Write the files into a folder."""
    modules = "sentence_transformers.base.modules"
    whole = {"method": "forward", "method_output_name": None}  # what forward gives is the embedding
    contents: tuple[Any, ...] = (
        {
            "model_type": "SentenceTransformer",
            "prompts": {"query": config.query_prefix, "document": config.document_prefix},
            "default_prompt_name": None,
            "similarity_fn_name": "cosine",
        },
        [
            {"idx": 0, "name": "0", "path": "", "type": f"{modules}.Transformer"},
            {"idx": 1, "name": "1", "path": "1_Normalize", "type": f"{modules}.Normalize"},
        ],
        {
            "transformer_task": "feature-extraction",
            "modality_config": {"text": whole},
            "module_output_name": "sentence_embedding",
            "max_seq_length": max_tokens,
        },
    )
    for name, content in zip(SENTENCE_FILES, contents, strict=True):
        (folder / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


Vectors = NDArray[np.float32]
Forward = Callable[[Tensor, "Tensor | None"], Tensor]

_PORTION = 20_000  # texts tokenised at once


def tokenise(tokenizer: Any, texts: list[str], max_tokens: int) -> list[NDArray[np.int32]]:
    """Token ids of each text, special tokens included, cut to `max_tokens`."""
    ids: list[NDArray[np.int32]] = []
    for start in range(0, len(texts), _PORTION):
        encoded = tokenizer(
            texts[start : start + _PORTION],
            truncation=True,
            max_length=max_tokens,
            return_attention_mask=False,
            return_token_type_ids=False,
        )
        ids.extend(np.array(row, dtype=np.int32) for row in encoded["input_ids"])
    return ids


def token_batches(
    lengths: Sequence[int], work: int, extra: int = 0, most: int | None = None
) -> list[list[int]]:
    """Indices of texts in batches of about equal work, longest first."""
    order = sorted(range(len(lengths)), key=lambda index: -lengths[index])
    batches: list[list[int]] = []
    room = 0
    for index in order:
        if not batches or len(batches[-1]) >= room:
            batches.append([])
            room = max(1, work // max(1, lengths[index] + extra))
            room = room if most is None else min(room, most)
        batches[-1].append(index)
    return batches


def padded(
    rows: Sequence[NDArray[np.int32]], padding: int, device: torch.device
) -> tuple[Tensor, Tensor | None]:
    """Token ids of texts as one batch, padded on the right: `(n, T)` int64 and the bool mask, None
    where full.
    """
    length = max(len(row) for row in rows)
    ids = np.full((len(rows), length), padding, dtype=np.int64)
    for place, row in zip(ids, rows, strict=True):
        place[: len(row)] = row
    on_device = torch.from_numpy(ids).to(device)
    if all(len(row) == length for row in rows):
        return on_device, None
    lengths = torch.tensor([len(row) for row in rows], device=device)
    return on_device, torch.arange(length, device=device)[None] < lengths[:, None]


def encode_texts(
    texts: Sequence[str],
    tokenizer: Any,
    forward: Forward,
    *,
    shape: tuple[int, ...],
    max_tokens: int,
    device: torch.device,
    prefix: str = "",
    precision: Precision = "auto",
    work: int = 4096,
    extra: int = 0,
    most: int | None = None,
    normalise: bool = True,
    description: str = "embedding",
) -> Vectors:
    """Vectors of texts, in their order.

    Returns:
        `(n, …, dim)` float32.
    """
    wanted = [prefix + text for text in encodable(texts)]
    if tokenizer is None:
        raise ValueError(
            "the encoder has no tokenizer: set encoder.tokenizer, or pass token ids to its stages"
        )
    if not wanted:
        return np.zeros((0, *shape), np.float32)
    distinct = list(dict.fromkeys(wanted))
    rows = tokenise(tokenizer, distinct, max_tokens)
    batches = token_batches([len(row) for row in rows], work, extra, most)
    padding = tokenizer.pad_token_id or 0
    by_batch: list[Tensor] = []
    with torch.inference_mode(), multiplying(precision, device):
        for batch in progress(batches, f"{description} {len(distinct):,} texts", unit="batches"):
            vectors = forward(*padded([rows[index] for index in batch], padding, device)).float()
            by_batch.append(
                (torch.nn.functional.normalize(vectors, dim=-1) if normalise else vectors).cpu()
            )
    in_order = torch.cat(by_batch).numpy()
    if not np.isfinite(in_order).all():
        raise ValueError(
            "the model gave vectors that are not finite; check its weights, or take "
            "precision='float32'"
        )
    result = np.empty_like(in_order)
    result[np.concatenate([np.array(batch) for batch in batches])] = in_order
    places = {text: place for place, text in enumerate(distinct)}
    return np.asarray(result[[places[text] for text in wanted]], dtype=np.float32)


class PromptedEncoder(SentenceMethods):
    """`encode_queries`, `encode_documents` and `embed` by one method; not used by itself."""

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Unit vectors of texts with no prefix before them, `(n, dim)` float32."""
        return self._vectors(texts, "")

    def encode_queries(self, texts: Sequence[str], prefix: str | None = None) -> Vectors:
        """Unit vectors of queries, `(n, dim)` float32: CDE's ψ(q), or ψ(q; D) in a context."""
        return self._vectors(texts, "query", prefix=prefix)

    def encode_documents(self, texts: Sequence[str], prefix: str | None = None) -> Vectors:
        """Unit vectors of documents, `(n, dim)` float32: CDE's ϕ(d), or ϕ(d; D) in a context."""
        return self._vectors(texts, "document", prefix=prefix)

    @abstractmethod
    def _vectors(
        self,
        texts: Sequence[str],
        role: Role,
        batch_size: int | None = None,
        prefix: str | None = None,
    ) -> Vectors:
        """Unit vectors, with a prefix, or that of their role, before each text."""


_TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "vocab.txt",
)
#: texts come out of a batch of about so many tokens; more only helps where thousands of cores wait
_WORK = {"cpu": 4096, "cuda": 131072}

#: model type → class, of every encoder that has been defined: how a saved folder finds its class
_classes: dict[str, Any] = {}


def encoder_class(model_type: Any) -> Any:
    """The class of the encoders whose saved config is of this type; None if it is not imported."""
    for own in ("bi_encoder", "contextual"):
        import_module(f"cde.models.{own}")
    return _classes.get(str(model_type))


def load_tokenizer(path_or_repository: str | Path) -> Any:
    """The tokenizer of a folder, of "minilm", or of a Hub repository."""
    folder = fetch_folder(path_or_repository)
    try:
        return AutoTokenizer.from_pretrained(str(folder), trust_remote_code=False)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{folder} holds no tokenizer that transformers can read: {error}"
        ) from error


def save_folder(
    directory: str | Path,
    config: Any,
    tensors: dict[str, Tensor],
    tokenizer: Any,
    sentence_tokens: int | None = None,
) -> Path:
    """Write config, weights and tokenizer; each file under a temporary name first, then renamed."""
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    with temporary_folder(directory, "saving") as temporary:
        config.save_pretrained(temporary)
        whole = {
            name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()
        }
        try:
            save_file(whole, temporary / "model.safetensors", metadata={"format": "pt"})
        except SafetensorError as error:  # which is how it words a disk that is full
            raise disk_error(directory, errno.ENOSPC, str(error)) from error
        if tokenizer is not None:
            _unused(tokenizer).save_pretrained(temporary)
        if tokenizer is not None and sentence_tokens is not None:
            write_sentence_files(temporary, config, sentence_tokens)
        # a folder with a config is complete: the old one goes first, the new one comes last
        for stale in (
            "config.json",
            "model.safetensors.index.json",
            *((*_TOKENIZER_FILES, *SENTENCE_FILES) if tokenizer is None else ()),
        ):
            (directory / stale).unlink(missing_ok=True)
        for path in sorted(temporary.iterdir(), key=lambda path: path.name == "config.json"):
            os.replace(path, directory / path.name)
    return directory


def _unused(tokenizer: Any) -> Any:
    """A tokenizer without the padding and cut of its last call, which its file would hold: what is
    saved does not depend on what was embedded before.
    """
    if not getattr(tokenizer, "is_fast", False):
        return tokenizer
    unused = copy.deepcopy(tokenizer)
    unused.backend_tokenizer.no_padding()
    unused.backend_tokenizer.no_truncation()
    return unused


def prefixed(config: Any, role: Role) -> tuple[str, str]:
    """What stands before texts of a role, and the title of the bar while they are embedded."""
    return {
        "": ("", "embedding"),
        "query": (config.query_prefix, "embedding queries:"),
        "document": (config.document_prefix, "embedding documents:"),
    }[role]


class Encoder(PreTrainedModel):  # type: ignore[misc]
    """Base of all encoders; not used by itself.

    Attributes:
        tokenizer: a tokenizer of `transformers`, saved and loaded with the model; None until set.
        precision: of embedding. "auto" multiplies in bfloat16 where that is fast, "bfloat16" and
            "float32" insist, "int8" multiplies whole numbers (`cde.quantised`).
    """

    _supports_sdpa = True
    _supports_flash_attn = True
    supports_gradient_checkpointing = True
    tokenizer: Any = None
    precision: Precision = "auto"
    #: whether an embedding depends on a corpus; then there are `first_stage` and `with_context`
    reads_context: ClassVar[bool] = False

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "config_class" in cls.__dict__:
            _classes[cls.config_class.model_type] = cls

    def __repr__(self) -> str:
        """One line; the layers are those of `print(model.backbone)` or `model.second_stage`."""
        weights = sum(parameter.numel() for parameter in self.parameters()) / 1e6
        name, size = type(self).__name__, f"{weights:.1f} million weights"
        return f"{name}({self.dim} dimensions, {size}, on {self.device})"

    def _init_weights(self, module: nn.Module) -> None:
        """Backbones initialise themselves; torch's own start is right for the few layers beside
        them.
        """

    @property
    @abstractmethod
    def dim(self) -> int:
        """Length of the vectors."""

    @property
    @abstractmethod
    def longest(self) -> int | None:
        """Most tokens that a text can have, where positions are learned; None where they are
        rotary.
        """

    @property
    def most_tokens(self) -> int:
        """Texts are cut to so many tokens."""
        return int(min(self.config.max_tokens, self.longest or self.config.max_tokens))

    def embed_batch(self, input_ids: Tensor, mask: Tensor | None, context: Any = None) -> Tensor:
        """Vectors of one padded batch before normalisation: `(batch, T)` to `(batch, dim)`.

        Args:
            input_ids, mask: token ids and mask of the texts.
            context: first-stage vectors, or `share_context`'s form, for an encoder that reads one.
        """
        vectors: Tensor = self(input_ids, mask)
        return vectors

    def carried_tokens(self) -> int:
        """What the context adds to the work of one text in training, in tokens."""
        return 0

    def share_context(self, context: Tensor | None, batches: int) -> Any:
        """The context in the form in which so many batches of one step share it."""
        return context

    def check_attention(self, implementation: str) -> None:
        """Raise a ValueError if this model cannot have an attention kernel; most can have all."""

    def set_attention(self, implementation: str) -> None:
        """Choose the attention kernel.

        Args:
            implementation: "sdpa" (torch's, the default), "eager", or "flash_attention_2" where
                installed.

        Raises:
            ValueError: an unknown one.
            ImportError: flash attention where it is not installed.
        """
        accepted = ("sdpa", "eager", "flash_attention_2")
        if implementation not in accepted:
            raise ValueError(
                f"attn_implementation must be one of {', '.join(accepted)}; it is "
                f"{implementation!r}"
            )
        if implementation == "flash_attention_2" and not is_flash_attn_2_available():
            raise ImportError(
                "flash_attention_2 needs the package flash-attn and a CUDA device: pip install -e "
                "'.[gpu]' "
                "--no-build-isolation, or take attn_implementation='sdpa'"
            )
        self.check_attention(implementation)
        for module in self.modules():
            if isinstance(getattr(module, "attention", None), dict):
                module.attention["implementation"] = implementation

    def set_attn_implementation(self, attn_implementation: Any, *_: Any, **__: Any) -> None:
        """The same as `set_attention`: the layers themselves stay on this package's attention
        function.
        """
        self.set_attention(attn_implementation)

    def activation_checkpointing_enable(self, *arguments: Any, **options: Any) -> None:
        """Compute layers again in the backward pass, to save memory (as `transformers` has it).

        Raises:
            ValueError: `use_reentrant=True`, which loses the gradients of a context's keys and
                values.
        """
        if any(
            isinstance(one, dict) and one.get("use_reentrant")
            for one in (*arguments, *options.values())
        ):
            raise ValueError("use_reentrant=True would lose the context's gradients: leave it out")
        super().activation_checkpointing_enable(*arguments, **options)

    def ready(
        self, tokenizer: Any, attn_implementation: str, device: str | None, precision: Precision
    ) -> Any:
        """The model with its tokenizer, kernel, precision and device set, for inference."""
        if attn_implementation.startswith("flash") and precision == "float32":
            raise ValueError(
                "flash_attention_2 computes in half precision: take precision='bfloat16', or 'sdpa'"
            )
        self.tokenizer = tokenizer
        self.precision = precision
        self.set_attention(attn_implementation)
        return self.to(device or ("cuda" if torch.cuda.is_available() else "cpu")).eval()

    def vectors_by(
        self,
        forward: Any,
        texts: Any,
        prefix: str,
        shape: tuple[int, ...] | None = None,
        extra: int = 0,
        most: int | None = None,
        normalise: bool = True,
        description: str = "embedding",
    ) -> Vectors:
        """Vectors of texts by `forward`, in evaluation mode; the mode of each part is restored
        afterwards.
        """
        training, device = [module for module in self.modules() if module.training], self.device
        self.eval()
        try:
            return encode_texts(
                texts,
                self.tokenizer,
                forward,
                shape=shape or (self.dim,),
                max_tokens=self.most_tokens,
                device=device,
                prefix=prefix,
                precision=self.precision,
                work=_WORK["cuda" if device.type == "cuda" else "cpu"],
                extra=extra,
                most=most,
                normalise=normalise,
                description=description,
            )
        finally:
            for module in training:
                module.training = True

    def save_pretrained(self, save_directory: str | Path, state_dict: Any = None, **_: Any) -> None:
        """Write config, weights (or those of `state_dict`) and tokenizer, for `from_pretrained`.

        Once `cde.models` is imported, `SentenceTransformer(folder)` reads them too. An encoder that
        reads a corpus embeds without one there, unless a batch brings context documents
        (`cde.contextual_batches`).
        """
        tensors = state_dict or self.state_dict()
        save_folder(save_directory, self.config, tensors, self.tokenizer, self.most_tokens)


class TextEncoder(PromptedEncoder, Encoder):
    """Base of encoders that embed a text by itself, whatever the corpus; not used by itself.

    The config has `query_prefix` and `document_prefix`.
    """

    def _vectors(
        self,
        texts: Sequence[str],
        role: Role,
        batch_size: int | None = None,
        prefix: str | None = None,
    ) -> Vectors:
        own, description = prefixed(self.config, role)
        prefix = own if prefix is None else prefix
        return self.vectors_by(
            self.forward, texts, prefix, most=batch_size, description=description
        )

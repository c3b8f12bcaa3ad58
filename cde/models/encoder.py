"""Encoders of single texts: what all encoders have in common, and `BiEncoder`."""

from __future__ import annotations

import copy
import errno
import json
import os
import shutil
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Self, cast

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoTokenizer, PreTrainedModel
from transformers.utils import is_flash_attn_2_available

from cde.hardware import Precision, chosen_precision, compute_device, tokens_at_once
from cde.models.backbones import build_backbone, pooled, to_the_left, token_states
from cde.models.configuration import BiEncoderConfig, check_settings
from cde.models.weights import (
    backbone_weights,
    fetch_folder,
    fill,
    read_config,
    read_weights,
    start_folder,
)
from cde.products import multiplying
from cde.progress import progress
from cde.retrieval.systems import Role, SentenceMethods
from cde.storage import disk_error, temporary_folder
from cde.surrogate import check_tokenizer
from cde.validation import Vectors, checked_path, encodable, shown

#: what tells sentence-transformers how to read a folder
_MODULES = "sentence_transformers.base.modules"
SENTENCE_FILES = ("config_sentence_transformers.json", "modules.json", "sentence_bert_config.json")


def write_sentence_files(folder: Path, config: Any, max_tokens: int) -> None:
    prompts = {"query": config.query_prefix, "document": config.document_prefix}
    model: dict[str, Any] = {"model_type": "SentenceTransformer", "prompts": prompts}
    model |= {"default_prompt_name": None, "similarity_fn_name": "cosine"}
    modules = [
        {"idx": place, "name": str(place), "path": path, "type": f"{_MODULES}.{kind}"}
        for place, (path, kind) in enumerate([("", "Transformer"), ("1_Normalize", "Normalize")])
    ]
    reading: dict[str, Any] = {
        "transformer_task": "feature-extraction",
        # what forward gives is the embedding
        "modality_config": {"text": {"method": "forward", "method_output_name": None}},
        "module_output_name": "sentence_embedding",
        "max_seq_length": max_tokens,
    }
    for name, content in zip(SENTENCE_FILES, (model, modules, reading), strict=True):
        (folder / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


Forward = Callable[[Tensor, "Tensor | None"], Tensor]

_PORTION = 20_000  # texts tokenised at once


def tokenise(tokenizer: Any, texts: list[str], max_tokens: int) -> list[NDArray[np.int32]]:
    """Token ids of each text, special tokens included, cut to `max_tokens`."""
    if tokenizer is None:
        raise ValueError(
            "the encoder has no tokenizer: set encoder.tokenizer, or pass token ids to its stages"
        )
    options = {"return_attention_mask": False, "return_token_type_ids": False}
    ids: list[NDArray[np.int32]] = []
    for start in range(0, len(texts), _PORTION):
        some = texts[start : start + _PORTION]
        encoded = tokenizer(some, truncation=True, max_length=max_tokens, **options)
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
            room = min(room, most or room)
        batches[-1].append(index)
    return batches


def padded(
    rows: Sequence[NDArray[np.int32]], padding: int, device: torch.device
) -> tuple[Tensor, Tensor | None]:
    """Token ids of texts as one batch, padded on the right, and its mask; None where it is full."""
    lengths = [len(row) for row in rows]
    ids = pad_sequence([torch.as_tensor(row) for row in rows], True, padding).long().to(device)
    if min(lengths) == max(lengths):
        return ids, None
    places = torch.arange(max(lengths), device=device)
    return ids, places < torch.tensor(lengths, device=device)[:, None]


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
    work: int | None = None,
    extra: int = 0,
    most: int | None = None,
    normalise: bool = True,
    description: str = "embedding",
) -> Vectors:
    """Vectors of texts in their order, `(n, *shape)` float32."""
    wanted = [prefix + text for text in encodable(texts)]
    if not wanted:
        return np.zeros((0, *shape), np.float32)
    distinct = list(dict.fromkeys(wanted))
    rows = tokenise(tokenizer, distinct, max_tokens)
    work = work or tokens_at_once(device.type, precision)
    batches = token_batches([len(row) for row in rows], work, extra, most)
    padding = tokenizer.pad_token_id or 0
    by_batch: list[Tensor] = []
    with torch.inference_mode(), multiplying(precision, device):
        for batch in progress(batches, f"{description} {len(distinct):,} texts", unit="batches"):
            vectors = forward(*padded([rows[index] for index in batch], padding, device)).float()
            vectors = torch.nn.functional.normalize(vectors, dim=-1) if normalise else vectors
            by_batch.append(vectors.cpu())
    in_order = torch.cat(by_batch).numpy()
    if not np.isfinite(in_order).all():
        raise ValueError("the model gave vectors that are not finite; take precision='float32'")
    result = np.empty_like(in_order)
    result[np.concatenate([np.array(batch) for batch in batches])] = in_order
    places = {text: place for place, text in enumerate(distinct)}
    return np.asarray(result[[places[text] for text in wanted]], dtype=np.float32)


class PromptedEncoder(SentenceMethods):
    """`encode_queries` and `encode_documents` by `vectors_by`; not used by itself."""

    vectors_by: Callable[..., Vectors]
    embed_batch: Callable[..., Tensor]
    carried_tokens: Callable[[], int]

    def encode_queries(self, texts: Sequence[str], prefix: str | None = None) -> Vectors:
        """Unit vectors of queries, `(n, dim)` float32: CDE's ψ(q), or ψ(q; D) in a context."""
        return self._vectors(texts, "query", prefix=prefix)

    def encode_documents(self, texts: Sequence[str], prefix: str | None = None) -> Vectors:
        """Unit vectors of documents, `(n, dim)` float32: CDE's ϕ(d), or ϕ(d; D) in a context."""
        return self._vectors(texts, "document", prefix=prefix)

    def _vectors(
        self,
        texts: Sequence[str],
        role: Role,
        batch_size: int | None = None,
        prefix: str | None = None,
    ) -> Vectors:
        config = cast(Any, self).config  # annotated, `transformers` would take it for its class
        if prefix is None:
            prefix = getattr(config, f"{role}_prefix") if role else ""
        title = {"": "embedding", "query": "embedding queries:", "document": "embedding documents:"}
        options = {"extra": self.carried_tokens(), "most": batch_size, "description": title[role]}
        return self.vectors_by(self.embed_batch, texts, prefix, **options)


_TOKEN_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt")

#: model type → class, of every encoder that has been defined: how a saved folder finds its class
_classes: dict[str, Any] = {}


def encoder_class(model_type: Any) -> Any:
    """The class of the encoders whose saved config is of this type; None if it is not imported."""
    import_module("cde.models.contextual")
    return _classes.get(str(model_type))


def load_tokenizer(path_or_repository: str | Path) -> Any:
    """The tokenizer of a folder, of "minilm", or of a Hub repository."""
    folder = start_folder(path_or_repository)
    try:
        return AutoTokenizer.from_pretrained(str(folder), trust_remote_code=False)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{folder} holds no tokenizer that can be read: {error}") from error


def own_tokenizer(folder: Path) -> Any:
    """The tokenizer of a folder; None where no file of one is there."""
    held = any((folder / name).is_file() for name in _TOKEN_FILES)
    return load_tokenizer(folder) if held else None


def save_folder(
    directory: str | Path,
    config: Any,
    tensors: dict[str, Tensor],
    tokenizer: Any,
    sentence_tokens: int | None = None,
) -> Path:
    """Write config, weights and tokenizer; each file under a temporary name first, then renamed."""
    directory = checked_path(directory, "directory")
    directory.mkdir(parents=True, exist_ok=True)
    with temporary_folder(directory, "saving") as temporary:
        config.save_pretrained(temporary)
        whole = {name: part.detach().cpu().contiguous().clone() for name, part in tensors.items()}
        try:
            save_file(whole, temporary / "model.safetensors", metadata={"format": "pt"})
        except SafetensorError as error:  # which is how it words a disk that is full
            raise disk_error(directory, errno.ENOSPC, str(error)) from error
        # it writes for the owner alone; the config is as the user's umask has it
        shutil.copymode(temporary / "config.json", temporary / "model.safetensors")
        # a folder with a config is complete: the old one goes first, the new one comes last
        stale = ["config.json", "model.safetensors.index.json"]
        if tokenizer is None:
            stale += [*_TOKEN_FILES, *SENTENCE_FILES]
        else:
            _unused(tokenizer).save_pretrained(temporary)
            if sentence_tokens is not None:
                write_sentence_files(temporary, config, sentence_tokens)
        for name in stale:
            (directory / name).unlink(missing_ok=True)
        for path in sorted(temporary.iterdir(), key=lambda path: path.name == "config.json"):
            os.replace(path, directory / path.name)
    return directory


def _unused(tokenizer: Any) -> Any:
    """A tokenizer without the padding and cut of its last call, which its file would hold."""
    if not getattr(tokenizer, "is_fast", False):
        return tokenizer
    unused = copy.deepcopy(tokenizer)
    unused.backend_tokenizer.no_padding()
    unused.backend_tokenizer.no_truncation()
    return unused


class Encoder(PreTrainedModel):  # type: ignore[misc]
    """Base of all encoders; not used by itself."""

    _supports_sdpa = True
    _supports_flash_attn = True
    supports_gradient_checkpointing = True
    #: of `transformers`, saved and loaded with the model; None until it is set
    tokenizer: Any = None
    #: of embedding, not of `forward` in training
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
        """Backbones initialise themselves, and torch's own start is right for all other layers."""

    @property
    @abstractmethod
    def dim(self) -> int:
        """Length of the vectors."""

    @property
    @abstractmethod
    def longest(self) -> int | None:
        """Most tokens that a text can have, where positions are learned; None where rotary."""

    @property
    def most_tokens(self) -> int:
        """Texts are cut to so many tokens."""
        return int(min(self.config.max_tokens, self.longest or self.config.max_tokens))

    def embed_batch(self, input_ids: Tensor, mask: Tensor | None, context: Any = None) -> Tensor:
        """Vectors of one padded batch before normalisation: `(batch, T)` to `(batch, dim)`."""
        return self(input_ids, mask, *([] if context is None else [context]))  # type: ignore[no-any-return]

    def carried_tokens(self) -> int:
        """What the context adds to the work of one text in training, in tokens."""
        return 0

    def share_context(self, context: Tensor | None, batches: int) -> Any:
        """The context in the form in which so many batches of one step share it."""
        return context

    def check_attention(self, implementation: str) -> None:
        """Raise a ValueError if this model cannot have an attention kernel; most can have all."""

    def set_attention(self, implementation: str) -> None:
        """Choose the attention kernel: "sdpa" (torch's), "eager", or "flash_attention_2"."""
        if implementation not in ("sdpa", "eager", "flash_attention_2"):
            raise ValueError(
                "attn_implementation must be one of sdpa, eager, flash_attention_2; it is "
                f"{shown(implementation)}"
            )
        if implementation == "flash_attention_2" and not is_flash_attn_2_available():
            raise ImportError(
                "flash_attention_2 needs the package flash-attn and a CUDA device: pip install -e "
                "'.[gpu]' --no-build-isolation, or take attn_implementation='sdpa'"
            )
        self.check_attention(implementation)
        for module in self.modules():
            if isinstance(getattr(module, "attention", None), dict):
                module.attention["implementation"] = implementation

    def set_attn_implementation(self, attn_implementation: Any, *_: Any, **__: Any) -> None:
        """`set_attention` under the name that `transformers` has for it."""
        self.set_attention(attn_implementation)

    def activation_checkpointing_enable(self, *arguments: Any, **options: Any) -> None:
        """Compute layers again in the backward pass, to save memory (as `transformers` has it)."""
        given = (*arguments, *options.values())
        if any(isinstance(value, dict) and value.get("use_reentrant") for value in given):
            raise ValueError("use_reentrant=True would lose the context's gradients: leave it out")
        super().activation_checkpointing_enable(*arguments, **options)

    def set_up(
        self, tokenizer: Any, attn_implementation: str, device: str | None, precision: Precision
    ) -> Self:
        """The model with its tokenizer, kernel, precision and device set, for inference."""
        if tokenizer is not None:
            check_tokenizer(tokenizer, self)
        chosen_precision(precision)  # refuses another one now, not at the first text
        self.tokenizer, self.precision = tokenizer, precision
        self.set_attention(attn_implementation)
        return self.to(compute_device(device)).eval()  # type: ignore[no-any-return]

    def vectors_by(
        self,
        forward: Any,
        texts: Any,
        prefix: str,
        shape: tuple[int, ...] | None = None,
        **options: Any,
    ) -> Vectors:
        """Vectors of texts by `forward`, in evaluation mode; options as for `encode_texts`."""
        options |= {"shape": shape or (self.dim,), "max_tokens": self.most_tokens, "prefix": prefix}
        options |= {"device": self.device, "precision": self.precision}
        with self.evaluating():
            return encode_texts(texts, self.tokenizer, forward, **options)

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Evaluation mode, which ends afterwards."""
        training = [module for module in self.modules() if module.training]
        self.eval()
        try:
            yield
        finally:
            for module in training:
                module.training = True

    def save_pretrained(self, save_directory: str | Path, state_dict: Any = None, **_: Any) -> None:
        """Write config, weights (or those of `state_dict`) and tokenizer, for `from_pretrained`.

        Once a class of `cde.models` is imported, `SentenceTransformer(folder)` reads them too,
        without a context unless a batch brings documents of its own.
        """
        tensors = state_dict or self.state_dict()
        save_folder(save_directory, self.config, tensors, self.tokenizer, self.most_tokens)


class BiEncoder(PromptedEncoder, Encoder):
    """A text encoder without context, the paper's baseline (CDE §3, ϕ and ψ).

    With `layers=0` no transformer is left: a text is the mean of its words' normalised embeddings.
    Such an encoder trains many times faster on a CPU.

    Args:
        config: its settings; the backbone starts from random weights. `from_backbone` takes
            pretrained ones, `from_pretrained` an encoder that was saved.

    Example:
        >>> encoder = BiEncoder.from_backbone("minilm")
        >>> vectors = encoder.encode_documents(["red boats", "scarlet ships"])
        >>> vectors.shape, bool(vectors[0] @ vectors[1] > 0.5)
        ((2, 384), True)
    """

    config_class = BiEncoderConfig

    def __init__(self, config: BiEncoderConfig) -> None:
        super().__init__(config)
        self.family, self.backbone = build_backbone(config.backbone, config.dropout)
        self.attention: dict[str, Any] = {"implementation": "sdpa"}
        self.post_init()

    @classmethod
    def from_backbone(
        cls,
        path_or_repository: str | Path = "minilm",
        layers: int | None = None,
        *,
        attn_implementation: str = "sdpa",
        device: str | None = None,
        precision: Precision = "auto",
        **settings: Any,
    ) -> BiEncoder:
        """An encoder that starts from a pretrained transformer.

        Args:
            path_or_repository: "minilm" (offline), a folder, or a Hub repository.
            layers: keep its first so many layers; 0 keeps the word embeddings alone.
            attn_implementation: "sdpa", "eager" or "flash_attention_2".
            device: to run on; by default CUDA where there is one.
            precision: of embedding, not of `forward`.
            settings: of `BiEncoderConfig`.
        """
        beside = ["layers", "attn_implementation", "device", "precision"]
        check_settings(BiEncoderConfig, settings, beside)
        backbone, tensors = backbone_weights(path_or_repository, layers, least=0)
        model = cls(BiEncoderConfig(backbone=backbone, **settings))
        fill(model.backbone, tensors, str(path_or_repository))
        tokenizer = load_tokenizer(path_or_repository)
        return model.set_up(tokenizer, attn_implementation, device, precision)

    @classmethod
    def from_pretrained(
        cls,
        path_or_repository: str | Path,
        *,
        attn_implementation: str = "sdpa",
        device: str | None = None,
        precision: Precision = "auto",
        revision: str | None = None,
    ) -> BiEncoder:
        """An encoder that `save_pretrained` wrote, from a folder or the Hub."""
        folder = fetch_folder(path_or_repository, revision)
        values = read_config(folder)
        if (kind := values.get("model_type")) != (own := BiEncoderConfig.model_type):
            raise ValueError(
                f"{folder} holds a model of type {shown(kind)}, not {own!r}: "
                "from_backbone reads transformers, ContextualEncoder.from_pretrained CDE models"
            )
        model = cls(BiEncoderConfig.from_dict(values))
        fill(model, read_weights(folder), str(folder))
        return model.set_up(own_tokenizer(folder), attn_implementation, device, precision)

    @property
    def dim(self) -> int:
        return int(self.backbone.config.hidden_size)

    @property
    def longest(self) -> int | None:
        return self.family.longest(self.backbone)

    def token_states(
        self, input_ids: Tensor, attention_mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """States of tokens after the last layer, `(batch, T, dim)`, each text's at the left, and
        which of them are not padding (None where all are).
        """
        input_ids, mask = to_the_left(input_ids, attention_mask)
        return token_states(self.backbone, input_ids, mask, self.attention), mask

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Vectors of texts before normalisation, `(batch, dim)` float32."""
        return pooled(*self.token_states(input_ids, attention_mask), self.config.pooling)

"""A saved encoder inside sentence-transformers: what `SentenceTransformer(folder)` runs.

Importing this module, or an encoder of `cde.models`, registers these classes with `transformers`.
From then on `SentenceTransformer(folder)` embeds in the context that the encoder was saved with,
its trainer trains the encoder, and its `save_pretrained` writes a folder that this package reads
again. In training a batch may bring context documents of its own (`cde.contextual_batches`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModel, PreTrainedModel

from cde.models.configuration import BiEncoderConfig, ContextualConfig
from cde.models.contextual import CorpusEncoder, class_of
from cde.models.encoder import SENTENCE_FILES, Encoder
from cde.models.weights import fetch_folder
from cde.validation import unknown

#: what `transformers` hands on, and has no bearing on a folder that is here
_HANDED_ON = {
    "_from_auto",
    "adapter_kwargs",
    "force_download",
    "proxies",
    "subfolder",
    "trust_remote_code",
}
#: what it takes to find a repository
_HUB = ("cache_dir", "local_files_only", "token")


class SentenceModel(PreTrainedModel):  # type: ignore[misc]
    """Base of what stands for an encoder in `transformers`; not used by itself."""

    _supports_sdpa = True
    _supports_flash_attn = True
    supports_gradient_checkpointing = True

    def __init__(self, encoder: Encoder | CorpusEncoder) -> None:
        bound = encoder if isinstance(encoder, CorpusEncoder) else None
        model: Any = encoder if bound is None else bound.model
        super().__init__(model.config)
        self.encoder, self.bound = model, bound
        self.register_buffer("context", None if bound is None else bound.context)

    def _init_weights(self, module: Any) -> None:
        """The encoder has its weights."""

    @classmethod
    def from_pretrained(
        cls,
        path_or_repository: str | Path,
        *,
        config: Any = None,
        revision: str | None = None,
        attn_implementation: str = "sdpa",
        dtype: torch.dtype | str | None = None,
        **others: Any,
    ) -> SentenceModel:
        """The encoder of a folder, in the context that it was saved with."""
        hub = {name: others.pop(name) for name in _HUB if name in others}
        if strange := set(others) - _HANDED_ON:
            raise ValueError(unknown(strange, {"attn_implementation", "dtype", "revision", *_HUB}))
        folder = fetch_folder(path_or_repository, revision, **hub)
        options = {"attn_implementation": attn_implementation, "device": "cpu"}
        model = cls(class_of(folder).from_pretrained(folder, **options))
        if dtype not in (None, "auto"):
            model.to(getattr(torch, dtype) if isinstance(dtype, str) else dtype)
        if (tokenizer := model.encoder.tokenizer) is not None:
            for mark in ("pad_token_id", "bos_token_id", "eos_token_id"):
                # else trainers of `transformers` do so, and say it at length
                setattr(model.config, mark, getattr(tokenizer, mark, None))
        model.eval()
        return model

    def save_pretrained(self, save_directory: str | Path, state_dict: Any = None, **_: Any) -> None:
        """Write the encoder, with its context and first stage where there are some."""
        # the library has written its own prompts by now, which may differ from the encoder's
        prompts = Path(save_directory) / SENTENCE_FILES[0]
        written = prompts.read_bytes() if prompts.is_file() else None
        if self.bound is not None:
            whole = self.encoder.config.first_backbone is not None
            self.bound.save_pretrained(save_directory, first_stage=whole)
        else:
            self.encoder.save_pretrained(save_directory)
        if written is not None:
            prompts.write_bytes(written)

    def activation_checkpointing_enable(self, *arguments: Any, **options: Any) -> None:
        self.encoder.activation_checkpointing_enable(*arguments, **options)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        context_texts: tuple[Tensor, Tensor] | None = None,
        **_: Any,
    ) -> Tensor:
        context: Any = self.context
        if context_texts is not None and self.encoder.reads_context:
            context = self.encoder.first_stage(*context_texts)
        elif self.bound is not None and not torch.is_grad_enabled() and not self.training:
            self.bound.context = context  # wherever the model has been moved since
            return self.bound.embed_batch(input_ids, attention_mask)
        embedded: Tensor = self.encoder.embed_batch(input_ids, attention_mask, context)
        return embedded


class SentenceBiEncoder(SentenceModel):
    """A `BiEncoder` in sentence-transformers."""

    config_class = BiEncoderConfig


class SentenceContextualEncoder(SentenceModel):
    """A `ContextualEncoder` in sentence-transformers, with the context that it is bound to."""

    config_class = ContextualConfig


AutoModel.register(BiEncoderConfig, SentenceBiEncoder, exist_ok=True)
AutoModel.register(ContextualConfig, SentenceContextualEncoder, exist_ok=True)

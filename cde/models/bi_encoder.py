"""The bi-encoder: one transformer, shared between queries and documents.

The paper's baseline (CDE §3, ϕ and ψ), and what a contextual encoder is compared with. A text's
vector is the mean over its tokens; or, as in the clustering paper, that of its first token, [CLS];
or the mean over chunks of equal weight.

With `layers=0` no transformer is left: a text is the mean of its words' normalised embeddings
(beside their positions', where these are learned). Such an encoder trains many times faster on a
CPU.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import cde.models.sentence_model  # noqa: F401 - registers with transformers
from cde.hardware import Precision
from cde.models.backbones import build_backbone, config_from_dict, family_of, masks_of
from cde.models.configuration import BiEncoderConfig, check_settings
from cde.models.encoder import TextEncoder, load_tokenizer
from cde.models.pooling import pooled, to_the_left
from cde.models.weights import backbone_weights, fetch_folder, fill, read_config, read_weights

__all__ = ["BiEncoder"]


class BiEncoder(TextEncoder):
    """A text encoder without context.

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
        backbone = config_from_dict(config.backbone or {})
        self.family = family_of(backbone)
        self.backbone = build_backbone(backbone, config.dropout)
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
            device: device to run on; by default CUDA where there is one.
            precision: precision of `encode_queries` and `encode_documents`.
            settings: settings of `BiEncoderConfig`.

        Raises:
            ConnectionError: no such model, here or on the Hub.
            ValueError: a family that is not supported, or a setting that is not accepted.
        """
        check_settings(BiEncoderConfig, settings, ["layers", "attn_implementation", "device"])
        backbone, tensors = backbone_weights(path_or_repository, layers, least=0)
        model = cls(BiEncoderConfig(backbone=backbone, **settings))
        fill(model.backbone, tensors, str(path_or_repository))
        return model.ready(  # type: ignore[no-any-return]
            load_tokenizer(path_or_repository), attn_implementation, device, precision
        )

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
        """An encoder that `save_pretrained` wrote, from a folder or the Hub.

        Raises:
            ConnectionError: no such model, here or on the Hub.
            ValueError: another kind of model, or weights that do not fit it.
        """
        folder = fetch_folder(path_or_repository, revision)
        values = read_config(folder)
        if values.get("model_type") != BiEncoderConfig.model_type:
            raise ValueError(
                f"{folder} holds a model of type {values.get('model_type')!r}, not "
                f"{BiEncoderConfig.model_type!r}: "
                "BiEncoder.from_backbone starts from a transformer, "
                "ContextualEncoder.from_pretrained reads CDE models"
            )
        model = cls(BiEncoderConfig.from_dict(values))
        fill(model, read_weights(folder), str(folder))
        tokenizer = load_tokenizer(folder) if (folder / "tokenizer_config.json").is_file() else None
        return model.ready(tokenizer, attn_implementation, device, precision)  # type: ignore[no-any-return]

    @property
    def dim(self) -> int:
        """Length of the vectors."""
        return int(self.backbone.config.hidden_size)

    @property
    def longest(self) -> int | None:
        """Most tokens that a text can have, where positions are learned; None where they are
        rotary.
        """
        return self.family.longest(self.backbone)

    def token_states(
        self, input_ids: Tensor, attention_mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """States of tokens after the last layer, and which of them are no padding; each text's
        tokens stand at the left (`cde.models.pooling.to_the_left`).

        Args:
            input_ids, attention_mask: `(batch, T)` ids and mask.

        Returns:
            `(batch, T, dim)`, and the bool mask; None where nothing is padded.

        Example:
            >>> encoder = BiEncoder.from_backbone("minilm", layers=1, device="cpu")
            >>> states, mask = encoder.token_states(torch.tensor([[101, 2417, 102]]))
            >>> tuple(states.shape), mask is None
            ((1, 3, 384), True)
        """
        input_ids, mask = to_the_left(input_ids, attention_mask)
        length, device = input_ids.shape[1], input_ids.device
        positions = torch.arange(length, device=device)[None]
        model, family = self.backbone, self.family
        masks = masks_of(
            family, model, self.attention["implementation"], mask, length, 0, 0, device=device
        )
        hidden = family.normalise(model, family.embed(model, input_ids, positions))
        return family.run(model, hidden, masks, positions, **self.attention), mask

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Vectors of texts before normalisation: `(batch, T)` ids and mask to `(batch, dim)`
        float32.
        """
        return pooled(*self.token_states(input_ids, attention_mask), self.config.pooling)

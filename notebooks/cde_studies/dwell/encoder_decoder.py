"""An encoder–decoder as text encoder: T5's layers from `transformers`, rotary positions, the
decoder as pooler.

The model under study in *Dwell in the Beginning* (§3.1) is T5-base with its relative position
biases replaced by rotary positions, scaled by dynamic NTK beyond the length it was trained at. One
decoder step over the start token pools the text (Ni et al. 2022); the mean over the encoder's
tokens is the alternative. The same weights are a language model, for span corruption
(`cde_studies.dwell.span_corruption`).

Nothing of T5 is written again. Its attention layers look their kernel up by name; the one
registered here turns queries and keys by their positions and hands over to torch's. A text's
rotation depends on its own length alone, never on what else is in the batch.

Cost: an encoder pass, and one token through the decoder. `EncoderDecoder` is an encoder like any
other to the trainer: gradient cache, checkpoints and hard negatives are the same.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForSeq2SeqLM, PreTrainedConfig, T5Config
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, sdpa_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

from cde.hardware import Precision
from cde.models.backbones import mean_of_tokens, to_the_left
from cde.models.configuration import check_settings
from cde.models.encoder import Encoder, PromptedEncoder, load_tokenizer, save_folder
from cde.models.weights import fetch_folder, fill, read_config, read_weights

_NAME = "cde_rotary"


def rotary_frequencies(dim: int, lengths: Tensor, base: float, trained: int) -> Tensor:
    """Angles a position, in radians, for texts of given lengths, `(batch, dim / 2)`: rotary
    positions with dynamic NTK scaling.

    A text of at most `trained` tokens turns dimension pair i by base^(−2i / dim) a position. For
    one of n > trained tokens the base grows by (n / trained)^(dim / (dim − 2)), so that the slowest
    pair turns over n as it did over `trained`, and the fastest as before.
    """
    stretch = (lengths.float() / trained).clamp(min=1.0)
    bases = base * stretch ** (dim / (dim - 2))
    exponents = torch.arange(0, dim, 2, device=lengths.device).float() / dim
    return bases[:, None] ** -exponents[None]


class Rotation:
    """The rotation of a batch's tokens in the self-attention of one stack; set before each pass."""

    def __init__(self, dim: int, base: float, trained: int) -> None:
        self.dim, self.base, self.trained = dim, base, trained
        self.cosine = self.sine = torch.empty(0)

    def set(self, lengths: Tensor, width: int) -> None:
        """Prepare for texts of `lengths` tokens, padded to `width`."""
        angles = rotary_frequencies(self.dim, lengths, self.base, self.trained)
        turned = torch.arange(width, device=lengths.device).float()[None, :, None] * angles[:, None]
        both = torch.cat([turned, turned], dim=-1)
        self.cosine, self.sine = both.cos(), both.sin()

    def __call__(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        """Turn queries and keys `(batch, heads, tokens, dim)`."""
        turned = apply_rotary_pos_emb(query.float(), key.float(), self.cosine, self.sine)
        return turned[0].to(query.dtype), turned[1].to(key.dtype)


def _attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    rotation: Rotation | None = getattr(module, "rotation", None)
    causal = False
    if rotation is not None:  # self-attention
        query, key = rotation(query, key)
        causal = module.is_decoder and mask is None and query.shape[2] > 1
    attended = nn.functional.scaled_dot_product_attention(
        query, key, value.to(query.dtype), mask, dropout, is_causal=causal, scale=scaling
    )
    return attended.transpose(1, 2).contiguous(), None


ALL_ATTENTION_FUNCTIONS.register(_NAME, _attention)
ALL_MASK_ATTENTION_FUNCTIONS.register(_NAME, sdpa_mask)


class EncoderDecoderConfig(PreTrainedConfig):  # type: ignore[misc]
    model_type = "cde-encoder-decoder"

    def __init__(
        self,
        backbone: dict[str, Any] | None = None,
        positions: Literal["rotary", "relative"] = "rotary",
        pooling: Literal["decoder", "mean"] = "decoder",
        trained_tokens: int = 512,
        max_tokens: int = 512,
        query_prefix: str = "",
        document_prefix: str = "",
        **rest: Any,
    ) -> None:
        self.backbone = backbone or T5Config().to_dict()
        self.positions, self.pooling = positions, pooling
        self.trained_tokens, self.max_tokens = trained_tokens, max_tokens
        self.query_prefix, self.document_prefix = query_prefix, document_prefix
        super().__init__(**rest)


class EncoderDecoder(PromptedEncoder, Encoder):
    """A T5 with rotary positions that embeds texts and restores spans."""

    config_class = EncoderDecoderConfig

    def __init__(self, config: EncoderDecoderConfig) -> None:
        super().__init__(config)
        rotary = config.positions == "rotary"
        values = T5Config.from_dict({**config.backbone, "use_cache": False})
        self.model = AutoModelForSeq2SeqLM.from_config(
            values, attn_implementation=_NAME if rotary else "eager"
        )
        self.stacks: dict[str, Rotation] = {}
        if rotary:
            for name in ("encoder", "decoder"):
                rotation = Rotation(values.d_kv, 10_000.0, config.trained_tokens)
                self.stacks[name] = rotation
                for block in getattr(self.model, name).block:
                    attention = block.layer[0].SelfAttention
                    attention.rotation = rotation
                    # its weights would never be used, and so never be trained
                    attention.has_relative_attention_bias = False
                    attention.relative_attention_bias = None
        self.post_init()

    @classmethod
    def small(
        cls,
        layers: int = 3,
        decoder_layers: int = 1,
        tokenizer: str = "minilm",
        *,
        device: str | None = None,
        precision: Precision = "auto",
        **settings: Any,
    ) -> EncoderDecoder:
        """A small model for a CPU: random layers over MiniLM's word embeddings."""
        check_settings(EncoderDecoderConfig, settings, ["layers", "decoder_layers", "tokenizer"])
        weights = read_weights(fetch_folder(tokenizer))
        [name] = [one for one in weights if one.endswith("word_embeddings.weight")]
        words = weights[name].float()
        count, dim = words.shape
        backbone = T5Config(
            vocab_size=count,
            d_model=dim,
            d_kv=32,
            num_heads=dim // 32,
            d_ff=4 * dim,
            num_layers=layers,
            num_decoder_layers=decoder_layers,
            dropout_rate=0.0,
            decoder_start_token_id=0,
            pad_token_id=0,
        )
        model = cls(EncoderDecoderConfig(backbone=backbone.to_dict(), **settings))
        with torch.no_grad():
            # T5 expects embeddings of unit variance, BERT's are smaller
            model.model.shared.weight.copy_(words / words.std())
        return model.set_up(load_tokenizer(tokenizer), "sdpa", device, precision)

    @classmethod
    def from_backbone(cls, path_or_repository: str | Path, **settings: Any) -> EncoderDecoder:
        """From a pretrained T5 ("t5-base", a folder); its position biases only if `relative`."""
        check_settings(EncoderDecoderConfig, settings)
        folder = fetch_folder(path_or_repository)
        # read, not loaded: a folder may name code of its own, which is never run
        if (named := read_config(folder).get("model_type")) != "t5":
            raise ValueError(f"{path_or_repository} is of the type {named!r}; a t5 is needed")
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
        model = cls(EncoderDecoderConfig(backbone=config.to_dict(), **settings))
        pretrained = AutoModelForSeq2SeqLM.from_pretrained(folder, trust_remote_code=False)
        tensors = pretrained.state_dict()
        if model.config.positions == "rotary":
            tensors = {n: one for n, one in tensors.items() if "relative_attention_bias" not in n}
        fill(model.model, tensors, str(path_or_repository))
        return model.set_up(load_tokenizer(folder), "sdpa", None, "auto")

    @classmethod
    def from_pretrained(cls, folder: Path) -> EncoderDecoder:
        """A model that `save_pretrained` wrote."""
        model = cls(EncoderDecoderConfig.from_dict(read_config(folder)))
        tensors = read_weights(folder)
        tied = {name: tensors[first] for name, first in model._tied().items()}
        fill(model, {**tensors, **tied}, str(folder))
        return model.set_up(load_tokenizer(folder), "sdpa", None, "auto")

    def save_pretrained(self, save_directory: str | Path, state_dict: Any = None, **_: Any) -> None:
        """Write config, weights (or those of `state_dict`; tied ones once) and tokenizer."""
        tied, state = self._tied(), state_dict or self.state_dict()
        tensors = {name: value for name, value in state.items() if name not in tied}
        save_folder(save_directory, self.config, tensors, self.tokenizer)

    def _tied(self) -> dict[str, str]:
        """Weights that are the same as one named before them, with that one's name."""
        first: dict[int, str] = {}
        state = self.state_dict(keep_vars=True)
        named = {name: first.setdefault(id(value), name) for name, value in state.items()}
        return {name: one for name, one in named.items() if one != name}

    @property
    def dim(self) -> int:
        return int(self.model.config.d_model)

    @property
    def longest(self) -> int | None:
        """None: neither kind of position ends."""
        return None

    def _turn(self, stack: str, mask: Tensor | None, batch: int, width: int) -> None:
        if stack in self.stacks:
            full = torch.full((batch,), width, device=self.device)
            self.stacks[stack].set(full if mask is None else mask.sum(dim=1), width)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Vectors of texts before normalisation: `(batch, T)` ids and mask to `(batch, dim)`."""
        input_ids, mask = to_the_left(input_ids, attention_mask)
        batch, width = input_ids.shape
        self._turn("encoder", mask, batch, width)
        hidden = self.model.encoder(input_ids=input_ids, attention_mask=mask).last_hidden_state
        if self.config.pooling == "mean":
            return mean_of_tokens(hidden, mask)
        self._turn("decoder", None, batch, 1)
        start = torch.full((batch, 1), self.model.config.decoder_start_token_id, device=self.device)
        pooled = self.model.decoder(
            input_ids=start, encoder_hidden_states=hidden, encoder_attention_mask=mask
        )
        return pooled.last_hidden_state[:, 0].float()  # type: ignore[no-any-return]

    def restore(self, input_ids: Tensor, attention_mask: Tensor | None, labels: Tensor) -> Tensor:
        """Logits of each next token of a target, `(batch, U, vocabulary)`: a language model."""
        batch, width = input_ids.shape
        self._turn("encoder", attention_mask, batch, width)
        self._turn("decoder", None, batch, labels.shape[1])
        # not `labels`: with them the model would compute a loss of its own as well
        targets = self.model.prepare_decoder_input_ids_from_labels(labels)
        output = self.model(
            input_ids=input_ids, attention_mask=attention_mask, decoder_input_ids=targets
        )
        return output.logits  # type: ignore[no-any-return]

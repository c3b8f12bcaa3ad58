"""Small encoders that read texts: random weights, three families, a tokenizer of letters."""

from __future__ import annotations

from pathlib import Path
from string import ascii_lowercase
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.processors import TemplateProcessing
from torch import Tensor
from transformers import AutoConfig, AutoModel, PreTrainedModel, PreTrainedTokenizerFast

from cde.models import BiEncoder, BiEncoderConfig, ContextualConfig, ContextualEncoder
from cde.models.encoder import load_tokenizer

Vectors = NDArray[np.float32]

#: settings of a training of a second
BRIEF: dict[str, Any] = {
    "batches": "random", "filter_epsilon": None, "batch_size": 8, "steps": 4, "warmup_steps": 1,
    "query_tokens": 8, "document_tokens": 12, "precision": "float32", "checkpoint_every": 2,
}  # fmt: skip
_SHARED = {
    "vocab_size": 64, "hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2,
    "intermediate_size": 64, "max_position_embeddings": 128, "pad_token_id": 0,
}  # fmt: skip
BACKBONES: dict[str, dict[str, Any]] = {
    "bert": {**_SHARED, "model_type": "bert"},
    "nomic_bert": {**_SHARED, "model_type": "nomic_bert"},
    "modernbert": _SHARED
    | {"model_type": "modernbert", "num_hidden_layers": 4, "intermediate_size": 48}
    | {"local_attention": 8, "bos_token_id": 1, "eos_token_id": 2}
    | {"cls_token_id": 1, "sep_token_id": 2},
}

CORPUS = [
    "boats and ships", "harbours of norway", "knots for sailors", "tides", "a red sail at night",
    "ropes", "the sea",
]  # fmt: skip
TEXTS = [
    "red boats", "scarlet ships and many other things in the harbour", "x", "sail",
    "boats boats boats boats",
]  # fmt: skip


def tokenizer() -> PreTrainedTokenizerFast:
    """A token for each letter between [CLS] and [SEP]; others at the start of a word."""
    marks = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", ":"]
    vocabulary = [*marks, *ascii_lowercase, *(f"##{letter}" for letter in ascii_lowercase)]
    rust = Tokenizer(
        WordPiece({word: row for row, word in enumerate(vocabulary)}, unk_token="[UNK]")
    )
    rust.normalizer = BertNormalizer()
    rust.pre_tokenizer = BertPreTokenizer()
    rust.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    names = {"pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]", "unk_token": "[UNK]"}
    return PreTrainedTokenizerFast(tokenizer_object=rust, **names)


def spread(model: torch.nn.Module, seed: int = 0) -> None:
    """Larger random weights, under which texts and contexts differ visibly."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" not in name.lower():
                parameter.copy_(0.2 * torch.randn(parameter.shape, generator=generator))


def backbone(family: str, seed: int = 0) -> PreTrainedModel:
    """A model of `transformers`, of its own classes alone."""
    model: PreTrainedModel = AutoModel.from_config(AutoConfig.for_model(**BACKBONES[family]))
    spread(model, seed)
    return model.eval()


def backbone_folder(folder: Path, family: str, seed: int = 0) -> Path:
    """A folder of `transformers` with such a model and the tokenizer."""
    backbone(family, seed).save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return folder


def small_minilm(folder: Path) -> Path:
    """MiniLM's tokenizer and a small BERT of random weights: trained in a twelfth of the time."""
    words = load_tokenizer("minilm")
    shape = {**BACKBONES["bert"], "vocab_size": len(words)}
    model: PreTrainedModel = AutoModel.from_config(AutoConfig.for_model(**shape))
    spread(model)
    model.save_pretrained(folder)
    words.save_pretrained(folder)
    return folder


def static_embeddings(folder: Path) -> str:
    """A folder of sentence-transformers: MiniLM's words, each with a random vector of length 16."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding

    words = load_tokenizer("minilm")
    vectors = np.random.default_rng(0).standard_normal((len(words), 16)).astype(np.float32)
    model = StaticEmbedding(words, embedding_weights=vectors)
    SentenceTransformer(modules=[model], device="cpu").save_pretrained(str(folder))
    return str(folder)


def bi_encoder(family: str = "bert", seed: int = 0, **settings: Any) -> BiEncoder:
    """A small bi-encoder in float32 on the CPU."""
    model = BiEncoder(BiEncoderConfig(backbone=BACKBONES[family], **settings))
    spread(model, seed)
    return model.set_up(tokenizer(), "sdpa", "cpu", "float32")


def without_layers(**settings: Any) -> BiEncoder:
    """Word embeddings alone, without positions: a token's state is the same wherever it stands."""
    backbone = {**BACKBONES["nomic_bert"], "num_hidden_layers": 0}
    model = BiEncoder(BiEncoderConfig(backbone=backbone, **settings))
    spread(model)
    return model.set_up(tokenizer(), "sdpa", "cpu", "float32")


def contextual(family: str = "bert", seed: int = 0, **settings: Any) -> ContextualEncoder:
    """A small contextual encoder in float32 on the CPU, made for four context documents."""
    backbones = {"first_backbone": BACKBONES[family], "second_backbone": BACKBONES[family]}
    model = ContextualEncoder(ContextualConfig(**{**backbones, "context_size": 4, **settings}))
    spread(model, seed)
    if model.second_stage.reader is not None:
        model.second_stage.reader.gate.data.fill_(0.1)
    return model.set_up(tokenizer(), "sdpa", "cpu", "float32")


def gated_minilm(gate: float = 0.0, **settings: Any) -> ContextualEncoder:
    """MiniLM's first layer, which reads a context's words through a gate that is open so far."""
    of_words = {"first_stage_layers": 0, "attention": "gated", "tie_token_embeddings": True}
    model = ContextualEncoder.from_backbone("minilm", 1, **{**of_words, **settings})
    assert model.second_stage.reader is not None
    model.second_stage.reader.gate.data.fill_(gate)
    return model


def load(folder: Path, kind: Any = ContextualEncoder, **options: Any) -> Any:
    """A saved encoder, in float32 on the CPU."""
    return kind.from_pretrained(folder, **{"device": "cpu", "precision": "float32", **options})


def unit(vectors: Tensor) -> Vectors:
    """Rows of length 1, as an array."""
    normalised: Vectors = torch.nn.functional.normalize(vectors.detach().float(), dim=-1).numpy()
    return normalised


def one_by_one(model: Any, texts: list[str], forward: Any, prefix: str = "") -> Vectors:
    """Unit vectors by `forward` of ids and mask, each text alone."""
    with torch.no_grad():
        ids = [torch.tensor([model.tokenizer(prefix + text)["input_ids"]]) for text in texts]
        return unit(torch.cat([forward(row, None) for row in ids]))

"""Encoders: `BiEncoder`, and `ContextualEncoder` with its two stages (CDE §4.2).

::

    model = cde.ContextualEncoder.from_pretrained(folder)      # or .from_backbone("minilm")
    encoder = model.with_context(corpus, size=512, seed=0)     # J context documents, embedded once
    encoder.encode_documents(corpus); encoder.encode_queries(queries)

`attention` and `backbones` open the layers of `transformers`; `stages` are M1 and M2; `encoder` and
`contextual` make encoders of them; `late_chunks` has vectors of chunks that know what stands around
them; `published` has the authors' checkpoints and forward passes;
`sentence_model` makes a saved folder one that `SentenceTransformer` reads.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

import lazy_loader

if TYPE_CHECKING:
    from cde.models.configuration import TASK_PREFIXES, BiEncoderConfig, ContextualConfig
    from cde.models.contextual import ContextualEncoder, CorpusEncoder, load_published
    from cde.models.encoder import BiEncoder
    from cde.models.late_chunks import encode_chunks
    from cde.models.published import VARIANTS, Variant
    from cde.models.sentence_model import SentenceBiEncoder, SentenceContextualEncoder

__all__ = [
    "TASK_PREFIXES",
    "VARIANTS",
    "BiEncoder",
    "BiEncoderConfig",
    "ContextualConfig",
    "ContextualEncoder",
    "CorpusEncoder",
    "SentenceBiEncoder",
    "SentenceContextualEncoder",
    "Variant",
    "encode_chunks",
    "load_published",
]

# imported on first use: a page that only reads records loads no torch
_attribute, __dir__, _ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "configuration": ["TASK_PREFIXES", "BiEncoderConfig", "ContextualConfig"],
        "contextual": ["ContextualEncoder", "CorpusEncoder", "load_published"],
        "encoder": ["BiEncoder"],
        "late_chunks": ["encode_chunks"],
        "published": ["VARIANTS", "Variant"],
        "sentence_model": ["SentenceBiEncoder", "SentenceContextualEncoder"],
    },
)


def __getattr__(name: str) -> Any:
    if name in __all__:  # whoever takes an encoder from here may save it for sentence-transformers
        import_module("cde.models.sentence_model")
    return _attribute(name)

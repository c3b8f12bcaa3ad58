"""Encoders: `BiEncoder`, and `ContextualEncoder` with its two stages (CDE §4.2).

::

    model = cde.ContextualEncoder.from_pretrained(folder)      # or .from_backbone("minilm")
    encoder = model.with_context(corpus, size=512, seed=0)     # J context documents, embedded once
    encoder.encode_documents(corpus); encoder.encode_queries(queries)

`attention` and `backbones` open the layers of `transformers`; `stages` are M1 and M2; `reader` is
another way to read the context, with a gate that starts at zero; `published` has the authors'
checkpoints and forward passes; `corpus` binds a model to a corpus; `sentence_model` makes a saved
folder one that `SentenceTransformer` reads.
"""

from typing import TYPE_CHECKING

import lazy_loader

if TYPE_CHECKING:
    from cde.models.bi_encoder import BiEncoder
    from cde.models.configuration import TASK_PREFIXES, BiEncoderConfig, ContextualConfig
    from cde.models.contextual import ContextualEncoder, load_published
    from cde.models.corpus import CorpusEncoder
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
    "load_published",
]

# imported on first use: a page that only reads records loads no torch
__getattr__, __dir__, _ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "bi_encoder": ["BiEncoder"],
        "configuration": ["TASK_PREFIXES", "BiEncoderConfig", "ContextualConfig"],
        "contextual": ["ContextualEncoder", "load_published"],
        "corpus": ["CorpusEncoder"],
        "published": ["VARIANTS", "Variant"],
        "sentence_model": ["SentenceBiEncoder", "SentenceContextualEncoder"],
    },
)

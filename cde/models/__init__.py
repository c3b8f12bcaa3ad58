"""Encoders: `BiEncoder`, and `ContextualEncoder` with its two stages (CDE §4.2).

`attention` and `backbones` open the layers of `transformers`; `stages` are M1 and M2; `encoder` and
`contextual` make encoders of them; `published` has the authors' checkpoints and forward passes;
`sentence_model` makes a saved folder one that `SentenceTransformer` reads.
"""

from importlib import import_module
from typing import Any

import lazy_loader

_attribute, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> Any:
    if name in __all__:  # whoever takes an encoder from here may save it for sentence-transformers
        import_module("cde.models.sentence_model")
    return _attribute(name)

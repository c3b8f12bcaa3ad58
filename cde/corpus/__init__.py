"""One's own text: an index that is searched, scored, saved and updated.

`index` is the `Index`, documents with their vectors; `files` reads documents from files, data
frames and collections; `encoders` keeps which encoder made the vectors; `saving` and `building`
write an index whole or not at all, in parts that survive a kill; `folders` holds one corpus under
several models, and says how far it has moved since its context was drawn; `commands` is
`cde index`.

The names below are imported on first use, so that the shell's commands start at once.
"""

from typing import TYPE_CHECKING

import lazy_loader

if TYPE_CHECKING:
    from cde.corpus.building import build_index
    from cde.corpus.index import Index

__all__ = ["Index", "build_index"]

__getattr__, __dir__, _ = lazy_loader.attach(
    __name__, submod_attrs={"building": ["build_index"], "index": ["Index"]}
)

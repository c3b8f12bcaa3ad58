"""One's own text: an index that is searched, scored, and kept in step with its source.

`index` is the `Index`; `table` what it holds, passages with their vectors, and their table in a
folder, in LanceDB; `chunks` cuts long documents into passages; `files` reads documents from files,
tables and collections; `encoders` knows which encoder made the vectors; `drift` says how far a
corpus has moved since its context was drawn.

The names below are imported on first use, so that the shell's commands start at once.
"""

from typing import TYPE_CHECKING

import lazy_loader

if TYPE_CHECKING:
    from cde.corpus.index import Changes, Index, Status

__all__ = ["Changes", "Index", "Status"]

__getattr__, __dir__, _ = lazy_loader.attach(
    __name__, submod_attrs={"index": ["Changes", "Index", "Status"]}
)

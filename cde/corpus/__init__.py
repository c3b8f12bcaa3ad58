"""One's own text: an index that is searched, scored, saved and updated.

- `cde.corpus.index`: `Index`, documents with their vectors;
- `cde.corpus.files`: documents from folders of text, Markdown, JSON lines, CSV and Parquet;
- `cde.corpus.files`: documents from lists, mappings, data frames, data sets, retrieval sets;
- `cde.corpus.building`: an index as a folder, whole or not at all;
- `cde.corpus.encoders`: which encoder made the vectors: named, kept, recognised again;
- `cde.corpus.building`: a long build, in parts, that goes on after it was killed;
- `cde.corpus.folders`: how far a corpus has moved since its context was drawn;
- `cde.corpus.folders`: one corpus under several models, searched as one;
- `cde.corpus.commands`: `cde index` on the shell.

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

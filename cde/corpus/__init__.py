"""One's own text: an index that is searched, scored, saved and updated.

- `cde.corpus.index`: `Index`, documents with their vectors;
- `cde.corpus.reading`: documents from lists, mappings, retrieval sets, and folders of files;
- `cde.corpus.saving`: an index as a folder, whole or not at all;
- `cde.corpus.encoders`: which encoder made the vectors: named, kept, recognised again.
"""

from cde.corpus.index import Index

__all__ = ["Index"]

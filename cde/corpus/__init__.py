"""One's own text: an index that is searched, scored, and kept in step with its source.

`index` is the `Index`; `table` what it holds, passages with their vectors, and their table in a
folder, in LanceDB; `chunks` cuts long documents into passages; `files` reads documents from files,
tables and collections; `encoders` knows which encoder made the vectors.

The names below are imported on first use, so that the shell's commands start at once.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

"""Contextual document embeddings: the package behind the book. Names are imported on first use.

Example:
    >>> import cde
    >>> len(cde.load_pairs("pydocs/rich")) > 100
    True
"""

import lazy_loader

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

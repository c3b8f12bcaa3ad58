"""Collections: training pairs and retrieval sets, by name, with fingerprints.

The default, `pydocs`, is offline and real: docstrings of the installed packages. See
`cde.data.sources` for the names and `cde.data.sets` for the two types.
"""

from cde.data.sets import Pairs, RetrievalSet
from cde.data.sources import Source, is_available, list_sources, load_pairs, load_retrieval

__all__ = [
    "Pairs",
    "RetrievalSet",
    "Source",
    "is_available",
    "list_sources",
    "load_pairs",
    "load_retrieval",
]

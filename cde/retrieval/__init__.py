"""Search and its measures: `systems` says what can search, `ranking` searches by inner product,
evaluates with trec_eval's measures and fuses; `comparison` says whether one system is better than
another, and reads and writes what they found.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

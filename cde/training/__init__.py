"""Contrastive training: loss, two-stage gradient cache, batches, several processes, the loop.

`cde.train(TrainConfig(...))` runs it through the store of runs (`cde.training.runs`); `Trainer`
is the loop itself.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

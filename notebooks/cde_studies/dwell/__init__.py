"""Where in a document an encoder looks: the encoder-decoder of *Dwell in the Beginning*, chains of
training stages, and probes for any encoder.
"""

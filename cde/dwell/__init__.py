"""Where in a document an encoder looks: the encoder-decoder of *Dwell in the Beginning*, and probes
for any encoder.

- `cde.dwell.passages`: where relevant passages stand, and moving them;
- `cde.dwell.substrings`: cutting documents, and the similarity of their parts with the whole;
- `cde.dwell.probes`: passages that are moved;
- `cde.dwell.tables`: what the probes found, by place and by segment;
- `cde.dwell.sensitivity`: how much worse the worst place is served than the best;
- `cde.dwell.encoder_decoder`, `cde.dwell.span_corruption`: T5 with rotary positions, as encoder and
  as language model;
- `cde.dwell.language_modelling`: the loop of both language-model tasks;
- `cde.dwell.chain`: phases of training, each from the weights of the one before;
- `cde.dwell.recipe`: the chains of the chapters, at each profile;
- `cde.dwell.masked_modelling`, `cde.dwell.pretrained_stages`: such chains for an encoder that
  begins with pretrained layers;
- `cde.dwell.readers`: models to probe, each with its tokenizer and with how far it reads.
"""

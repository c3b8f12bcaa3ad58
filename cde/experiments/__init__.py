"""What the chapters of results run: a store of training runs, one recipe a profile, sweeps over
arms and seeds.

- `cde.experiments.runs`: `cde.train`, and the store that reads a run back;
- `cde.experiments.recipes`: what is trained and tested on at each profile;
- `cde.experiments.sweeps`: many arms with every seed, and ways to read their scores;
- `cde.experiments.sizes`: the sweep of batch and cluster sizes;
- `cde.experiments.shortcut`: full search beside a search of what a surrogate finds;
- `cde.experiments.squares`: domains searched in the context of other domains;
- `cde.experiments.movement`: how far documents move between contexts;
- `cde.experiments.difficulty`: whether runs with harder batches retrieve better;
- `cde.experiments.properties`: what holds of a contextual encoder before any training;
- `cde.experiments.published_parts`: what the authors' code has and the paper does not mention;
- `cde.experiments.faults`: what goes wrong when several processes train one model;
- `cde.experiments.headroom`: every corpus searched with the statistics of every other;
- `cde.experiments.corpus_statistics`: document frequencies, mean and covariance of a corpus;
- `cde.experiments.score_matrices`: NDCG@10 of whole matrices of scores;
- `cde.experiments.headroom_readings`: what own statistics give, over corpora and pairs of them;
- `cde.experiments.estimate`: what a config would cost on GPUs;
- `cde.experiments.variation`: how much of a difference of two arms is chance;
- `cde.experiments.word_game`: corpora that only their own statistics can be searched with;
- `cde.experiments.text_game`: the same on words of docstrings;
- `cde.experiments.game_players`: small contextual encoders, and what counting would reach;
- `cde.experiments.game_training`: how they learn to play;
- `cde.experiments.boilerplate`: docstrings with boilerplate of their own, for whole encoders;
- `cde.experiments.frozen_encoder`: a finished encoder that is given a reader of its corpus;
- `cde.experiments.taught_reader`: the same, with lessons in reading;
- `cde.experiments.context_sources`: what a context is worth, beside what its statistics are;
- `cde.experiments.word_weights`: how common an encoder takes a word to be, and what it weighs;
- `cde.experiments.steps`: single steps of a recipe, to be timed;
- `cde.experiments.timing`: steps in turns, and peak memory.
"""

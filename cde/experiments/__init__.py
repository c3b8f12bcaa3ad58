"""What the chapters of results run: a store of training runs, one recipe a profile, sweeps over arms and seeds.

- `cde.experiments.runs`: `cde.train`, and the store that reads a run back;
- `cde.experiments.recipes`: what is trained and tested on at each profile;
- `cde.experiments.sweeps`: many arms with every seed, and ways to read their scores;
- `cde.experiments.sizes`: the sweep of batch and cluster sizes;
- `cde.experiments.estimate`: what a config would cost on GPUs;
- `cde.experiments.timing`: steps in turns, and peak memory.
"""

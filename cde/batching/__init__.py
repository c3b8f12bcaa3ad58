"""Batches made of neighbours: clusters, what they are like, a tour through them, packing, and false
negatives.

- `cde.batching.clustering`: paired k-means (CDE Eq. 3) and other groupings;
- `cde.batching.graphs`: clusters from a graph of neighbours (Cho et al. 2024, B3), and outliers;
- `cde.batching.naming`: words that tell clusters apart (clustering paper App. B);
- `cde.batching.statistics`: how hard a cluster or a batch is;
- `cde.batching.tour`: a greedy tour through clusters;
- `cde.batching.packing`: batches of one size from clusters of any (§4.1, "Packing");
- `cde.batching.plans`: batches that are laid down before training, and curricula of them;
- `cde.batching.epochs`: what packing does to clusters, and chance from one epoch to the next;
- `cde.batching.trainer_batches`: the same batches in the trainer of sentence-transformers;
- `cde.batching.guarantees`: how hard neighbours must be as negatives (clustering paper §4.3);
- `cde.batching.filtering`: documents that answer a query without being labelled for it (Eq. 4);
- `cde.batching.judging`: what texts alone tell of the documents that the filter removes.
"""

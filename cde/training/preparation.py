"""From pairs to batches of token ids: clusters, filter, hard negatives and context, all by the
surrogate.

Everything that a run draws is drawn from its seed and the step's number alone, so that a resumed
run and every process draw the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from filelock import FileLock
from numpy.typing import NDArray

from cde.batching.clustering import cluster_pairs, cluster_vectors
from cde.batching.negatives import false_negatives, mine_hard_negatives
from cde.batching.packing import BatchSampler, PlannedBatches, positions_of_pairs
from cde.data import Pairs
from cde.models.encoder import tokenise
from cde.provenance import libraries
from cde.storage import cache_folder, content_hash, read_sealed, write_sealed
from cde.surrogate import Surrogate
from cde.training.configuration import TrainConfig
from cde.training.processes import Processes
from cde.training.step import BatchTexts
from cde.validation import Positions, Vectors, shown

__all__ = ["Preparation"]


def fixed_context(config: TrainConfig, pairs: int) -> Positions:
    """Which pairs' documents are the context of every batch, where `context_from` is "fixed"."""
    generator = np.random.default_rng([config.seed, 1])
    drawn: Positions = generator.choice(pairs, min(config.context_size, pairs), replace=False)
    return np.sort(drawn)


@dataclass(frozen=True)
class Batch:
    """One step's pairs: what every process knows of the batch, and its own part of the texts."""

    rows: Positions
    texts: BatchTexts
    left_out: NDArray[np.bool_]


class Preparation:
    """Batches for a run, from pairs.

    `hard_negatives` `(n, h)` and `plan` `(steps, batch_size)` are those of `cde.train`, `prefixes`
    the model's before queries and before documents.
    """

    def __init__(
        self,
        config: TrainConfig,
        pairs: Pairs,
        tokenizer: Any,
        prefixes: tuple[str, str],
        processes: Processes | None = None,
        hard_negatives: Positions | None = None,
        plan: Positions | None = None,
    ) -> None:
        if len(pairs) < config.batch_size:
            raise ValueError(f"{len(pairs)} pairs do not fill one batch of {config.batch_size}")
        self.config, self.pairs, self.processes = config, pairs, processes or Processes()
        self.domains = np.asarray(pairs.domains)
        self.groups = pd.factorize(np.asarray(pairs.documents, object))[0]
        if not self.groups.any():
            one = shown(pairs.documents[0])
            raise ValueError(f"all {len(pairs)} pairs have one document, {one}")
        self.sources = np.unique(self.domains, return_inverse=True)[1]
        self.clusters = np.zeros(len(pairs), np.int64)
        if config.context_from == "apart" and config.batches != "random" and plan is None:
            self._require_apart()
        self.sampler = self._sampler() if plan is None else self._planned(plan)
        query_prefix, document_prefix = prefixes
        self.query_ids = tokenise(
            tokenizer, [query_prefix + text for text in pairs.queries], config.query_tokens
        )
        longest = max(config.document_tokens, config.context_tokens)
        self.document_ids = tokenise(
            tokenizer, [document_prefix + text for text in pairs.documents], longest
        )
        self.end = self.document_ids[0][-1]  # a text that is cut ends with the tokenizer's own mark
        self.hard: Positions | None = None
        if hard_negatives is not None:
            self.hard = positions_of_pairs(hard_negatives, "hard_negatives", len(pairs))
            if (rows := len(self.hard)) != len(pairs):
                each = f"a row for each of the {len(pairs)} pairs, not {rows}"
                raise ValueError(f"hard_negatives must have {each}")
        elif config.hard_negatives:  # with the filter's ε, also where the batches have no filter
            epsilon = config.filter_epsilon or 0.0
            self.hard = self.processes.agreed(
                mine_hard_negatives(*self.vectors, config.hard_negatives, pairs.domains, epsilon)
            )

    @cached_property
    def surrogate(self) -> Surrogate:
        """The model whose vectors make clusters and hard negatives."""
        return Surrogate(self.config.surrogate, max_tokens=self.config.surrogate_tokens)

    @cached_property
    def vectors(self) -> tuple[Vectors, Vectors]:
        """The surrogate's vectors of queries and documents, `(n, dim)` each."""
        return self._embedded(self.surrogate)

    @cached_property
    def filter_vectors(self) -> tuple[Vectors, Vectors]:
        name = self.config.filter_surrogate
        if name in (None, self.config.surrogate):
            return self.vectors
        return self._embedded(Surrogate(name, max_tokens=self.config.surrogate_tokens))

    def _embedded(self, surrogate: Surrogate) -> tuple[Vectors, Vectors]:
        # of runs that begin together one embeds the texts, and the others wait and read
        with FileLock(cache_folder("locks") / f"embedding-{self.pairs.fingerprint}.lock"):
            queries = surrogate.encode_queries(self.pairs.queries)
            documents = surrogate.encode_documents(self.pairs.documents)
        return self.processes.agreed(queries), self.processes.agreed(documents)

    def _sampler(self) -> BatchSampler:
        config = self.config
        if config.batches in ("cluster", "stratum"):
            # by other machines, pairs between two clusters may fall to the other one
            self.clusters = self.processes.agreed(self._labels())
        labels = self.clusters
        within = {"random": None, "stratum": labels}.get(config.batches, self.domains)
        toured = config.batches == "cluster" and config.order == "tsp"
        return BatchSampler(
            labels,
            config.batch_size,
            order="tsp" if toured else "random",
            vectors=self.vectors[1] if toured else None,
            domains=within,
            seed=config.seed,
            ranks=self.processes.count,
            rank=self.processes.rank,
        )

    def _planned(self, plan: Positions) -> PlannedBatches:
        plan, size = positions_of_pairs(plan, "plan", len(self.pairs)), self.config.batch_size
        if plan.shape[1] != size:
            raise ValueError(f"the plan has batches of {plan.shape[1]}, batch_size is {size}")
        return PlannedBatches(plan, self.processes.count, self.processes.rank)

    def _labels(self) -> Positions:
        """The cluster of each pair; kept on disk, since the arms of a seed have the same."""
        config = self.config
        settings: dict[str, Any] = {"cluster_size": config.cluster_size, "seed": config.seed}
        inputs = [self.pairs.fingerprint, self.surrogate.fingerprint, config.cluster_by]
        key = content_hash([*inputs, str(settings), str(libraries())])
        path = cache_folder("clusters") / f"{key}.sealed"
        # what follows is done by all processes, or by none
        if (kept := self.processes.of_first(read_sealed(path))) is not None:
            return np.frombuffer(kept, np.int64).copy()
        queries, documents = self.vectors
        settings["domains"] = self.pairs.domains
        if config.cluster_by == "pairs":
            labels = cluster_pairs(queries, documents, **settings)
        else:
            sides = {"queries": [queries], "documents": [documents], "both": [queries, documents]}
            labels = cluster_vectors(np.hstack(sides[config.cluster_by]), **settings)
        write_sealed(path, labels.tobytes())
        return labels

    def batches(self) -> Iterator[Batch]:
        """Batches for ever, from where the sampler stands."""
        for rows in self.sampler:
            yield self.batch(self.processes.agreed(rows))

    def batch(self, rows: Positions) -> Batch:
        """The step that trains on these pairs."""
        config, own = self.config, self.sampler.slice(rows)
        texts = [self.query_ids[row] for row in own]
        texts += [self._document(row, config.document_tokens) for row in self._columns(own)]
        context = [self._document(row, config.context_tokens) for row in self._context(rows)]
        left_out = self.left_out(rows if config.share_negatives else own)
        return Batch(rows, BatchTexts(texts, context), left_out)

    def _columns(self, rows: Positions) -> Positions:
        """Whose documents these pairs are compared with: their own, then their hard negatives."""
        return rows if self.hard is None else np.concatenate([rows, self.hard[rows].ravel()])

    def _context(self, rows: Positions) -> Positions:
        """Which pairs' documents are the context of a batch."""
        config = self.config
        if config.architecture != "contextual":
            return rows[:0]
        # which ones depends on the batch, not on what came before
        generator = np.random.default_rng([config.seed, *rows[:4].tolist()])
        candidates = self._apart(rows) if config.context_from == "apart" else rows
        count = min(config.context_size, len(candidates))
        drawn: Positions = generator.choice(candidates, count, replace=False)
        if config.null_share and generator.random() < config.null_share:
            return rows[:0]
        return fixed_context(config, len(self.pairs)) if config.context_from == "fixed" else drawn

    def _apart(self, rows: Positions) -> Positions:
        """Pairs of the batch's clusters whose documents no row of the batch has; of its sources,
        where the clusters have too few; of random batches all such pairs.
        """
        outside = ~np.isin(self.groups, self.groups[rows])
        if self.config.batches != "random":
            outside &= np.isin(self.sources, self.sources[rows])
        near = outside & np.isin(self.clusters, self.clusters[rows])
        found = np.flatnonzero(near if near.sum() >= self.config.context_size else outside)
        if not len(found):
            source = repr(str(self.domains[rows[0]]))
            said = f"all documents of {source} stand in one batch of {len(rows)}"
            raise ValueError(f"context_from='apart': {said}; take smaller batches")
        return found

    def _require_apart(self) -> None:
        """Refuse at once what `_apart` would find in the batch that is its whole source."""
        for source in np.unique(self.sources):
            rows = np.flatnonzero(self.sources == source)
            fewest = np.unique(self.groups[rows], return_counts=True)[1].min()  # pairs a document
            if 0 <= len(rows) - (size := self.config.batch_size) < fewest:
                said = f"a batch of {size} holds all documents of {str(self.domains[rows[0]])!r}"
                raise ValueError(f"context_from='apart': {said}; take smaller batches")

    def left_out(self, rows: Positions) -> NDArray[np.bool_]:
        """Which documents (and hard negatives) of these pairs leave each query's denominator:
        copies of the labelled one, and what the filter takes to be an answer. Another pair's answer
        to the same query stays, unless the filter finds it.
        """
        config, columns = self.config, self._columns(rows)
        if config.filter_epsilon is not None or config.filter_threshold is not None:
            queries, documents = self.filter_vectors[0][rows], self.filter_vectors[1][columns]
            false = false_negatives(
                queries, documents, config.filter_epsilon or 0.0, config.filter_threshold
            )
        else:
            false = np.zeros((len(rows), len(columns)), np.bool_)
        # the labelled document again, under another pair: no negative, whatever the filter says
        same = self.groups[rows][:, None] == self.groups[columns][None, :]
        np.fill_diagonal(same, False)
        left_out: NDArray[np.bool_] = false | same
        return left_out

    def _document(self, row: int | np.integer[Any], tokens: int) -> NDArray[np.int32]:
        ids = self.document_ids[row]
        if len(ids) <= tokens:
            return ids
        cut = ids[:tokens].copy()
        cut[-1] = self.end
        return cut

"""From pairs to batches of token ids: clusters, filter, hard negatives and context, all by the
surrogate.

Everything that a run draws is drawn from its seed and the step's number alone, so that a resumed
run and every process draw the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cde.batching.clustering import cluster_pairs, cluster_vectors
from cde.batching.negatives import false_negatives, mine_hard_negatives
from cde.batching.packing import BatchSampler, PlannedBatches
from cde.data import Pairs
from cde.models.encoder import tokenise
from cde.surrogate import Surrogate
from cde.training.configuration import TrainConfig
from cde.training.step import BatchTexts

__all__ = ["Preparation", "fixed_context"]

Vectors = NDArray[np.float32]
Positions = NDArray[np.int64]
Agreement = Callable[[NDArray[Any]], NDArray[Any]]


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

    Args:
        config: of the run.
        pairs: to train on.
        tokenizer: of the model.
        prefixes: of the model: before queries, before documents.
        processes: how many share a batch.
        rank: which of them this is.
        hard_negatives: `(n, h)` positions of documents; by default mined, as the config asks.
        plan: `(steps, batch_size)` positions of the pairs of each step, in place of the config's
            batches (`cde.batching.packing`).
        agreed: what all processes take for an array that each has made (`Processes.agreed`).

    Raises:
        ValueError: fewer pairs than a batch, a batch that the processes cannot share equally, or a
            plan of other batches or pairs.

    Example:
        >>> from cde.models.encoder import load_tokenizer
        >>> pairs = Pairs(["a red boat", "a tree"], ["boats are red", "trees are green"], ["x",
        ...     "x"], ["1", "2"])
        >>> config = TrainConfig(batches="random", filter_epsilon=None, batch_size=2,
        ...     context_size=2)
        >>> prepared = Preparation(config, pairs, load_tokenizer("minilm"), ("", ""))
        >>> len(next(prepared.batches()).texts.texts)
        4
    """

    def __init__(
        self,
        config: TrainConfig,
        pairs: Pairs,
        tokenizer: Any,
        prefixes: tuple[str, str],
        processes: int = 1,
        rank: int = 0,
        hard_negatives: Positions | None = None,
        plan: Positions | None = None,
        agreed: Agreement = lambda own: own,
    ) -> None:
        self.agreed = agreed
        if len(pairs) < config.batch_size:
            raise ValueError(f"{len(pairs)} pairs do not fill one batch of {config.batch_size}")
        self.config, self.pairs, self.rank, self.processes = config, pairs, rank, processes
        self.domains = np.asarray(pairs.domains)
        by_document: dict[str, int] = {}
        self.groups = np.array(
            [by_document.setdefault(text, len(by_document)) for text in pairs.documents]
        )
        self.sources = np.unique(self.domains, return_inverse=True)[1]
        self.clusters = np.zeros(len(pairs), np.int64)
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
        self.hard: Positions | None = hard_negatives
        if self.hard is None and config.hard_negatives:
            epsilon = config.filter_epsilon or 0.0
            self.hard = self.agreed(
                mine_hard_negatives(*self.vectors, config.hard_negatives, pairs.domains, epsilon)
            )

    @cached_property
    def vectors(self) -> tuple[Vectors, Vectors]:
        """The surrogate's vectors of queries and documents, `(n, dim)` each; kept on disk by the
        surrogate.
        """
        surrogate = Surrogate(max_tokens=self.config.surrogate_tokens)
        queries = surrogate.encode_queries(self.pairs.queries)
        documents = surrogate.encode_documents(self.pairs.documents)
        return self.agreed(queries), self.agreed(documents)

    def _sampler(self) -> BatchSampler:
        config = self.config
        if config.batches in ("cluster", "stratum"):
            # by other machines, pairs between two clusters may fall to the other one
            self.clusters = self.agreed(self._labels())
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
            drop_last=True,
            ranks=self.processes,
            rank=self.rank,
        )

    def _planned(self, plan: Positions) -> PlannedBatches:
        batches = PlannedBatches(plan, self.processes, self.rank)
        if batches.batch_size != self.config.batch_size:
            raise ValueError(
                f"the plan has batches of {batches.batch_size}, batch_size is "
                f"{self.config.batch_size}"
            )
        if batches.plan.min() < 0 or batches.plan.max() >= len(self.pairs):
            raise ValueError(
                f"the plan names pairs {batches.plan.min()} to {batches.plan.max()}; there are "
                f"{len(self.pairs)}, numbered from 0"
            )
        return batches

    def _labels(self) -> Positions:
        settings: dict[str, Any] = {
            "cluster_size": self.config.cluster_size,
            "domains": self.pairs.domains,
            "seed": self.config.seed,
        }
        queries, documents = self.vectors
        if self.config.cluster_by == "pairs":
            return cluster_pairs(queries, documents, **settings)
        both = [queries, documents]
        sides = {"queries": [queries], "documents": [documents], "both": both}
        return cluster_vectors(np.hstack(sides[self.config.cluster_by]), **settings)

    def batches(self) -> Any:
        """Batches for ever, from where the sampler stands."""
        for rows in self.sampler:
            yield self.batch(self.agreed(rows))

    def batch(self, rows: Positions) -> Batch:
        """The step that trains on these pairs."""
        config = self.config
        own = self.sampler.slice(rows)
        texts = [self.query_ids[row] for row in own] + [
            self._document(row, config.document_tokens) for row in own
        ]
        if self.hard is not None:
            texts += [self._document(row, config.document_tokens) for row in self.hard[own].ravel()]
        context = [self._document(row, config.context_tokens) for row in self._context(rows)]
        return Batch(
            rows, BatchTexts(texts, context), self.left_out(rows if config.share_negatives else own)
        )

    def _context(self, rows: Positions) -> Positions:
        """Which pairs' documents are the context of a batch."""
        config, none = self.config, rows[:0]
        if config.architecture != "contextual":
            return none
        # which ones depends on the batch, not on what came before
        generator = np.random.default_rng([config.seed, *rows[:4].tolist()])
        drawn = self._drawn(
            self._apart(rows) if config.context_from == "apart" else rows, generator
        )
        if config.null_share and generator.random() < config.null_share:
            return none
        return self.fixed_context if config.context_from == "fixed" else drawn

    def _drawn(self, rows: Positions, generator: np.random.Generator) -> Positions:
        """As many of these pairs as the context has documents, or all where there are fewer."""
        drawn: Positions = generator.choice(
            rows, min(self.config.context_size, len(rows)), replace=False
        )
        return drawn

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
            raise ValueError(
                f"context_from='apart': all documents of {str(self.domains[rows[0]])!r} stand in "
                f"one batch of {len(rows)}, and none is left for the context; take smaller "
                "batches, or leave such sources out"
            )
        return found

    @cached_property
    def fixed_context(self) -> Positions:
        """Pairs whose documents stand in every batch, where the context is fixed."""
        return fixed_context(self.config, len(self.pairs))

    def left_out(self, rows: Positions) -> NDArray[np.bool_]:
        """Which documents (and hard negatives) of these pairs leave each query's denominator."""
        hard = np.zeros(0, np.int64) if self.hard is None else self.hard[rows].ravel()
        columns = np.concatenate([rows, hard])
        config = self.config
        if config.filter_epsilon is not None or config.filter_threshold is not None:
            queries, documents = self.vectors[0][rows], self.vectors[1][columns]
            false = false_negatives(
                queries, documents, config.filter_epsilon or 0.0, config.filter_threshold
            )
        else:
            false = np.zeros((len(rows), len(columns)), np.bool_)
        # the labelled document again, under another pair: no negative, whatever the filter says
        same = self.groups[rows][:, None] == self.groups[columns][None, :]
        same[np.arange(len(rows)), np.arange(len(rows))] = False
        left_out: NDArray[np.bool_] = false | same
        return left_out

    def _document(self, row: int | np.integer[Any], tokens: int) -> NDArray[np.int32]:
        ids = self.document_ids[row]
        if len(ids) <= tokens:
            return ids
        cut = ids[:tokens].copy()
        cut[-1] = self.end
        return cut

"""How much a corpus' own statistics give: every corpus searched with the statistics of every other.

No model is trained. Four ways to search a corpus T with statistics of a corpus S:

1. BM25 with S's IDF. A matrix of saturated term frequencies is made once a T; each S costs one
   sparse product. None: all terms weigh 1.
2. MiniLM, centred: S's mean document vector taken off documents and queries, which are then
   scaled to unit length. None: the vectors as they are, here and in 3.
3. MiniLM, whitened: centred, then multiplied by the inverse square root of S's covariance.
4. MiniLM, its last hidden states averaged with S's word-piece IDF as weights, in documents and in
   queries. The marks at both ends of a text weigh as its mean piece: S moves weight between pieces
   only. None: the plain mean, which is MiniLM.

Beside each single S there are all corpora but T together as one (`GENERAL`): what a model would
know that has seen much text, and not T.

One forward pass of a text makes its vectors for all S at once, 1.5 kB for each text and S.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor
from torch.nn.functional import normalize
from transformers import AutoModel
from transformers.utils import logging

from cde.data import RetrievalSet
from cde.hardware import compute_device
from cde.intervals import mean_interval
from cde.lexical import BM25, split_into_terms
from cde.models.encoder import encode_texts, load_tokenizer
from cde.progress import progress
from cde.surrogate import minilm_folder
from cde_studies.motivation.corpus_statistics import Counts, Moments
from cde_studies.motivation.score_matrices import JudgedMatrix
from cde_studies.motivation.word_counts import idf_divergence_of_counts

Vectors = NDArray[np.float32]
_BySource = dict[str, NDArray[np.float64]]
_Texts = tuple[Tensor, Tensor]

#: no statistics
NONE = "none"
#: those of all other corpora together
GENERAL = "all others"
#: the mean of the scores with each other corpus' statistics
OTHERS = "another"
#: ways to use statistics
WAYS = ("BM25, IDF", "MiniLM, centred", "MiniLM, whitened", "MiniLM, IDF pooling")
#: tokens that MiniLM reads at most
LONGEST = 256


@dataclass(frozen=True)
class TermMatrix:
    """BM25 of one corpus, with the weights of terms left open."""

    vocabulary: list[str]
    queries: sparse.csr_matrix
    documents: sparse.csc_matrix

    @classmethod
    def of(cls, collection: RetrievalSet) -> TermMatrix:
        """Count the terms of a retrieval set, with the settings of `cde.BM25`."""
        settings, asked = BM25(), len(collection.queries)
        tokens = split_into_terms([*collection.queries, *collection.documents])
        names = sorted(tokens.vocab, key=tokens.vocab.__getitem__)
        starts = np.concatenate([[0], np.cumsum([len(row) for row in tokens.ids])])
        columns = np.fromiter((one for row in tokens.ids for one in row), np.int64, starts[-1])
        ones = np.ones(len(columns))
        counts = sparse.csr_matrix((ones, columns, starts), shape=(len(starts) - 1, len(names)))
        counts.sum_duplicates()
        lengths = np.diff(starts)[asked:]
        wanted = np.unique(counts[:asked].indices)
        documents = counts[asked:, wanted].tocoo()
        relative = lengths / max(lengths.mean(), 1e-9)
        softened = settings.k1 * (1 - settings.b + settings.b * relative)
        documents.data /= documents.data + softened[documents.row]
        terms = [names[one] for one in wanted]
        return cls(terms, counts[:asked, wanted].tocsr(), documents.T.tocsc())

    def scores(self, weights: NDArray[np.float64]) -> Vectors:
        """Scores of all documents, `(queries, documents)`; −∞ without a term of the query."""
        scores = (self.queries.multiply(weights[None]) @ self.documents).toarray()
        return np.where(scores > 0, scores, -np.inf).astype(np.float32)


def centre(vectors: Tensor, moments: Moments) -> Tensor:
    """Unit vectors after a corpus' mean was taken off, `(n, dim)`."""
    return normalize(vectors - torch.from_numpy(moments.mean))


def whiten(vectors: Tensor, moments: Moments) -> Tensor:
    """Unit vectors after a corpus' mean was taken off and its covariance undone, `(n, dim)`."""
    moved = vectors - torch.from_numpy(moments.mean)
    return normalize(moved @ torch.from_numpy(moments.whitening))


class PooledMiniLM:
    """MiniLM with its last hidden states averaged by many sets of word-piece weights at once."""

    def __init__(self, max_tokens: int) -> None:
        self.max_tokens = min(max_tokens, LONGEST)
        self.device = torch.device(compute_device())
        self.tokenizer: Any = load_tokenizer("minilm")
        logging.disable_progress_bar()
        model: Any = AutoModel.from_pretrained(
            minilm_folder(), dtype=torch.float32, trust_remote_code=False
        )
        self.model = model.to(self.device).eval()

    def encode(self, texts: Sequence[str], weights: Vectors) -> Vectors:
        """Unit vectors of texts, `(texts, sets, dim)` float32."""
        table = torch.from_numpy(weights).to(self.device)
        marks = [self.tokenizer.cls_token_id, self.tokenizer.sep_token_id]
        ends = torch.tensor(marks, device=self.device)

        def forward(ids: Tensor, mask: Tensor | None) -> Tensor:
            hidden = self.model(input_ids=ids, attention_mask=mask).last_hidden_state
            kept = torch.ones_like(ids, dtype=torch.bool) if mask is None else mask
            pieces = (kept & ~torch.isin(ids, ends))[:, None]
            with torch.autocast(self.device.type, enabled=False):  # means are taken in float32
                of_token = table[:, ids].transpose(0, 1)
                count = pieces.sum(dim=-1, keepdim=True)
                mean = (of_token * pieces).sum(dim=-1, keepdim=True) / count.clamp(min=1)
                mean = torch.where(count > 0, mean, 1.0)
                shares = torch.where(pieces, of_token, mean * kept[:, None])
                return torch.bmm(shares, hidden.float())

        return encode_texts(
            texts,
            self.tokenizer,
            forward,
            shape=(len(weights), int(self.model.config.hidden_size)),
            max_tokens=self.max_tokens,
            device=self.device,
            description="pooling",
        )


def headroom(
    collections: Sequence[RetrievalSet], max_tokens: int, by_words_alone: bool = False
) -> pd.DataFrame:
    """NDCG@10 of each corpus searched with the statistics of each, and of none.

    A row for each way of `WAYS` (by words alone: for the first), `searched` corpus and `source` of
    statistics: a corpus, `NONE`, `GENERAL`, or `OTHERS`. `ndcg` is the mean over queries (0 to 1),
    `low` and `high` a 95 % interval over queries of the own statistics' score minus it, for sources
    that are no single corpus. `divergence` is the source's IDF distance ("expected") from the
    searched corpus; `documents` and `queries` count those of the searched corpus.
    """
    names = [one.name.partition("/")[2] or one.name for one in collections]
    if len(names) < 3 or len({*names, NONE, GENERAL, OTHERS}) != len(names) + 3:
        raise ValueError(
            "three collections or more with different names are needed, none of them called "
            f"{NONE!r}, {GENERAL!r} or {OTHERS!r}; they are {', '.join(names)}"
        )
    model, sets = PooledMiniLM(max_tokens), dict(zip(names, collections, strict=True))
    counts = {
        name: Counts.of(one.documents, model.tokenizer, model.max_tokens)
        for name, one in sets.items()
    }
    judged = {name: JudgedMatrix.of(one) for name, one in sets.items()}
    scores: dict[str, dict[str, _BySource]] = {way: {} for way in WAYS}
    vectors: dict[str, _Texts] = {}
    for name, one in progress(sets.items(), "searching every corpus", unit="corpora"):
        rest = [other for of, other in counts.items() if of != name]
        sources = {**counts, GENERAL: Counts.together(rest)}
        scores[WAYS[0]][name] = by_terms(one, sources, judged[name])
        if by_words_alone:
            continue
        scores[WAYS[3]][name], vectors[name] = _by_pieces(one, sources, judged[name], model)
    moments = {name: Moments.of(texts[1].numpy()) for name, texts in vectors.items()}
    for name, texts in progress(vectors.items(), "searching by vectors", unit="corpora"):
        others = torch.cat([other[1] for of, other in vectors.items() if of != name])
        by_moments = {**moments, GENERAL: Moments.of(others.numpy())}
        scores[WAYS[1]][name] = _by_vectors(texts, by_moments, judged[name], centre)
        scores[WAYS[2]][name] = _by_vectors(texts, by_moments, judged[name], whiten)
    rows: list[dict[str, Any]] = []
    for name, one in sets.items():
        about = {"searched": name, "documents": len(one.documents), "queries": len(one.queries)}
        own = counts[name]
        distances = {
            source: idf_divergence_of_counts(own.terms, own.size, other.terms, other.size)
            for source, other in counts.items()
        }
        for way in WAYS[:1] if by_words_alone else WAYS:
            lines = _lines(name, scores[way][name], distances)
            rows += [{"way": way, **about, **line} for line in lines]
    return pd.DataFrame(rows)


def by_terms(
    collection: RetrievalSet, sources: Mapping[str, Counts], judged: JudgedMatrix
) -> _BySource:
    """BM25: NDCG@10 of every query, by the source of the IDF."""
    matrix = TermMatrix.of(collection)
    found = {NONE: judged.ndcg(matrix.scores(np.ones(len(matrix.vocabulary))))}
    for name, one in sources.items():
        found[name] = judged.ndcg(matrix.scores(one.term_weights(matrix.vocabulary)))
    return found


def _by_pieces(
    collection: RetrievalSet,
    sources: Mapping[str, Counts],
    judged: JudgedMatrix,
    model: PooledMiniLM,
) -> tuple[_BySource, _Texts]:
    """Pooling: NDCG@10 of every query, by the source of the IDF; and the vectors without any."""
    equal = np.ones(len(model.tokenizer), np.float32)
    weights = np.stack([equal, *(one.piece_weights() for one in sources.values())])
    queries, documents = (
        torch.from_numpy(model.encode(texts, weights)).transpose(0, 1)
        for texts in (collection.queries, collection.documents)
    )
    found = {}
    for name, asked, answers in zip([NONE, *sources], queries, documents, strict=True):
        found[name] = judged.ndcg((asked @ answers.T).numpy())
    return found, (queries[0].clone(), documents[0].clone())


def _by_vectors(
    texts: _Texts,
    sources: Mapping[str, Moments],
    judged: JudgedMatrix,
    change: Callable[[Tensor, Moments], Tensor],
) -> _BySource:
    """Vectors that are changed by moments: NDCG@10 of every query, by the source of these."""
    queries, documents = texts
    found = {NONE: judged.ndcg((queries @ documents.T).numpy())}
    for name, one in sources.items():
        found[name] = judged.ndcg((change(queries, one) @ change(documents, one).T).numpy())
    return found


def _lines(
    searched: str, scores: _BySource, distances: Mapping[str, float]
) -> list[dict[str, object]]:
    """A row for each source of statistics, of one way to search one corpus."""
    own = scores[searched]
    mean_of_others = np.mean([scores[name] for name in distances if name != searched], axis=0)
    lines = []
    for source, of_query in {**scores, OTHERS: mean_of_others}.items():
        line: dict[str, object] = {"source": source, "ndcg": float(of_query.mean())}
        if source in distances:
            line["divergence"] = distances[source]
        else:
            over = mean_interval(own - of_query)
            line |= {"low": over.low, "high": over.high}
        lines.append(line)
    return lines

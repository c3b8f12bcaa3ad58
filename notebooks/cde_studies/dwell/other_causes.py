"""Two other causes of dwelling: how training documents are written, and that an encoder has not
seen its corpus.

An encoder–decoder is trained on crops of documents as written, on crops of documents whose segments
were shuffled, and on crops that run over a document's end and so cover every place as often. A
bi-encoder and a contextual encoder are trained from the same layers of MiniLM, on the same
summaries and documents in the same batches; the contextual one is probed with its corpus and with
null tokens in its place. Both halves are probed on the same documents: those that fit the encoder
that reads least.

Cost: at `laptop` some minutes a seed on one core.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from cde.intervals import Interval
from cde.models import BiEncoder, ContextualEncoder
from cde.models.encoder import load_tokenizer
from cde.progress import progress
from cde.retrieval import Encoder
from cde.training import TrainConfig
from cde.training.runs import train
from cde_studies.dwell.chain import shuffle_segments
from cde_studies.dwell.probes import moved_passage
from cde_studies.dwell.recipe import DwellRecipe
from cde_studies.dwell.substrings import substring_similarity
from cde_studies.dwell.tables import changes, declines, room
from cde_studies.intervals import mean_of_runs
from cde_studies.recipes import changed, profile_values

#: settings of the arms that a chapter's parameters of the same name replace
PARAMETERS = ("steps", "batch_size", "layers", "context_size", "max_tokens")

#: the bi-encoder before training
BEFORE = "before"
#: what may change the preference for the beginning: the arm with it, and the arm without
DIFFERENCES = {
    "context instead of none": ("contextual", "bi-encoder"),
    "context instead of null tokens": ("contextual", "contextual, null tokens"),
    "training, without context": ("bi-encoder", BEFORE),
    "shuffled documents instead of written ones": ("shuffled", "crops"),
    "crops that run over the end": ("wrapping crops", "crops"),
}


@dataclass(frozen=True)
class OtherCauses:
    """What the arms are trained with, and the texts that they are probed on."""

    texts: DwellRecipe
    steps: int
    batch_size: int
    context_size: int
    layers: int | None
    max_tokens: int

    @property
    def base(self) -> TrainConfig:
        """The training run of the contextual encoder; that of the bi-encoder differs in its
        architecture alone.
        """
        return TrainConfig(
            batches="random",
            filter_epsilon=None,
            layers=self.layers,
            first_stage_layers=self.layers,
            context_size=self.context_size,
            batch_size=self.batch_size,
            steps=self.steps,
            warmup_steps=max(1, self.steps // 10),
            learning_rate=3e-4,
            query_tokens=24,
            document_tokens=self.max_tokens,
            context_tokens=64,
            checkpoint_every=0,
            uncached_tokens=65_536,
        )

    def record_key(self, **chapter: Any) -> dict[str, Any]:
        """What a record depends on: texts, training run, and the chapter's own settings."""
        return self.texts.record_key(base=self.base.to_dict(), **chapter)

    def shared(self) -> pd.DataFrame:
        """What training and tests share; see `DwellRecipe.shared`."""
        return self.texts.shared()

    def rows(self, seeds: Sequence[int]) -> pd.DataFrame:
        """A row for each arm and seed, and one for the bi-encoder before training: arm, seed;
        decline on documents as written and shuffled, `segment 1` … (cosines), room; mrr, `place 1`
        … (what moving the passage there changes), lost (what places 2 to 10 cost); documents,
        left_out.
        """
        before = BiEncoder.from_backbone("minilm", self.layers, max_tokens=self.max_tokens)
        rows = [{"arm": BEFORE, "seed": seeds[0], **self._bias(before)}]
        for seed in progress(seeds, "training and probing", unit="seeds"):
            found = self._encoders(seed).items()
            rows += [{"arm": arm, "seed": seed, **self._bias(one)} for arm, one in found]
        return pd.DataFrame(rows)

    def _encoders(self, seed: int) -> Mapping[str, Encoder]:
        bi, contextual = (
            train(replace(self.base, architecture=kind, seed=seed), self.texts.pairs).model()
            for kind in ("bi-encoder", "contextual")
        )
        assert isinstance(contextual, ContextualEncoder)
        corpus = self.texts.passages.collection.documents
        return {
            "bi-encoder": bi,
            "contextual": contextual.with_context(corpus, seed=seed),
            "contextual, null tokens": contextual.with_context(None),
            **{one: self.texts.model(one, seed) for one in ("crops", "shuffled", "wrapping crops")},
        }

    def _bias(self, encoder: Encoder) -> dict[str, float]:
        tokenizer, texts = load_tokenizer("minilm"), self.texts.probed
        reads = min(self.texts.longest, self.max_tokens - 2)
        written, shuffled = (
            substring_similarity(encoder, some, tokenizer, longest=reads)
            for some in (texts, shuffle_segments(texts, tokenizer))
        )
        cosines = enumerate(written.cosines.mean(axis=0), start=1)
        scores, left_out = moved_passage(encoder, self.texts.passages, tokenizer, longest=reads)
        moved = changes(scores)
        return {
            "decline": float(declines(written).mean()),
            "decline, shuffled": float(declines(shuffled).mean()),
            **{f"segment {part}": float(cosine) for part, cosine in cosines},
            "room": room(written),
            "documents": len(written.rows),
            "mrr": float(scores["default"].mean()),
            **{f"place {place}": float(moved[place].mean()) for place in moved},
            "lost": -float(moved.loc[:, 2:].mean(axis=1).mean()),
            "left_out": sum(left_out.values()),
        }


def other_causes(profile: str, texts: DwellRecipe, **changes: Any) -> OtherCauses:
    """The arms of a profile, on texts of a recipe."""
    values = profile_values(Path(__file__).with_suffix(".yml"), profile)
    return changed(OtherCauses(texts, **values), changes)


def change_of_decline(rows: pd.DataFrame, words: str, column: str = "decline") -> Interval:
    """What one of the `DIFFERENCES` changes, with Student's interval over seeds; of a single seed
    alone. Before training there is one model, which is compared with every seed.
    """
    values = rows.pivot_table(column, "seed", "arm", sort=False)
    one, other = DIFFERENCES[words]
    less = values[other].fillna(values[other].mean()) if other == BEFORE else values[other]
    return mean_of_runs((values[one] - less).dropna())

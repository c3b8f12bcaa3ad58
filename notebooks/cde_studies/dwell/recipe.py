"""What the chapters on *Dwell in the Beginning* train and probe, at each profile: chains of phases,
data, test sets.

The encoder–decoder goes through the paper's three phases; the chains are named by what they have
been through. What two chains of a seed have in common is trained once.

=====================  =======  =========================================  ============
chain                  restore  crops                                      tune
=====================  =======  =========================================  ============
`language model`       yes
`crops`                yes      yes
`tuned`                yes      yes                                        1 episode
`mean`                 yes      pooled by the mean
=====================  =======  =========================================  ============

Training sees the documents of pydocs' training packages (or of `data`); probes and searches have
those of packages that were held out. All documents are short enough to be read whole by every phase
and every probe: an encoder whose training had cut the ends off would prefer the beginning for that
alone.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cde.data import Pairs, RetrievalSet, load_pairs
from cde.models.encoder import load_tokenizer
from cde_studies.collections.pydocs import HELD_OUT
from cde_studies.dwell.chain import Phase, train_phase
from cde_studies.dwell.encoder_decoder import EncoderDecoder
from cde_studies.dwell.passages import Passages, load_passages, texts_of
from cde_studies.dwell.substrings import fewer_tokens
from cde_studies.leaks import kept_count
from cde_studies.recipes import changed, chosen, profile_values

#: settings of the recipe that a chapter's parameters of the same name replace
PARAMETERS = ("share_of_steps", "data", "documents", "queries", "episodes")


@dataclass(frozen=True)
class DwellRecipe:
    """Data and chains of a profile."""

    start: dict[str, Any]
    restore: dict[str, Any]
    crops: dict[str, Any]
    tune: dict[str, Any]
    episodes: int
    documents: int
    words: list[int]
    longest: int
    queries: int
    data: str = "pydocs"

    @cached_property
    def pairs(self) -> Pairs:
        """Summaries and documents to train on, within the ranges of words and tokens."""
        return self._fitting(load_pairs(self.data)).sample(self.documents, 0)

    @cached_property
    def passages(self) -> Passages:
        """Queries with a known passage, in documents of packages that training never saw."""
        every = load_passages("pydocs", self.words, packages=HELD_OUT)
        fitting = every.within(self.fits, f"document of more than {self.longest} tokens")
        return fitting.sample(self.queries, 0)

    @property
    def probed(self) -> list[str]:
        passages = self.passages
        asked = {passages.document_of(query) for query in passages.spans}
        return [text for name, text in texts_of(passages.collection).items() if name in asked]

    @cached_property
    def collection(self) -> RetrievalSet:
        """Summaries to search with and documents to be found, of the same packages and lengths."""
        every = load_pairs("pydocs/*")
        held_out = every.select(np.isin(np.asarray(every.domains), HELD_OUT))
        return RetrievalSet.from_pairs(self._fitting(held_out), self.queries)

    def shared(self) -> pd.DataFrame:
        """What the documents with passages and the collection, both of packages that were held out,
        share with the training pairs; see `cde_studies.leaks`.
        """
        tests = (self.passages.collection, self.collection)
        names = ("documents with passages", "collection")
        named = [replace(one, name=name) for one, name in zip(tests, names, strict=True)]
        return kept_count(self.pairs, named).assign(where="out")

    def fits(self, text: str) -> bool:
        return fewer_tokens(text, self._tokenizer, self.longest)

    @cached_property
    def _tokenizer(self) -> Any:
        return load_tokenizer(self.start.get("model", "minilm"))

    def _fitting(self, pairs: Pairs) -> Pairs:
        low, high = self.words
        texts = pairs.documents
        kept = [low <= len(text.split()) <= high and self.fits(text) for text in texts]
        return pairs.select(np.array(kept))

    @property
    def phases(self) -> dict[str, Phase]:
        """The last phase of each chain of the table above."""
        start = Phase("start", self.start)
        restored = Phase("restore", self.restore, start)
        cropped = Phase("crops", self.crops, restored)
        return {
            "language model": restored,
            "crops": cropped,
            "tuned": Phase("tune", self.tune, cropped),
            "mean": Phase("crops", {**self.crops, "pooling": "mean"}, restored),
        }

    def model(self, chain: str, seed: int) -> EncoderDecoder:
        """The model at the end of a chain, trained or read from the store."""
        folder = train_phase(self.phases[chain], self.pairs.documents, self.pairs, seed)
        return EncoderDecoder.from_pretrained(folder / "model")

    def record_key(self, **chapter: Any) -> dict[str, Any]:
        return asdict(self) | chapter


def dwell_recipe(profile: str, share_of_steps: float | None = None, **changes: Any) -> DwellRecipe:
    values = profile_values(Path(__file__).with_suffix(".yml"), profile)
    recipe = changed(DwellRecipe(**values), changes)
    phases: dict[str, Any] = {
        name: shorter(getattr(recipe, name), share_of_steps)
        for name in ("restore", "crops", "tune")
    }
    return replace(recipe, **phases)


def shorter(settings: dict[str, Any], share_of_steps: float | None) -> dict[str, Any]:
    """The settings of a phase with a share of its steps; None is all of them."""
    if share_of_steps is None:
        return settings
    if share_of_steps <= 0:
        raise ValueError(f"share_of_steps must be above 0; it is {share_of_steps}")
    return {**settings, "steps": max(1, round(share_of_steps * settings["steps"]))}


def dwell_recipe_of(settings: Any) -> DwellRecipe:
    """The recipe of a chapter: that of its profile, with the parameters that the reader has set."""
    return dwell_recipe(settings.profile, **chosen(settings, PARAMETERS))

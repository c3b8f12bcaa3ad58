"""What the chapters on *Dwell in the Beginning* train and probe, at each profile: chains of stages,
data, test sets.

The encoder–decoder goes through the paper's three stages; the chains below are named by what they
have been through. Every chain of a seed begins with the same weights, and what two chains have in
common is trained once.

| chain | restore | crops | tune |
|---|---|---|---|
| `language model` | yes | | |
| `crops` | yes | yes | |
| `tuned` | yes | yes | 1 episode |
| `tuned again` | yes | yes | all episodes |
| `tuned without crops` | yes | | 1 episode |
| `tuned alone` | | | 1 episode |
| `mean` | yes | pooled by the mean | |
| `shuffled` | yes | of documents whose segments were shuffled | |
| `wrapping crops` | yes | that run over the end | |

Training sees the documents of pydocs' training packages (or of `data`); probes and searches have
those of packages that were held out. All documents are short enough to be read whole by every stage
and every probe: an encoder whose training had cut the ends off would prefer the beginning for that
alone.

Cost: that of the stages; `stage.json` in each stage's folder says the seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from cde.data import Pairs, RetrievalSet, load_pairs
from cde.data.pydocs import HELD_OUT
from cde.dwell.chain import Stage, train_stage
from cde.dwell.encoder_decoder import EncoderDecoder
from cde.dwell.passages import Passages, load_passages
from cde.dwell.probes import token_spans
from cde.models.encoder import load_tokenizer

__all__ = ["CHAINS", "PARAMETERS", "DwellRecipe", "dwell_recipe", "dwell_recipe_of"]

#: settings of the recipe that a chapter's parameters of the same name replace
PARAMETERS = ("share_of_steps", "data", "documents", "queries", "episodes")
CHAINS = (
    "language model",
    "crops",
    "tuned",
    "tuned again",
    "tuned without crops",
    "tuned alone",
    "mean",
    "shuffled",
    "wrapping crops",
)


@dataclass(frozen=True)
class DwellRecipe:
    """Data and chains of a profile.

    Attributes:
        start, restore, crops, tune: settings of the stages.
        episodes: of `tuned again`.
        documents: for training, at most.
        words: least and most of a document.
        longest: tokens of a document, at most.
        queries: with a known passage, at most.
        data: pairs to train on (`load_pairs`).
    """

    start: dict[str, Any]
    restore: dict[str, Any]
    crops: dict[str, Any]
    tune: dict[str, Any]
    episodes: int
    documents: int
    words: tuple[int, int]
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
        return every.within(self.fits, f"document of more than {self.longest} tokens").sample(
            self.queries, 0
        )

    @property
    def probed(self) -> list[str]:
        """The documents that hold the passages of `passages`, each once."""
        found = self.passages
        asked = {found.document_of(query) for query in found.spans}
        named = zip(found.collection.document_ids, found.collection.documents, strict=True)
        return [text for name, text in named if name in asked]

    @cached_property
    def collection(self) -> RetrievalSet:
        """Summaries to search with and documents to be found, of the same packages and lengths."""
        every = load_pairs("pydocs/*")
        held_out = every.select(np.isin(np.asarray(every.domains), HELD_OUT))
        return RetrievalSet.from_pairs(self._fitting(held_out), self.queries)

    def fits(self, text: str) -> bool:
        """Whether a document has no more than `longest` tokens."""
        return len(token_spans(text, self._tokenizer)[0]) <= self.longest

    @cached_property
    def _tokenizer(self) -> Any:
        return load_tokenizer(self.start.get("model", "minilm"))

    def _fitting(self, pairs: Pairs) -> Pairs:
        low, high = self.words
        return pairs.select(
            np.array(
                [low <= len(text.split()) <= high and self.fits(text) for text in pairs.documents]
            )
        )

    def stage(self, chain: str) -> Stage:
        """The last stage of a chain.

        Raises:
            ValueError: a chain of another name.

        Example:
            >>> dwell_recipe("smoke").stage("tuned").chain
            ['start', 'restore', 'crops', 'tune']
        """
        start = Stage("start", self.start)
        restored = Stage("restore", self.restore, start)
        cropped = Stage("crops", self.crops, restored)
        last = {
            "language model": restored,
            "crops": cropped,
            "tuned": Stage("tune", self.tune, cropped),
            "tuned without crops": Stage("tune", self.tune, restored),
            "tuned alone": Stage("tune", self.tune, start),
            "mean": Stage("crops", {**self.crops, "pooling": "mean"}, restored),
            "shuffled": Stage("crops", {**self.crops, "shuffled": True}, restored),
            "wrapping crops": Stage("crops", {**self.crops, "placement": "around"}, restored),
        }
        again = last["tuned"]
        for _ in range(self.episodes - 1):
            again = Stage("tune", self.tune, again)
        last["tuned again"] = again
        if chain not in last:
            raise ValueError(f"chain must be one of {', '.join(CHAINS)}; it is {chain!r}")
        return last[chain]

    def folder(self, chain: str, seed: int) -> Path:
        """Where a chain's last stage lies, trained or read from the store."""
        return train_stage(self.stage(chain), self.pairs.documents, self.pairs, seed)

    def model(self, chain: str, seed: int) -> EncoderDecoder:
        """The model at the end of a chain."""
        return EncoderDecoder.from_pretrained(self.folder(chain, seed) / "model")

    def record_key(self, **chapter: Any) -> dict[str, Any]:
        """What a record depends on: the recipe and the chapter's own settings."""
        own = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {**own, "words": list(self.words), **chapter}


def dwell_recipe(profile: str, share_of_steps: float | None = None, **changes: Any) -> DwellRecipe:
    """The recipe of a profile.

    Args:
        profile: "smoke", "laptop", "gpu" or "paper".
        share_of_steps: of the profile's steps in each stage that are made, one at least: a tenth
            for a quick look, 2 for longer training.
        changes: attributes of `DwellRecipe` in place of the profile's; None leaves it.

    Raises:
        ValueError: an unknown profile, an attribute that there is not, or a share that is not above
            0.

    Used by every chapter on *Dwell in the Beginning*.

    Example:
        >>> dwell_recipe("laptop", share_of_steps=0.1, queries=10).restore["steps"]
        15
    """
    profiles = yaml.safe_load(Path(__file__).with_suffix(".yml").read_text(encoding="utf-8"))
    if profile not in profiles:
        raise ValueError(f"profile must be one of {', '.join(profiles)}; it is {profile!r}")
    recipe = DwellRecipe(**{**profiles[profile], "words": tuple(profiles[profile]["words"])})
    given = {name: value for name, value in changes.items() if value is not None}
    unknown = sorted(set(given) - set(DwellRecipe.__dataclass_fields__))
    if unknown:
        raise ValueError(
            f"unknown settings {', '.join(unknown)}; known are "
            f"{', '.join(DwellRecipe.__dataclass_fields__)}"
        )
    if share_of_steps is not None:
        if share_of_steps <= 0:
            raise ValueError(f"share_of_steps must be above 0; it is {share_of_steps}")
        for stage in ("restore", "crops", "tune"):
            settings = given.get(stage, getattr(recipe, stage))
            given[stage] = {**settings, "steps": max(1, round(share_of_steps * settings["steps"]))}
    return replace(recipe, **given)


def dwell_recipe_of(settings: Any) -> DwellRecipe:
    """The recipe of a chapter: that of its profile, with the parameters that the reader has set in
    their place.

    Args:
        settings: of the page (`cde.book.page.settings`): `profile`, and any of `PARAMETERS`; None
            leaves the recipe's.

    Raises:
        ValueError: a value that does not fit.

    Used by every chapter on *Dwell in the Beginning*.

    Example:
        >>> from types import SimpleNamespace
        >>> dwell_recipe_of(SimpleNamespace(profile="laptop", queries=10, data=None)).queries
        10
    """
    return dwell_recipe(
        settings.profile, **{name: getattr(settings, name, None) for name in PARAMETERS}
    )

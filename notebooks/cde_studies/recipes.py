"""What the result chapters train and test on, at each profile: one recipe, so that chapters share
runs.

A chapter states how its arms differ from the recipe, and asks for runs; two chapters with an arm in
common train it once (`cde_studies.sweeps` trains and tests many).

Two phases, as the paper has them (§5). `Recipe.train` is the first: many pairs, in-batch negatives.
`Recipe.fine_tune` is the second. It goes on from the weights of a first phase, on fewer and other
pairs, at a lower learning rate, for some epochs. Its hard negatives are those that the surrogate
has mined. Where `$CDE_DATA` is trained on, the second phase has the sources of written questions.
Elsewhere it has pairs that the first phase left out, nothing that people wrote to search with. So
it can show what a second phase does, and not what written questions do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
import pandas as pd
import yaml

from cde.data import Pairs, RetrievalSet, is_available, load_pairs, load_retrieval
from cde.training import TrainConfig
from cde.training.loss import contrastive_loss
from cde.training.runs import Run, train
from cde.validation import unknown
from cde_studies.collections import manuals
from cde_studies.leaks import kept_count
from cde_studies.profiles import making

Declared = TypeVar("Declared", bound=Any)

#: settings of the recipe that a chapter's parameters of the same name replace
PARAMETERS = (
    "data",
    "pairs",
    "steps",
    "batch_size",
    "cluster_size",
    "context_size",
    "layers",
    "learning_rate",
)
#: judged collections of $CDE_DATA/beir that encoders are tested on
COLLECTIONS = (
    "scifact",
    "med",
    "cranfield",
    "cacm",
    "cisi",
    "csfcube",
    "covidqa-docs",
    "cosqa",
    "climate-fever-evidence",
)
#: manuals of the test part that are searched where manuals are trained on
_MANUALS = 12
_HELD_OUT = ("sympy", "networkx", "polars", "sqlalchemy")
_SEEN = ("pandas", "scipy", "torch")

#: sources of $CDE_DATA/pairs whose queries are questions that people wrote
_QUESTIONS = (
    "squad-question-sentence",
    "medquad-medical",
    "policyqa-privacy",
    "wikitablequestions",
)


@dataclass(frozen=True)
class EvaluationSet:
    """A collection to be searched."""

    name: str
    collection: RetrievalSet
    where: Literal["in", "out"]
    beside: Sequence[str] = ()


@dataclass(frozen=True)
class Recipe:
    """What a profile trains and tests with."""

    profile: str
    base: TrainConfig
    sizes: tuple[int, int]
    second: Mapping[str, Any]

    @cached_property
    def pairs(self) -> Pairs:
        """The pairs that every run of this recipe trains on, whatever its seed."""
        pairs = training_pairs(self.base.data)
        return pairs if self.base.pairs is None else pairs.sample(self.base.pairs, 0)

    def train(self, arm: Mapping[str, Any], seed: int) -> Run:
        """The run of an arm (settings, and perhaps a `loss`), trained or read from the store."""
        settings = {**arm, "pairs": None, "seed": seed}
        loss = settings.pop("loss", contrastive_loss)
        return train(replace(self.base, **settings), self.pairs, loss=loss)

    @cached_property
    def supervised_pairs(self) -> Pairs:
        """The pairs of every second phase: written questions, or what the first phase left out, or
        else the same. Domains with fewer pairs than a batch are dropped: no batch could hold them.
        """
        every = training_pairs(self.base.data)
        chosen = np.isin(np.asarray(every.domains), _QUESTIONS)
        if not chosen.any():
            seen = set(self.pairs.ids)
            left = np.array([one not in seen for one in every.ids])
            chosen = left if left.any() else ~left
        pairs = every.select(chosen)
        pairs = pairs if self.second["pairs"] is None else pairs.sample(self.second["pairs"], 0)
        _, places, counts = np.unique(pairs.domains, return_inverse=True, return_counts=True)
        return pairs.select(counts[places] >= self.second["batch_size"])

    def fine_tune(self, first: Run, arm: Mapping[str, Any], seed: int) -> Run:
        """The second phase: supervised training that goes on from a run, or is read back."""
        settings = {**first.config.to_dict(), "hard_negatives": 1, **self.second, **arm}
        epochs = settings.pop("epochs")
        steps = epochs * (len(self.supervised_pairs) // settings["batch_size"])
        if steps < 1:
            raise ValueError(
                f"the second phase has {len(self.supervised_pairs)} pairs, batches of "
                f"{settings['batch_size']} and {epochs} epochs: not one step"
            )
        context = min(settings["context_size"], settings["batch_size"])
        phase = {
            "pairs": None,
            "start": str(first.folder / "model"),
            "context_size": context,
            "seed": seed,
        }
        length = {"steps": steps, "warmup_steps": steps // 10}
        return train(TrainConfig(**{**settings, **length, **phase}), self.supervised_pairs)

    def record_key(self, **chapter: Any) -> dict[str, Any]:
        """What a record depends on: the config, the test sets' sizes, the chapter's settings."""
        key = {**self.base.to_dict(), "sizes": list(self.sizes), **chapter}
        if self.base.data == "pydocs":  # the test sets are always the same
            return key
        return {**key, "tests": [name for name, _ in self._names()]}

    def tests(self) -> list[EvaluationSet]:
        """Sets out of domain and in domain: packages that training never saw, and unseen docstrings
        of those it did.

        For `manuals`, a dozen of the test part. For other data, nine collections of `$CDE_DATA`, as
        far as they are there; nobody has checked that your own pairs hold none of their texts. For
        `folder:<path>` the sets in domain are the test split of your pairs, and without `$CDE_DATA`
        those out of domain are packages of pydocs.
        """
        names = self._names()
        if len(names) < 2:
            raise ValueError(
                f"with data {self.base.data!r} the tests are collections of $CDE_DATA/beir, of "
                f"which {len(names)} are here and two are needed: {', '.join(COLLECTIONS)}"
            )
        found: list[tuple[str, RetrievalSet, Literal["in", "out"]]] = [
            (name.partition("/")[2], load_retrieval(name), where) for name, where in names
        ]
        if self.base.data.startswith("folder:"):
            found += [(one.name, one, "in") for one in own_tests(load_pairs(self.base.data))]
        documents, queries = self.sizes
        sets = []
        for name, one, where in found:
            asked = one.shrink(documents, queries, 0)
            sets.append(EvaluationSet(name, asked, where, _beside_answers(one, asked)))
        return sets

    def out_of_domain(self) -> list[EvaluationSet]:
        return [test for test in self.tests() if test.where == "out"]

    def shared(self) -> pd.DataFrame:
        """What each test set shares with the pairs of the first phase (`cde_studies.leaks`), and
        whether it is of a domain that is trained on (`where`).
        """
        tests = self.tests()
        counted = kept_count(self.pairs, [one.collection for one in tests])
        return counted.assign(where=[one.where for one in tests])

    def _names(self) -> list[tuple[str, Literal["in", "out"]]]:
        """Names of the test sets, and what they are to the training data."""
        if self.base.data.startswith("manuals"):
            few = 2 if self.profile == "smoke" else _MANUALS
            some = manuals.corpora("test")[:: -(-60 // few)]
            return [(f"manuals/{name}", "out") for name in some]
        out, within = (_HELD_OUT, _SEEN) if self.profile != "smoke" else (_HELD_OUT[1:3], _SEEN[:1])
        if self.base.data != "pydocs":
            there = [f"beir/{name}" for name in COLLECTIONS if is_available(f"beir/{name}")]
            if len(there) < 2 and self.base.data.startswith("folder:"):
                there = [f"pydocs/{name}" for name in out]
            return [(name, "out") for name in there]
        return [(f"pydocs/{name}", "out" if name in out else "in") for name in (*out, *within)]


def _beside_answers(whole: RetrievalSet, asked: RetrievalSet) -> list[str]:
    """The documents of a collection that are relevant to none of the queries asked of it."""
    texts = dict(zip(whole.document_ids, whole.documents, strict=True))
    answers = {
        texts[name]
        for judgements in asked.qrels.values()
        for name, grade in judgements.items()
        if grade > 0
    }
    return [text for text in whole.documents if text not in answers]


def training_pairs(data: str) -> Pairs:
    """The pairs that a recipe may train on: of your own folder the train split alone."""
    return load_pairs(data, split="train") if data.startswith("folder:") else load_pairs(data)


def own_tests(pairs: Pairs) -> list[RetrievalSet]:
    """Of the three largest domains: queries of the test split, among all of their documents."""
    test = pairs.split("test")
    sets = []
    for domain, _ in Counter(test.domains).most_common(3):
        every, asked = (of.select(np.asarray(of.domains) == domain) for of in (pairs, test))
        # a text that answers several queries is one document
        ids: dict[str, str] = {}
        for name, text in zip(every.ids, every.documents, strict=True):
            ids.setdefault(text, name)
        sets.append(
            RetrievalSet(
                document_ids=list(ids.values()),
                documents=list(ids),
                query_ids=asked.ids,
                queries=asked.queries,
                qrels={
                    query: {ids[text]: 1}
                    for query, text in zip(asked.ids, asked.documents, strict=True)
                },
                name=f"own: {domain}",
            )
        )
    return sets


def chosen(settings: Any, names: Sequence[str]) -> dict[str, Any]:
    """Those of a chapter's parameters that are set."""
    given = {name: getattr(settings, name, None) for name in names}
    return {name: value for name, value in given.items() if value is not None}


def changed(one: Declared, changes: Mapping[str, Any]) -> Declared:
    """A recipe with those of the changes that are not None."""
    given = {name: value for name, value in changes.items() if value is not None}
    known = one.__dataclass_fields__
    if strange := set(given) - set(known):
        raise ValueError(unknown(strange, known))
    return replace(one, **given)


def profile_values(file: Path, profile: str) -> dict[str, Any]:
    """What a file of recipes has for a profile."""
    profiles = yaml.safe_load(file.read_text(encoding="utf-8"))
    shortened = profiles.pop("fresh", {})
    if profile not in profiles:
        raise ValueError(f"profile must be one of {', '.join(profiles)}; it is {profile!r}")
    values: dict[str, Any] = profiles[profile]
    if profile == "laptop" and making.fresh:
        for name, value in shortened.items():
            values[name] = {**values[name], **value} if isinstance(value, dict) else value
    return values


def recipe(profile: str, **changes: Any) -> Recipe:
    values = profile_values(Path(__file__).with_suffix(".yml"), profile)
    given = {name: value for name, value in changes.items() if value is not None}
    if "layers" in given:
        given.setdefault("first_stage_layers", given["layers"])
    if (
        profile in ("hours", "day", "gpu", "paper")
        and "data" not in given
        and not is_available("pairs/*")
    ):
        given["data"] = "pydocs"
    config = TrainConfig(**{**values["first"], **given})
    return Recipe(profile, config, tuple(values["sizes"]), values["second"])


def recipe_of(settings: Any) -> Recipe:
    """The recipe of a chapter: that of its profile, with the parameters that the reader has set."""
    return recipe(settings.profile, **chosen(settings, PARAMETERS))

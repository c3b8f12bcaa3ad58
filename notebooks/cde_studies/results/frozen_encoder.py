"""A finished encoder that is given a reader of its corpus: nothing else is trained.

Without context the encoder is what it was, to the bit. So whatever it gains with one is the
reader's, and with another corpus' context one sees how much of that is the corpus'.

On real text alone a reader hardly learns to read (`does_reading_help`), and then its scores say
nothing of what reading is worth. `taught_recipe` makes half of the pairs lessons: corpora of
docstrings with boilerplate of their own (`cde_studies.encoder.boilerplate`), a batch each, so that
the reader learns what a corpus can tell where it must. In coarse lessons a corpus' boilerplate is
all alike and tells nothing; in graded ones each word tells the less the commoner it is. Two kinds
of test follow: corpora with unseen boilerplate show whether it can read, and real collections what
that is worth.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from cde.data import Pairs
from cde.lexical import BM25
from cde_studies.collections.pydocs import HELD_OUT, TRAINING
from cde_studies.encoder.boilerplate import GATED, Boilerplate, BoilerplateRecipe, GradedBoilerplate
from cde_studies.recipes import (
    EvaluationSet,
    Recipe,
    chosen,
    profile_values,
    recipe,
    training_pairs,
)
from cde_studies.results.movement import moved_between_corpora
from cde_studies.sweeps import Context, score_references, sweep

#: what readers are compared with
MINILM, LEXICAL = "MiniLM itself", "BM25"

#: what each profile trains a reader with
READER_PROFILES = Path(__file__).with_suffix(".yml")
#: settings that a chapter's parameters of the same name replace
PARAMETERS = ("layers", "pairs", "steps", "batch_size", "context_size", "learning_rate")
_READER: dict[str, Any] = {
    **GATED,
    "architecture": "contextual",
    "layers": None,
    "trains": "reader",
    "warmup_steps": None,
}


def with_reader(profile: str, settings: Any = None) -> Recipe:
    """The recipe of a profile, with MiniLM frozen and a gated reader to train."""
    values = profile_values(READER_PROFILES, profile)
    given = chosen(settings, PARAMETERS)
    of = recipe(profile)
    base = replace(of.base, **{**_READER, **values["first"], **given})
    return replace(of, base=base, sizes=tuple(values["sizes"]))


_LESSONS = {"coarse": Boilerplate, "graded": GradedBoilerplate}
_SMALL = ("rich", "tornado", "sphinx", "pandas", "scipy")


@dataclass(frozen=True)
class TaughtRecipe(Recipe):
    """The recipe of a frozen encoder with a reader, half of whose pairs are lessons."""

    rules: Boilerplate
    unseen: tuple[int, int]
    batches_a_lesson: int = 1

    @cached_property
    def pairs(self) -> Pairs:
        """The real pairs, and as many in lessons: corpora as large as a batch, or as several."""
        real = training_pairs(self.base.data)
        real = real if self.base.pairs is None else real.sample(self.base.pairs, 0)
        size = self.base.batch_size * self.batches_a_lesson
        lessons = self.rules.corpus(size, 0, corpora=max(1, len(real) // size))
        return Pairs(
            [*real.queries, *lessons.queries],
            [*real.documents, *lessons.documents],
            [*real.domains, *lessons.domains],
            name=f"{real.name} and lessons",
        )

    def corpora(self) -> list[EvaluationSet]:
        """Corpora with boilerplate that no lesson has, for the test whether the reader can read."""
        made = BoilerplateRecipe(self.profile, self.base, self.unseen, {}, self.rules)
        return [replace(test, where="in") for test in made.tests()]

    def record_key(self, **chapter: Any) -> dict[str, Any]:
        """The recipe's settings, the rules of the lessons, and the chapter's own."""
        rules = {"rules": vars(self.rules), "unseen": list(self.unseen)}
        longer = {"batches_a_lesson": self.batches_a_lesson} if self.batches_a_lesson > 1 else {}
        return {**super().record_key(**chapter), **rules, **longer}


def taught_recipe(
    profile: str,
    settings: Any = None,
    lessons: Literal["coarse", "graded"] = "coarse",
    batches_a_lesson: int = 1,
) -> TaughtRecipe:
    """The recipe of `cde_studies.results.frozen_encoder`, with lessons."""
    of = with_reader(profile, settings)
    if lessons == "graded" and getattr(settings, "steps", None) is None:
        of = replace(of, base=replace(of.base, steps=3 * of.base.steps))
    given = {one.name: getattr(of, one.name) for one in fields(Recipe)}
    pairs, corpora = profile_values(READER_PROFILES, profile)["unseen"]
    packages = getattr(settings, "packages", None) or (_SMALL if profile == "smoke" else TRAINING)
    rules = _LESSONS[lessons](tuple(one for one in packages if one not in HELD_OUT))
    return TaughtRecipe(
        **given, rules=rules, unseen=(pairs, corpora), batches_a_lesson=batches_a_lesson
    )


def beside_minilm(
    arms: Mapping[str, Mapping[str, Any]],
    seeds: Sequence[int],
    of: Recipe,
    tests: Sequence[EvaluationSet],
    contexts: Sequence[Context] = ("own", "other"),
) -> pd.DataFrame:
    """The rows of a `sweep` of readers on some sets, with `moved`, how far the context moves each
    reader's documents (`moved_between_corpora`), and those of MiniLM and BM25 on the same sets.
    """
    rows = sweep(arms, seeds, of, contexts, tests)
    models = {(arm, one): of.train(arms[arm], one).model() for arm in arms for one in seeds}
    moved = {run: moved_between_corpora(model, tests) for run, model in models.items()}
    rows["moved"] = [moved[run] for run in zip(rows["arm"], rows["seed"], strict=True)]
    untouched = next(iter(models.values()))  # without context it is MiniLM
    beside = score_references({MINILM: untouched, LEXICAL: BM25()}, tests, seeds)
    return pd.concat([rows, beside], ignore_index=True)


def real_and_made(
    arms: Mapping[str, Mapping[str, Any]],
    seeds: Sequence[int],
    contexts: Sequence[Context],
    of: TaughtRecipe,
) -> pd.DataFrame:
    """Readers on real sets ("out") in some contexts, on boilerplate ("in") in own and other."""
    parts = [
        beside_minilm(arms, seeds, of, of.out_of_domain(), contexts),
        beside_minilm(arms, seeds, of, of.corpora()),
    ]
    return pd.concat(parts, ignore_index=True)

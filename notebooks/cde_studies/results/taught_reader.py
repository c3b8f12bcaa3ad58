"""A frozen encoder whose reader is taught to read: half of its batches cannot be solved without.

On real text alone a reader hardly learns to read (`minilm_with_context`), and then its scores say
nothing of what reading is worth. Here half of the pairs are lessons: corpora of docstrings with
boilerplate of their own (`cde_studies.encoder.boilerplate`), a batch each. The other half are the
real pairs. So the reader learns what a corpus can tell where it must, and how far to trust it where
it need not.

Lessons are of two kinds. In coarse ones a corpus' boilerplate tells nothing, all of it alike. In
graded ones each word tells the less the commoner it is.

Two kinds of test follow: corpora with boilerplate that it never saw, which show whether it can
read, and real collections, which show what that is worth.

Cost: that of the runs.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Literal

from cde.data import Pairs
from cde.data.pydocs import HELD_OUT, TRAINING
from cde_studies.encoder.boilerplate import Boilerplate, BoilerplateRecipe, GradedBoilerplate
from cde_studies.recipes import EvaluationSet, Recipe, profile_values, training_pairs
from cde_studies.results.frozen_encoder import READER_PROFILES, with_reader

__all__ = ["TaughtRecipe", "taught_recipe"]

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

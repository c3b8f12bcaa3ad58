"""What a chapter's notebook calls: its settings, its answer, and what it hands to the runner.

A page works the same in JupyterLab, by hand, and under `cde run`: nothing here needs the runner.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol

import pandas as pd

from cde.hardware import describe
from cde.provenance import account as data_account
from cde.provenance import commit, libraries, now
from cde.storage import content_hash
from cde_book import boxes, plots, records
from cde_book.account import account, most_memory
from cde_book.checkout import PACKAGES
from cde_book.claims import badges
from cde_book.ledger import ledger
from cde_book.markup import Box, inert, render
from cde_book.proofs import TIMES
from cde_book.run_mode import this_run
from cde_book.verdicts import to_json
from cde_studies.intervals import mean_and_interval, mean_and_spread
from cde_studies.profiles import PROFILES, making

__all__ = [
    "PROFILES",
    "answer",
    "claims_under_test",
    "experiment",
    "finish",
    "imported_modules",
    "in_numbers",
    "mean_and_interval",
    "mean_and_spread",
    "provenance",
    "settings",
]

#: files that a chapter's pages are made of, beside the modules that it imports
_READ_ALONG = {
    "book/cde_book/house.mplstyle",
    *(
        f"book/cde_book/templates/{name}.html.j2"
        for name in ("badges", "fold", "provenance", "source", "verdicts")
    ),
}
MIME = "application/vnd.cde.book.page+json"
_SHORTENED = """<p>This book was made without records (<code>FRESH=1</code>). So that it takes one
sitting, <code>laptop</code> is shortened: less training, fewer seeds, smaller collections. Its
verdicts are those of a smaller experiment.</p>"""


class Keyed(Protocol):
    """A recipe: it says what its runs depend on."""

    def record_key(self, **chapter: Any) -> dict[str, Any]:
        """The recipe's settings and the chapter's own."""


class Settings(SimpleNamespace):
    """A chapter's settings, as attributes; `profile` and `seed` are always among them."""

    profile: str
    seed: int

    @property
    def every_seed(self) -> range:
        """The seeds of all training runs: `seeds` of them, from `seed` on."""
        return range(self.seed, self.seed + self.seeds)

    def only(self, *names: str, **more: Any) -> dict[str, Any]:
        """The seed and the settings of these names: what an experiment depends on."""
        return {"seed": self.seed, **{name: getattr(self, name) for name in names}, **more}

    def _repr_html_(self) -> str:
        # None is the recipe's value, or "all"
        rows = {name: str(value) for name, value in vars(self).items() if value is not None}
        shown = plots.table(pd.DataFrame({"value": rows})).markup
        return shown + _SHORTENED if self.profile == "laptop" and making.fresh else shown


def settings(
    names: Mapping[str, Any],
    recipe_parameters: Sequence[str] = (),
    /,
    **profiles: Mapping[str, Any],
) -> Settings:
    """The settings of the page's profile, with whatever parameters were given in their place."""
    profile = str(names["profile"])
    known = [name for name in (*PROFILES, *profiles) if name != "fresh"]
    if profile not in known:
        raise ValueError(
            f"profile must be one of {', '.join(dict.fromkeys(known))}; it is {profile!r}"
        )
    making.fresh |= this_run().fresh  # a rehearsal has it from the command's own options
    shortened = profile == "laptop" and "fresh" in profiles and making.fresh
    declared = {name: None for name in recipe_parameters if name in names}
    values: dict[str, Any] = {**profiles["laptop"], **declared}
    for name, value in profiles.get("fresh" if shortened else profile, {}).items():
        if name not in values:
            raise ValueError(
                f"{profile} changes {name!r}, which laptop does not have; it has "
                f"{', '.join(values)}"
            )
        values[name] = value
    values |= {name: names[name] for name in values if names.get(name) is not None}
    if profile == "smoke":  # its numbers are compared between machines
        os.environ.setdefault("CDE_PRECISION", "float32")
    boxes.show_configurations_as_tables()
    account.profile = profile
    account.given = {
        name: names[name] for name in ("profile", "seed", *values) if names.get(name) is not None
    }
    return Settings(**values, profile=profile, seed=int(names["seed"]))


def experiment(
    name: str,
    compute: Callable[[], pd.DataFrame],
    key: Mapping[str, Any],
    recipe: Keyed | None = None,
    can_run: bool = True,
    costly: bool = True,
    varies: Sequence[str] = TIMES,
    proves: Sequence[str] = (),
    profile: str | None = None,
) -> Any:
    """The rows of an experiment, computed here or read from its record; says below the cell where
    they come from.
    """
    whole = dict(key) if recipe is None else recipe.record_key(**key)
    at, mode = profile or account.profile, this_run()
    recorded = records.recorded(
        name, at, compute, can_run, whole, costly, varies, proves, mode=mode
    )
    if recorded is None:
        boxes.show_source(
            f"{name} is not available: this machine lacks what it needs, and there is no record "
            f"with these settings. {records.records_and_differences(name, whole)}"
        )
        return None
    boxes.show_source(recorded.note)
    _show_shared(recipe, profile)
    return recorded.rows


def _show_shared(recipe: Any, profile: str | None) -> None:
    """What the page's own recipe shares between training and tests, once; those of other profiles
    may need data that is not here.
    """
    if profile in (None, account.profile) and hasattr(recipe, "shared"):
        key = content_hash([json.dumps(recipe.record_key(), sort_keys=True, default=str)])
        if key not in account.shared:
            account.shared.add(key)
            try:
                boxes.show_shared(recipe.shared())
            except (OSError, ValueError) as error:  # a record's data need not be here
                boxes.show_source(f"What training and tests share is not counted here: {error}")


def claims_under_test(chapter: str) -> Any:
    """The ledger's claims that a chapter measures, with the paper's value and the rule."""
    under_test = [claim for claim in ledger().values() if claim.chapter == chapter]
    rows = [
        {
            "claim": claim.wording,
            "where": claim.place,
            "the paper's value": claim.paper_value,
            "decided by": claim.test,
        }
        for claim in under_test
    ]
    shown = plots.table(pd.DataFrame(rows))
    of_paper = sum(claim.paper != "ours" for claim in under_test)
    whose = {0: "of our own", len(rows): "of the paper"}.get(
        of_paper, "of the paper and of our own"
    )
    counted = f"{len(rows)} claim{'s' if len(rows) > 1 else ''} {whose}"
    title = f"{counted} under test, and the rule{'s' if len(rows) > 1 else ''} for the verdict"
    return boxes.folded(title, shown)


def answer(text: str) -> None:
    """Set the answer: at most 25 words, the observed result first, which the rendered page shows
    below its title (through MyST-NB's glue), with the verdicts as badges.
    """
    from IPython.display import Markdown
    from myst_nb import glue  # type: ignore[import-untyped]

    account.answer = inert(" ".join(text.split()))
    shown = "\n\n".join(part for part in (account.answer, badges()) if part)
    glue("answer", Markdown(shown))  # type: ignore[no-untyped-call]


def in_numbers(text: str) -> Any:
    """A paragraph below the verdicts, with results that no table and no figure of the page has."""
    from IPython.display import Markdown

    return Markdown(inert(" ".join(text.split())))  # type: ignore[no-untyped-call]


def provenance(chapter: str) -> Any:
    """How to run the chapter again, and where this run's numbers come from; the last cell of every
    chapter shows it, so that a notebook that any tool has run tells of itself.
    """
    head, dirty = commit()
    seconds = time.time() - account.begun
    rows = {
        "parameters": ", ".join(f"{name} = {value!r}" for name, value in account.given.items()),
        "data": _data_line(data_account.loaded),
        "commit": f"{head[:12]}{', with uncommitted changes' if dirty else ''}",
        "device": f"{describe()}; {platform.platform()}",
        "time": f"{now()}, {seconds:.0f} s, at most {most_memory():.1f} GiB of memory",
        "libraries": ", ".join(
            [f"Python {platform.python_version()}"]
            + [f"{name} {number}" for name, number in libraries().items()]
        ),
    }
    markup = render(
        "provenance.html.j2",
        chapter=chapter,
        given=account.given,
        defaults={"seed": 0},
        seconds=seconds,
        rows=rows,
    )
    return Box(markup, "\n".join(f"{name}: {value}" for name, value in rows.items()))


def _data_line(data: Mapping[str, str]) -> str:
    """The collections of a page with their fingerprints; many packages of pydocs as one, with the
    hash of all.
    """
    packages = {name: digest for name, digest in data.items() if name.startswith("pydocs/")}
    shown = {
        name: digest for name, digest in data.items() if name not in packages or len(packages) <= 4
    }
    parts = [f"{name} (fingerprint {digest})" for name, digest in sorted(shown.items())]
    if len(packages) > 4:
        combined = content_hash(part for item in sorted(packages.items()) for part in item)
        parts.insert(0, f"{len(packages)} packages of pydocs (combined fingerprint {combined})")
    return ", ".join(parts) or "none"


def imported_modules() -> list[str]:
    """The modules of the checkout's packages that this process has imported, as paths below its
    root.

    The library's own `__init__.py` is left out: it lists names, and a new one changes no page.
    """
    root = Path(__file__).resolve().parents[2]
    packages = {Path(name).name for name in PACKAGES}
    files = {
        getattr(module, "__file__", None)
        for name, module in sys.modules.items()
        if name.split(".")[0] in packages
    }
    paths = {str(Path(file).resolve().relative_to(root)) for file in files if file}
    return sorted(paths - {"cde/__init__.py"} | _READ_ALONG)


def finish() -> None:
    """Hand over to the runner what the page has used and found; the runner adds this as a last
    cell.
    """
    from IPython.display import display

    report = {
        "answer": account.answer,
        "measurements": json.loads(to_json(account.measured)),
        "modules": imported_modules(),
        "data": dict(data_account.loaded),
        "asked": sorted(data_account.asked),
        "records": sorted(account.read),
        "proofs": dict(account.proofs),
        "device": describe(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "memory": round(most_memory(), 2),
    }
    display({MIME: report, "text/plain": ""}, raw=True)  # type: ignore[no-untyped-call]

"""What a chapter's notebook calls: its settings, its answer, and what it hands to the runner.

A page works the same in JupyterLab, by hand, and under `cde run`: nothing here needs the runner.
"""

from __future__ import annotations

import json
import os
import platform
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, fields
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
from IPython import get_ipython
from IPython.display import Markdown, display

from cde.data import is_available
from cde.hardware import describe
from cde.provenance import account as data_account
from cde.provenance import commit, libraries, now
from cde.storage import content_hash
from cde_book import plots, records
from cde_book.account import account, most_memory
from cde_book.checkout import PACKAGES
from cde_book.claims import badges
from cde_book.ledger import ledger
from cde_book.markup import Box, inert, render, with_minus
from cde_book.records import TIMES
from cde_book.run_mode import this_run
from cde_studies.intervals import mean_and_interval as mean_and_interval
from cde_studies.intervals import mean_and_spread as mean_and_spread
from cde_studies.profiles import PROFILES, making

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
        accepted = ", ".join(dict.fromkeys(known))
        raise ValueError(f"profile must be one of {accepted}; it is {profile!r}")
    making.fresh |= this_run().fresh  # a rehearsal has it from the command's own options
    shortened = profile == "laptop" and "fresh" in profiles and making.fresh
    declared = {name: None for name in recipe_parameters if name in names}
    values: dict[str, Any] = {**profiles["laptop"], **declared}
    for name, value in profiles.get("fresh" if shortened else profile, {}).items():
        if name not in values:
            accepted = ", ".join(values)
            raise ValueError(f"{profile} changes {name!r}, which laptop does not have: {accepted}")
        values[name] = value
    if profile == "smoke":  # its numbers are compared between machines
        os.environ.setdefault("CDE_PRECISION", "float32")
    show_configurations_as_tables()
    named = ("profile", "seed", *values)
    given = {name: names[name] for name in named if names.get(name) is not None}
    account.profile, account.given = profile, given
    return Settings(**{**values, **given, "profile": profile, "seed": int(names["seed"])})


def need_pairs(long_run: bool) -> None:
    """Refuse a long run where there is nothing to train and to test it on."""
    if long_run and not is_available("pairs/*"):
        raise ValueError("long_run needs $CDE_DATA with pairs/ and beir/")


def experiment(
    name: str,
    compute: Callable[[], pd.DataFrame],
    key: Mapping[str, Any],
    recipe: Any = None,
    can_run: bool = True,
    costly: bool = True,
    varies: Sequence[str] = TIMES,
    proves: Sequence[str] = (),
    profile: str | None = None,
) -> Any:
    """The rows of an experiment, computed or of its record; says below the cell where from. Its
    runs depend on the key, and on a recipe's settings.
    """
    whole = dict(key) if recipe is None else recipe.record_key(**key)
    at, mode = profile or account.profile, this_run()
    recorded = records.recorded(
        name, at, compute, can_run, whole, costly, varies, proves, mode=mode
    )
    if recorded is None:
        show_source(
            f"{name} is not available: this machine lacks what it needs, and there is no record "
            f"with these settings. {records.records_and_differences(name, whole)}"
        )
        return None
    show_source(recorded.note)
    _show_shared(recipe, profile)
    return recorded.rows


def _show_shared(recipe: Any, profile: str | None) -> None:
    """What the tests share with the training of the page's own recipe: sums, and a folded table."""
    if profile not in (None, account.profile) or not hasattr(recipe, "shared"):
        return
    key = content_hash([json.dumps(recipe.record_key(), sort_keys=True, default=str)])
    if key in account.shared:
        return
    account.shared.add(key)
    try:
        counted = recipe.shared()
    except (OSError, ValueError) as error:  # a record's data need not be here
        show_source(f"What training and tests share is not counted here: {error}")
        return
    parts = [
        f"{name} {sums['near documents']:,.0f} of {sums['documents']:,.0f} documents, "
        f"{sums['answers']:,.0f} of {sums['queries']:,.0f} queries' answers"
        for where, name in (("out", "out of domain"), ("in", "in domain"))
        if len(of := counted[counted["where"] == where])
        for sums in [of.sum(numeric_only=True)]
    ]
    sentence = f"Training and tests share: {'; '.join(parts)}."
    display(folded(sentence, plots.table(counted), sentence))  # type: ignore[no-untyped-call]


def folded(title: str, shown: Box, text: str = "") -> Box:
    """A box that is closed at first, under a title."""
    return Box(render("fold.html.j2", title=title, body=shown.markup), text or shown.text)


def show_source(note: str) -> None:
    """Say below the cell where its numbers come from: several notes of a cell are one fold, which
    is open if a record is stale or altered.
    """
    if not note:
        return
    cell: Any = getattr(get_ipython(), "execution_count", None)
    shown, notes = account.sources.get(cell, (None, []))
    notes = [*notes, note]
    head = "; ".join(map(_head_of, notes))
    if len(notes) > 1 and all("Read from the record" in one for one in notes):
        head = f"Read from {len(notes)} records"
    text = "\n".join(notes)
    is_open = "STALE" in text or "ALTERED" in text
    box = Box(render("source.html.j2", head=head, notes=notes, open=is_open), text)
    if shown is None:
        shown = display(box, display_id=True)  # type: ignore[no-untyped-call]
    else:
        shown.update(box)
    if cell is not None:
        account.sources[cell] = shown, notes


def _head_of(note: str) -> str:
    """What a note says first."""
    head, found, _ = note.partition(", not computed here")
    return head if found else note.partition(": ")[0].partition(". ")[0]


def show_configurations_as_tables() -> None:
    """Have IPython, where there is one, show a `TrainConfig` by what differs from its defaults."""
    shell = get_ipython()
    if shell is not None:
        formatter = shell.display_formatter.formatters["text/html"]
        formatter.for_type_by_name("cde.training.configuration", "TrainConfig", changed_fields)


def changed_fields(config: Any) -> str:
    """An HTML table of a config's fields that differ from their defaults."""
    default = type(config)()
    changed = {
        one.name: repr(value)
        for one in fields(config)
        if (value := getattr(config, one.name)) != getattr(default, one.name)
    }
    return plots.table(pd.DataFrame({"other than the default": changed})).markup


def claims_under_test(chapter: str) -> Any:
    """The ledger's claims that a chapter measures, with the paper's value and the rule."""
    own = [claim for claim in ledger().values() if claim.chapter == chapter]
    rows = {
        "claim": [claim.wording for claim in own],
        "where": [claim.place for claim in own],
        "the paper's value": [claim.paper_value for claim in own],
        "decided by": [claim.test for claim in own],
    }
    of_paper = {claim.paper != "ours" for claim in own}
    whose = " and ".join(
        ["of the paper"] * (True in of_paper) + ["of our own"] * (False in of_paper)
    )
    s = "s" * (len(own) > 1)
    title = f"{len(own)} claim{s} {whose} under test, and the rule{s} for the verdict"
    return folded(title, plots.table(pd.DataFrame(rows)))


#: a role and mathematics, which MyST would look up or set; and what stands in a code span
_MYST = re.compile(r"\{(?=[\w:+-]+\}`)|\$|(`+)[^`]+\1")


def _one_line(text: str) -> str:
    """Markdown on one line that computed names may stand in: HTML, roles and dollars are text."""
    return _MYST.sub(
        lambda found: found[0] if found[1] else f"&#{ord(found[0])};", inert(" ".join(text.split()))
    )


def answer(text: str) -> None:
    """Set the answer, at most 25 words, which the rendered page shows below its title, with badges
    of the verdicts.
    """
    account.answer = with_minus(_one_line(text))
    shown = "\n\n".join(part for part in (account.answer, badges()) if part)
    with suppress(ModuleNotFoundError):  # where nothing is rendered, as on a GPU that is lent
        from myst_nb import glue  # type: ignore[import-untyped]

        glue("answer", Markdown(shown))  # type: ignore[no-untyped-call]


def in_numbers(text: str) -> Any:
    """A paragraph below the verdicts, with results that no table and no figure of the page has."""
    return Markdown(with_minus(_one_line(text)))  # type: ignore[no-untyped-call]


def provenance(chapter: str) -> Any:
    """How to run the chapter again, and where this run's numbers come from, for the last cell: so a
    notebook that any tool has run tells of itself.
    """
    account.chapter = chapter
    head, dirty = commit()
    seconds = time.time() - account.begun
    versions = {"Python": platform.python_version(), **libraries()}
    rows = {
        "parameters": ", ".join(f"{name} = {value!r}" for name, value in account.given.items()),
        "data": _data_line(data_account.loaded),
        "commit": f"{head[:12]}{', with uncommitted changes' if dirty else ''}",
        "device": f"{describe()}; {platform.platform()}",
        "time": f"{now()}, {seconds:.0f} s, at most {most_memory():.1f} GiB of memory",
        "libraries": ", ".join(f"{name} {number}" for name, number in versions.items()),
    }
    markup = render(
        "provenance.html.j2", chapter=chapter, given=account.given, seconds=seconds, rows=rows
    )
    return Box(markup, "\n".join(f"{name}: {value}" for name, value in rows.items()))


def _data_line(data: Mapping[str, str]) -> str:
    """The collections of a page with their fingerprints; many packages of pydocs as one."""
    every = sorted(data.items())
    packages = [item for item in every if item[0].startswith("pydocs/")]
    many = packages if len(packages) > 4 else []
    parts = [f"{name} (fingerprint {digest})" for name, digest in sorted({*every} - {*many})]
    if many:
        combined = content_hash(part for item in many for part in item)
        parts.insert(0, f"{len(many)} packages of pydocs (combined fingerprint {combined})")
    return ", ".join(parts) or "none"


def imported_modules() -> list[str]:
    """The modules of the checkout that this process has imported, as paths below its root; without
    the library's own `__init__.py`: it lists names, and a new one changes no page.
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
    """Hand over to the runner, which adds this as a last cell, what the page has used and found."""
    head, dirty = commit()
    report = {
        "run": {  # what the runner knows, for where there is none
            "chapter": account.chapter,
            "profile": account.profile,
            "parameters": account.given,
            "started": datetime.fromtimestamp(account.begun, UTC).isoformat(timespec="seconds"),
            "seconds": round(time.time() - account.begun, 1),
            "commit": head,
            "dirty": dirty,
        },
        "answer": account.answer,
        "measurements": [asdict(one) for one in account.measured],
        "modules": imported_modules(),
        "data": dict(data_account.loaded),
        "asked": sorted(data_account.asked),
        "records": sorted(account.read),
        "device": describe(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "memory": round(most_memory(), 2),
    }
    display({MIME: report, "text/plain": ""}, raw=True)  # type: ignore[no-untyped-call]

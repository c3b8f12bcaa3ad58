"""The offline tasks by name: those on docstrings, and those on the collections of `$CDE_DATA`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import mteb
import pandas as pd
from mteb.abstasks import AbsTask, AbsTaskRetrieval

from cde.data import list_sources, load_retrieval
from cde.data.sources import data_folder
from cde.validation import unknown
from cde_studies.benchmark.tasks import (
    ON_DOCSTRINGS,
    GroupedTask,
    LabelledTask,
    LocalTask,
    local_metadata,
    searchable,
)


def _of_collection(name: str) -> type[LocalTask]:
    """Search in a judged collection of `$CDE_DATA`, whole unless sizes are given."""

    class Collection(LocalTask, AbsTaskRetrieval):
        metadata = local_metadata(
            f"{_words(name)}Retrieval", "Retrieval", f"Search in {name}.", name
        )
        documents = queries = 0  # all there are, whatever the share

        def _made(self) -> Any:
            return {"default": {"test": searchable(load_retrieval(name))}}

    return Collection


def _of_labels(name: str, base: type[LabelledTask] | type[GroupedTask]) -> type[LocalTask]:
    """Classification or clustering of a set of labelled texts of `$CDE_DATA`."""
    kind = "Classification" if base is LabelledTask else "Clustering"

    class Labels(base, labelled=partial(load_labelled, name)):  # type: ignore[call-arg,misc,valid-type]
        metadata = local_metadata(
            f"{_words(name)}{kind}", kind, f"The labels of {name}.", f"labelled/{name}"
        )

    return Labels


def _words(name: str) -> str:
    """`beir/dbpedia-entity-sub` as `DbpediaEntitySub`."""
    return "".join(part.capitalize() for part in re.split(r"[^a-z0-9]+", name.split("/")[-1]))


def _classes() -> dict[str, type[LocalTask]]:
    made: list[type[LocalTask]] = list(ON_DOCSTRINGS)
    made += [_of_collection(one.name) for one in list_sources() if one.name.startswith("beir/")]
    for name in sorted(labelled_files()):
        made += [_of_labels(name, LabelledTask), _of_labels(name, GroupedTask)]
    return {one.metadata.name: one for one in made}


def task_names() -> list[str]:
    return list(_classes())


def offline_tasks(names: Sequence[str] | None = None, share: float = 1.0) -> list[AbsTask]:
    """Tasks on local text by name, not yet loaded; without names those on docstrings."""
    if not share > 0:
        raise ValueError(f"share must be above 0; it is {share!r}")
    classes = _classes()
    wanted = [one.metadata.name for one in ON_DOCSTRINGS] if names is None else list(names)
    if strange := [name for name in wanted if name not in classes]:
        raise ValueError(unknown(strange, classes, "offline task"))
    return [classes[name](share=share) for name in wanted]


def get_tasks(names: Sequence[str] | None = None, share: float = 1.0) -> list[AbsTask]:
    """Offline tasks, and any others of mteb by their names, which come from the Hub."""
    if names is None:
        return offline_tasks(None, share)
    here = task_names()
    found: list[AbsTask] = []
    for name in names:
        if name in here:
            found += offline_tasks([name], share)
            continue
        try:
            found.append(mteb.get_task(name))
        except KeyError as error:
            raise ValueError(
                f"{unknown([name], here, 'task')}, nor does mteb have one of that name; the "
                "offline tasks are those of `cde mteb --list`"
            ) from error
    return found


def load_labelled(name: str) -> pd.DataFrame:
    """Texts with their labels: columns text and label, both strings."""
    files = labelled_files()
    if name not in files:
        raise ValueError(
            f"{unknown([name], files, 'set of labelled texts')}: they are looked for in "
            "$CDE_DATA/labelled/"
        )
    rows = pd.read_json(files[name], lines=True, dtype=False)
    if missing := {"text", "label"} - set(rows.columns):
        raise ValueError(f"{files[name]}: lines have no {' and no '.join(sorted(missing))}")
    return rows[["text", "label"]].astype(str)


def labelled_files() -> dict[str, Path]:
    """The sets of labelled texts that are at hand; none without `$CDE_DATA`."""
    folder = data_folder()
    if folder is None:
        return {}
    found = sorted((folder / "labelled").glob("*.jsonl*"))
    return {path.name.split(".jsonl")[0]: path for path in found}

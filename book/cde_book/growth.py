"""A record that grows: training runs of further seeds join those that it has.

An experiment with many long runs does not end in a day. `cde run CHAPTER --record PROFILE/NAME
--add -p seed=5 -p seeds=3` makes the runs of three further seeds and adds their rows. Nothing that
was recorded is changed. Each part keeps its time, commit, machine and libraries. The parts are one
experiment because one proof stands for all: what was there before is only added to if its proof
holds here today.

Cost: none beside that of the runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["check_settings", "grown", "part_of"]

#: what a chapter may call the number of its seeds; `trainings` where `seeds` counts other runs
_COUNTS = ("seeds", "trainings")
_HEAD = ("time", "commit", "clean", "device", "python", "libraries", "seconds", "experiment")


def part_of(record: dict[str, Any]) -> dict[str, Any]:
    """Where and when the rows of a record were made, and of which seeds they are."""
    settings = record["settings"]
    head = {name: record[name] for name in _HEAD if name in record}
    return {**head, "seed": settings["seed"], "seeds": settings[_count_of(settings)]}


def _count_of(settings: Mapping[str, Any]) -> str:
    """The setting that says how many seeds there are."""
    found = [name for name in _COUNTS if name in settings]
    if "seed" not in settings or not found:
        raise ValueError("only a record of several seeds can grow; this one has no seeds")
    return found[0]


def check_settings(had: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    """Refuse settings that a record cannot grow by, before hours are spent on them."""
    count = _count_of(had)
    rest = {name for name in {*had, *new} if had.get(name) != new.get(name)} - {"seed", count}
    if rest:
        apart = "; ".join(
            f"{name} {had.get(name, 'not set')!r} there and {new.get(name, 'not set')!r} here"
            for name in sorted(rest)
        )
        raise ValueError(
            f"the record was made with other settings, so that it cannot grow: {apart}"
        )
    _count_of(new)  # it must have seeds as well
    follows = had["seed"] + had[count]
    if new["seed"] != follows:
        raise ValueError(
            f"the record has the seeds {had['seed']} to {follows - 1}: add those from {follows} on "
            f"(-p seed={follows}); these begin at {new['seed']}"
        )


def grown(record: dict[str, Any], added: dict[str, Any]) -> dict[str, Any]:
    """A record with the rows of further seeds."""
    had, new = record["settings"], added["settings"]
    check_settings(had, new)
    moved = sorted(
        name for name, digest in added["data"].items() if record["data"].get(name) != digest
    )
    if moved:
        named = ", ".join(moved)
        raise ValueError(f"the record was made from other data, so that it cannot grow: {named}")
    parts = [*record.get("parts", [part_of(record)]), part_of(added)]
    count = _count_of(had)
    both = {
        "settings": {**had, count: had[count] + new[count]},
        "rows": [*record["rows"], *added["rows"]],
        "parts": parts,
    }
    return {**record, **both}

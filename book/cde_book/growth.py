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
    """Where and when the rows of a record were made, and of which seeds they are.

    Example:
        >>> settings = {"seed": 0, "seeds": 2, "size": 9}
        >>> part_of({"time": "noon", "seconds": 3.0, "settings": settings})
        {'time': 'noon', 'seconds': 3.0, 'seed': 0, 'seeds': 2}
    """
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
    """Refuse settings that a record cannot grow by, before hours are spent on them.

    Args:
        had: the record's settings.
        new: those of the runs to add.

    Raises:
        ValueError: other settings, or seeds that do not follow.

    Example:
        >>> check_settings({"seed": 0, "seeds": 2}, {"seed": 2, "seeds": 5})
    """
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
    """A record with the rows of further seeds.

    Args:
        record: as it is stored.
        added: a record of the same experiment, of the seeds that follow.

    Returns:
        The record with both, whose settings have all seeds, and whose `parts` say where each comes
        from.

    Raises:
        ValueError: other settings, other data, data that the record knows nothing of, or seeds
            that do not follow. What the page had loaded before its experiment is not loaded anew,
            so that the added runs may name less data than the record.

    Example:
        >>> one = {"settings": {"seed": 0, "seeds": 2}, "data": {}, "rows": [{"x": 1}, {"x": 2}]}
        >>> two = {"settings": {"seed": 2, "seeds": 1}, "data": {}, "rows": [{"x": 3}]}
        >>> grown(one, two)["settings"], len(grown(one, two)["rows"])
        ({'seed': 0, 'seeds': 3}, 3)
    """
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

"""The claim ledger: what the papers claim, by which rule each claim is decided, and since when.

`book/claims.yml` holds each claim once; its head explains the fields. `book/gates.yml` says what
must be true for a measurement to mean anything.

Cost: reading two files.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from cde.validation import shown
from cde_book.checkout import project_root

__all__ = ["PAPERS", "SHORT", "Claim", "Gate", "gates", "ledger", "read_ledger"]

PAPERS = {
    "cde": "Contextual Document Embeddings",
    "clustering": "Embedding and Clustering Your Data",
    "dwell": "Dwell in the Beginning",
    "later": "Later work on position",
    "ours": "Our own questions",
}
#: short names, for narrow columns
SHORT = {
    "cde": "CDE",
    "clustering": "Clustering",
    "dwell": "Dwell",
    "later": "Later",
    "ours": "Ours",
}
_OPTIONAL = {"gates", "range", "by_construction"}
_RULES = ({"above"}, {"below"}, {"near", "tolerance"})
_ORDERS = ("before", "after", "unmeasured")


@dataclass(frozen=True)
class Gate:
    """What must be true for a measurement to mean anything."""

    id: str
    wording: str
    otherwise: str
    test: str
    above: float
    fixed: str


@dataclass(frozen=True)
class Claim:
    """One claim of one paper; the fields are explained at the head of `book/claims.yml`."""

    id: str
    paper: str
    part: str
    place: str
    wording: str
    paper_value: str
    paper_effect: float | None
    test: str
    unit: str
    expect: Mapping[str, float]
    chapter: str | None
    fixed: Mapping[str, Any]
    gates: tuple[str, ...] = field(default=())
    range: tuple[float | None, float | None] = (None, None)
    by_construction: bool = False

    @property
    def bounds(self) -> tuple[float, float]:
        """Between which values the rule wants the measured quantity."""
        rule = self.expect
        if "near" in rule:
            return rule["near"] - rule["tolerance"], rule["near"] + rule["tolerance"]
        return rule.get("above", float("-inf")), rule.get("below", float("inf"))

    @property
    def beyond(self) -> float | None:
        """How far the paper's value lies beyond the rule's one bound, in the direction that the
        claim says; below 0 on the other side. None without a value, or with two bounds.
        """
        if self.paper_effect is None or "near" in self.expect:
            return None
        ((kind, bound),) = self.expect.items()
        return self.paper_effect - bound if kind == "above" else bound - self.paper_effect


def read_ledger(path: Path) -> dict[str, Claim]:
    """Read a ledger file."""
    names = {one.name for one in fields(Claim)}
    claims: dict[str, Claim] = {}
    for entry in _entries(path):
        name = shown(entry.get("id", "a claim without an id")).strip("'")
        amiss = (names - _OPTIONAL - set(entry)) | (set(entry) - names)
        if amiss:
            raise ValueError(
                f"{path}: {name} must have the fields {sorted(names - _OPTIONAL)} and may have "
                f"{sorted(_OPTIONAL)}; amiss: {', '.join(sorted(map(str, amiss)))}"
            )
        for problem in _problems(entry, claims):
            raise ValueError(f"{path}: {name}: {problem}")
        entry["fixed"] = {**entry["fixed"], "date": str(entry["fixed"].get("date"))}
        entry["gates"] = tuple(entry.get("gates", ()))
        entry["range"] = tuple(entry.get("range", (None, None)))
        claims[entry["id"]] = Claim(**entry)
    return claims


def _entries(path: Path) -> list[dict[str, Any]]:
    """The entries of a file: a list of mappings."""
    try:
        entries = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise ValueError(f"{path} cannot be read as YAML: {str(error)[:400]}") from error
    if entries is None:
        return []
    if not isinstance(entries, list):
        raise ValueError(
            f"{path} must hold a list, an entry of each claim; it holds {str(entries)[:80]!r}"
        )
    for number, entry in enumerate(entries, start=1):
        if not isinstance(entry, dict):
            raise ValueError(
                f"{path}: entry {number} must be a mapping of fields → values; it is {shown(entry)}"
            )
    return entries


def _number_or_none(value: Any) -> bool:
    return value is None or _number(value)


def _number(value: Any) -> bool:
    """Whether a value is one that a measurement can be compared with: YAML has .nan and .inf."""
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    return plain and math.isfinite(value)


def _problems(entry: Mapping[str, Any], claims: Mapping[str, Claim]) -> list[str]:
    """What is wrong with an entry, in words."""
    problems = [
        f"{name} must be text; it is {shown(entry[name])}"
        for name in ("id", "part", "place", "wording", "paper_value", "test", "unit")
        if not isinstance(entry[name], str)
    ]
    for name, kind, said in (("expect", dict, "a rule"), ("fixed", dict, "an order and a date")):
        if not isinstance(entry[name], kind):
            problems.append(f"{name} must hold {said}; it is {shown(entry[name])}")
    listed, ends = entry.get("gates", []), entry.get("range", [None, None])
    if not isinstance(listed, list) or not all(isinstance(name, str) for name in listed):
        problems.append(f"gates must be a list of names; it is {shown(listed)}")
    if not isinstance(ends, list) or len(ends) != 2 or not all(map(_number_or_none, ends)):
        problems.append(f"range must be a list of two numbers or nulls; it is {shown(ends)}")
    if not _number_or_none(entry["paper_effect"]):
        problems.append(
            f"paper_effect must be a finite number or null; it is {shown(entry['paper_effect'])}"
        )
    if not isinstance(entry.get("by_construction", False), bool):
        problems.append(
            f"by_construction must be true or false; it is {shown(entry['by_construction'])}"
        )
    if not isinstance(entry["chapter"], str | None):
        problems.append(f"chapter must be a name or null; it is {shown(entry['chapter'])}")
    if not isinstance(entry["paper"], str) or entry["paper"] not in PAPERS:
        problems.append(f"paper must be one of {', '.join(PAPERS)}; it is {shown(entry['paper'])}")
    if problems:
        return problems
    if entry["id"] in claims:
        problems.append("the id occurs twice")
    if set(entry["expect"]) not in _RULES:
        problems.append("expect must be {above: x}, {below: x} or {near: x, tolerance: t}")
    if not all(map(_number, entry["expect"].values())):
        problems.append(f"expect must have numbers, none infinite; it is {shown(entry['expect'])}")
    order = entry["fixed"].get("order")
    if not isinstance(order, str) or order not in _ORDERS:
        problems.append(
            f"fixed must have an order, one of {', '.join(_ORDERS)}; it is {shown(order)}"
        )
    unknown = [name for name in listed if name not in gates()]
    if unknown:
        problems.append(f"gates must be of {', '.join(gates())}; {', '.join(unknown)} is not")
    return problems


@lru_cache(maxsize=1)
def gates() -> dict[str, Gate]:
    """The book's gates, by id."""
    path = project_root() / "book" / "gates.yml"
    every = yaml.safe_load(path.read_text(encoding="utf-8"))
    return {entry["id"]: Gate(**entry) for entry in every}


@lru_cache(maxsize=1)
def ledger() -> dict[str, Claim]:
    """The book's ledger, by claim id, in its order."""
    return read_ledger(project_root() / "book" / "claims.yml")

"""The claim ledger: what the papers claim, by which rule each claim is decided, and since when.

`book/claims.yml` holds each claim once; its head explains the fields. `book/gates.yml` says what
must be true for a measurement to mean anything.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import AfterValidator, PlainValidator

from cde.validation import Switch, Text, declared
from cde_book.checkout import project_root

PAPERS = {
    "cde": "Contextual Document Embeddings",
    "clustering": "Embedding and Clustering Your Data",
    "dwell": "Dwell in the Beginning",
    "later": "Later papers",
    "ours": "Our own questions",
}
#: short names, for narrow columns
SHORT = {name: name.capitalize() for name in PAPERS} | {"cde": "CDE"}
_RULES = ({"above"}, {"below"}, {"near", "tolerance"})
_ORDERS = ("before", "after", "unmeasured")
#: libyaml's, where it is there: it reads the ledger ten times as fast
_YAML = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True)
class Gate:
    """What must be true for a measurement to mean anything."""

    id: str
    wording: str
    otherwise: str
    test: str
    unit: str
    above: float
    fixed: str

    def amount(self, value: float) -> str:
        """A value of what the gate measures, with its unit."""
        return f"{value:,.0f} {self.unit}" if value >= 100 else f"{value:.2g} {self.unit}"


def _rule(value: Any) -> Any:
    if not isinstance(value, dict) or set(value) not in _RULES or None in value.values():
        raise ValueError("must be {above: x}, {below: x} or {near: x, tolerance: t}")
    return {name: _number(number) for name, number in value.items()}


def _number(value: Any) -> Any:
    """A number or none, as the file has it: 0 stays a whole number, and YAML has .nan and .inf."""
    if value is None or (type(value) in (int, float) and abs(value) < math.inf):
        return value
    raise ValueError("must have numbers, none infinite")


def _since(value: Any) -> Any:
    if not isinstance(value, dict) or value.get("order") not in _ORDERS:
        raise ValueError(f"must have an order, one of {', '.join(_ORDERS)}, and a date")
    return {**value, "date": str(value.get("date"))}


def _known(names: tuple[str, ...]) -> tuple[str, ...]:
    if set(names) <= set(gates()):
        return names
    raise ValueError(f"must be of {', '.join(gates())}")


Finite = Annotated[float | None, PlainValidator(_number)]


@declared
class Claim:
    """One claim of one paper; the fields are explained at the head of `book/claims.yml`."""

    id: Text
    paper: Literal["cde", "clustering", "dwell", "later", "ours"]
    part: Text
    place: Text
    wording: Text
    paper_value: Text
    paper_effect: Finite
    test: Text
    unit: Text
    expect: Annotated[Mapping[str, float], PlainValidator(_rule)]
    chapter: Text | None
    fixed: Annotated[Mapping[str, Any], PlainValidator(_since)]
    gates: Annotated[tuple[Text, ...], AfterValidator(_known)] = ()
    range: tuple[Finite, Finite] = (None, None)
    by_construction: Switch = False
    principal: Switch = False

    @property
    def bounds(self) -> tuple[float, float]:
        """Between which values the rule wants the measured quantity."""
        rule = self.expect
        if "near" in rule:
            return rule["near"] - rule["tolerance"], rule["near"] + rule["tolerance"]
        return rule.get("above", float("-inf")), rule.get("below", float("inf"))

    @property
    def beyond(self) -> float | None:
        """How far the paper's value lies beyond the one bound: below 0 on its other side, None
        without a value or with two bounds.
        """
        if self.paper_effect is None or "near" in self.expect:
            return None
        ((kind, bound),) = self.expect.items()
        return self.paper_effect - bound if kind == "above" else bound - self.paper_effect


def read_ledger(path: Path) -> dict[str, Claim]:
    """Read a ledger file."""
    claims: dict[str, Claim] = {}
    with path.open(encoding="utf-8") as file:  # whose name YAML tells where it cannot read it
        entries = yaml.load(file, Loader=_YAML) or []
    for entry in entries:
        name = entry.get("id", "a claim without an id")
        try:
            claim = Claim(**entry)
        except ValueError as error:
            raise ValueError(f"{path}: {name}: {error}") from None
        if claim.id in claims:
            raise ValueError(f"{path}: {name}: the id occurs twice")
        if claim.principal and any(
            one.principal and one.chapter == claim.chapter for one in claims.values()
        ):
            raise ValueError(f"{path}: {name}: its chapter has a principal claim already")
        claims[claim.id] = claim
    return claims


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

"""The claim ledger: what the papers claim, what a chapter measured, and the verdict.

`book/claims.yml` holds each claim once, with the rule that decides it. A chapter measures; this
module decides, and a chapter cannot overrule it:

- a measurement **supports** a claim if its whole interval lies where the rule says, **contradicts**
  it if the whole interval lies elsewhere, and leaves it **undecided** if the interval straddles;
- a claim **holds** if every measurement that tests it supports it, **holds in part** if some do,
  **does not hold** (at this scale) if none does, and is **not tested** if none was made.

Exploratory measurements are shown and do not count.
"""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import yaml
from numpy.typing import ArrayLike

from cde.intervals import Interval, run_interval
from cde.provenance import account
from cde.storage import project_root

__all__ = [
    "Claim",
    "Measurement",
    "Verdict",
    "decide",
    "ledger",
    "measure",
    "measure_runs",
    "outcome",
    "reason",
    "verdict",
    "verdicts",
]

Outcome = Literal["supports", "contradicts", "undecided"]
Role = Literal["test", "exploratory", "rehearsal"]
VERDICTS = ("holds", "holds in part", "does not hold", "not tested")
PAPERS = {
    "cde": "Contextual Document Embeddings",
    "clustering": "Embedding and Clustering Your Data",
    "dwell": "Dwell in the Beginning",
}
_KEYS = {
    "id",
    "paper",
    "part",
    "place",
    "wording",
    "paper_value",
    "test",
    "unit",
    "expect",
    "chapter",
}


@dataclass(frozen=True)
class Claim:
    """One claim of one paper; the fields are explained at the head of `book/claims.yml`."""

    id: str
    paper: str
    part: str
    place: str
    wording: str
    paper_value: str
    test: str
    unit: str
    expect: Mapping[str, float]
    chapter: str | None


@dataclass(frozen=True)
class Measurement:
    """What a chapter measured for a claim.

    Attributes:
        claim: the claim's id.
        what: on what, with what ("MiniLM on pydocs, Pearson").
        interval: the estimate and its interval.
        role: "test" counts for the verdict; "exploratory" is shown beside it; "rehearsal" is a
            measurement at the smoke profile, too small to mean anything.
    """

    claim: str
    what: str
    interval: Interval
    role: Role = "test"


@dataclass(frozen=True)
class Verdict:
    """One of `VERDICTS`, and why."""

    verdict: str
    reason: str


def read_ledger(path: Path) -> dict[str, Claim]:
    """Read a ledger file.

    Raises:
        ValueError: a claim with missing, unknown or invalid fields, or an id that occurs twice.
    """
    claims: dict[str, Claim] = {}
    for entry in yaml.safe_load(path.read_text(encoding="utf-8")) or []:
        name = entry.get("id", "a claim without an id")
        if set(entry) != _KEYS:
            odd = sorted(set(entry) ^ _KEYS)
            raise ValueError(
                f"{path}: {name} must have exactly the fields {sorted(_KEYS)}; amiss: "
                f"{', '.join(odd)}"
            )
        if name in claims:
            raise ValueError(f"{path}: the id {name} occurs twice")
        if entry["paper"] not in PAPERS:
            raise ValueError(
                f"{path}: {name}: paper must be one of {', '.join(PAPERS)}; it is "
                f"{entry['paper']!r}"
            )
        rules = {frozenset({"above"}), frozenset({"below"}), frozenset({"near", "tolerance"})}
        if frozenset(entry["expect"]) not in rules:
            raise ValueError(
                f"{path}: {name}: expect must be {{above: x}}, {{below: x}} or "
                f"{{near: x, tolerance: t}}"
            )
        claims[name] = Claim(**entry)
    return claims


@lru_cache(maxsize=1)
def ledger() -> dict[str, Claim]:
    """The book's ledger, by claim id, in its order."""
    return read_ledger(project_root() / "book" / "claims.yml")


def outcome(claim: Claim, interval: Interval) -> Outcome:
    """Whether an interval supports a claim, contradicts it, or leaves it undecided.

    Example:
        >>> claim = ledger()["cde-fig6-cluster-size"]
        >>> outcome(claim, Interval(0.1, 0.05, 0.15, 1000, "bootstrap"))
        'supports'
    """
    rule = claim.expect
    if "near" in rule:
        lower, upper = rule["near"] - rule["tolerance"], rule["near"] + rule["tolerance"]
    else:
        lower, upper = rule.get("above", float("-inf")), rule.get("below", float("inf"))
    # a bound that the rule states is not itself where the claim says: "above 0" is not 0
    inside = lower < interval.low and interval.high < upper
    if "near" in rule:
        inside = lower <= interval.low and interval.high <= upper
    if inside:
        return "supports"
    outside = interval.high <= lower or interval.low >= upper
    return "contradicts" if outside else "undecided"


def decide(claim: Claim, measurements: Iterable[Measurement]) -> Verdict:
    """The verdict on a claim, from the measurements that test it.

    Example:
        >>> decide(ledger()["cde-fig6-cluster-size"], []).verdict
        'not tested'
    """
    made = [measurement for measurement in measurements if measurement.claim == claim.id]
    found = [
        outcome(claim, measurement.interval) for measurement in made if measurement.role == "test"
    ]
    if not found:
        roles = {measurement.role for measurement in made}
        reason = (
            "measured at the smoke profile only"
            if "rehearsal" in roles
            else "exploratory measurements only"
        )
        return Verdict("not tested", reason if made else "no chapter has measured it yet")
    count = {kind: found.count(kind) for kind in ("supports", "contradicts", "undecided")}
    words = {"supports": "support it", "contradicts": "contradict it", "undecided": "cannot tell"}
    if len(found) > 1:
        made_up = ", ".join(f"{count[kind]} {text}" for kind, text in words.items() if count[kind])
        reason = f"of {len(found)} measurements, {made_up}"
        if count["undecided"] == len(found):
            reason = f"not shown: the intervals of all {len(found)} measurements hold the bound"
    else:
        reason = {
            "supports": "the interval lies where the claim says",
            "contradicts": "the interval lies elsewhere",
            "undecided": "not shown: the interval holds the bound",
        }[found[0]]
    if count["supports"] == len(found):
        return Verdict("holds", reason)
    return Verdict("holds in part" if count["supports"] else "does not hold", reason)


def measure(claim: str, interval: Interval, what: str, role: Role = "test") -> Measurement:
    """Enter a measurement in this chapter's account; `verdicts` shows the account.

    Raises:
        KeyError: a claim that is not in the ledger.
    """
    if claim not in ledger():
        raise KeyError(f"the ledger book/claims.yml has no claim {claim!r}")
    role = _counted(role)
    found = Measurement(claim, what, interval, role)
    # a cell that is run again replaces what it entered before
    account.measured = [m for m in account.measured if (m.claim, m.what) != (claim, what)] + [found]
    return found


def _counted(role: Role) -> Role:
    """What a measurement counts as: a test at the profile `smoke` is a rehearsal."""
    return "rehearsal" if role == "test" and account.profile == "smoke" else role


def measure_runs(claim: str, values: ArrayLike, what: str, role: Role = "test") -> Interval:
    """Enter one number a training run, with Student's interval; a single run is entered as
    exploratory.

    Args:
        claim: its id.
        values: `(runs,)`, in the claim's unit.
        what: was measured, in words.
        role: as for `measure`; what tests at other profiles is a rehearsal at `smoke`.

    Returns:
        The interval; of a single run, the number alone.

    Example:
        >>> print(measure_runs("cde-table1-clustered-batches", [1.5], "one seed"))
        1.5 [1.5, 1.5]
    """
    role = _counted(role)
    found = np.asarray(values, dtype=np.float64).ravel()
    if len(found) == 1:
        one = float(found[0])
        interval = Interval(one, one, one, 1, "one run: no interval")
        measure(
            claim,
            interval,
            f"{what} (one run: no interval)",
            "exploratory" if role == "test" else role,
        )
        return interval
    interval = run_interval(found)
    measure(claim, interval, what, role)
    return interval


class _Account:
    """The verdicts of a chapter, as a table for people and as JSON for the runner."""

    def __init__(self, entries: list[Measurement]) -> None:
        self.entries = entries

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return {"text/html": verdict_table(self.entries), "text/plain": self._text()}

    def _text(self) -> str:
        names = dict.fromkeys(entry.claim for entry in self.entries)
        return "\n".join(
            f"{name}: {decide(ledger()[name], self.entries).verdict}" for name in names
        )

    def __repr__(self) -> str:
        return self._text()


def verdict(claim: str) -> str:
    """The verdict on a claim, in a word or three, from what this chapter has measured so far.

    Raises:
        KeyError: a claim that is not in the ledger.

    Example:
        >>> verdict("cde-fig6-cluster-size")
        'not tested'
    """
    return decide(ledger()[claim], account.measured).verdict


def reason(claim: str) -> str:
    """Why the verdict on a claim is what it is, in a few words.

    Raises:
        KeyError: a claim that is not in the ledger.

    Used by the chapters `idf_divergence` and `cluster_difficulty`.

    Example:
        >>> reason("cde-fig6-cluster-size")
        'no chapter has measured it yet'
    """
    return decide(ledger()[claim], account.measured).reason


def verdicts() -> _Account:
    """This chapter's claims with the paper's value, ours, and the verdict: the last cell of a
    chapter shows it.
    """
    return _Account(list(account.measured))


def verdict_table(entries: list[Measurement]) -> str:
    """An HTML table of measurements, grouped by claim, with a verdict for each claim."""
    rows = []
    for name in dict.fromkeys(entry.claim for entry in entries):
        claim = ledger()[name]
        found = decide(claim, entries)
        rows.append(
            f'<tr class="claim"><th colspan="4" scope="rowgroup">'
            f'<span class="verdict {css(found.verdict)}">'
            f"{found.verdict}</span> {html.escape(claim.wording)} "
            f"<small>({html.escape(claim.place)}; the paper: "
            f"{html.escape(claim.paper_value)}; {html.escape(found.reason)})</small></th></tr>"
        )
        for entry in (entry for entry in entries if entry.claim == name):
            said = outcome(claim, entry.interval) if entry.role == "test" else entry.role
            rows.append(
                f"<tr><td>{html.escape(entry.what)}</td><td>{entry.interval}</td>"
                f"<td>{entry.interval.n:,}</td><td>{said}</td></tr>"
            )
    head = (
        "<tr><th>measured on</th><th>estimate [95 % interval]</th><th>n</th><th>outcome</th></tr>"
    )
    return (
        f'<div class="cde-scroll"><table class="cde-verdicts"><thead>{head}</thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def css(verdict: str) -> str:
    """The style class of a verdict."""
    return "verdict-" + verdict.replace(" ", "-")


def to_json(entries: Iterable[Measurement]) -> str:
    """Measurements as JSON; `from_json` reads them back."""
    return json.dumps([asdict(entry) for entry in entries])


def from_json(text: str) -> list[Measurement]:
    """Measurements from `to_json`."""
    return [
        Measurement(**{**entry, "interval": Interval(**entry["interval"])})
        for entry in json.loads(text)
    ]

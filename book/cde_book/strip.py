"""The strip below a chapter's leading figure: what the paper says, what we measured, on what, the
verdict with its reason, and what would change it.

It tells of the chapter's principal claim (`principal` in `book/claims.yml`), from the ledger, the
measurements and the records that the chapter read. The section *Verdict* has every claim.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from pathlib import Path

from cde_book.execution import Execution
from cde_book.ledger import Claim, gates
from cde_book.ledger_pages import Judged
from cde_book.markup import render
from cde_book.verdicts import Measurement

#: how the methods of intervals say what they are over
_OVER = re.compile(r"random effects of (\d+ \w+) and (\d+ collections)|Student's t over (\w+)")


def strip(entries: Iterable[Judged], log: Execution, root: Path) -> str:
    """The strip of a chapter, as HTML; empty where it has no principal claim."""
    own = [one for one in entries if one.claim.principal and one.claim.chapter == log.chapter]
    if not own:
        return ""
    entry = own[0]
    made = entry.verdict.leading or next(iter(entry.measurements), None)
    return render(
        "strip.html.j2",
        entry=entry,
        made=made,
        trained_on=trained_on(log, made.scale, root) if made else "",
        measured_on="" if made is None or (n := measured_on(made)) in made.what else n,
        would_change=would_change(entry),
    ).strip()


def measured_on(made: Measurement) -> str:
    """What an interval is over: seeds, collections, or however many of what was counted."""
    over, n = _OVER.match(made.interval.method), made.interval.n
    if over is None:
        return f"n = {n:,}"
    return f"{n:,} {over[3]}" if over[3] else f"{over[1]} × {over[2]}"


def trained_on(log: Execution, scale: str, root: Path) -> str:
    """What was trained, and on what, where the records that a chapter read at a scale agree."""
    records = [root / one for one in log.records if Path(one).parent.name == scale]
    trainings = {
        (one["layers"], one.get("trains"), one["pairs"], one["data"])
        for path in records
        if path.is_file() and (one := json.loads(path.read_text("utf-8")).get("settings"))
        if one.get("start") == "minilm" and one.get("pairs")
    }
    if len(trainings) != 1:
        return ""
    ((layers, part, pairs, data),) = trainings
    model = {None: "MiniLM", 0: "MiniLM's word embeddings"}.get(
        layers, f"{layers} layers of MiniLM"
    )
    model = f"a reader for {model}" if part == "reader" else model
    source = {"pairs/*": "public sources"}.get(data, data)
    return f"{model}, trained on {pairs:,} pairs ({source})"


def would_change(entry: Judged) -> str:
    """What would give a claim another verdict than it has."""
    verdict, (inside, outside) = entry.verdict, _sides(entry.claim)
    if entry.claim.by_construction:
        return "no measurement: it is so by construction"
    closed = verdict.leading.closed if verdict.leading else ()
    power = f" ({entry.power})" if entry.power else ""
    return {
        "holds": f"a larger run whose interval reaches {outside}",
        "contradicted": f"a larger run whose interval reaches {inside}",
        "inconclusive": f"an interval wholly {inside}, or wholly {outside}{power}",
        "not testable here": "a run in which "
        + " and ".join(dict.fromkeys(gates()[one.gate].wording for one in closed)),
        "not tested": "a measurement that counts as a test",
    }.get(verdict.verdict, "measurements that agree with each other")


def _sides(claim: Claim) -> tuple[str, str]:
    """Where the rule wants the measured quantity, and where it does not."""
    low, high = claim.bounds
    if math.isinf(high):
        return f"above {low:g}", f"{low:g} or less"
    if math.isinf(low):
        return f"below {high:g}", f"{high:g} or more"
    return f"between {low:g} and {high:g}", "outside that"

"""What a chapter measures: gates, then claims, then the verdicts that follow by rule.

`cde_book.ledger` has the claims and their rules, `cde_book.verdicts` decides. A chapter enters what
it measured in the account of its process; the last cell hands the account over to the runner.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from cde.intervals import Interval, interval_text, table_interval
from cde_book.account import account
from cde_book.ledger import gates, ledger
from cde_book.markup import Box, render
from cde_book.run_mode import this_run
from cde_book.verdicts import VERDICTS, Measurement, Reading, Role, Verdict, decide, outcome
from cde_studies.intervals import mean_of_runs


def gate(name: str, value: float | None, what: str, scale: str | None = None) -> Reading:
    """Enter what a gate showed; measurements of claims that name it, entered later, carry it."""
    if name not in gates():
        raise KeyError(f"book/gates.yml has no gate {name!r}; it has {', '.join(gates())}")
    reading = Reading(name, None if value is None else float(value), what)
    account.gates[scale or account.profile, name] = reading
    return reading


def measure(
    claim: str, interval: Interval, what: str, role: Role | bool = "test", scale: str | None = None
) -> Measurement:
    """Enter a measurement in this chapter's account; `verdicts` shows the account."""
    if claim not in ledger():
        raise KeyError(f"the ledger book/claims.yml has no claim {claim!r}")
    scale = scale or account.profile
    readings = tuple(
        account.gates.get((scale, name), Reading(name, None)) for name in ledger()[claim].gates
    )
    made = Measurement(claim, what, interval, _counted(role), scale, readings)
    # a cell that is run again replaces what it entered before
    place = (claim, what, scale)
    others = [one for one in account.measured if (one.claim, one.what, one.scale) != place]
    account.measured = [*others, made]
    return made


def _counted(role: Role | bool) -> Role:
    """What a measurement counts as, true for a test; at the profile `smoke` that is a rehearsal."""
    role = role if isinstance(role, str) else "test" if role else "exploratory"
    return "rehearsal" if role == "test" and account.profile == "smoke" else role


def measure_runs(
    claim: str,
    values: ArrayLike | pd.Series[float],
    what: str,
    role: Role | bool = "test",
    scale: str | None = None,
) -> Interval:
    """Enter the numbers of training runs with the interval that decides: over seeds and collections
    at once (`table_interval`) where there are both. A single run is entered as exploratory.
    """
    if isinstance(values, pd.Series) and values.index.nlevels > 1:
        values = values.dropna()
        interval = table_interval(values) or mean_of_runs(values)
        runs = values.index.get_level_values(0).nunique()
    else:
        interval = mean_of_runs(values)
        runs = interval.n
    if interval.n == 1:
        what = f"{what} ({interval.method})"
    if runs == 1 and _counted(role) == "test":
        role = "exploratory"
    measure(claim, interval, what, role, scale)
    return interval


def measure_fresh_runs(claim: str, values: pd.Series[float], what: str, first: int = 3) -> Interval:
    """Enter training runs of which those with a seed before `first` had been looked at when the
    rest was asked for: later ones decide alone, and too few of them are exploratory.
    """
    fresh, seen = values[values.index >= first], values[values.index < first]
    if len(fresh) < 2:
        return measure_runs(claim, values, what, account.profile == "smoke")
    if len(seen) > 1:
        measure_runs(claim, seen, what, "exploratory")
    return measure_runs(claim, fresh, what)


def reason(claim: str) -> str:
    """Why the verdict on a claim is what it is, in a few words."""
    return _decided(claim).reason


def by_verdict(claim: str, holds: str, contradicted: str, otherwise: str) -> str:
    """The sentence that the verdict makes true, so that an answer stays true with other numbers."""
    return {"holds": holds, "contradicted": contradicted}.get(_decided(claim).verdict, otherwise)


def shown(found: Interval | float, digits: int = 1) -> str:
    """An estimate with its interval, for a sentence; of a number or a run alone, that."""
    if isinstance(found, Interval):
        if found.n > 1 or found.low < found.high:
            return interval_text(found.estimate, found.low, found.high, digits)
        found = found.estimate
    return f"{round(found, digits) + 0.0:.{digits}f}"  # no "-0.0"


def apart(
    one: str, found: Interval | float, other: str, unit: str = "points of NDCG@10", digits: int = 1
) -> str:
    """What a difference says, without its full stop: *one* is so much above, or below, *other*."""
    where = "below" if (found.estimate if isinstance(found, Interval) else found) < 0 else "above"
    if not isinstance(found, Interval):
        found = abs(found)
    elif where == "below":
        found = replace(found, estimate=-found.estimate, low=-found.high, high=-found.low)
    return " ".join(filter(None, (one, "is", shown(found, digits), unit, where, other)))


def badges() -> str:
    """The verdicts of this chapter's claims as one line of HTML, equal ones as one badge; where it
    has measured nothing, its claims as not tested.
    """
    groups: dict[tuple[str, str], list[str]] = {}
    chapter = Path(this_run().chapter).stem
    own = [claim.id for claim in ledger().values() if claim.chapter == chapter]
    for name in dict.fromkeys([one.claim for one in account.measured] or own):
        decided = _decided(name)
        groups.setdefault((decided.verdict, decided.scale), []).append(ledger()[name].wording)
    order = sorted(groups, key=lambda one: VERDICTS.index(one[0]))
    badges = [(key, groups[key]) for key in order]
    return " ".join(render("badges.html.j2", badges=badges).split()) if badges else ""


def _decided(claim: str) -> Verdict:
    return decide(ledger()[claim], account.measured)


def verdicts() -> Box:
    """This chapter's claims with the paper's value, ours, and the verdict, for its last cell."""
    groups, text = [], []
    for name in dict.fromkeys(entry.claim for entry in account.measured):
        claim, own = ledger()[name], [one for one in account.measured if one.claim == name]
        decided = decide(claim, own)
        group = {
            "claim": claim,
            "verdict": decided,
            "power": power_in_words(name, decided),
            "rows": [
                (one, outcome(claim, one.interval) if one.role == "test" else one.role)
                for one in own
            ],
            "closed": dict.fromkeys(gate.reason for one in own for gate in one.closed),
        }
        groups.append(group)
        text.append(f"{name}: {decided.verdict}")
    return Box(render("verdicts.html.j2", groups=groups), "\n".join(text))


def power_in_words(claim: str, decided: Verdict) -> str:
    """What an inconclusive verdict means, beside the paper's value; empty for other verdicts."""
    if decided.verdict != "inconclusive" or decided.smallest is None:
        return ""
    known = ledger()[claim]
    if np.isinf(decided.smallest):
        return "no outcome of this measurement could have shown it"
    if "near" in known.expect:
        return f"would have shown equality within {decided.smallest:.2g}"
    low, high = known.range
    ((kind, bound),) = known.expect.items()
    end = high if kind == "above" else low
    if end is not None and decided.smallest > abs(end - bound):
        return "nothing that the quantity can be would have been shown with such a spread"
    text = f"four in five such runs would show a value {decided.smallest:.2g} from the bound"
    if known.beyond is None:
        return text
    other = "the paper's own number lies on the other side of it"
    return f"{text}, and {f'the paper has {known.beyond:.2g}' if known.beyond > 0 else other}"

"""Differences of arms at every profile that has runs of them: drawn and as a table.

A difference is named, and is a pair of selections of rows (`cde_studies.sweeps.Sweep`): what is
compared, and with what. Its interval is over other seeds and other sets at once; with a single seed
or set there is none, and the mean stands alone. A larger scale decides where it has an interval.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from cde.intervals import Interval, smallest_effect
from cde_book import charts
from cde_book.account import account
from cde_book.markup import Box
from cde_book.page import show_source
from cde_book.records import records_at_other_profiles
from cde_book.verdicts import order
from cde_studies.sweeps import Sweep

#: name → what is compared, with what: arguments of `Sweep.score`
Differences = Mapping[str, tuple[Mapping[str, Any], Mapping[str, Any]]]


def sweeps_at_profiles(
    name: str, rows: pd.DataFrame, at_day: pd.DataFrame | None = None
) -> dict[str, Sweep]:
    """The reader's own sweep, those of other profiles' records (says where these are from), and the
    rows of a long run that was made just now.
    """
    found = {account.profile: Sweep(rows)}
    for profile, record in records_at_other_profiles(name, account.profile).items():
        found[profile] = Sweep(record.rows)
        show_source(f"{profile}: {record.note}")
    return found if at_day is None else found | {"day": Sweep(at_day)}


def difference_table(
    runs: Mapping[str, Sweep], differences: Differences, /, **common: Any
) -> pd.DataFrame:
    """A line for each profile and difference: points, interval, what 80 % power would have seen."""
    lines = []
    for profile, sweep in runs.items():
        for name, pair in differences.items():
            gains = sweep.gain(*pair, by=["seed", "set"], **common).dropna()
            if gains.empty:
                continue
            found = sweep.crossed_gain(*pair, **common)
            units = {unit: gains.index.get_level_values(unit).nunique() for unit in ("seed", "set")}
            lines.append(
                {
                    "profile": profile,
                    "difference": name,
                    "points": str(found) if found else f"{gains.mean():.2f}",
                    "seen with 80 % power": f"{smallest_effect(found):.2g}" if found else "",
                    "seeds": units["seed"],
                    "sets": units["set"],
                }
            )
    return pd.DataFrame(lines)


def show_differences(
    runs: Mapping[str, Sweep],
    differences: Differences,
    caption: str,
    answers: str,
    /,
    marks: Mapping[str, float] | None = None,
    lead: bool = False,
    **common: Any,
) -> Box:
    """Show the differences one below the other, with a colour for each of several profiles; a dot
    alone without an interval, with the numbers of `difference_table`; `marks` are the paper's, by
    the name of the difference. The caption ends with what would have been seen.
    """
    found: dict[tuple[str, str], Interval] = {}
    for profile, sweep in runs.items():
        for name, pair in differences.items():
            if not isinstance(one := difference(sweep, pair, **common), Interval):
                one = Interval(one, one, one, 1, "no interval")
            if not math.isnan(one.estimate):
                found[name, profile] = one
    shown: dict[Any, Any] = dict(found)
    known = marks or {}
    papers: dict[Any, Any] = {key: known[key[0]] for key in found if key[0] in known}
    if len({profile for _, profile in found}) > 1:
        place = {name: number for number, name in enumerate(differences)}
        small_first = sorted(found, key=lambda key: (place[key[0]], -order(key[1])))
        found = {key: found[key] for key in small_first}
        shown, papers = _by_difference(found), _by_difference(papers)
    beside = pd.DataFrame()
    if found:
        table = difference_table(runs, differences, **common)
        table = table.set_index(["difference", "profile"]).loc[list(found)]
        beside = table[["seen with 80 % power", "seeds", "sets"]].reset_index(drop=True)
        if seen := sorted(map(float, filter(None, beside["seen with 80 % power"]))):
            least = " to ".join(dict.fromkeys(f"{one:g}" for one in (seen[0], seen[-1])))
            caption += f" Four in five runs like a row's would show a difference of {least} points."
    return charts.show_forest(
        shown,
        ["difference", "profile"],
        "points of NDCG@10 out of domain",
        caption,
        answers,
        marks=papers or None,
        lead=lead,
        beside=beside.to_dict("series"),
    )


def _by_difference(values: Mapping[tuple[str, str], Any]) -> dict[str, dict[str, Any]]:
    """The same by difference, and in it by profile."""
    nested: dict[str, dict[str, Any]] = {}
    for (name, profile), value in values.items():
        nested.setdefault(name, {})[profile] = value
    return nested


def deciding(
    runs: Mapping[str, Sweep], pair: tuple[Mapping[str, Any], Mapping[str, Any]], /, **common: Any
) -> Interval | float:
    """A difference at `day`, if it has an interval there, else at the reader's own profile."""
    if "day" in runs and isinstance(longer := difference(runs["day"], pair, **common), Interval):
        return longer
    return difference(runs[account.profile], pair, **common)


def difference(
    sweep: Sweep, pair: tuple[Mapping[str, Any], Mapping[str, Any]], /, **common: Any
) -> Interval | float:
    """A difference with its interval; the mean alone, where there is one seed or one set."""
    return sweep.crossed_gain(*pair, **common) or float(sweep.gain(*pair, **common).mean())

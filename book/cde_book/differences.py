"""Differences of arms at every profile that has runs of them: drawn and as a table.

A difference is named, and is a pair of selections of rows (`cde_studies.sweeps.Sweep`): what is
compared, and with what. Its interval is over other seeds and other sets at once; with a single seed
or set there is none, and the mean stands alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from cde.intervals import Interval, smallest_effect
from cde_book import charts, plots
from cde_book.account import account
from cde_book.page import show_source
from cde_book.records import records_at_other_profiles
from cde_book.run_mode import this_run
from cde_studies.sweeps import Sweep

#: name → what is compared, with what: arguments of `Sweep.score`
Differences = Mapping[str, tuple[Mapping[str, Any], Mapping[str, Any]]]


def sweeps_at_profiles(name: str, rows: pd.DataFrame) -> dict[str, Sweep]:
    """The reader's own sweep, and those of other profiles' records; says where these are from."""
    found = {account.profile: Sweep(rows)}
    for profile, record in records_at_other_profiles(name, account.profile, this_run()).items():
        found[profile] = Sweep(record.rows)
        show_source(f"{profile}: {record.note}")
    return found


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


def draw_differences(
    runs: Mapping[str, Sweep], differences: Differences, /, **common: Any
) -> tuple[Any, pd.DataFrame]:
    """The differences that have an interval, drawn one below the other, and their numbers."""
    found = {
        (profile, name): interval
        for profile, sweep in runs.items()
        for name, pair in differences.items()
        if isinstance(interval := difference(sweep, pair, **common), Interval)
    }
    with plots.figure(width=7.2, height=1.1 + 0.3 * len(found)) as (drawing, axis):
        lines = {f"{name} ({profile})": interval for (profile, name), interval in found.items()}
        charts.forest(axis, lines, "points of NDCG@10 out of domain", bound=0)
    return drawing, charts.interval_table(found, ["profile", "difference"], "points")


def difference(
    sweep: Sweep, pair: tuple[Mapping[str, Any], Mapping[str, Any]], /, **common: Any
) -> Interval | float:
    """A difference with its interval; the mean alone, where there is one seed or one set."""
    return sweep.crossed_gain(*pair, **common) or float(sweep.gain(*pair, **common).mean())

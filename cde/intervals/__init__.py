"""Estimates with their intervals, tests, power, and the sources of spread."""

from cde.intervals.comparisons import PairedTest, false_discovery, holm, paired_test
from cde.intervals.estimates import (
    Interval,
    best_on_grid,
    clustered_interval,
    correlation_interval,
    mean_and_interval,
    mean_and_spread,
    mean_interval,
    run_interval,
    share_interval,
)
from cde.intervals.power import p_value, smallest_effect, smallest_tolerance
from cde.intervals.spread import Spread, crossed_interval, spread, table_interval

__all__ = [
    "Interval",
    "PairedTest",
    "Spread",
    "best_on_grid",
    "clustered_interval",
    "correlation_interval",
    "crossed_interval",
    "false_discovery",
    "holm",
    "mean_and_interval",
    "mean_and_spread",
    "mean_interval",
    "p_value",
    "paired_test",
    "run_interval",
    "share_interval",
    "smallest_effect",
    "smallest_tolerance",
    "spread",
    "table_interval",
]

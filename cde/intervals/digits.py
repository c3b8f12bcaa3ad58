"""An estimate and its interval as text, with as many digits as the interval's width bears.

Half the width is shown to two significant digits, and the estimate and both bounds with as many
decimals as that takes. Readers look whether intervals reach zero, so a bound that is not zero gets
more decimals before it is rounded to zero.

Cost: none.
"""

from __future__ import annotations

import math

__all__ = ["interval_text", "number_text"]

_MOST_DECIMALS = 6


def number_text(value: float, digits: int | None = None) -> str:
    """A number with some digits behind the point, or with three significant ones."""
    # + 0.0, since a small negative number would be shown as -0.00
    return f"{value:.3g}" if digits is None else f"{round(value, digits) + 0.0:.{digits}f}"


def interval_text(estimate: float, low: float, high: float, digits: int | None = None) -> str:
    """An estimate and its bounds, all with the same decimals."""
    if digits is None:
        digits = _decimals(low, high)
    shown, lowest, highest = (number_text(one, digits) for one in (estimate, low, high))
    return f"{shown} [{lowest}, {highest}]"


def _decimals(low: float, high: float) -> int | None:
    half = (high - low) / 2
    if not 0 < half < math.inf:
        return None
    decimals = max(0, 1 - int(f"{half:.1e}".partition("e")[2]))
    bounds = [one for one in (low, high) if one]
    while decimals <= _MOST_DECIMALS and not all(round(one, decimals) for one in bounds):
        decimals += 1
    return decimals if decimals <= _MOST_DECIMALS else None

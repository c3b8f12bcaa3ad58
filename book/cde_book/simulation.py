"""Could a rule say anything else? The chances of each verdict, by drawing measurements anew.

The measurements of each claim that was tested are drawn as they were made, so many runs with so
much scatter, with three truths: the paper's effect, half of it, and none. The same rule then
decides. Where the paper gives no number, the effect is the smallest that the measurement shows with
a power of 80 %. Cost: a few milliseconds a claim.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from functools import cache

import numpy as np

from cde.intervals import BINOMIAL, Interval, smallest_effect
from cde_book.ledger import Claim
from cde_book.verdicts import VERDICTS, Measurement, of_outcomes, outcome
from cde_studies.intervals import share_interval

TRUTHS = ("the paper's effect", "half of it", "none")


def simulated(
    claim: Claim, tests: Sequence[Measurement], truth: float, repetitions: int = 500, seed: int = 0
) -> Counter[str]:
    """How often each verdict comes out if the measured quantity truly has a value."""
    generator = np.random.default_rng(seed)
    drawn = [_draws(one.interval, truth, repetitions, generator) for one in tests]
    return Counter(
        of_outcomes([outcome(claim, interval) for interval in intervals])
        for intervals in zip(*drawn, strict=True)
    )


def _draws(
    interval: Interval, truth: float, count: int, generator: np.random.Generator
) -> list[Interval]:
    """The same measurement, made so many times."""
    from scipy import stats

    n, method = interval.n, interval.method
    if method.startswith(BINOMIAL):
        shares = _shares(n)
        return [shares[hits] for hits in generator.binomial(n, min(max(truth, 0.0), 1.0), count)]
    error, freedom = interval.standard_error, interval.freedom
    estimates = truth + error * generator.standard_normal(count)
    errors = np.full(count, error)
    if math.isfinite(freedom):  # few runs: their scatter is itself estimated
        errors = error * np.sqrt(generator.chisquare(freedom, count) / freedom)
    half = stats.t.ppf(0.975, freedom) * errors
    return [
        Interval(float(one), float(one - by), float(one + by), n, method)
        for one, by in zip(estimates, half, strict=True)
    ]


@cache
def _shares(n: int) -> list[Interval]:
    """The exact intervals of no hit, one hit, … all of n."""
    return [share_interval(np.arange(n) < hits, "things") for hits in range(n + 1)]


def chances(claim: Claim, tests: Sequence[Measurement]) -> dict[str, dict[str, int]]:
    """How often each verdict comes out, in per cent, if the claim is true, half true and false."""
    lower, upper = claim.bounds
    if "near" in claim.expect:
        centre = (lower + upper) / 2
        values = (centre, (centre + upper) / 2, upper)
    else:
        bound, sign = (lower, 1) if math.isfinite(lower) else (upper, -1)
        beyond = claim.beyond
        if beyond is None or beyond <= 0:  # no number, or one that is not such an effect
            shown = max(smallest_effect(one.interval, bound) for one in tests)
            beyond = shown if math.isfinite(shown) else 0.0
        effect = bound + sign * beyond
        values = (effect, (effect + bound) / 2, bound)
    drawn = {name: simulated(claim, tests, one) for name, one in zip(TRUTHS, values, strict=True)}
    return {
        name: {verdict: round(of[verdict] / of.total() * 100) for verdict in VERDICTS}
        for name, of in drawn.items()
    }


def attainable(claim: Claim, test: Measurement) -> set[str]:
    """Which outcomes a measurement of this size could have had at all.

    Of a share of n things both ends are tried, none and all of them; of other quantities the ends
    of their range (a distance is not below 0), or anything where they have none.
    """
    interval = test.interval
    if interval.method.startswith(BINOMIAL):
        return {str(outcome(claim, one)) for one in _shares(interval.n)}
    low, high = claim.range
    lower, upper = claim.bounds
    inside = lower if math.isinf(upper) else upper if math.isinf(lower) else (lower + upper) / 2
    step = max(abs(inside), 1.0)
    least = inside - 9 * step if low is None else low
    greatest = inside + 9 * step if high is None else high
    ends = [least, greatest, min(max(inside, least), greatest)]
    return {str(outcome(claim, Interval(end, end, end, interval.n, ""))) for end in ends}

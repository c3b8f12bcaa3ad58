"""Whatever is given to a loader or a public function works, or is refused in words by `cde`.

`CDE_CASES=20` tries twenty times as many cases; `python tests/reliability/bad_input.py 20` does so
too, goes on after a defect, and counts.
"""

from __future__ import annotations

import os

import pytest
from bad_input import TARGETS, Target, judged, run

pytestmark = pytest.mark.slow

TIMES = int(os.environ.get("CDE_CASES") or 1)


@pytest.mark.parametrize("name", TARGETS)
def test_it_works_or_is_refused_by_name(name: str) -> None:
    run(TARGETS[name], TIMES)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: {}["x"], "no refusal, KeyError"),
        (lambda: int("x"), "raised outside of cde, ValueError"),
        (lambda: refused("another thing"), "names nothing of"),
    ],
)
def test_other_errors_are_defects(call: object, said: str) -> None:
    """The judge itself: an error of Python's, one from elsewhere, one that names nothing."""
    target = Target(lambda case: case(), None, ("size",))  # type: ignore[arg-type]
    with pytest.raises(AssertionError, match=said):
        judged(target, call)
    assert judged(target, lambda: refused("size")) == "refused"
    assert judged(target, lambda: None) == "worked"


def refused(name: str) -> None:
    from cde.validation import checked_whole

    checked_whole(-1, name)

"""Whatever is given to a loader or a public function works, or is refused in words by `cde`.

`CDE_CASES=20` tries twenty times as many cases; `python tests/reliability/bad_input.py 20` does so
too, goes on after a defect, and counts.
"""

from __future__ import annotations

import os

import pytest
from bad_input import TARGETS, run

pytestmark = pytest.mark.slow

TIMES = int(os.environ.get("CDE_CASES") or 1)


@pytest.mark.parametrize("name", TARGETS)
def test_it_works_or_is_refused_by_name(name: str) -> None:
    run(TARGETS[name], TIMES)

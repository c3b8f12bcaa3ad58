"""A few of the kills of `kills.py`, in each stage that takes a second or less, and in the extraction.

The rest is killed by `python tests/reliability/kills.py`, which takes minutes.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from kills import Server, killed

pytestmark = pytest.mark.slow

STAGES = {"embedding": 3, "training": 3, "indexing": 3, "extraction": 1}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    made = Server(list(STAGES), tmp_path_factory.mktemp("kills"))
    yield made
    made.close()


@pytest.mark.parametrize("stage", STAGES)
def test_killed_work_ends_with_the_same_numbers_and_leaves_nothing(
    stage: str, server: Server
) -> None:
    count = killed(stage, STAGES[stage], random.Random(stage), server)
    assert count.problems == []
    assert count.kills >= STAGES[stage] and count.same == count.completions
    assert (count.processes_left, count.files_left) == (0, 0)

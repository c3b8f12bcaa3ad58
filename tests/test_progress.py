"""What bars leave behind where the output is not a terminal."""

from __future__ import annotations

import io
from typing import Any

import pytest
from tqdm import tqdm

import cde.progress
from cde.progress import progress


def test_a_bar_within_a_bar_writes_over_the_same_line_and_only_the_outer_one_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written = io.StringIO()

    class Impatient(tqdm):  # type: ignore[type-arg]
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(
                *arguments, **{**options, "delay": 0, "mininterval": 0, "file": written}
            )

    monkeypatch.setattr(cde.progress, "tqdm", Impatient)
    for _ in progress(range(2), "outer"):
        assert list(progress(range(3), "inner")) == [0, 1, 2]
    said = written.getvalue()
    assert "inner" in said and "\x1b" not in said
    assert said.count("\n") == 1
    assert said.rpartition("\r")[2].startswith("outer: 100%")

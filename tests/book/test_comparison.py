"""Two runs side by side: what differs is shown, what agrees is not, and numbers meet by place."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import nbformat
import pytest

from cde.intervals import Interval
from cde.storage import write_json
from cde_book import page
from cde_book.account import Account
from cde_book.comparison import compared, numbered, read_run
from cde_book.execution import Execution
from cde_book.verdicts import Measurement, from_rows

CLAIM, OTHER = "cde-fig6-cluster-size", "cde-fig6-batch-size"


def run(
    seed: int, *numbers: tuple[str, str, float], chapter: str = "batch_and_cluster_size"
) -> Execution:
    entries = [
        asdict(Measurement(claim, what, Interval(x, x - 0.1, x + 0.1, 9, "made up")))
        for claim, what, x in numbers
    ]
    settings = {"seed": seed, "profile": "laptop"}
    log = Execution(chapter, "laptop", settings, seconds=3.0, commit="abc", device="CPU")
    return replace(log, measurements=json.loads(json.dumps(entries)))


def test_only_what_differs_is_listed() -> None:
    settings, _ = compared({"one": run(1), "two": run(2)})
    assert settings.to_dict("index") == {"seed": {"one": "1", "two": "2"}}
    settings, _ = compared({"one": run(1), "two": run(1)})
    assert settings.empty


def test_numbers_meet_by_claim_and_place_whatever_their_words() -> None:
    one = run(1, (CLAIM, "8 pairs", 1.0), (OTHER, "8 pairs", 3.0), (CLAIM, "9 pairs", 2.0))
    two = run(2, (CLAIM, "80 pairs", -1.0), (OTHER, "80 pairs", 4.0))
    _, numbers = compared({"one": one, "two": two})
    assert numbers.index.tolist() == [CLAIM, "  1. 8 pairs", "  2. 9 pairs", OTHER, "  1. 8 pairs"]
    assert numbers["one"].tolist()[::3] == ["holds at laptop", "holds at laptop"]
    assert numbers["two"].tolist()[:3] == ["contradicted at laptop", "-1.00 [-1.10, -0.90]", ""]
    assert list(numbered(one)) == [(CLAIM, 0), (OTHER, 0), (CLAIM, 1)]


def test_runs_of_two_chapters_are_not_compared() -> None:
    with pytest.raises(
        ValueError, match=r"only runs of one chapter .* \['batch_and_cluster_size', 'x'\]"
    ):
        compared({"one": run(1), "two": run(1, chapter="x")})


def test_a_run_is_read_from_beside_its_notebook(tmp_path: Path) -> None:
    log = run(3, (CLAIM, "8 pairs", 1.0))
    write_json(tmp_path / "mine.json", asdict(log))
    assert read_run(str(tmp_path / "mine.ipynb")) == log
    with pytest.raises(FileNotFoundError, match="writes it beside the notebook"):
        read_run(str(tmp_path / "yours.ipynb"))
    (tmp_path / "odd.json").write_text("[1]")
    with pytest.raises(ValueError, match="is not a log of a run"):
        read_run(str(tmp_path / "odd.json"))


def test_a_page_that_another_tool_has_run_tells_of_its_run_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handed: list[Any] = []
    monkeypatch.setattr(page, "account", Account())
    monkeypatch.setattr(page, "display", lambda data, **_: handed.append(data))
    page.settings({"profile": "smoke", "seed": 5, "size": 3, "steps": None}, laptop={"size": 9})
    page.provenance("batch_and_cluster_size")
    log = run(5, (CLAIM, "8 pairs", 1.0))
    page.account.measured = from_rows(log.measurements)
    page.finish()
    cell = nbformat.v4.new_code_cell(outputs=[nbformat.v4.new_output("display_data", handed[0])])
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), tmp_path / "theirs.ipynb")
    theirs = read_run(str(tmp_path / "theirs.ipynb"))
    assert theirs.chapter == "batch_and_cluster_size" and theirs.profile == "smoke"
    assert theirs.parameters == {"profile": "smoke", "seed": 5, "size": 3}
    assert numbered(theirs) == numbered(log)
    nbformat.write(nbformat.v4.new_notebook(), tmp_path / "theirs.ipynb")
    with pytest.raises(ValueError, match="run to its last cell"):
        read_run(str(tmp_path / "theirs.ipynb"))

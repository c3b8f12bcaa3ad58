"""Records stand in for what cannot be computed here, are labelled, and are flagged when their code has changed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
import torch

from cde import surrogate
from cde.book import records
from cde.book.records import beside, recorded

ROWS = pd.DataFrame({"collection": ["a", "b"], "score": [0.25, 0.5]})


@pytest.fixture
def book(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(records, "project_root", lambda: tmp_path)
    return tmp_path


def refuse() -> pd.DataFrame:
    raise AssertionError("a record was at hand, and yet the experiment ran")


def test_what_is_recorded_here_is_read_elsewhere(
    book: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert recorded("toy", "laptop", refuse, here=False, settings={"size": 1}) is None
    assert recorded("toy", "laptop", lambda: ROWS, here=True, settings={"size": 1}).note == ""
    assert not (book / "book").exists(), "nothing is written unless it is asked for"
    monkeypatch.setenv("CDE_RECORD", "1")
    recorded("toy", "laptop", lambda: ROWS, here=True, settings={"size": 1})
    found = recorded("toy", "laptop", refuse, here=False, settings={"size": 1})
    pd.testing.assert_frame_equal(found.rows, ROWS)
    assert "Read from the record book/records/laptop/toy.json, not computed here" in found.note
    assert "changed" not in found.note


def test_a_record_of_other_settings_or_another_profile_is_not_used(
    book: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CDE_RECORD", "1")
    recorded("toy", "laptop", lambda: ROWS, here=True, settings={"size": 1})
    assert recorded("toy", "laptop", refuse, here=False, settings={"size": 2}) is None
    assert recorded("toy", "gpu", refuse, here=False, settings={"size": 1}) is None


def test_a_record_whose_code_has_changed_is_used_and_flagged(
    book: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CDE_RECORD", "1")
    recorded("toy", "laptop", lambda: ROWS, here=True, settings={})
    path = book / "book" / "records" / "laptop" / "toy.json"
    record = json.loads(path.read_text())
    record["modules"]["intervals.py"] = "0" * 16
    path.write_text(json.dumps(record))
    found = recorded("toy", "laptop", refuse, here=False, settings={})
    assert "Since then intervals.py changed; the record may be out of date" in found.note


def test_a_fresh_book_uses_no_record(book: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CDE_RECORD", "1")
    recorded("toy", "laptop", lambda: ROWS, here=True, settings={})
    monkeypatch.setenv("CDE_FRESH", "1")
    assert recorded("toy", "laptop", refuse, here=False, settings={}) is None


def test_committed_records_hold_numbers_and_their_provenance() -> None:
    for path in (Path(__file__).resolve().parents[1] / "book" / "records").rglob("*.json"):
        record = json.loads(path.read_text())
        assert set(record) == {
            "time",
            "commit",
            "device",
            "python",
            "settings",
            "data",
            "modules",
            "rows",
        }
        for row in record["rows"]:
            texts = [value for value in row.values() if isinstance(value, str)]
            assert all(len(text) < 40 for text in texts), f"{path} holds a text: {texts}"
        # memory and time of a step are measured on random words
        assert record["data"] or path.stem.startswith("gradient-caching-")
        assert record["commit"] != "unknown"


def test_a_costly_experiment_is_read_from_its_record_unless_asked_for(
    book: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def costly(compute: Callable[[], pd.DataFrame]) -> records.Recorded | None:
        return recorded("toy", "laptop", compute, here=True, settings={}, costly=True)

    assert costly(lambda: ROWS).note == "", "without a record it is computed"
    monkeypatch.setenv("CDE_RECORD", "1")
    assert costly(lambda: ROWS).note == ""
    monkeypatch.delenv("CDE_RECORD")
    assert "Read from the record" in costly(refuse).note
    monkeypatch.setenv("CDE_FRESH", "1")
    assert costly(lambda: ROWS).note == "", "--fresh uses none"


def test_one_record_alone_can_be_asked_for(book: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = book / "book" / "records"
    monkeypatch.setenv("CDE_RECORD", "1")
    recorded("toy", "laptop", lambda: ROWS, here=True, settings={}, costly=True)
    monkeypatch.setenv("CDE_RECORD", "hours/toy")
    assert (
        "Read from the record"
        in recorded("toy", "laptop", refuse, here=True, settings={}, costly=True).note
    )
    recorded("another", "hours", lambda: ROWS, here=True, settings={})
    assert [str(path.relative_to(folder)) for path in folder.rglob("*.json")] == ["laptop/toy.json"]
    recorded("toy", "hours", lambda: ROWS, here=True, settings={}, costly=True)
    assert (folder / "hours" / "toy.json").exists()


def test_records_of_other_profiles_stand_beside_with_their_own_settings(
    book: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CDE_RECORD", "1")
    for profile, size in (("smoke", 1), ("laptop", 2), ("gpu", 3), ("hours", 4)):
        rows = ROWS.assign(score=float(size))
        recorded("toy", profile, lambda rows=rows: rows, here=True, settings={"size": size})
    monkeypatch.delenv("CDE_RECORD")
    found = beside("toy", "laptop")
    assert {profile: one.rows["score"].iloc[0] for profile, one in found.items()} == {
        "gpu": 3.0,
        "hours": 4.0,
    }
    assert "book/records/gpu/toy.json" in found["gpu"].note
    assert set(beside("toy", "gpu")) == {"laptop", "hours"}
    monkeypatch.setenv("CDE_FRESH", "1")
    assert beside("toy", "laptop") == {}


@pytest.mark.parametrize(("fast", "precision"), [(True, "bfloat16"), (False, "float32")])
def test_a_record_names_the_precision_that_auto_is_here(
    book: Path, monkeypatch: pytest.MonkeyPatch, fast: bool, precision: str
) -> None:
    monkeypatch.setattr(surrogate, "bfloat16_is_fast", lambda: fast)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setenv("CDE_RECORD", "1")
    recorded("toy", "laptop", lambda: ROWS, here=True, settings={})
    record = json.loads((book / "book" / "records" / "laptop" / "toy.json").read_text())
    assert record["device"].startswith("CPU (")
    assert record["device"].endswith(f" threads, {precision}")

"""Records stand in for what cannot be computed here, are labelled, and are flagged when their code
has changed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from cde import hardware
from cde.adaptation import linear_reader
from cde.data import load_pairs
from cde.provenance import account as data_account
from cde_book import checkout, page, records
from cde_book.account import account
from cde_book.cli import checks
from cde_book.commands import _tell_of_proofs
from cde_book.records import differences, digest_of_rows, proof_states, recorded
from cde_book.run_mode import EVERY, PLAIN, RunMode, this_run
from cde_studies.motivation.training_free import least_near

ALL, FRESH = RunMode(record=EVERY), RunMode(fresh=True)
ROWS = pd.DataFrame({"collection": ["a", "b"], "score": [0.25, 0.5]})


@pytest.fixture
def book(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(records, "project_root", lambda: tmp_path)
    # without what the tests before this one loaded: a record would name it, and fingerprint it anew
    monkeypatch.setattr(data_account, "loaded", {})
    return tmp_path


def refuse() -> pd.DataFrame:
    raise AssertionError("a record was at hand, and yet the experiment ran")


def test_what_is_recorded_here_is_read_elsewhere(book: Path) -> None:
    assert recorded("toy", "laptop", refuse, can_run=False, settings={"size": 1}) is None
    assert recorded("toy", "laptop", lambda: ROWS, can_run=True, settings={"size": 1}).note == ""
    assert not (book / "book").exists(), "nothing is written unless it is asked for"
    recorded("toy", "laptop", lambda: ROWS, can_run=True, settings={"size": 1}, mode=ALL)
    record = recorded("toy", "laptop", refuse, can_run=False, settings={"size": 1})
    pd.testing.assert_frame_equal(record.rows, ROWS)
    assert "Read from the record book/records/laptop/toy.json, not computed here" in record.note
    assert record.note.endswith("It has no proof.")
    # one of other settings, or of another profile, is not used
    assert recorded("toy", "laptop", refuse, can_run=False, settings={"size": 2}) is None
    assert recorded("toy", "gpu", refuse, can_run=False, settings={"size": 1}) is None


def miniature(book: Path, rows: pd.DataFrame, size: int = 1) -> None:
    """A record of 'toy', and the miniature that gives it its proof."""
    recorded("toy", "laptop", lambda: ROWS, can_run=True, settings={"size": 9}, mode=ALL)
    mode = RunMode(prove=("laptop/toy",))
    of = {"settings": {"size": size}, "varies": ["seconds"], "mode": mode}
    recorded("toy", "smoke", lambda: rows, can_run=True, **of)


SMALL = pd.DataFrame({"arm": ["a", "b"], "loss": [2.0, 3.0], "seconds": [1.0, 9.0]})


def state_after(rows: pd.DataFrame) -> str:
    """The record's state after another run at smoke."""
    recorded("toy", "smoke", lambda: rows, can_run=True, settings={"size": 1}, varies=["seconds"])
    return proof_states()[0].state


def test_a_proof_holds_for_the_same_numbers_whatever_the_time_and_the_order(
    book: Path, private_cache: Path
) -> None:
    miniature(book, SMALL)
    assert state_after(SMALL) == "holds"
    assert state_after(SMALL.assign(seconds=77.0)) == "holds"
    assert state_after(SMALL[::-1]) == "holds"
    assert state_after(SMALL.assign(loss=SMALL["loss"] * 1.001)) == "holds"
    note = recorded("toy", "laptop", refuse, can_run=False, settings={"size": 9}).note
    assert note.endswith("Its proof holds.")


def test_a_column_found_to_vary_after_the_record_was_made_is_left_out_of_its_proof(
    book: Path, private_cache: Path
) -> None:
    miniature(book, SMALL)
    moved = SMALL.assign(loss=[2.1, 3.1])
    late = {"settings": {"size": 1}, "varies": ["seconds", "loss"]}
    recorded("toy", "smoke", lambda: moved, can_run=True, **late)
    assert proof_states()[0].state == "holds"
    assert state_after(moved) == "stale"


@pytest.mark.parametrize(
    ("moved", "reason"),
    [
        (SMALL.assign(loss=[2.1, 3.1]), "loss moved by 4 %"),
        (SMALL.assign(arm=["a", "c"]), "arm names other things"),
        (SMALL[:1], "1 rows in place of 2"),
        (SMALL.drop(columns="loss"), "without the column loss"),
        (SMALL.assign(loss=[2.0, float("nan")]), "loss is missing elsewhere"),
    ],
)
def test_a_record_whose_miniature_gives_other_numbers_is_stale_by_name(
    book: Path, private_cache: Path, moved: pd.DataFrame, reason: str
) -> None:
    miniature(book, SMALL)
    assert state_after(moved) == "stale"
    proof = proof_states()[0]
    assert proof.record == "laptop/toy" and reason in proof.reason
    note = recorded("toy", "laptop", refuse, can_run=False, settings={"size": 9}).note
    assert "STALE" in note and reason in note
    # what has moved back, has moved back
    assert state_after(SMALL) == "holds"


def test_what_was_not_compared_does_not_count_as_proven(book: Path, private_cache: Path) -> None:
    miniature(book, SMALL, size=2)  # the proof is of other settings than smoke's
    (private_cache / "proofs" / "laptop-toy.json").unlink()
    assert state_after(SMALL) == "not compared"
    miniature(book, SMALL)
    path = book / "book" / "records" / "laptop" / "toy.json"
    record = json.loads(path.read_text())
    path.write_text(json.dumps({**record, "remark": "made anew"}))
    assert proof_states()[0].state == "not compared", "the comparison was with another file"
    path.write_text(json.dumps({**record, "proof": None}))
    assert proof_states()[0].state == "no proof"


def test_a_record_whose_rows_were_altered_is_told_and_one_without_a_digest_is_not(
    book: Path,
    private_cache: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(checkout, "project_root", lambda: book)
    monkeypatch.setattr(checkout, "version_differences", lambda: [])
    miniature(book, SMALL)
    assert proof_states()[0].state == "holds"
    path = book / "book" / "records" / "laptop" / "toy.json"
    record = json.loads(path.read_text())
    better = [{**row, "score": row["score"] + 0.01} for row in record["rows"]]
    path.write_text(json.dumps({**record, "rows": better}))
    assert state_after(SMALL) == "altered"
    note = recorded("toy", "laptop", refuse, can_run=False, settings={"size": 9}).note
    assert "ALTERED: its rows are not those that were recorded" in note
    assert ("records", False, "0 proofs hold; ALTERED: laptop/toy") in checks()
    _tell_of_proofs("laptop")  # after each `cde book`, whatever its profile
    assert "ALTERED: laptop/toy" in capsys.readouterr().out
    # a proof given afterwards does not make the rows those of the experiment
    of = {"settings": {"size": 1}, "varies": ["seconds"], "mode": RunMode(prove=("laptop/toy",))}
    recorded("toy", "smoke", lambda: SMALL, can_run=True, **of)
    assert proof_states()[0].state == "altered"
    older = {name: value for name, value in record.items() if name != "digest"}
    path.write_text(json.dumps(older))
    assert state_after(SMALL) == "holds"
    assert ("records", True, "1 proofs hold") in checks()


def test_rows_are_added_to_what_was_recorded_and_not_to_what_was_altered(book: Path) -> None:
    # a tuple is a list once it is stored: the same setting, and no reason to lose finished runs
    settings = {"seeds": 1, "rules": {"packages": ("rich", "sphinx")}}

    def added(seed: int) -> None:
        mode, of = RunMode(record="laptop/toy", add=seed > 0), {"seed": seed, **settings}
        recorded("toy", "laptop", lambda: ROWS, can_run=True, settings=of, mode=mode)

    added(0), added(1)
    path = book / "book" / "records" / "laptop" / "toy.json"
    record = json.loads(path.read_text())
    assert record["settings"]["seeds"] == 2 and len(record["rows"]) == 2 * len(ROWS)
    assert record["digest"] == digest_of_rows(record["rows"])
    path.write_text(json.dumps({**record, "rows": record["rows"][:3]}))
    with pytest.raises(ValueError, match="an altered record cannot grow"):
        added(2)


def test_a_record_keeps_the_names_of_its_time_and_is_read_with_today_s(
    book: Path, private_cache: Path
) -> None:
    miniature(book, SMALL)
    path = book / "book" / "records" / "laptop" / "toy.json"
    renamed = {**json.loads(path.read_text()), "renamed": {"a": "alpha"}}
    path.write_text(json.dumps(renamed))
    assert state_after(SMALL.replace("a", "alpha")) == "holds"
    record = recorded("toy", "laptop", refuse, can_run=False, settings={"size": 9})
    assert record.rows["collection"].tolist() == ["alpha", "b"]


def test_other_content_of_the_same_collection_is_told(book: Path) -> None:
    path = book / "book" / "records" / "laptop" / "toy.json"

    def reads() -> pd.DataFrame:
        load_pairs("pydocs/mpmath")
        return ROWS

    recorded("toy", "laptop", reads, can_run=True, settings={}, mode=ALL)
    note = recorded("toy", "laptop", refuse, can_run=False, settings={}).note
    assert "other content" not in note
    record = json.loads(path.read_text())
    assert list(record["data"]) == ["pydocs/mpmath"]
    record["data"] = {"pydocs/mpmath": "0" * 16, "beir/nowhere": "0" * 16}
    path.write_text(json.dumps(record))
    note = recorded("toy", "laptop", refuse, can_run=False, settings={}).note
    assert "STALE: these collections have other content here: pydocs/mpmath." in note


def test_a_record_has_the_data_that_its_experiment_loads_and_no_other(book: Path) -> None:
    path = book / "book" / "records" / "laptop" / "toy.json"
    seen_before = load_pairs("pydocs/mpmath"), load_pairs("pydocs/rich")

    def reads() -> pd.DataFrame:
        load_pairs("pydocs/mpmath"), load_pairs("pydocs/tornado")
        return ROWS

    recorded("toy", "laptop", reads, can_run=True, settings={}, mode=ALL)
    assert set(json.loads(path.read_text())["data"]) == {"pydocs/mpmath", "pydocs/tornado"}
    assert set(data_account.loaded) == {"pydocs/mpmath", "pydocs/rich", "pydocs/tornado"}
    assert data_account.loaded["pydocs/rich"] == seen_before[1].fingerprint


FIELDS = "time commit clean remark device python libraries seconds settings data rows proof"
COMMITTED = sorted((Path(__file__).resolve().parents[2] / "book" / "records").rglob("*.json"))


def test_committed_records_hold_numbers_their_provenance_and_a_proof(
    subtests: pytest.Subtests,
) -> None:
    for path in COMMITTED:
        with subtests.test(path=path.stem):
            record = json.loads(path.read_text())
            assert set(record) - {"renamed", "parts", "digest", "experiment"} == {*FIELDS.split()}
            digest = digest_of_rows(record["rows"])
            assert record.get("digest", digest) == digest  # none before November 2026
            # one that grew by further seeds: each part says which, and where it was made
            if parts := record.get("parts"):
                seeds = [n for p in parts for n in range(p["seed"], p["seed"] + p["seeds"])]
                assert sorted(seeds) == sorted({row["seed"] for row in record["rows"]})
                assert all(p["commit"] != "unknown" and p["device"] for p in parts)
            for row in record["rows"]:
                texts = [value for value in row.values() if isinstance(value, str)]
                assert all(len(text) < 40 for text in texts), f"{path} holds a text: {texts}"
            # memory and time of a step are measured on random words; the word game has its own
            without_data = ("gradient-caching-", "context_required-")
            assert record["data"] or path.stem.startswith(without_data)
            assert record["commit"] != "unknown"
            # a record without a precision says that it has none; the first of a GPU name it alone
            proof, known = record["proof"], ("bfloat16", "float32", "unknown")
            assert record["device"].endswith(known) or record["device"].startswith("NVIDIA")
            assert proof["device"].endswith("float32") or proof["device"].startswith("NVIDIA")
            # a proof that nothing can break proves nothing
            rows = pd.DataFrame(proof["rows"])
            moved = 1.05 * rows.select_dtypes("float") + 0.01
            assert differences(proof["rows"], rows.assign(**moved))
            assert not differences(proof["rows"], rows)


def test_a_costly_experiment_is_read_from_its_record_unless_asked_for(book: Path) -> None:
    def costly(
        compute: Callable[[], pd.DataFrame], mode: RunMode = PLAIN
    ) -> records.Recorded | None:
        of = {"can_run": True, "settings": {}, "costly": True, "mode": mode}
        return recorded("toy", "laptop", compute, **of)

    assert costly(lambda: ROWS).note == "", "without a record it is computed"
    assert costly(lambda: ROWS, ALL).note == ""
    assert "Read from the record" in costly(refuse).note
    assert costly(lambda: ROWS, FRESH).note == "", "--fresh uses none"


def test_one_record_alone_can_be_asked_for(book: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = book / "book" / "records"
    of: dict[str, Any] = {"can_run": True, "settings": {}, "costly": True}
    recorded("toy", "laptop", lambda: ROWS, **of, mode=ALL)
    one = RunMode(record="hours/toy")
    assert "Read from the record" in recorded("toy", "laptop", refuse, **of, mode=one).note
    other = {**of, "settings": {"seeds": 9}, "mode": one}
    assert "Read from the record" in recorded("toy", "laptop", refuse, **other).note
    # a page's other long runs are not made on the way
    monkeypatch.setattr(account, "profile", "laptop")
    assert recorded("another", "hours", refuse, can_run=True, settings={}, mode=one) is None
    assert [str(path.relative_to(folder)) for path in folder.rglob("*.json")] == ["laptop/toy.json"]
    recorded("toy", "hours", lambda: ROWS, **of, mode=one)
    assert (folder / "hours" / "toy.json").exists()


def test_records_of_other_profiles_stand_beside_with_their_own_settings(book: Path) -> None:
    for profile, size in (("smoke", 1), ("laptop", 2), ("gpu", 3), ("hours", 4)):
        rows = ROWS.assign(score=float(size))
        of = {"can_run": True, "settings": {"size": size}, "mode": ALL}
        recorded("toy", profile, lambda rows=rows: rows, **of)
    by_profile = records.records_at_other_profiles("toy", "laptop")
    assert {profile: one.rows["score"].iloc[0] for profile, one in by_profile.items()} == {
        "gpu": 3.0,
        "hours": 4.0,
    }
    assert "book/records/gpu/toy.json" in by_profile["gpu"].note
    assert set(records.records_at_other_profiles("toy", "gpu")) == {"laptop", "hours"}
    assert records.records_at_other_profiles("toy", "laptop", FRESH) == {}


@pytest.mark.parametrize(("fast", "precision"), [(True, "bfloat16"), (False, "float32")])
def test_a_record_names_the_precision_that_auto_is_here(
    book: Path, monkeypatch: pytest.MonkeyPatch, fast: bool, precision: str
) -> None:
    monkeypatch.setattr(hardware, "bfloat16_is_fast", lambda: fast)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    recorded("toy", "laptop", lambda: ROWS, can_run=True, settings={}, mode=ALL)
    path = book / "book" / "records" / "laptop" / "toy.json"
    device = json.loads(path.read_text())["device"]
    assert device.startswith("CPU (") and device.endswith(f" threads, {precision}")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA H200")
    recorded("toy", "laptop", lambda: ROWS, can_run=True, settings={}, mode=ALL)
    assert json.loads(path.read_text())["device"] == f"NVIDIA H200, {precision}"


def test_one_function_proves_all_the_records_that_it_makes(
    book: Path, private_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At smoke there is the miniature of one; the other, too large for its own, shares it."""
    monkeypatch.setattr(account, "profile", "laptop")
    monkeypatch.setattr(page, "this_run", lambda: ALL)
    for name in ("small", "large"):
        page.experiment(name, lambda: ROWS, {"size": 9}, costly=False)
    monkeypatch.setattr(account, "profile", "smoke")
    prove = RunMode(prove=("laptop/small", "laptop/large"))
    monkeypatch.setattr(page, "this_run", lambda: prove)
    page.experiment("small", lambda: SMALL, {"size": 1}, proves=["large"])
    assert {one.record: one.state for one in proof_states()} == {
        "laptop/large": "holds",
        "laptop/small": "holds",
    }


@pytest.mark.parametrize(
    "mode",
    [
        RunMode(),
        RunMode("notebooks/a/b.py", "hours/toy", add=True),
        RunMode(prove=("laptop/a", "laptop/b"), fresh=True, precision="float32"),
    ],
)
def test_what_a_run_is_for_crosses_to_its_kernel_in_the_environment(
    mode: RunMode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CDE_PRECISION", "bfloat16")
    for name, value in mode.environment().items():
        monkeypatch.setenv(name, value)
    assert this_run.__wrapped__() == mode
    assert os.environ["CDE_PRECISION"] == (mode.precision or "bfloat16")


def test_the_package_s_linear_reader_is_used_where_the_recorded_rule_says() -> None:
    found = records.rows_of_record("training_free-rows", "hours")
    assert found is not None
    assert linear_reader().least_near == pytest.approx(least_near(found.rows), abs=1e-3)

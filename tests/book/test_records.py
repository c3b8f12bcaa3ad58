"""Records stand in for what cannot be computed here, and are flagged when their code changed."""

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
from cde_book.records import Recorded, differences, digest_of_rows, grown, proof_states, recorded
from cde_book.run_mode import EVERY, PLAIN, RunMode, this_run
from cde_studies.motivation.training_free import least_near

ALL, FRESH = RunMode(record=EVERY), RunMode(fresh=True)
ROWS = pd.DataFrame({"collection": ["a", "b"], "score": [0.25, 0.5]})
SMALL = pd.DataFrame({"arm": ["a", "b"], "loss": [2.0, 3.0], "seconds": [1.0, 9.0]})


@pytest.fixture
def book(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(records, "project_root", lambda: tmp_path)
    # without what the tests before this one loaded: a record would name it, and fingerprint it anew
    monkeypatch.setattr(data_account, "loaded", {})
    return tmp_path


@pytest.fixture
def path(book: Path) -> Path:
    """Where the record of 'toy' is."""
    return book / "book" / "records" / "laptop" / "toy.json"


def edit(path: Path, **changes: Any) -> dict[str, Any]:
    """Change a record by hand; the record as it was."""
    record: dict[str, Any] = json.loads(path.read_text())
    path.write_text(json.dumps({**record, **changes}))
    return record


def refuse() -> pd.DataFrame:
    raise AssertionError("a record was at hand, and yet the experiment ran")


def make(
    compute: Callable[[], pd.DataFrame] = lambda: ROWS, size: int = 9, mode: RunMode = ALL
) -> Recorded | None:
    return recorded("toy", "laptop", compute, can_run=True, settings={"size": size}, mode=mode)


def read(size: int = 9, profile: str = "laptop") -> Recorded | None:
    return recorded("toy", profile, refuse, can_run=False, settings={"size": size})


def test_what_is_recorded_here_is_read_elsewhere(book: Path) -> None:
    assert read() is None
    assert make(mode=PLAIN).note == ""
    assert not (book / "book").exists(), "nothing is written unless it is asked for"
    make()
    pd.testing.assert_frame_equal(read().rows, ROWS)
    assert "Read from the record book/records/laptop/toy.json, not computed here" in read().note
    assert read().note.endswith("It has no proof.")
    # one of other settings, or of another profile, is not used
    assert read(size=2) is None and read(profile="gpu") is None


def miniature(rows: pd.DataFrame, *varies: str, size: int = 1, mode: RunMode = PLAIN) -> str:
    """Run 'toy' at smoke; the state of its record then."""
    of: dict[str, Any] = {"settings": {"size": size}, "varies": ["seconds", *varies], "mode": mode}
    recorded("toy", "smoke", lambda: rows, can_run=True, **of)
    return proof_states()[0].state


def proved(size: int = 1) -> None:
    """A record of 'toy', and the miniature that gives it its proof."""
    make()
    miniature(SMALL, size=size, mode=RunMode(prove=("laptop/toy",)))


def test_a_proof_holds_for_the_same_numbers_whatever_the_time_and_the_order(
    book: Path, private_cache: Path
) -> None:
    proved()
    assert miniature(SMALL) == "holds"
    assert miniature(SMALL.assign(seconds=77.0)) == "holds"
    assert miniature(SMALL[::-1]) == "holds"
    assert miniature(SMALL.assign(loss=SMALL["loss"] * 1.001)) == "holds"
    # a column that was found to vary after the record was made is left out
    assert miniature(SMALL.assign(loss=[2.1, 3.1]), "loss") == "holds"
    assert read().note.endswith("Its proof holds.")


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
    proved()
    assert miniature(moved) == "stale"
    proof = proof_states()[0]
    assert proof.record == "laptop/toy" and reason in proof.reason
    assert "STALE" in read().note and reason in read().note
    # what has moved back, has moved back
    assert miniature(SMALL) == "holds"


def test_what_was_not_compared_does_not_count_as_proven(path: Path, private_cache: Path) -> None:
    proved(size=2)  # the proof is of other settings than smoke's
    (private_cache / "proofs" / "laptop-toy.json").unlink()
    assert miniature(SMALL) == "not compared"
    proved()
    edit(path, remark="made anew")
    assert proof_states()[0].state == "not compared", "the comparison was with another file"
    edit(path, proof=None)
    assert proof_states()[0].state == "no proof"


def test_a_record_whose_rows_were_altered_is_told_and_one_without_a_digest_is_not(
    book: Path,
    path: Path,
    private_cache: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(checkout, "project_root", lambda: book)
    monkeypatch.setattr(checkout, "version_differences", lambda: [])
    proved()
    assert proof_states()[0].state == "holds"
    record = edit(path, rows=[{"collection": "a", "score": 0.99}])
    assert miniature(SMALL) == "altered"
    assert "ALTERED: its rows are not those that were recorded" in read().note
    assert ("records", False, "0 proofs hold; ALTERED: laptop/toy") in checks()
    _tell_of_proofs("laptop")  # after each `cde book`, whatever its profile
    assert "ALTERED: laptop/toy" in capsys.readouterr().out
    # a proof given afterwards does not make the rows those of the experiment
    assert miniature(SMALL, mode=RunMode(prove=("laptop/toy",))) == "altered"
    path.write_text(json.dumps({name: of for name, of in record.items() if name != "digest"}))
    assert miniature(SMALL) == "holds"
    assert ("records", True, "1 proofs hold") in checks()


def test_rows_are_added_to_what_was_recorded_and_not_to_what_was_altered(path: Path) -> None:
    # a tuple is a list once it is stored: the same setting, and no reason to lose finished runs
    settings = {"seeds": 1, "rules": {"packages": ("rich", "sphinx")}}

    def added(seed: int) -> None:
        mode, of = RunMode(record="laptop/toy", add=seed > 0), {"seed": seed, **settings}
        recorded("toy", "laptop", lambda: ROWS, can_run=True, settings=of, mode=mode)

    added(0), added(1)
    record = edit(path)
    assert record["settings"]["seeds"] == 2 and len(record["rows"]) == 2 * len(ROWS)
    assert record["digest"] == digest_of_rows(record["rows"])
    edit(path, rows=record["rows"][:3])
    with pytest.raises(ValueError, match="an altered record cannot grow"):
        added(2)


def test_a_record_keeps_the_names_of_its_time_and_is_read_with_today_s(
    path: Path, private_cache: Path
) -> None:
    proved()
    edit(path, renamed={"a": "alpha"})
    assert miniature(SMALL.replace("a", "alpha")) == "holds"
    assert read().rows["collection"].tolist() == ["alpha", "b"]


def test_a_record_has_the_data_that_its_experiment_loads_and_tells_of_other_content(
    path: Path,
) -> None:
    seen_before = load_pairs("pydocs/mpmath"), load_pairs("pydocs/rich")

    def reads() -> pd.DataFrame:
        load_pairs("pydocs/mpmath"), load_pairs("pydocs/tornado")
        return ROWS

    make(reads)
    assert "other content" not in read().note
    data = edit(path)["data"]
    assert set(data) == {"pydocs/mpmath", "pydocs/tornado"}
    assert set(data_account.loaded) == {"pydocs/mpmath", "pydocs/rich", "pydocs/tornado"}
    assert data_account.loaded["pydocs/rich"] == seen_before[1].fingerprint
    edit(path, data=data | {"pydocs/mpmath": "0" * 16, "beir/nowhere": "0" * 16})
    assert "STALE: these collections have other content here: pydocs/mpmath." in read().note


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
                of_runs = {row["seed"] for row in record["rows"]} - {None}  # BM25 has none
                assert sorted(seeds) == sorted(of_runs)
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
            assert differences(rows, rows.assign(**moved))
            assert not differences(rows, rows)


def test_a_costly_experiment_is_read_from_its_record_unless_asked_for(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def costly(compute: Callable[[], pd.DataFrame], mode: RunMode = PLAIN, **of: Any) -> str:
        settings = {"settings": of, "costly": True, "mode": mode}
        return recorded("toy", "laptop", compute, can_run=True, **settings).note

    assert costly(lambda: ROWS) == "", "without a record it is computed"
    assert costly(lambda: ROWS, ALL) == ""
    assert "Read from the record" in costly(refuse)
    assert costly(lambda: ROWS, FRESH) == "", "--fresh uses none"
    # where one record alone is asked for, others are read, whatever their settings
    one = RunMode(record="hours/toy")
    assert "Read from the record" in costly(refuse, one)
    assert "Read from the record" in costly(refuse, one, seeds=9)
    # a page's other long runs are not made on the way
    monkeypatch.setattr(account, "profile", "laptop")
    assert recorded("another", "hours", refuse, can_run=True, settings={}, mode=one) is None
    assert [*path.parents[1].rglob("*.json")] == [path]
    recorded("toy", "hours", lambda: ROWS, can_run=True, settings={}, costly=True, mode=one)
    assert (path.parents[1] / "hours" / "toy.json").exists()


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
    path: Path, monkeypatch: pytest.MonkeyPatch, fast: bool, precision: str
) -> None:
    monkeypatch.setattr(hardware, "bfloat16_is_fast", lambda: fast)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    make()
    device = edit(path)["device"]
    assert device.startswith("CPU (") and device.endswith(f" threads, {precision}")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA H200")
    make()
    assert edit(path)["device"] == f"NVIDIA H200, {precision}"


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


def of_seeds(seed: int = 0, seeds: int = 2, size: int = 9, digest: str = "a") -> dict[str, Any]:
    return {
        "time": f"day {seed}",
        "settings": {"seed": seed, "seeds": seeds, "size": size},
        "data": {"pydocs": digest},
        "rows": [{"seed": one, "ndcg": one / 10} for one in range(seed, seed + seeds)],
        "proof": {"rows": [seed]},
    }


def test_growing_twice_is_having_made_all_seeds_at_once() -> None:
    at_once = of_seeds(0, 6)
    in_parts = grown(grown(of_seeds(0, 2), of_seeds(2, 1)), of_seeds(3, 3))
    for name in ("settings", "rows", "data", "proof"):
        assert in_parts[name] == at_once[name]
    assert [(one["time"], one["seed"], one["seeds"]) for one in in_parts["parts"]] == [
        ("day 0", 0, 2),
        ("day 2", 2, 1),
        ("day 3", 3, 3),
    ]


def test_a_record_grows_by_what_its_chapter_calls_the_number_of_its_seeds() -> None:
    one, more = of_seeds(0, 2), of_seeds(2, 3)
    for part in (one, more):
        part["settings"]["trainings"] = part["settings"].pop("seeds")
    both = grown(one, more)
    assert both["settings"] == {"seed": 0, "trainings": 5, "size": 9}
    assert [(part["seed"], part["seeds"]) for part in both["parts"]] == [(0, 2), (2, 3)]
    with pytest.raises(ValueError, match="begin at 3"):
        grown(one, {**more, "settings": {**more["settings"], "seed": 3}})


@pytest.mark.parametrize(
    ("added", "said"),
    [
        (of_seeds(1), r"the seeds 0 to 1: add those from 2 on \(-p seed=2\); these begin at 1"),
        (of_seeds(3), "these begin at 3"),
        (of_seeds(2, size=8), "other settings.*size 9 instead of 8"),
        (of_seeds(2, digest="b"), "other data.*pydocs"),
        ({**of_seeds(2), "data": {"pydocs": "a", "beir/med": "c"}}, "other data.*: beir/med$"),
        ({**of_seeds(2), "settings": {"size": 9}}, "has no seeds"),
    ],
)
def test_what_is_not_the_same_experiment_is_refused(added: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        grown(of_seeds(), added)

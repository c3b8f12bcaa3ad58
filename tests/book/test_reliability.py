"""The page *Reliability* says what the reports count, and nothing where there is none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cde_book.checkout import project_root
from cde_book.reliability import hashed_files, read_reports, reliability_page

ABOUT = {
    "what": "toy",
    "time": "2026-11-25T10:00:00+00:00",
    "commit": "0123456789",
    "device": "<b>",
}


def report(root: Path, name: str, rows: list[dict[str, object]]) -> None:
    folder = root / "book" / "reliability"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(ABOUT | {"rows": rows}))


def test_the_sums_are_those_of_the_reports(tmp_path: Path) -> None:
    counts = {"same": 3, "completions": 4, "processes_left": 0, "files_left": 5}
    report(tmp_path, "kills", [{"stage": name, "kills": 700, **counts} for name in ("a", "b")])
    report(
        tmp_path,
        "bad_input",
        [{"target": "x", "cases": 9, "worked": 5, "refused": 3, "defects": 1}],
    )
    outcomes = ["caught", "caught", "survived"]
    report(
        tmp_path, "mutants", [{"id": i, "file": "f", "outcome": o} for i, o in enumerate(outcomes)]
    )
    events = [{"event": "nothing", "problems": one} for one in ("none", "lost", "none")]
    report(tmp_path, "two_hosts", events)
    shared = {"kills": 7, "vectors_read": 900, "wrong": 1, "files": 50, "vanished": 2}
    report(tmp_path, "shared_folder", [shared, shared])
    page = " ".join(reliability_page(tmp_path).split())
    assert "in 3 ways" in page and "wrong in 1 of them" in page
    assert "killed 14 times. Of 1,800 vectors that were read back 2 were wrong" in page
    assert "of 100 files 4 vanished" in page
    assert "killed 1,400 times" in page and "in 6 of 8 cases" in page
    assert "0 processes and 10 temporary files were left" in page
    assert "9 made-up inputs went into 1 loaders" in page and "1 did something else" in page
    assert "3 faults were planted" in page and "caught 2 of them" in page
    assert "<b>" not in page and "&lt;b&gt;" in page
    assert "Nothing is counted yet: `python tests/reliability/same_digits.py" in page


def test_without_reports_nothing_is_claimed(tmp_path: Path) -> None:
    assert reliability_page(tmp_path).count("Nothing is counted yet") == 6


@pytest.mark.parametrize("name", sorted(read_reports(project_root())))
def test_every_report_of_the_book_is_whole(name: str) -> None:
    found = read_reports(project_root())[name]
    assert found.rows and len(found.commit) == 40
    assert len({tuple(row) for row in found.rows}) == 1


def test_every_package_of_the_lock_has_files_with_hashes() -> None:
    lock = (project_root() / "constraints.txt").read_text().splitlines()
    pinned = {line.partition("==")[0].lower() for line in lock if "==" in line}
    assert {name.lower() for name in hashed_files(project_root())} == {
        name.replace("_", "-") for name in pinned
    }

"""Temporary files and processes end with their writers, and nobody else's are touched."""

from __future__ import annotations

import errno
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from cde import storage
from cde.cli import main
from cde.storage import atomic_path, remove_leftovers, temporary_folder

WRITER = """
import sys, time
from cde.storage import atomic_path, temporary_folder
with atomic_path(sys.argv[1] + "/table.csv") as path, temporary_folder(sys.argv[1]) as folder:
    path.write_text("half of the")
    (folder / "draft").write_text("half of the")
    print("writing", flush=True)
    sys.stdin.read()
"""


def writer(folder: Path) -> subprocess.Popen[str]:
    """A process that is in the midst of a file and of a temporary folder."""
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stdout.readline() == "writing\n"
    return process


def test_what_a_kill_leaves_is_removed_by_the_next_process_that_writes_there(
    tmp_path: Path,
) -> None:
    process = writer(tmp_path)
    assert len(list(tmp_path.iterdir())) == 4  # a file, a folder, and their locks
    process.kill()
    process.wait()
    assert len(list(tmp_path.iterdir())) == 4
    storage._swept.discard(tmp_path)
    with atomic_path(tmp_path / "other.csv") as path:
        path.write_text("whole")
    assert [path.name for path in tmp_path.iterdir()] == ["other.csv"]


def test_a_living_writers_files_are_left_alone(tmp_path: Path) -> None:
    process = writer(tmp_path)
    try:
        assert remove_leftovers(tmp_path) == []
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait() == 0
    finally:
        process.kill()
    assert [path.read_text() for path in tmp_path.iterdir()] == ["half of the"]


def test_this_process_own_files_are_left_alone(tmp_path: Path) -> None:
    with atomic_path(tmp_path / "a.txt") as path, temporary_folder(tmp_path) as folder:
        path.write_text("kept")
        assert remove_leftovers(tmp_path) == [] and path.exists() and folder.exists()
    assert (tmp_path / "a.txt").read_text() == "kept"


@pytest.mark.parametrize(
    "name",
    [
        "table.csv",
        ".table-0a1b2c3d.csv",  # without a lock: nobody knows whose it is
        ".table.cde-0a1b2c3d.csv",
        "table.cde-0a1b2c3d.csv.lock",
        ".table.cde-xyz.csv.lock",
        ".lock",
        "run.lock",
    ],
)
def test_files_that_were_not_made_here_are_left_alone(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("somebody's")
    assert remove_leftovers(tmp_path) == [] and (tmp_path / name).read_text() == "somebody's"


def test_a_link_in_the_place_of_a_leftover_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter").write_text("dear")
    (tmp_path / ".x.cde-0a1b2c3d").symlink_to(tmp_path / "mine")
    (tmp_path / ".x.cde-0a1b2c3d.lock").write_text("")
    remove_leftovers(tmp_path)
    assert (tmp_path / "mine" / "letter").exists()
    assert not (tmp_path / ".x.cde-0a1b2c3d").is_symlink()


@pytest.mark.parametrize(
    ("mark", "stays"),
    [
        ("{other}{other}", True),  # another machine: its locks may not be seen here
        ("{name}{other}", False),  # this one, before it was started anew
        ("{other}{system}", False),  # a container on this system
        ("{name}{system}", False),
        ("", False),  # of a version that did not say
    ],
)
def test_what_another_machine_has_begun_on_a_shared_disk_is_its_own(
    tmp_path: Path, mark: str, stays: bool
) -> None:
    """Here nobody holds the lock, as seen from a machine that locks are not passed on to."""
    with atomic_path(tmp_path / "a.txt") as path:
        own = path.name.removeprefix(".a.cde-")[:8]
    other = format((int(own, 16) ^ 0xFFFFFFFF), "08x")[:4]
    if other in (own[:4], own[4:]):
        other = format(int(other, 16) ^ 1, "04x")
    named = mark.format(name=own[:4], system=own[4:], other=other)
    left = tmp_path / f".b.cde-{named}01234567.txt"
    left.write_text("half of a")
    left.with_name(f"{left.name}.lock").write_text("")
    assert (remove_leftovers(tmp_path) == []) == stays == left.exists()


def test_a_file_of_ours_may_be_called_as_long_as_the_system_lets_it(tmp_path: Path) -> None:
    with atomic_path(tmp_path / f"{'x' * 220}.json") as path:
        path.write_text("long")
    assert len(list(tmp_path.iterdir())) == 1


WORKERS = """
import os, sys
import joblib
from cde_studies.workers import end_with
if __name__ == "__main__":
    with joblib.parallel_config("loky", initializer=end_with, initargs=(os.getpid(),)):
        work = joblib.Parallel(n_jobs=2)
        print(*work(joblib.delayed(os.getpid)() for _ in range(8)), flush=True)
        sys.stdin.read()
"""


def test_workers_end_with_their_parent(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(WORKERS)
    process = subprocess.Popen(
        [sys.executable, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    workers = {int(number) for number in process.stdout.readline().split()}
    children = psutil.Process(process.pid).children()
    assert workers and workers <= {child.pid for child in children}
    process.send_signal(signal.SIGKILL)
    process.wait()
    _, alive = psutil.wait_procs(children, timeout=60)
    assert [child for child in alive if child.status() != psutil.STATUS_ZOMBIE] == []


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.ENOSPC, "make room there"),
        (errno.EDQUOT, "make room there"),
        (errno.EROFS, "allow writing there"),
    ],
)
def test_a_full_or_closed_disk_is_told_with_the_path_and_advice(
    tmp_path: Path, private_cache: Path, number: int, advice: str
) -> None:
    for folder, place in ((tmp_path, "take another place"), (private_cache, "set CDE_CACHE")):
        with (
            pytest.raises(OSError, match=f"{advice}.*{place}") as caught,
            atomic_path(folder / "table.csv") as path,
        ):
            raise OSError(number, os.strerror(number), str(path))
        assert str(folder / "table.csv") in str(caught.value) and caught.value.errno == number
        assert not list(folder.glob("*.csv*"))


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "/full/x.json"), "/full/x.json"),
        (sqlite3.OperationalError("database is locked"), "/embeddings"),
    ],
)
def test_the_command_tells_of_a_disk_and_of_a_locked_store_in_one_line(
    error: Exception, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(_: object) -> int:
        raise error

    monkeypatch.setattr("cde_book.commands.list_chapters", fails)
    assert main(["list"]) == 2
    out, err = capsys.readouterr()
    assert err.startswith("cde list: ") and said in err and err.count("\n") == 1 and out == ""

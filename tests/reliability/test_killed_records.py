"""SIGKILL at four moments of a run that records: the old record is there or the new one, whole."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from toy_book import ToyBook

from cde_book.records import digest_of_rows

pytestmark = pytest.mark.slow

MOMENTS = 4
EXPERIMENT = """import pandas as pd

from cde_book import page

settings = page.settings(globals(), laptop={{"size": 6_000}}, smoke={{"size": 3}})


def measured():
    return pd.DataFrame({{"loss": [{factor} * number for number in range(settings.size)]}})


page.experiment("toy", measured, settings.only("size"))"""


WRITING = """import os, signal, sys
from cde.storage import atomic_path
with atomic_path(sys.argv[1]) as temporary:
    temporary.write_text('{"rows": [')
    os.kill(os.getpid(), signal.SIGKILL)"""


def factor_of(path: Path) -> float:
    """Which experiment a record is of; it must be whole, and of that one alone."""
    record = json.loads(path.read_text())
    assert record["digest"] == digest_of_rows(record["rows"]) and len(record["rows"]) == 6_000
    factor = float(record["rows"][1]["loss"])
    assert all(row["loss"] == factor * number for number, row in enumerate(record["rows"]))
    # what is there of a proof is the same experiment's
    proof = (record["proof"] or {}).get("rows", [{}, {"loss": factor}])
    assert proof[1]["loss"] == factor
    return factor


def kill(process: subprocess.Popen[str], moment: float) -> bool:
    """Kill a command after a while, and wait for what it had started; whether it was at work."""
    try:
        _, said = process.communicate(timeout=moment)
        assert process.returncode == 0, said  # a kill must not have closed the way to the next
    except subprocess.TimeoutExpired:
        started = psutil.Process(process.pid).children(recursive=True)
        process.kill()
        process.communicate()
        assert not psutil.wait_procs(started, timeout=60)[1], "its kernel lives on"
        return True
    return False


def test_a_killed_record_is_the_old_one_or_the_new_one_and_the_next_run_works(
    tmp_path: Path, private_cache: Path
) -> None:
    book = ToyBook(tmp_path / "toy")
    path = book.root / "book" / "records" / "laptop" / "toy.json"

    def git(*words: str) -> None:
        person = ["-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run(["git", *person, *words], cwd=book.root, check=True, capture_output=True)

    book.write(toy=EXPERIMENT.format(factor=1.0))
    book.commit()
    begun = time.perf_counter()
    assert book.cde("run", "toy", "--record").returncode == 0
    seconds = time.perf_counter() - begun
    book.write(toy=EXPERIMENT.format(factor=2.0))
    git("add", "-A")
    git("commit", "-qm", "another experiment")
    kills, found = 0, []
    for moment in range(1, MOMENTS + 1):
        git("checkout", "--", "book/records")
        begun = time.perf_counter()
        process = book.start("run", "toy", "--record")
        if kill(process, seconds * moment / (MOMENTS + 1)):
            kills += 1
        else:  # the first run had also to compile the package
            seconds = time.perf_counter() - begun
        found.append(factor_of(path))
    assert kills >= MOMENTS - 1 and {*found} <= {1.0, 2.0}
    git("checkout", "--", "book/records")
    # and one in the middle of its writing
    subprocess.run([sys.executable, "-c", WRITING, str(path)], cwd=book.root)
    assert factor_of(path) == 1.0 and len(list(path.parent.iterdir())) > 1
    again = book.cde("run", "toy", "--record")
    assert again.returncode == 0, again.stderr
    assert factor_of(path) == 2.0 and json.loads(path.read_text())["proof"]
    left = [one.name for one in path.parent.iterdir() if one != path]
    assert left == []

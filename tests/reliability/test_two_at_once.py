"""Two processes that want the same at the same time: it is done once, and both have it.

The test holds the lock of the work until both processes say that they wait for it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from stages import TEXTS
from tiny_encoders import bi_encoder
from toy_book import ROOT, ToyBook

from cde import Index
from cde.corpus.table import locked
from cde.storage import alone
from cde_book import commands
from cde_book.chapters import Chapter
from cde_book.checkout import python_path

pytestmark = pytest.mark.slow

EXPERIMENT = """import pandas as pd

from cde_book import page

settings = page.settings(globals(), laptop={"size": 100}, smoke={"size": 3})


def measured():
    return pd.DataFrame({"loss": [1.0 * settings.size]})


page.experiment("toy", measured, settings.only("size"))"""

#: forks two children for each line of arguments, after imports that both share
TWICE = """
import contextlib, json, os, sys
sys.path[:0] = {paths!r}
{imports}
for line in sys.stdin:
    children = []
    for number in (0, 1):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                with open(f"said-{{number}}.txt", "w") as said, contextlib.redirect_stdout(said):
                    status = work(number, json.loads(line))
            finally:
                os._exit(status)
        children.append(child)
    print(*(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children), flush=True)
"""


class Twice:
    """Two processes at a time that do the same, in a folder."""

    def __init__(self, imports: str, folder: Path) -> None:
        self.folder = folder
        paths = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
        self.process = subprocess.Popen(
            [sys.executable, "-c", TWICE.format(paths=paths, imports=imports)],
            cwd=folder,
            env={
                **os.environ,
                "PYTHONPATH": f"{python_path(folder)}{os.pathsep}{python_path(ROOT)}",
                "OMP_NUM_THREADS": "1",
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        # two that wait for ever would hold up whoever runs the tests
        self.limit = threading.Timer(300, os.killpg, (self.process.pid, signal.SIGKILL))
        self.limit.daemon = True
        self.limit.start()

    def do(self, arguments: Any, lock: AbstractContextManager[bool]) -> list[str]:
        """What each of the two printed; both ended well, and both had waited for the lock."""
        stdin, stdout, stderr = self.process.stdin, self.process.stdout, self.process.stderr
        assert stdin is not None and stdout is not None and stderr is not None
        with lock:
            stdin.write(f"{json.dumps(arguments)}\n")
            stdin.flush()
            waiting, said = 0, ["(nothing)"]
            while waiting < 2:
                said.append(stderr.readline())
                assert said[-1], f"a process ended before it waited: {said}"
                # both may have written before either ended its line
                waiting += said[-1].count("waiting for it")
        assert stdout.readline().split() == ["0", "0"], (said, self.end())
        return [(self.folder / f"said-{number}.txt").read_text() for number in (0, 1)]

    def end(self) -> str:
        """End the processes; what they said of errors."""
        said = self.process.communicate(timeout=300)[1]
        self.limit.cancel()
        return said


COMMAND = """
from cde_book.cli import main
import cde_book.commands
def work(number, arguments):
    return main(arguments)
"""


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ToyBook, Twice]]:
    """A toy book, and its command, twice at once; with a cache of its own."""
    book = ToyBook(tmp_path_factory.mktemp("toy"))
    book.write(toy=EXPERIMENT)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CDE_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setattr(commands, "project_root", lambda: book.root)
        twice = Twice(COMMAND, book.root)
        yield book, twice
        twice.end()


def no_temporary_file(root: Path) -> bool:
    return not [path for path in root.rglob(".*") if ".cde-" in path.name or path.suffix == ".lock"]


def test_two_builds(toy: tuple[ToyBook, Twice]) -> None:
    book, twice = toy
    lock = alone(book.root / "book" / "executed" / ".lock", "the test")
    said = twice.do(["book", "--profile", "smoke"], lock)
    assert sorted(out.count(": runs, since") for out in said) == [0, 1]
    assert sum(out.count("toy: fresh") for out in said) == 1
    assert "The answer of toy is 42." in book.page("toy")
    assert no_temporary_file(book.root)


@pytest.mark.parametrize("record", [False, True])
def test_two_runs_and_two_that_record(
    toy: tuple[ToyBook, Twice], tmp_path: Path, record: bool
) -> None:
    book, twice = toy
    output = tmp_path / "mine.ipynb"
    chapter = Chapter(book.root / "notebooks" / "toys" / "toy.py")
    given = ["run", "toy", "--profile", "laptop", "--out", str(output)]
    given += ["--record", "--dirty"] if record else []
    said = twice.do(given, commands._one_at_a_time(chapter, output, record))
    assert sorted(out.count("another process has just made it") for out in said) == [0, 1]
    assert "The answer of toy is 42." in output.read_text()
    path = book.root / "book" / "records" / "laptop" / "toy.json"
    assert path.exists() == record
    if record:
        kept = json.loads(path.read_text())
        assert kept["rows"] == [{"loss": 100.0}] and kept["proof"]["rows"] == [{"loss": 3.0}]
    assert no_temporary_file(tmp_path)


INDEX = """
from stages import TEXTS
from tiny_encoders import bi_encoder
from cde import Index
from cde.corpus import index as module
encoder, embed, module.PART = bi_encoder(), module.embedded, 4
def noted(model, texts, role, *more):
    if texts:
        with open("embedded.txt", "a") as file:
            print(len(texts), file=file)
    return embed(model, texts, role, *more)
module.embedded = noted
def work(number, step):
    if step == "build":
        Index.build(TEXTS, "index", encoder=encoder)
    else:
        Index.load("index").add({f"{step} {number}": f"a text of {number}"})
    return 0
"""


def test_two_that_index_one_folder_and_two_that_add_to_it(tmp_path: Path) -> None:
    (tmp_path / "index").mkdir()
    twice = Twice(INDEX, tmp_path)
    twice.do("build", locked(tmp_path / "index"))
    parts = (tmp_path / "embedded.txt").read_text().split()
    assert parts == ["4"] * (len(TEXTS) // 4), "each part was embedded once"
    alone_built = Index.build(TEXTS, tmp_path / "other", encoder=bi_encoder())
    assert Index.load(tmp_path / "index").fingerprint == alone_built.fingerprint
    twice.do("add", locked(tmp_path / "index"))
    twice.end()
    index = Index.load(tmp_path / "index")
    assert len(index) == len(TEXTS) + 2 and {"add 0", "add 1"} <= set(index.ids)
    assert no_temporary_file(tmp_path)

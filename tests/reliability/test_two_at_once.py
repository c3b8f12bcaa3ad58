"""Two processes that want the same at the same time: it is done once, and both have it.

The test holds the lock of the work until both processes say that they wait for it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from stages import TEXTS
from test_command import EXPERIMENT, ToyBook
from tiny_encoders import bi_encoder

from cde.book import chapter_run
from cde.book.chapters import Chapter
from cde.corpus import Index, build_index
from cde.corpus.saving import locked
from cde.storage import alone


def both(
    processes: list[subprocess.Popen[str]], lock: AbstractContextManager[bool]
) -> list[tuple[int, str, str]]:
    """Statuses, outputs and errors of processes that begin together."""
    waiting = []
    with lock:
        for process in processes:
            assert process.stderr is not None
            said = ""
            while "waiting for it" not in said:
                said = process.stderr.readline()
                assert said, "the process ended before it waited"
            waiting.append(said)
    ended = [process.communicate(timeout=300) for process in processes]
    return [
        (process.returncode, out, err) for process, (out, err) in zip(processes, ended, strict=True)
    ]


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> ToyBook:
    book = ToyBook(tmp_path_factory.mktemp("toy"))
    book.write(toy=EXPERIMENT)
    return book


@pytest.fixture
def of_the_toy(
    toy: ToyBook, private_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[ToyBook, Chapter]:
    monkeypatch.setattr(chapter_run, "project_root", lambda: toy.root)
    return toy, Chapter(toy.root / "notebooks" / "toys" / "toy.py")


def no_temporary_file(root: Path) -> bool:
    return not [path for path in root.rglob(".*") if ".cde-" in path.name or path.suffix == ".lock"]


def test_two_builds(of_the_toy: tuple[ToyBook, Chapter]) -> None:
    book, _ = of_the_toy
    started = [book.start("book", "--profile", "smoke") for _ in range(2)]
    ended = both(started, alone(book.root / "book" / "executed" / ".lock", "the test"))
    assert [status for status, _, _ in ended] == [0, 0], ended
    ran = [out.count(": runs, since") for _, out, _ in ended]
    assert sorted(ran) == [0, 1] and sum(out.count("toy: fresh") for _, out, _ in ended) == 1
    assert "The answer of toy is 42." in book.page("toy")
    assert no_temporary_file(book.root)


def test_two_runs_and_two_that_record(of_the_toy: tuple[ToyBook, Chapter], tmp_path: Path) -> None:
    book, chapter = of_the_toy
    for given, record in (([], False), (["--record", "--dirty"], True)):
        output = tmp_path / f"mine-{record}.ipynb"
        command = ["run", "toy", "--profile", "laptop", "--out", str(output), *given]
        started = [book.start(*command) for _ in range(2)]
        ended = both(started, chapter_run._one_at_a_time(chapter, output, record))
        assert [status for status, _, _ in ended] == [0, 0], ended
        told = [out.count("another process has just made it") for _, out, _ in ended]
        assert sorted(told) == [0, 1]
        assert "The answer of toy is 42." in output.read_text()
    kept = json.loads((book.root / "book" / "records" / "laptop" / "toy.json").read_text())
    assert kept["rows"] == [{"loss": 100.0}] and kept["proof"]["rows"] == [{"loss": 3.0}]
    assert no_temporary_file(tmp_path)


INDEX = """
import sys
from pathlib import Path
sys.path[:0] = {paths!r}
from stages import TEXTS
from tiny_encoders import bi_encoder
from cde.corpus import build_index, building, folders
embed = building.embedded
def noted(model, texts, role):
    with Path("embedded.txt").open("a") as file:
        file.write(f"{{len(texts)}}\\n")
    return embed(model, texts, role)
building.embedded = noted
if sys.argv[1] == "build":
    build_index(TEXTS, "index", encoder=bi_encoder(), part=4)
else:
    folders.change_folder("index", add={{sys.argv[1]: "a text of " + sys.argv[1]}})
"""


def indexing(folder: Path, step: str) -> subprocess.Popen[str]:
    paths = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
    return subprocess.Popen(
        [sys.executable, "-c", INDEX.format(paths=paths), step],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_two_that_index_one_folder_and_two_that_add_to_it(tmp_path: Path) -> None:
    (tmp_path / "index").mkdir()
    ended = both([indexing(tmp_path, "build") for _ in range(2)], locked(tmp_path / "index"))
    assert [status for status, _, _ in ended] == [0, 0], ended
    parts = (tmp_path / "embedded.txt").read_text().split()
    assert parts == ["4"] * (len(TEXTS) // 4), "each part was embedded once"
    alone_built = build_index(TEXTS, tmp_path / "other", encoder=bi_encoder(), part=4)
    assert Index.load(tmp_path / "index").fingerprint == alone_built.fingerprint
    ended = both([indexing(tmp_path, step) for step in ("x", "y")], locked(tmp_path / "index"))
    assert [status for status, _, _ in ended] == [0, 0], ended
    index = Index.load(tmp_path / "index")
    assert len(index) == len(TEXTS) + 2 and {"x", "y"} <= set(index.ids)
    assert no_temporary_file(tmp_path)

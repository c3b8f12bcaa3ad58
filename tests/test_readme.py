"""What the README and the pages on using and running show is what happens."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cde.cli import main
from cde_book.chapters import find_chapter
from cde_book.parameters import parse_assignments

ROOT = Path(__file__).resolve().parents[1]
README, USING, RUNNING = (
    (ROOT / name).read_text(encoding="utf-8")
    for name in ("README.md", "book/using.md", "book/running.md")
)
PAGES = {"README": README, "using": USING, "running": RUNNING}
EXAMPLE = re.compile(r"```python\n(.*?)```\n\nprints\n\n```text\n(.*?)```", re.DOTALL)
EXAMPLES = [
    pytest.param(*example, id=f"{name} {number}")
    for name, page in PAGES.items()
    for number, example in enumerate(EXAMPLE.findall(page), start=1)
]


def on_the_shell(page: str, command: str) -> list[list[str]]:
    """The words after a command, of each line of a page's shell blocks that gives it."""
    blocks = re.findall(r"```bash\n(.*?)```", page, re.DOTALL)
    lines = [shlex.split(line, comments=True) for block in blocks for line in block.splitlines()]
    start = command.split()
    return [words[len(start) :] for words in lines if words[: len(start)] == start]


def test_every_example_shows_what_it_prints() -> None:
    assert len(EXAMPLES) == sum(page.count("```python") for page in PAGES.values())


#: runs each program of its input as a process of its own, a fork that finds the libraries loaded,
#: which is most of what a program waits for; `cde` it imports itself
FORKS = """
import faiss, json, mteb, os, pandas, scipy.stats, sentence_transformers, sys, torch, transformers
for line in sys.stdin:
    child = os.fork()
    if not child:
        with open("printed", "w") as out, open("error", "w") as error:
            os.dup2(out.fileno(), 1)
            os.dup2(error.fileno(), 2)
        exec(compile(json.loads(line), "example", "exec"), {"__name__": "__main__"})
        break
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Any]]:
    """A process that runs programs, and the folder that it runs them in."""
    folder = tmp_path_factory.mktemp("programs")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "cwd": folder}
    with subprocess.Popen([sys.executable, "-c", FORKS], **pipes) as process:
        yield folder, process


@pytest.mark.parametrize(("code", "printed"), EXAMPLES)
@pytest.mark.slow
def test_an_example_prints_what_its_page_says(
    code: str, printed: str, programs: tuple[Path, Any]
) -> None:
    folder, process = programs
    process.stdin.write(f"{json.dumps(code)}\n")
    process.stdin.flush()
    assert process.stdout.readline() == "0\n", (folder / "error").read_text()
    assert (folder / "printed").read_text() == printed


def test_the_index_is_built_searched_and_changed_as_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "boats.md").write_text("Red boats lie in the harbour.")
    (tmp_path / "notes" / "soup.md").write_text("Leeks, potatoes and cream. What we cook.")
    commands = on_the_shell(README, "cde index")
    assert {words[0] for words in commands} == {"build", "search", "sync", "status"}
    for words in commands:
        assert main(["index", *words]) == 0, words
        printed = capsys.readouterr().out
        if words[0] == "search":
            assert "soup.md" in printed


def test_every_link_and_every_file_that_is_named_is_there() -> None:
    named = re.findall(r"\]\(([^)#]+)\)", README)
    for page in PAGES.values():
        named += re.findall(r"`((?:tests|benchmarks)/[\w/.]+)`", page)
    for path in named:
        assert (ROOT / path).exists(), path


@pytest.mark.parametrize("page", [README, RUNNING], ids=["README", "running"])
def test_the_runs_shown_are_accepted(page: str) -> None:
    commands = on_the_shell(page, "cde run")
    assert commands
    for chapter, *words in commands:
        given = re.findall(r"-p (\w+)[ =](\S+)", " ".join(words))
        find_chapter(chapter).check_parameters(parse_assignments(given))
    for source, _, *words in on_the_shell(page, "papermill"):
        chapter = find_chapter(Path(source).stem)
        assert source == f"book/executed/{chapter.part}/{chapter.name}.ipynb"
        given = re.findall(r"-p (\w+) (\S+)", " ".join(words))
        chapter.check_parameters(parse_assignments(given))


def test_every_command_of_make_and_every_extra_that_is_named_exists() -> None:
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for page in PAGES.values():
        assert set(re.findall(r"make (\w+)`", page)) <= targets
    assert set(re.findall(r"^\| `\[(\w+)\]`", USING, re.MULTILINE)) == set(
        extras["optional-dependencies"]
    )


def test_every_environment_variable_is_told_of_and_does_something() -> None:
    packages = (ROOT / "cde", ROOT / "book" / "cde_book", ROOT / "notebooks", ROOT / "tests")
    read = {
        name
        for folder in packages
        for path in folder.rglob("*.py")
        for name in re.findall(r"environ(?:\.get\(|\[)\"(CDE_\w+)", path.read_text())
    }
    told = set(re.findall(r"`(CDE_\w+)`", RUNNING))
    assert told == read - {"CDE_KILLED_ATTEMPT"}  # a test tells its own processes by it


def test_the_doctor_finds_this_machine_fit_and_names_what_is_not(
    capsys, monkeypatch, tmp_path
) -> None:
    # what the reader's own cache knows of proofs is the reader's: a book of other code may lie there
    monkeypatch.setenv("CDE_CACHE", str(tmp_path))
    assert main(["doctor"]) == 0
    assert "FAIL" not in capsys.readouterr().out
    monkeypatch.setenv("CDE_DATA", str(tmp_path / "nowhere"))
    monkeypatch.setenv("CDE_PRECISION", "float16")
    assert main(["doctor"]) == 1
    said = capsys.readouterr().out
    assert re.search(r"FAIL +CDE_DATA +CDE_DATA is set to .*nowhere", said)
    assert re.search(r"FAIL +precision +CDE_PRECISION must be .*'float16'", said)


def test_bad_input_is_one_line_and_status_2(capsys) -> None:
    assert main(["run", "headrom"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("cde run: there is no chapter headrom (headroom?)")
    assert main(["run", "headroom", "--out", "page.html"]) == 2
    assert "--out must name a notebook" in capsys.readouterr().err

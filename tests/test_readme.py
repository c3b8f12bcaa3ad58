"""What the README shows is what happens."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from cde.cli import main
from cde_book.chapters import chapters, find_chapter
from cde_book.parameters import parse_assignments

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


EXAMPLES = re.findall(r"```python\n(.*?)```\n\nprints\n\n```text\n(.*?)```", README, re.DOTALL)


def test_every_example_shows_what_it_prints() -> None:
    assert len(EXAMPLES) == README.count("```python") >= 2


@pytest.mark.parametrize(
    ("code", "printed"), EXAMPLES, ids=[f"example {number + 1}" for number in range(len(EXAMPLES))]
)
def test_an_example_prints_what_the_readme_says(code: str, printed: str) -> None:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == printed


def test_every_chapter_is_listed_and_every_link_leads_somewhere() -> None:
    for chapter in chapters():
        assert (
            f"[{chapter.name}](notebooks/{chapter.part}/{chapter.name}.py): {chapter.title}"
            in README
        )
    for link in re.findall(r"\]\(([^)#]+)\)", README):
        assert (ROOT / link).exists(), link


def test_the_rerun_command_is_accepted() -> None:
    command = re.search(r"^cde run (\w+) (.*)$", README, re.MULTILINE)
    given = re.findall(r"-p (\S+) (\S+)", command[2])
    assert given
    find_chapter(command[1]).check_parameters(parse_assignments(given))


def test_sources_lists_what_can_be_loaded(capsys) -> None:
    assert main(["sources"]) == 0
    printed = capsys.readouterr().out
    assert re.search(r"^pydocs +pairs, retrieval", printed, re.MULTILINE)
    assert "pydocs/sympy" in printed and "held out" in printed


def test_the_doctor_finds_this_machine_fit_and_names_what_is_not(
    capsys, monkeypatch, tmp_path
) -> None:
    # what the reader's own cache knows of proofs is the reader's: a book of other code may lie there
    monkeypatch.setenv("CDE_CACHE", str(tmp_path))
    assert main(["doctor"]) == 0
    assert "FAIL" not in capsys.readouterr().out
    monkeypatch.setenv("CDE_DATA", str(tmp_path / "nowhere"))
    assert main(["doctor"]) == 1
    assert re.search(r"FAIL +CDE_DATA +CDE_DATA is set to .*nowhere", capsys.readouterr().out)


def test_bad_input_is_one_line_and_status_2(capsys) -> None:
    assert main(["run", "idf_divergance"]) == 2
    said = capsys.readouterr().err
    assert said.startswith(
        "cde run: no chapter is called 'idf_divergance': did you mean idf_divergence"
    )
    assert main(["run", "idf_divergence", "--out", "page.html"]) == 2
    assert "--out must name a notebook" in capsys.readouterr().err

"""The three files that say what is installed agree with each other."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pin(line: str) -> tuple[str, str]:
    name, _, version = line.partition("==")
    return canonical(name.strip()), version.split("#")[0].strip()


@pytest.fixture(scope="module")
def lock() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return dict(pin(line) for line in lines if line and not line.startswith("#"))


def names(requirements: list[str]) -> set[str]:
    return {canonical(re.match(r"[\w.-]+", requirement)[0]) for requirement in requirements}


def test_conda_has_every_dependency_with_the_lock_s_version(lock: dict[str, str]) -> None:
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    pip = next(entry["pip"] for entry in environment["dependencies"] if isinstance(entry, dict))
    conda = dict(pin(line) for line in pip if "==" in line)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    # what the library, the book and the tests need, without a GPU
    lists = [project["dependencies"], *(extras[name] for name in extras if name != "gpu")]
    wanted = set().union(*map(names, lists)) - {project["name"]}
    # on a CUDA machine faiss-gpu stands in for faiss-cpu, at the same version
    assert conda.pop("faiss-gpu") == lock["faiss-cpu"]
    gpu = dict(pin(line) for line in extras["gpu"])
    assert conda.pop("flash-attn") == gpu["flash-attn"]
    assert gpu["faiss-gpu"] == lock["faiss-cpu"]
    assert set(conda) == wanted - {"faiss-cpu"}
    assert conda == {name: lock[name] for name in conda}


def test_every_pin_has_the_hashes_of_its_files(lock: dict[str, str]) -> None:
    text = (ROOT / "hashes.txt").read_text().replace("\\\n", " ")
    pinned = [line.split() for line in text.splitlines() if line.strip()]
    assert dict(pin(words[0]) for words in pinned) == lock
    assert all(words[1:] for words in pinned)
    digests = [word for words in pinned for word in words[1:]]
    assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", word) for word in digests)


def test_what_runs_here_is_what_the_lock_says() -> None:
    from cde_book.checkout import version_differences

    assert version_differences() == []


def test_nobody_names_a_registry_or_this_workplace() -> None:
    """A commit names packages, never the hosts that serve them."""
    forbidden = re.compile(
        r"(pypi\.org|files\.pythonhosted|registry\.npmjs|deb\.debian|/opt/wheels|farm-" + "bench)"
    )
    kinds = {".py", ".md", ".txt", ".yml", ".toml", ""}
    assert [str(Path(__file__))] == [
        str(path)
        for pattern in ("*", "cde/**/*", "tests/**/*", "notebooks/**/*", "book/*")
        for path in ROOT.glob(pattern)
        if path.is_file() and path.suffix in kinds
        if forbidden.search(path.read_text(errors="replace"))
    ]

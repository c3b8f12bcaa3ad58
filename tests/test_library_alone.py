"""`pip install .` is enough for the library: README's first example runs on its dependencies alone."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[1]
NAME = "contextual-document-embeddings"


def needed(name: str, found: dict[str, Distribution]) -> dict[str, Distribution]:
    """The distributions that one needs, extras apart, with all that those need."""
    for line in distribution(name).requires or ():
        requirement = Requirement(line)
        wanted = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        if wanted and requirement.name.lower() not in found:
            found[requirement.name.lower()] = distribution(requirement.name)
            needed(requirement.name, found)
            for extra in requirement.extras:
                for inner in distribution(requirement.name).requires or ():
                    one = Requirement(inner)
                    if one.marker is not None and one.marker.evaluate({"extra": extra}):
                        found.setdefault(one.name.lower(), distribution(one.name))
    return found


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of packages: the library as it is installed, and links to what it declares."""
    folder = tmp_path_factory.mktemp("alone")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
    source = tmp_path_factory.mktemp("source")  # where pip builds
    for name in ("cde", "book/cde_book", "notebooks/cde_studies"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    subprocess.run([*pip, "--target", str(folder), str(source)], check=True, capture_output=True)
    for one in needed(NAME, {}).values():
        for top in {Path(file).parts[0] for file in one.files or ()} - {"..", "__pycache__"}:
            place = folder / top
            if not place.exists():
                place.symlink_to(Path(str(one.locate_file(top))))
    return folder


def run(alone: Path, code: str, tmp_path: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": str(alone), "CDE_CACHE": str(tmp_path / "cache")}
    command = [sys.executable, "-S", "-c", code]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_first_example_of_the_readme_runs(alone: Path, tmp_path: Path) -> None:
    examples = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    run(alone, examples[0], tmp_path)


def test_the_library_imports_nothing_that_it_does_not_declare(alone: Path, tmp_path: Path) -> None:
    """Every module, but for mteb's and for what reads Parquet when it is asked to."""
    code = """
import importlib, pkgutil, cde
for one in pkgutil.walk_packages(cde.__path__, "cde."):
    if one.name != "cde.benchmark":
        importlib.import_module(one.name)
print(cde.__file__)
"""
    assert run(alone, code, tmp_path).strip() == str(alone / "cde" / "__init__.py")


def test_the_command_works_without_the_book(alone: Path, tmp_path: Path) -> None:
    said = run(alone, "from cde.cli import main; raise SystemExit(main(['sources']))", tmp_path)
    assert "CDE_DATA" in said
    asked = "from cde.cli import main; print('status', main(['doctor']))"
    said = run(alone, asked, tmp_path)
    assert "MiniLM" in said and "status 2" not in said

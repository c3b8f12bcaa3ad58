"""The examples in docstrings print what they say."""

from __future__ import annotations

import doctest
import tempfile
from importlib import import_module
from pathlib import Path

import pytest

import cde
import cde_studies

HOMES = [Path(package.__path__[0]) for package in (cde, cde_studies)]
MODULES = [
    ".".join(path.relative_to(home.parent).with_suffix("").parts).removesuffix(".__init__")
    for home in HOMES
    for path in sorted(home.rglob("*.py"))
    if ">>>" in path.read_text(encoding="utf-8")
]
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@pytest.mark.parametrize("module", MODULES)
def test_the_examples_of(module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # an example shows how to save an encoder, not how to tidy up after it
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert not doctest.testmod(import_module(module), optionflags=FLAGS).failed


def test_each_name_of_cde_shows_an_example() -> None:
    for name in cde.__all__:
        value = getattr(cde, name)
        found = doctest.DocTestFinder(recurse=True).find(value, name)
        assert any(test.examples for test in found), name

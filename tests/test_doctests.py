"""The examples in the docstrings of `cde` print what they say."""

from __future__ import annotations

import doctest
import inspect
import io
import pkgutil
import tempfile
from importlib import import_module
from pathlib import Path

import pytest

import cde

MODULES = ["cde", *sorted(module.name for module in pkgutil.walk_packages(cde.__path__, "cde."))]
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def examples(module: str) -> list[doctest.DocTest]:
    return [test for test in doctest.DocTestFinder().find(import_module(module)) if test.examples]


def public_functions(module: str) -> list[str]:
    """Functions and classes that the module defines and names in __all__."""
    home = import_module(module)
    held = ((name, getattr(home, name)) for name in getattr(home, "__all__", ()))
    return [name for name, value in held if callable(value) and inspect.getmodule(value) is home]


@pytest.mark.parametrize("module", MODULES)
def test_the_examples_of(module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # an example shows how to save an encoder, not how to tidy up after it
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    printed = io.StringIO()
    runner = doctest.DocTestRunner(optionflags=FLAGS)
    for example in examples(module):
        runner.run(example, out=printed.write)
    assert not runner.failures, printed.getvalue()


@pytest.mark.parametrize("module", [name for name in MODULES if not name.endswith("__main__")])
def test_there_is_an_example_where_there_are_public_functions_in(module: str) -> None:
    names = public_functions(module)
    assert not names or examples(module), f"{module} offers {', '.join(names)} and shows no example"

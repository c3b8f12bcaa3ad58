"""The library stands alone, and type checkers see all of it."""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path

import pytest

import cde

PACKAGE = Path(__file__).resolve().parents[1] / "cde"


@pytest.mark.parametrize(
    ("package", "foreign"),
    [("cde", {"cde_book", "cde_studies"}), ("notebooks/cde_studies", {"cde_book"})],
)
def test_the_library_knows_no_book_and_a_study_no_page(package: str, foreign: set[str]) -> None:
    for path in (PACKAGE.parent / package).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            assert not {name.split(".")[0] for name in names} & foreign, path


def test_type_checkers_see_every_public_name() -> None:
    """`mypy --strict` takes what is imported without `as` for private to the module."""
    imports = [
        (f"cde.{node.module}", alias)
        for node in ast.parse((PACKAGE / "__init__.pyi").read_text()).body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    ]
    assert {alias.asname for _, alias in imports} == set(cde.__all__)
    assert all(alias.asname == alias.name for _, alias in imports)
    for name, alias in imports:
        assert getattr(import_module(name), alias.name) is getattr(cde, alias.name)
    assert (PACKAGE / "py.typed").is_file()

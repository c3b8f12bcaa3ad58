"""The library stands alone, and its rooms in order: imports downwards only, no circles."""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path

import pytest

import cde

PACKAGE = Path(__file__).resolve().parents[1] / "cde"
#: a room imports only from rooms before it
ROOMS = """
    storage validation progress hardware products provenance data lexical intervals retrieval
    vector_store surrogate adaptation batching models training benchmark corpus cli
""".split()  # noqa: SIM905
FILES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


def module(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")


MODULES = {module(path) for path in FILES}


def room(name: str) -> str:
    return name.partition(".")[0]


def imported(path: Path) -> set[str]:
    """Modules of cde that a file imports, wherever in the file."""
    modules = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "cde":
            base = node.module.removeprefix("cde").removeprefix(".")
            for alias in node.names:
                inner = f"{base}.{alias.name}".removeprefix(".")
                modules.add(inner if inner in MODULES else base)
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names if alias.name.startswith("cde.")]
            modules |= {name.removeprefix("cde.") for name in names}
    return modules - {""}


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


def test_a_module_imports_from_its_own_room_and_those_before() -> None:
    for path in FILES:
        place = ROOMS.index(room(module(path)))
        above = [name for name in imported(path) if ROOMS.index(room(name)) > place]
        assert not above, f"{module(path)} imports {above}"


def test_nothing_imports_itself_through_others() -> None:
    left = {module(path): imported(path) - {module(path)} for path in FILES}
    while left:
        ready = [name for name, needs in left.items() if not needs & set(left)]
        assert ready, f"these import each other: {sorted(left)}"
        for name in ready:
            del left[name]


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

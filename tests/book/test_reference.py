"""The reference has every public name once, each says what it is, and its links lead somewhere."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

import cde
from cde_book.reference import read_reference, reference_files, reference_pages

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return reference_pages(ROOT)


def listed(path: Path) -> set[str]:
    """The names of a module's `__all__`, or that its stub lends, by dotted path."""
    module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    if (stub := path.with_suffix(".pyi")).exists():
        lent = [
            node for node in ast.parse(stub.read_text()).body if isinstance(node, ast.ImportFrom)
        ]
        return {f"{module}.{alias.name}" for node in lent for alias in node.names}
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return {f"{module}.{name}" for name in ast.literal_eval(node.value)}
    return set()


def test_every_public_name_is_on_exactly_one_page(pages: dict[str, str]) -> None:
    public = {name for path in reference_files()[1:] for name in listed(path)}
    entries = Counter(
        re.findall(r"^\.\. auto(?:class|function|data):: (\S+)$", "\n".join(pages.values()), re.M)
    )
    assert public and set(entries.values()) == {1}
    assert {read_reference().paths[name].target for name in public} == set(entries)


def test_the_overview_has_the_names_of_cde_and_what_they_are(pages: dict[str, str]) -> None:
    shown = re.findall(r"^- \{py:obj\}`cde\.(\w+) <([\w.]+)>`: .+$", pages["package.md"], re.M)
    assert sorted(name for name, _ in shown) == sorted(cde.__all__)
    for name, target in shown:
        assert getattr(cde, name).__module__ == target.rpartition(".")[0]


def test_every_name_says_what_it_is() -> None:
    entries = [entry for some in read_reference().modules.values() for entry in some]
    assert [one.target for one in entries if not one.summary] == [], "a constant needs a '#:' above"

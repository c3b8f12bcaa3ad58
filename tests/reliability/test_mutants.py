"""The list of planted faults fits the code that it is about."""

from __future__ import annotations

import ast
from functools import cache

import pytest
from mutants import ROOT, read_faults

FAULTS = read_faults()


@cache
def names_in(file: str) -> set[str]:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@pytest.mark.slow
def test_each_fault_can_be_planted_and_its_tests_are_there(subtests: pytest.Subtests) -> None:
    for fault in FAULTS:
        with subtests.test(fault=fault.id):
            text = (ROOT / fault.file).read_text(encoding="utf-8")
            planted = fault.planted(text)
            assert ast.dump(ast.parse(planted)) != ast.dump(ast.parse(text)), "another program"
            assert fault.tests
            for test in fault.tests:
                file, _, name = test.partition("::")
                assert file.startswith("tests/")
                assert not name or name.partition("[")[0] in names_in(file), test

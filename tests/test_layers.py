"""The package stays small and imports only downwards."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "cde"
LAYERS = (
    "storage", "progress", "docstrings", "data.sets", "data.duplicates", "data.pydocs", "data.folder", "data.hub",
    "data.sources", "data", "lexical", "surrogate", "sparse", "clustering", "cluster_statistics", "tour",
    "batching", "filtering",
    "models.attention", "models.backbones", "models.configuration", "models.pooling", "models.stages", "models.weights",
    "models.encoding", "models.encoder", "models.bi_encoder", "models.published", "models.corpus", "models.contextual", "models",
    "training.configuration", "training.estimate", "training.loss", "training.gradient_cache", "training.processes", "training.step",
    "training.preparation", "training.trainer", "training",
    "intervals", "retrieval", "runs", "recipes", "passages", "probes", "encoder_decoder", "span_corruption", "stages", "dwell", "claims", "plots",
    "page", "records", "sweeps", "size_sweep", "book.chapters", "book.execution", "book.pages", "book.rendering", "book", "doctor", "cli",
)  # fmt: skip
FILES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


def module(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")


def imported(path: Path) -> set[str]:
    """Modules of cde that a file imports, wherever in the file."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "cde":
            base = node.module.removeprefix("cde").removeprefix(".")
            for alias in node.names:
                inner = f"{base}.{alias.name}".removeprefix(".")
                found.add(inner if inner in LAYERS else base)
        if isinstance(node, ast.Import):
            found |= {
                alias.name.removeprefix("cde.")
                for alias in node.names
                if alias.name.startswith("cde.")
            }
    return found - {""}


def test_every_module_has_its_place() -> None:
    assert {module(path) for path in FILES} == set(LAYERS)


@pytest.mark.parametrize("path", FILES, ids=module)
def test_a_module_imports_from_lower_layers_only(path: Path) -> None:
    above = [name for name in imported(path) if LAYERS.index(name) >= LAYERS.index(module(path))]
    assert above == []


@pytest.mark.parametrize("path", FILES, ids=module)
def test_a_module_is_one_idea(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 350


@pytest.mark.parametrize("path", FILES, ids=module)
def test_public_names_are_documented(path: Path) -> None:
    tree = ast.parse(path.read_text())
    assert ast.get_docstring(tree), "the module has no docstring"
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_"):
            assert ast.get_docstring(node), node.name
        if (
            isinstance(node, ast.ClassDef)
            and not node.name.startswith("_")
            and "Protocol" not in ast.unparse(node)
        ):
            for method in (
                m
                for m in node.body
                if isinstance(m, ast.FunctionDef) and not m.name.startswith("_")
            ):
                assert ast.get_docstring(method), f"{node.name}.{method.name}"

"""The script for a borrowed GPU, in miniature on a CPU: nothing is lost between its calls."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
from importlib.metadata import distribution, distributions
from pathlib import Path
from typing import Any

import pytest

from cde_studies.collections import manuals, pydocs

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benchmarks" / "gpu"))
borrowed: Any = pytest.importorskip("borrowed")
sys.path.remove(str(ROOT / "benchmarks" / "gpu"))


def test_parts_are_put_together_again(tmp_path: Path) -> None:
    content = os.urandom(1000)
    (tmp_path / "there").mkdir()
    (tmp_path / "content").mkdir()
    (tmp_path / "content" / "file").write_bytes(content)
    with tarfile.open(tmp_path / "whole.tar", "w") as tar:
        tar.add(tmp_path / "content", "content")
    count = borrowed.cut(tmp_path / "whole.tar", tmp_path / "there", 3000)
    assert count > 2
    store = tmp_path / "store"
    parts = sorted((tmp_path / "there").iterdir())
    for number, part in enumerate(parts):  # one at each call, as they travel
        call = tmp_path / f"call-{number}"
        call.mkdir()
        shutil.copyfile(part, call / part.name)
        assert borrowed.unpack(call, store) == (number == len(parts) - 1)
    assert (store / "content" / "file").read_bytes() == content


def test_collections_have_their_names_where_nothing_is_installed(tmp_path: Path) -> None:
    borrowed.declare(tmp_path)
    (there,) = distributions(path=[str(tmp_path)])
    here = distribution("contextual-document-embeddings")
    written, installed = (
        {(point.group, point.name, point.value) for point in one.entry_points}
        for one in (there, here)
    )
    assert written == {point for point in installed if point[0].startswith("cde.")}
    assert {"pydocs", "manuals"} <= there.entry_points.select(group="cde.collections").names


def test_measurements_and_records_come_home_in_one_file(tmp_path: Path) -> None:
    """Two calls with one store, then `keep`: what the second did not redo is there as well."""
    tree = tmp_path / "tree"
    for name in ("cde", "notebooks", "benchmarks", "book"):
        ignored = shutil.ignore_patterns("__pycache__", "_build", "executed", "gpu-*")
        shutil.copytree(ROOT / name, tree / name, ignore=ignored)
    for name in ("pyproject.toml", "constraints.txt", "_toc.yml", "_config.yml"):
        shutil.copyfile(ROOT / name, tree / name)
    parts, store, out = tmp_path / "parts", tmp_path / "store", tmp_path / "out"
    parts.mkdir()
    (tmp_path / "content" / "wheels").mkdir(parents=True)
    (tmp_path / "content" / "data").mkdir()
    for collection in (pydocs, manuals):  # tables travel, as `pack` has it
        collection.table()
        name = f"{collection.__name__.rpartition('.')[2]}.parquet.sealed"
        shutil.copyfile(collection.table_path(), tmp_path / "content" / "data" / name)
    with tarfile.open(tmp_path / "whole.tar", "w") as tar:
        tar.add(tmp_path / "content", "content")
    borrowed.cut(tmp_path / "whole.tar", parts, 10**6)

    def call(*arguments: object) -> str:
        command = [sys.executable, str(tree / "benchmarks" / "gpu" / "borrowed.py")]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "CDE_PRECISION": "float32"}
        environment.pop("CDE_DATA", None)
        done = subprocess.run(
            [*command, *map(str, arguments)],
            capture_output=True,
            text=True,
            env=environment,
            cwd=tree,
            check=False,
        )
        assert not done.returncode, done.stderr
        return done.stdout

    work = ("work", parts, "--out", out, "--store", store, "--profile", "smoke")
    first = call(*work, "--measure")
    assert "utilisation: exit 0" in first
    second = call(*work, "--measure", "--chapters", "triangle_inequality")
    # a record of the miniature has no miniature of its own, which the command minds
    assert "utilisation" not in second and "triangle_inequality: exit 1" in second
    assert [path.name for path in out.iterdir()] == [borrowed.ARCHIVE]
    call("keep", out)
    record = json.loads((tree / "book/records/smoke/triangle_inequality-sources.json").read_text())
    assert record["rows"]
    report = json.loads((tree / "book" / "cost" / borrowed.UTILISATION).read_text())
    rows = {(row["setting"], row["arm"], row["way"]): row for row in report["rows"]}
    assert len(rows) == 12  # two settings, three encoders, with the cache and without
    for setting in ("small", "large"):
        plain, cached, full = (
            rows[setting, arm, "at once"]["operations"] for arm in ("bi-encoder", "cached", "full")
        )
        # with as much context as text, `full` carries every token twice and meets it four times
        assert plain < cached < full and 2 < full / plain < 4

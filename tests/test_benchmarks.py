"""What the benchmarks compare is the same work, every row names its peer, and a report is whole."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from cde_book.checkout import project_root, python_path
from cde_book.cost_reports import Comparison, CostReport
from cde_studies.encoder.timing import in_own_processes, memory_is_measured

FOLDER = project_root() / "benchmarks"
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(autouse=True)
def plain_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.setenv("CDE_PRECISION", "float32")


def rows(question: str) -> list[Comparison]:
    """A miniature of a question, measured."""
    comparing: Any = import_module("measuring.comparing")
    found = [row for _, some in comparing.measured(question, True, 1) for row in some]
    return [Comparison(**row) for row in found]


def test_vectors_are_those_of_the_peer() -> None:
    found = rows("embedding")
    agreements = [one.agreement for one in found if one.agreement is not None]
    assert len(agreements) >= 4 and min(agreements) > 0.99
    plain = [one for one in found if one.arm.endswith("float32") and one.agreement is not None]
    assert all(one.agreement > 0.99999 for one in plain if one.agreement is not None)
    # each arm stands against the library, and against the machine
    for arm in {one.arm for one in plain}:
        meanings = {one.meaning for one in found if one.arm == arm}
        assert meanings == {"times as fast", "share of the limit"}


def test_gradients_are_those_of_the_peer() -> None:
    found = [one for one in rows("training") if one.agreement is not None]
    assert {one.arm for one in found} == {"cached, float32", "not cached, float32"}
    assert {one.peer for one in found} == {
        "plain loop, float32",
        "sentence-transformers' cached loss, float32",
    }
    assert all(one.agreement < 1e-4 for one in found if one.agreement is not None)


def test_clusters_are_as_good_as_the_peer_s() -> None:
    found = [one for one in rows("clustering") if one.agreement is not None]
    assert {"scikit-learn, MiniBatchKMeans", "faiss.SuperKmeans"} <= {one.peer for one in found}
    for one in found:
        assert one.agreement is not None and one.agreement < 1.006
        assert one.note.startswith("run_kmeans: ")
        assert "run_kmeans: 32 iterations, and did not" not in one.note


@pytest.mark.skipif(not memory_is_measured(), reason="this machine does not tell peak memory")
def test_the_peak_of_a_size_holds_at_least_its_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(FOLDER), python_path(project_root())]))
    comparing, growth = import_module("measuring.comparing"), import_module("questions.growth")
    number = [one.arm for one in growth.series(True)].index("in one batch")
    (peak,) = in_own_processes(comparing.peak_of, [("questions.growth", number, 2_000, True)])
    assert 2_000**2 / 2**20 <= peak < 200  # a byte for each pair of a query and a document


def test_operations_are_those_of_the_model() -> None:
    """The limit counts the multiply-adds that torch itself counts in MiniLM."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    from cde.models import BiEncoder

    embedding: Any = import_module("questions.embedding")
    model = BiEncoder.from_backbone("minilm", device="cpu", attn_implementation="eager")
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(torch.full((3, 40), 2000))
    assert embedding.multiply_adds([40] * 3) == pytest.approx(counter.get_total_flops(), rel=0.01)


def test_a_processor_that_is_kept_from_what_it_can_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    machine: Any = import_module("measuring.machine")
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    made = machine.environment(3, "avx2")
    assert made["OMP_NUM_THREADS"] == made["OPENBLAS_NUM_THREADS"] == "3"
    assert made["OMP_WAIT_POLICY"] == "ACTIVE" and "GOMP_SPINCOUNT" not in {
        name for name in made if name not in os.environ
    }
    for name in machine.IMITATIONS["avx2"]:
        monkeypatch.setenv(name, made[name])
    assert machine.variables() == machine.IMITATIONS["avx2"]
    assert machine.cpu_class() != "bfloat16"


def test_the_command_writes_a_whole_report_and_only_where_it_is_told(tmp_path: Path) -> None:
    out = tmp_path / "cost.json"
    command = [sys.executable, str(FOLDER / "cost.py"), "--quick", "--only", "growth", "memory"]
    before = sorted((project_root() / "book" / "cost").glob("*"))
    done = subprocess.run(
        [*command, "--threads", "1", "--out", str(out)],
        env={**os.environ, "PYTHONPATH": python_path(project_root())},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found = CostReport.model_validate_json(out.read_text())
    assert found.threads == 1 and not found.comparisons
    by_question = {one.question for one in found.sizes}
    assert by_question == {"clustering", "packing", "filtering", "evaluation"}
    if sys.platform.startswith("linux"):
        assert 0 < found.bounds[0].used < found.bounds[0].allowed
    assert [path.name for path in tmp_path.iterdir()] == ["cost.json"]
    assert sorted((project_root() / "book" / "cost").glob("*")) == before

"""Processes on several machines: one run, the same batches, and an error when one is gone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from tiny_encoders import contextual
from torch import nn

from cde.training import Processes, differing_process

#: in order; the first process keeps its cache from one to the next, and so does the second
PHASES: dict[str, dict[str, Any]] = {
    "alone": {"processes": 1},
    "unlike": {"seed": 7},
    "silent": {"dies": 1, "at": 1, "signal": signal.SIGSTOP, "env": {"CDE_TIMEOUT": "3"}},
    "killed": {"dies": 1, "vectors": True},
    "again": {"vectors": True},
}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What came of each phase."""
    folder = tmp_path_factory.mktemp("hosts")
    (folder / "phases.json").write_text(json.dumps(PHASES))
    contextual(sequence_dropout=0.0).save_pretrained(folder / "start")
    script = Path(__file__).with_name("two_processes.py")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    environment["TOKENIZERS_PARALLELISM"] = "false"
    done = subprocess.run(
        [sys.executable, str(script), str(folder)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads((folder / "results.json").read_text()))


@pytest.mark.slow
def test_machines_that_share_no_folder_train_the_run_of_one_process(
    results: dict[str, Any],
) -> None:
    """Though the second one's surrogate has other vectors: process 0 says what a batch is."""
    (alone,), (first, second) = results["alone"]["answers"], results["again"]["answers"]
    for name in ("losses", "vectors"):
        np.testing.assert_allclose(first[name], alone[name], rtol=1e-4, atol=1e-5)
        assert first[name] == second[name]
    assert first["weights"] == second["weights"] and first["folder"] != second["folder"]


def test_a_machine_that_is_lost_ends_the_others_and_the_run_goes_on(
    results: dict[str, Any],
) -> None:
    killed, again = results["killed"], results["again"]
    assert killed["statuses"] == [1, -signal.SIGKILL]
    assert "ConnectionError: process 0 cannot reach another one" in killed["said"][0]
    assert [answer["first_step"] for answer in again["answers"]] == [3, 3], "of the checkpoint"


def test_a_machine_that_falls_silent_ends_the_others_in_time(results: dict[str, Any]) -> None:
    assert results["silent"]["statuses"] == [1, -signal.SIGKILL]
    assert "ConnectionError: process 0 cannot reach another one" in results["silent"]["said"][0]


def test_machines_that_want_different_runs_train_none(results: dict[str, Any]) -> None:
    assert results["unlike"]["statuses"] == [1, 1]
    for said in results["unlike"]["said"]:
        assert "ValueError: process 1 wants the run" in said and "same lock, data" in said


@pytest.mark.parametrize("given", ["soon", "0", "-1", "nan", "inf"])
def test_a_timeout_is_a_number_of_seconds(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "1")
    monkeypatch.setenv("CDE_TIMEOUT", given)
    with pytest.raises(ValueError, match="CDE_TIMEOUT.*seconds above 0"):
        Processes.connect()


def test_a_parameter_that_no_process_reaches_keeps_no_gradient(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """AdamW passes it over, as in one process: zeros would let it move on by its momentum."""
    monkeypatch.setattr(dist, "all_reduce", lambda *_: None)
    reached, not_reached = (nn.Parameter(torch.ones(2, 3)) for _ in range(2))
    reached.grad = torch.full((2, 3), 0.5)
    Processes(0, 2).add_gradients([reached, not_reached])
    assert not_reached.grad is None
    assert reached.grad is not None and bool((reached.grad == 0.5).all())


def test_weights_are_told_apart_by_their_values_and_not_by_the_number_of_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(Processes, "of_all", lambda self, own: seen.append(own) or [own, own])
    torch.manual_seed(0)
    layer, threads = nn.Linear(1500, 1500).to(torch.bfloat16), torch.get_num_threads()
    for count in (1, 2):
        torch.set_num_threads(count)
        assert differing_process(layer, Processes(0, 2)) is None
    torch.set_num_threads(threads)
    with torch.no_grad():
        layer.weight[:2] = layer.weight[[1, 0]]  # the same sums
    differing_process(layer, Processes(0, 2))
    assert seen[0] == seen[1] != seen[2]
    monkeypatch.setattr(Processes, "of_all", lambda self, own: [own, own, seen[0]])
    assert differing_process(layer, Processes(0, 3)) == 2

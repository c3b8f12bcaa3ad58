"""Processes on several machines: one run, the same batches, and an error when one of them is gone.

`tests/reliability/two_hosts.py` does the same with launchers, in two network namespaces.
"""

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
from tiny_encoders import contextual

from cde.training import Processes

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

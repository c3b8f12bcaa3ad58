"""Start two processes that train one run, each with a cache folder of its own, several times.

`two_processes.py FOLDER` reads `phases.json` and writes `results.json` there. Torch is loaded
once and processes are forked; what `torchrun` sets is set here. The encoder is in `FOLDER/start`.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import traceback
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "reliability"))
import host_work
from two_hosts import CONFIG, write_task


def fork(folder: Path, task: Path, environment: dict[str, str], rank: int) -> int:
    """Begin one process's work; its number."""
    if child := os.fork():
        return child
    status = 1
    try:
        os.environ.update(environment)
        os.dup2(os.open(folder / f"said-{rank}.txt", os.O_CREAT | os.O_WRONLY, 0o600), 2)
        host_work.main(task, folder)
        status = 0
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    os._exit(status)


def run(name: str, told: dict[str, Any], base: Path) -> dict[str, Any]:
    """A phase: the processes' statuses, and what they said and found."""
    folder = base / name
    folder.mkdir()
    config = {**CONFIG, "start": str(base / "start")}
    task = write_task(base, {"config": config, "dies": -1, "at": 4, **told})
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(probe.getsockname()[1])}
    count, children = told.get("processes", 2), {}
    for rank in range(count):
        ranks = {"RANK": str(rank), "WORLD_SIZE": str(count), "LOCAL_RANK": "0"}
        environment = {"CDE_CACHE": str(base / f"cache-{count}-{rank}"), **told.get("env", {})}
        if count > 1:
            environment |= {**ranks, "LOCAL_WORLD_SIZE": "1", **meeting}
        children[fork(folder, task, environment, rank)] = rank
    statuses = [0] * count
    while children:
        child, status = os.waitpid(-1, os.WUNTRACED)
        if os.WIFSTOPPED(status):  # it neither goes on nor ends: it is silent
            continue
        statuses[children.pop(child)] = os.waitstatus_to_exitcode(status)
        if told.get("signal") == signal.SIGSTOP:  # the other has ended
            for silent in children:
                os.kill(silent, signal.SIGKILL)
    found = [folder / f"rank-{rank}.json" for rank in range(count)]
    return {
        "statuses": statuses,
        "said": [(folder / f"said-{rank}.txt").read_text() for rank in range(count)],
        "answers": [json.loads(path.read_text()) if path.exists() else None for path in found],
    }


if __name__ == "__main__":
    place = Path(sys.argv[1])
    phases = json.loads((place / "phases.json").read_text())
    results = {name: run(name, told, place) for name, told in phases.items()}
    (place / "results.json").write_text(json.dumps(results))

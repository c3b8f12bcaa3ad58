"""One run trained by two hosts, which share no folder or one: as by one process, and when one dies.

    python tests/reliability/two_hosts.py [--out FILE.json]

A host is a network namespace (Linux, root, `ip`) with a `torchrun` of its own; they are joined by
virtual cables alone. The run is trained by one process, then by both hosts; by both again, one of
which is killed or loses its cable; and once more, which must go on from the last checkpoint.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
from report import write_report

HERE = Path(__file__).resolve().parent

#: of the run: batches of neighbours, the filter and a context, so that all kinds of work are done;
#: nothing falls out, since each process would draw it for itself
CONFIG: dict[str, Any] = {
    "architecture": "contextual", "layers": 1, "first_stage_layers": 1, "batch_size": 16,
    "cluster_size": 16, "context_size": 4, "steps": 8, "warmup_steps": 2, "learning_rate": 1e-3,
    "query_tokens": 12, "document_tokens": 16, "context_tokens": 12, "surrogate_tokens": 12,
    "checkpoint_every": 3, "precision": "float32", "model": {"sequence_dropout": 0.0},
}  # fmt: skip
WHAT = ("boats", "hills", "lamps", "rivers", "stones", "gardens", "engines", "bridges")
HOW = ("are red", "are painted", "stand still", "are sold", "fall down", "were built", "shine")
DIES_AT = 4  #: a step between two checkpoints
PATIENCE = 120  #: seconds


@dataclass
class Host:
    """One of the two: how a command starts on it, its address, and its folder of what it keeps."""

    address: str
    cache: Path
    before: Sequence[str] = ()
    environment: dict[str, str] = field(default_factory=dict)


@contextmanager
def namespaces(caches: Sequence[Path]) -> Iterator[list[Host]]:
    """Two hosts in network namespaces, joined by virtual cables."""
    names = [f"cde-{os.getpid()}-{letter}" for letter in "ab"]
    ends = [f"cde{os.getpid() % 10**6}{letter}" for letter in "ab"]
    with ExitStack() as stack:
        for name in names:
            _ip("netns", "add", name)
            stack.callback(_ip, "netns", "del", name)
        _ip("link", "add", ends[0], "type", "veth", "peer", "name", ends[1])
        hosts = []
        for number, (name, end, cache) in enumerate(zip(names, ends, caches, strict=True)):
            address = f"10.77.0.{number + 1}"
            _ip("link", "set", end, "netns", name)
            _ip("-n", name, "addr", "add", f"{address}/24", "dev", end)
            _ip("-n", name, "link", "set", end, "up")
            _ip("-n", name, "link", "set", "lo", "up")
            inside = {"GLOO_SOCKET_IFNAME": end}
            hosts.append(Host(address, cache, ["ip", "netns", "exec", name], inside))
        yield hosts


def cable(host: Host, state: str) -> None:
    """Pull the cable of a host in a namespace ("down"), or plug it in ("up")."""
    _ip("-n", host.before[-1], "link", "set", host.environment["GLOO_SOCKET_IFNAME"], state)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


@dataclass
class Attempt:
    """What came of the launchers, one for each host."""

    codes: list[int]
    said: list[str]
    seconds: list[float]  #: until each ended
    answers: list[dict[str, Any] | None]
    pulled_at: float = 0.0  #: seconds after the start at which a cable was pulled


def write_task(folder: Path, told: dict[str, Any]) -> Path:
    """The pairs, and what the processes shall do, as files."""
    pairs, task = folder / "pairs.jsonl", folder / "task.json"
    rows = [{"query": f"which {a} {b}?", "document": f"{b} ones of {a}"} for a in WHAT for b in HOW]
    pairs.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    task.write_text(json.dumps({**told, "config": {**told["config"], "data": f"folder:{pairs}"}}))
    return task


def launch(
    hosts: Sequence[Host], folder: Path, dies: int = -1, timeout: float = 0, pulled: bool = False
) -> Attempt:
    """Train the run with a launcher on each host; what still runs after `PATIENCE` counts as 124.

    Args:
        hosts: of them; the first one's process is the first. A single one trains alone.
        folder: for the task and the answers.
        dies: number of the process that is killed with its launcher at `DIES_AT`.
        timeout: `CDE_TIMEOUT` of the processes, in seconds; 0 leaves torch's own.
        pulled: whether the last host's cable is pulled after the first checkpoint.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    task = write_task(folder, {"config": CONFIG, "dies": dies, "at": DIES_AT})
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    started, begun, pulled_at = [], time.monotonic(), 0.0
    for rank, host in enumerate(hosts):
        launcher = ["torch.distributed.run", f"--nnodes={len(hosts)}", f"--node-rank={rank}"]
        meeting = [f"--master-addr={hosts[0].address}", f"--master-port={port}"]
        script = [str(HERE / "host_work.py"), str(task), str(folder)]
        command = [*host.before, sys.executable, "-m", *launcher, *meeting, *script]
        environment = {**os.environ, **host.environment, "CDE_CACHE": str(host.cache)}
        environment |= {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
        if timeout:
            environment["CDE_TIMEOUT"] = str(timeout)
        told = (folder / f"said-{rank}.txt").open("w")
        started.append(
            subprocess.Popen(
                command, env=environment, stdout=told, stderr=told, start_new_session=True
            )
        )
    try:
        if pulled:
            _wait_for(hosts[0].cache, "checkpoint.pt")
            cable(hosts[-1], "down")
            pulled_at = time.monotonic() - begun
        seconds = _ends(started, begun)
    finally:  # when this script is interrupted, too
        for one in started:
            if one.poll() is None:
                _kill_all(one.pid)
        if pulled:
            cable(hosts[-1], "up")
    answers = [folder / f"rank-{rank}.json" for rank in range(len(hosts))]
    return Attempt(
        [one.returncode if one.returncode != -signal.SIGALRM else 124 for one in started],
        [(folder / f"said-{rank}.txt").read_text() for rank in range(len(hosts))],
        seconds,
        [json.loads(path.read_text()) if path.exists() else None for path in answers],
        pulled_at,
    )


def _wait_for(folder: Path, name: str) -> None:
    until = time.monotonic() + PATIENCE
    while not list(folder.rglob(name)):
        if time.monotonic() > until:
            raise TimeoutError(f"no {name} came to be below {folder}")
        time.sleep(0.02)


def _ends(started: Sequence[subprocess.Popen[bytes]], begun: float) -> list[float]:
    """Seconds until each launcher has ended; those that do not are killed."""
    ended = [0.0] * len(started)
    while any(one.poll() is None for one in started):
        late = time.monotonic() - begun > PATIENCE
        for place, one in enumerate(started):
            if one.poll() is None and late:
                _kill_all(one.pid)
            if one.poll() is None:
                ended[place] = time.monotonic() - begun
        time.sleep(0.02)
    return ended


def _kill_all(launcher: int) -> None:
    """Kill a launcher and its workers."""
    import psutil

    for process in [*psutil.Process(launcher).children(recursive=True), psutil.Process(launcher)]:
        process.send_signal(signal.SIGALRM if process.pid == launcher else signal.SIGKILL)


def difference(one: Attempt, other: Attempt) -> dict[str, float]:
    """How far two trainings are apart: relative difference of losses, and of the encoder's vectors."""
    found = {}
    for name in ("losses", "vectors"):
        a, b = (np.asarray(each.answers[0][name]) for each in (one, other))  # type: ignore[index]
        found[name] = float(abs(a - b).max() / abs(a).max())
    return found


#: what happens to a run: which process dies with its launcher, and whether a cable is pulled
EVENTS = {
    "nothing": (-1, False),
    "second host killed": (1, False),
    "first host killed": (0, False),
    "cable pulled": (-1, True),
}
TIMEOUT = 10.0


def examine(hosts: list[Host], event: str, one: Attempt, folder: Path) -> dict[str, Any]:
    """Train a run on two hosts through an event, and again until it ends; a row of the report."""
    for host in hosts:
        shutil.rmtree(host.cache, ignore_errors=True)
        host.cache.mkdir(parents=True)
    (dies, pulled), problems, row = EVENTS[event], [], {"event": event}
    row["cache"] = "one for both" if hosts[0].cache == hosts[1].cache else "one each"
    row["seconds_to_the_error"] = None
    if event != "nothing":
        broken = launch(hosts, folder, dies, timeout=TIMEOUT if pulled else 0, pulled=pulled)
        left = [rank for rank in range(2) if rank != dies]
        for rank in left:
            if broken.codes[rank] in (0, 124):
                problems.append(f"host {rank} ended with {broken.codes[rank]}")
            if "cannot reach another one" not in broken.said[rank]:
                problems.append(f"host {rank} said: {broken.said[rank][-2000:]}")
        since = broken.pulled_at if pulled else broken.seconds[dies]
        row["seconds_to_the_error"] = round(max(broken.seconds[rank] for rank in left) - since, 1)
    whole = launch(hosts, folder)
    if any(whole.codes) or None in whole.answers:
        raise RuntimeError(f"{event}: {whole.codes} {whole.said}")
    answers: list[dict[str, Any]] = [answer for answer in whole.answers if answer is not None]
    row["went_on_at_step"] = answers[0]["first_step"]
    row["both_have_it"] = len({answer["weights"] for answer in answers}) == 1
    row["both_have_it"] &= all(
        Path(answer["folder"]).is_relative_to(host.cache)
        for answer, host in zip(answers, hosts, strict=True)
    )
    found = difference(one, whole)
    row |= {f"{name}_apart": f"{value:.0e}" for name, value in found.items()}
    if max(found.values()) > 1e-4:
        problems.append(f"not as by one process: {found}")
    if (answers[0]["first_step"] > 0) != (event != "nothing"):
        problems.append(f"it began at step {answers[0]['first_step']}")
    return row | {"problems": "; ".join(problems) or "none"}


def main() -> int:
    """Train and kill; a report as JSON. Status 1 if anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--out", type=Path, help="a JSON file for the rows")
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory(prefix="two-hosts-") as name:
        base = Path(name)
        one = launch([Host("127.0.0.1", base / "one")], base / "task")
        if any(one.codes):
            raise RuntimeError(one.said[0])
        for caches in ([base / "a", base / "b"], [base / "a", base / "a"]):
            with namespaces(caches) as hosts:
                for event in EVENTS:
                    rows.append(examine(hosts, event, one, base / "task"))
                    print(json.dumps(rows[-1]), flush=True)
    if options.out is not None:
        write_report(options.out, "two hosts", rows, note="the hosts are network namespaces")
    return int(any(row["problems"] != "none" for row in rows))


if __name__ == "__main__":
    sys.exit(main())

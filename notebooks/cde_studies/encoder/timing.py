"""Times in turns, and peak memory: how chapters and benchmarks compare what things cost.

A machine that slows down slows whatever runs on it then. So what is compared takes turns, round
after round, and ratios are made within a round; the first round warms up and does not count. Memory
is that of the GPU where there is one, else of the process, which only Linux tells.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from cde.progress import progress


def in_turns(jobs: Mapping[str, Callable[[], Any]], rounds: int) -> pd.DataFrame:
    """Seconds of each job in each round, after one round to warm up: step (the name), round (from
    1), seconds, and loss where the jobs return a number.
    """
    rows = []
    for number in progress(range(rounds + 1), "timing", unit="rounds"):
        for name, job in jobs.items():
            begun = time.perf_counter()
            result = job()
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            row = {"step": name, "round": number, "seconds": time.perf_counter() - begun}
            if isinstance(result, int | float):
                row["loss"] = float(result)
            if number:
                rows.append(row)
    return pd.DataFrame(rows)


def ratios(times: pd.DataFrame, job: str, other: str) -> pd.Series[float]:
    """How many times as long one job took as another, by round."""
    seconds = times.pivot_table(index="round", columns="step", values="seconds")
    return seconds[job] / seconds[other]


def memory_is_measured() -> bool:
    """Whether this machine tells the peak of a process' memory: a GPU does, and Linux."""
    return torch.cuda.is_available() or Path("/proc/self/clear_refs").exists()


def peak_memory(job: Callable[[], Any]) -> tuple[float, float, Any]:
    """MiB at the highest while a job runs, above what was in use before and in all; and what the
    job returned. For a clean number, call it in a process of its own.
    """
    if not memory_is_measured():
        raise OSError("peak memory is read from a GPU, or from /proc, which only Linux has")
    on_gpu = torch.cuda.is_available()
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    else:
        Path("/proc/self/clear_refs").write_text("5")  # forget the peak of what was before
    before = torch.cuda.memory_allocated() / 2**20 if on_gpu else _of_process("VmRSS")
    result = job()
    most = torch.cuda.max_memory_allocated() / 2**20 if on_gpu else _of_process("VmHWM")
    return most - before, most, result


_PROGRAM = """
import importlib, json, multiprocessing, sys
module, name, jobs, at_once = json.loads(sys.argv[1])
function = getattr(importlib.import_module(module), name)  # once, before the processes part
def call(job):
    return function(*job)
with multiprocessing.get_context("fork").Pool(at_once, maxtasksperchild=1) as pool:
    for result in pool.imap(call, jobs):
        print("\\nresult", json.dumps(result), flush=True)
"""


def in_own_processes(function: Callable[..., Any], jobs: Sequence[Sequence[Any]]) -> list[Any]:
    """What a function returns for each job, each call in a process of its own, so that none finds
    memory that another has left behind. Freed memory is given back at once, which glibc would keep,
    more or less of it from run to run. Two run at the same time; on a GPU, one.
    """
    at_once = 1 if torch.cuda.is_available() else 2
    call = [function.__module__, function.__name__, jobs, at_once]
    command = [sys.executable, "-c", _PROGRAM, json.dumps(call)]
    environment = {**os.environ, "MALLOC_TRIM_THRESHOLD_": str(2**20)}
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment
        ) as process,
    ):
        assert process.stdout is not None
        said = (line for line in process.stdout if line.startswith("result "))
        shown = progress(said, f"calling {function.__name__}", len(jobs), "calls")
        results = [json.loads(line.removeprefix("result ")) for line in shown]
        if process.wait():
            errors.seek(0)
            raise RuntimeError(errors.read()[-2000:])
    return results


def _of_process(name: str) -> float:
    match = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert match is not None
    return int(match[1]) / 2**10

"""Times in turns, and memory, of what a benchmark compares."""

from __future__ import annotations

import re
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch

Arm = Callable[[], object]


def in_turns(arms: dict[str, Arm], rounds: int, device: str) -> dict[str, list[float]]:
    """Seconds of each arm in each round, after one round to warm up; a machine that slows down
    slows all.
    """
    seconds: dict[str, list[float]] = {name: [] for name in arms}
    for number in range(rounds + 1):
        for name, arm in arms.items():
            begun = time.perf_counter()
            arm()
            if device == "cuda":
                torch.cuda.synchronize()
            if number:
                seconds[name].append(time.perf_counter() - begun)
    return seconds


def ratio(numerator: list[float], denominator: list[float]) -> str:
    """The median of the rounds' ratios, and the least and the greatest."""
    pairs = [one / other for one, other in zip(numerator, denominator, strict=True)]
    return f"{statistics.median(pairs):.2f} ({min(pairs):.2f} to {max(pairs):.2f})"


def memory(device: str, peak: bool = False) -> float:
    """MiB in use, or at the highest: of the GPU, or of the process (Linux)."""
    if device == "cuda":
        return (
            torch.cuda.max_memory_allocated() if peak else torch.cuda.memory_allocated()
        ) / 2**20
    status = Path("/proc/self/status").read_text()
    return int(re.search(rf"{'VmHWM' if peak else 'VmRSS'}:\s+(\d+) kB", status)[1]) / 2**10


def forget_peak(device: str) -> None:
    """Count the highest from here on, not that of loading."""
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    else:
        Path("/proc/self/clear_refs").write_text("5")

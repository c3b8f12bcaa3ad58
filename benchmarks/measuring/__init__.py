"""Times in turns, and memory, of what a benchmark compares."""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable
from pathlib import Path

import torch

from cde_studies.encoder import timing

Arm = Callable[[], object]


def in_turns(arms: dict[str, Arm], rounds: int) -> dict[str, list[float]]:
    """Seconds of each arm in each round (`cde_studies.encoder.timing.in_turns`)."""
    times = timing.in_turns(arms, rounds)
    return {name: times.loc[times["step"] == name, "seconds"].tolist() for name in arms}


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

"""What it costs how OpenMP's threads wait, idle and beside a busy process: ratios in one run.

Forward and backward passes of MiniLM's lowest two layers over 64 texts of 48 tokens in float32, in
processes of their own that take turns: with the default, in which threads spin for long, with
threads that sleep at once (`OMP_WAIT_POLICY=PASSIVE`), and with `GOMP_SPINCOUNT=10000`, which the
command sets. `--busy` runs one process beside them that keeps a core busy.

    python benchmarks/waiting.py [--rounds 5] [--busy]
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys

STEPS = """
import time, torch
from cde.models import BiEncoder
model = BiEncoder.from_backbone("minilm", 2).train()
ids = torch.randint(1000, 20000, (64, 48))
times = []
for _ in range(6):
    begun = time.perf_counter()
    model(ids).square().sum().backward()
    times.append(time.perf_counter() - begun)
print(sorted(times[1:])[2])
"""


WAYS = {
    "default": {},
    "sleep at once": {"OMP_WAIT_POLICY": "PASSIVE"},
    "10,000 spins": {"GOMP_SPINCOUNT": "10000"},
}


def seconds(way: dict[str, str]) -> float:
    """The median of five steps in a process of its own."""
    names = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
    bare = {name: value for name, value in os.environ.items() if name not in names}
    command = [sys.executable, "-c", STEPS]
    done = subprocess.run(command, env=bare | way, capture_output=True, text=True, check=True)
    return float(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--busy", action="store_true", help="beside a process that is busy")
    options = parser.parse_args()
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"]) if options.busy else None
    try:
        rounds = [{name: seconds(way) for name, way in WAYS.items()} for _ in range(options.rounds)]
    finally:
        if busy is not None:
            busy.kill()
    print("beside a busy process" if options.busy else "as the machine is")
    for name in WAYS:
        ratios = sorted(one[name] / one["default"] for one in rounds)
        print(
            f"{name:14} {statistics.median(one[name] for one in rounds):.2f} s a step, "
            f"{statistics.median(ratios):.2f} times the default "
            f"({ratios[0]:.2f} to {ratios[-1]:.2f})"
        )


if __name__ == "__main__":
    main()

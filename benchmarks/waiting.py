"""What it costs that OpenMP threads sleep while they wait, idle and beside a busy process: ratios.

Forward and backward passes of MiniLM's lowest two layers over 64 texts of 48 tokens in float32, in
processes of their own that take turns: one with `OMP_WAIT_POLICY=PASSIVE`, one with the default, in
which threads spin. `--busy` runs one process beside them that keeps a core busy.

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


def seconds(policy: str | None) -> float:
    """The median of five steps in a process of its own."""
    names = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
    environment = {name: value for name, value in os.environ.items() if name not in names}
    if policy is not None:
        environment["OMP_WAIT_POLICY"] = policy
    command = [sys.executable, "-c", STEPS]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return float(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--busy", action="store_true", help="beside a process that is busy")
    options = parser.parse_args()
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"]) if options.busy else None
    try:
        pairs = [(seconds(None), seconds("PASSIVE")) for _ in range(options.rounds)]
    finally:
        if busy is not None:
            busy.kill()
    ratios = sorted(spinning / sleeping for spinning, sleeping in pairs)
    print(
        f"{'beside a busy process' if options.busy else 'as the machine is'}: a step takes "
        f"{statistics.median(one for one, _ in pairs):.2f} s with threads that spin and "
        f"{statistics.median(other for _, other in pairs):.2f} s with threads that sleep; ratio: "
        f"median {statistics.median(ratios):.2f} (from {ratios[0]:.2f} to {ratios[-1]:.2f})"
    )


if __name__ == "__main__":
    main()

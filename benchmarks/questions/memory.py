"""Whether a million pairs are clustered and packed within 4 GB.

It is the second part of `benchmarks/clustering.py`: memory-mapped float16 vectors of 384
dimensions, in shards, in a process that may allocate no more. What is told is the memory that is
its own; pages of the mapped files, which the system takes back when it needs to, are not.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from clustering import at_size

ALLOWED = 4.0  # GB, of 10⁹ bytes
DIM, SHARD, ITERATIONS = 384, 50_000, 5


def bounds(quick: bool) -> list[dict[str, Any]]:
    if not sys.platform.startswith("linux"):  # only Linux tells, and holds a process to a limit
        return []
    pairs = 2_000 if quick else 1_000_000
    options = argparse.Namespace(
        pairs_at_size=pairs,
        dim=64 if quick else DIM,
        iterations=2 if quick else ITERATIONS,
        shard_size=1_000 if quick else SHARD,
        limit=ALLOWED * 1e9 / 2**30,
    )
    found = at_size(options)
    return [
        {
            "question": "clustering and packing",
            "size": pairs,
            "unit": "pairs",
            "used": found["held"] * 2**30 / 1e9,
            "allowed": ALLOWED,
            "seconds": found["clustering"] + found["packing"],
            "note": f"float16 vectors of {options.dim} dimensions, memory-mapped; shards of "
            f"{options.shard_size:,} pairs, {options.iterations} iterations, the order of a tour; "
            f"{found['before']:.2f} GiB held before",
        }
    ]

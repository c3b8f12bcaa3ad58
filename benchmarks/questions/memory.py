"""Whether a million pairs are clustered and packed within 4 GB.

Pairs are memory-mapped float16 vectors of 384 dimensions, clustered in shards in a process of its
own that may allocate no more. What is told is the memory that is its own (anonymous pages, looked
at every 10 ms); pages of the mapped files, which the system takes back when it needs to, are not.
"""

from __future__ import annotations

import multiprocessing
import re
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cde.batching.clustering import cluster_pairs
from cde.batching.packing import pack_batches

Vectors = NDArray[np.float32]

ALLOWED = 4.0  # GB, of 10⁹ bytes
CLUSTER_SIZE = BATCH_SIZE = 256
BLOCK = 65_536  # rows that are made at a time


class Size(NamedTuple):
    """How much is clustered, and how."""

    pairs: int = 1_000_000
    dim: int = 384
    iterations: int = 5
    shard: int = 50_000


def unit(vectors: Vectors) -> Vectors:
    lengths: Vectors = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / lengths


def mixture(count: int, dim: int) -> Iterator[tuple[Vectors, Vectors]]:
    """Blocks of query and of document vectors of length 1, that are alike in a pair."""
    generator = np.random.default_rng(0)
    spread = (1 / np.sqrt(np.arange(1, dim + 1))).astype(np.float32)
    components = generator.standard_normal((max(1, count // 10), dim), np.float32)
    for start in range(0, count, BLOCK):
        rows = min(BLOCK, count - start)
        documents = components[generator.integers(0, len(components), rows)]
        documents += generator.standard_normal((rows, dim), np.float32)
        queries = documents + generator.standard_normal((rows, dim), np.float32)
        yield unit(queries * spread), unit(documents * spread)


def write(folder: Path, count: int, dim: int) -> None:
    """The two tables of vectors, float16, a block at a time."""
    tables = [
        np.lib.format.open_memmap(folder / f"{side}.npy", "w+", np.float16, (count, dim))
        for side in ("queries", "documents")
    ]
    start = 0
    for blocks in mixture(count, dim):
        for table, block in zip(tables, blocks, strict=True):
            table[start : start + len(block)] = block
        start += len(blocks[0])
    for table in tables:
        table.flush()


def status(process: int | str, field: str) -> float:
    """GiB, of a field of Linux's status of a process; 0 once it is gone."""
    try:
        text = Path(f"/proc/{process}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    found = re.search(rf"{field}:\s+(\d+) kB", text)
    return int(found[1]) / 2**20 if found else 0.0


def cluster_and_pack(folder: Path, size: Size, connection: Connection) -> None:
    """What the process of its own does; it sends what it held before, and then what it found."""
    most = int(ALLOWED * 1e9)
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))  # files mapped for reading do not count
    queries, documents = (
        np.load(folder / f"{side}.npy", mmap_mode="r") for side in ("queries", "documents")
    )
    before, begun = status("self", "RssAnon"), time.perf_counter()
    labels = cluster_pairs(
        queries,
        documents,
        cluster_size=CLUSTER_SIZE,
        iterations=size.iterations,
        attempts=1,
        shard_size=size.shard,
    )
    clustered = time.perf_counter()
    batches = pack_batches(labels, batch_size=BATCH_SIZE, order="tsp", vectors=documents)
    packed = time.perf_counter()
    assert len(np.unique(np.concatenate(batches))) == len(labels) // BATCH_SIZE * BATCH_SIZE
    connection.send(
        {"before": before, "clustering": clustered - begun, "packing": packed - clustered}
    )


def at_size(size: Size) -> dict[str, float]:
    """What the process of its own found, with the most GiB that it `held`, all its own."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), size.pairs, size.dim)
        process = context.Process(target=cluster_and_pack, args=(Path(folder), size, theirs))
        process.start()
        theirs.close()
        held = 0.0
        while not ours.poll(0.01):
            held = max(held, status(str(process.pid), "RssAnon"))
        try:
            found = ours.recv()
        except EOFError:
            raise SystemExit(f"no result within {ALLOWED} GB; see the error above") from None
        finally:
            process.join()
    return {**found, "held": held}


def bounds(quick: bool) -> list[dict[str, Any]]:
    if not sys.platform.startswith("linux"):  # only Linux tells, and holds a process to a limit
        return []
    size = Size(2_000, 64, 2, 1_000) if quick else Size()
    found = at_size(size)
    return [
        {
            "question": "clustering and packing",
            "size": size.pairs,
            "unit": "pairs",
            "used": found["held"] * 2**30 / 1e9,
            "allowed": ALLOWED,
            "seconds": found["clustering"] + found["packing"],
            "note": f"float16 vectors of {size.dim} dimensions, memory-mapped; shards of "
            f"{size.shard:,} pairs, {size.iterations} iterations, the order of a tour; "
            f"{found['before']:.2f} GiB held before",
        }
    ]

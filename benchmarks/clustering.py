"""Whether `faiss.SuperKmeans` would cluster faster, and what a set larger than memory takes.

1. Seconds of `faiss.Kmeans`, which `run_kmeans` uses, over those of `faiss.SuperKmeans` (random
   rotation, distances cut short where they cannot be the least; FAISS 1.15), above 1 where the
   latter is faster: the same points, number of clusters, iterations and seed, both on the CPU.
   Beside it the ratio of the objectives, the mean squared distance of a point to its nearest
   centroid, recomputed in float64, as neither's own record counts here. Where the objectives differ
   by more than `--tolerance`, the worse one is given more iterations, and the ratio of the seconds
   to the same objective is printed too. The points are `--pairs` unit vectors, and then the paired
   points of a fifth as many pairs (2n points of 2·dim), also in as many clusters as `cluster_pairs`
   makes of them. Vectors are a mixture, one component for every ten, whose coordinates spread ever
   less (by 1/√j), as those of texts do.
2. `cluster_pairs` and `pack_batches` on `--pairs-at-size` pairs of memory-mapped float16 vectors,
   in shards, in a process of its own that may allocate `--limit` GiB and no more. Printed are its
   seconds and two peaks: of the memory it holds itself (anonymous pages, looked at every 10 ms),
   and of all that was resident (VmHWM), which counts the pages of the mapped files too, though the
   system takes those back whenever it needs to. Linux only.

Rounds alternate in 1. and each has a seed of its own, so that a machine that slows down slows both.

Cost: about three minutes on two cores; in 2. a million pairs take five minutes even on one core,
and 4 · dim bytes a pair on disk meanwhile, in the folder for temporary files (TMPDIR).

    python benchmarks/clustering.py [--parts kmeans size] [--pairs 50000] [--clusters 1024 128]
        [--dim 384] [--iterations 10] [--rounds 3] [--tolerance 0.01] [--pairs-at-size 100000]
        [--shard-size 50000] [--limit 4]
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import re
import resource
import statistics
import tempfile
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from cde.batching.clustering import cluster_pairs, paired_points
from cde.batching.packing import pack_batches

Vectors = NDArray[np.float32]

CLUSTER_SIZE = BATCH_SIZE = 256
BLOCK = 65_536  # rows that are made, or compared, at a time
PATIENCE = 8  # at most so many times the iterations, for the objective that the other reached


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


def objective(points: Vectors, centroids: Vectors) -> float:
    """The mean squared distance of a point to its nearest centroid."""
    nearest, total = faiss.knn(points, centroids, 1)[1][:, 0], 0.0
    for start in range(0, len(points), BLOCK):
        some = slice(start, start + BLOCK)
        apart = points[some].astype(np.float64) - centroids[nearest[some]]
        total += float(np.einsum("ij,ij->", apart, apart))
    return total / len(points)


def trained(
    kind: Any, points: Vectors, clusters: int, iterations: int, seed: int
) -> tuple[float, Any]:
    """Seconds, and the k-means."""
    kmeans = kind(
        points.shape[1],
        clusters,
        niter=iterations,
        seed=seed,
        min_points_per_centroid=1,
        max_points_per_centroid=len(points),
    )
    begun = time.perf_counter()
    kmeans.train(points)
    return time.perf_counter() - begun, kmeans


def seconds_to(
    target: float, kind: Any, points: Vectors, clusters: int, iterations: int, seed: int
) -> float:
    """Seconds to an objective no greater than `target`; infinite if patience does not suffice."""
    _, longer = trained(kind, points, clusters, PATIENCE * iterations, seed)
    # the record holds the objective before each update: entry i is that of i iterations
    enough = np.flatnonzero(longer.obj / len(points) <= target)
    if len(enough) == 0:
        return math.inf
    return trained(kind, points, clusters, max(1, int(enough[0])), seed)[0]


def compare(title: str, points: Vectors, clusters: int, options: argparse.Namespace) -> None:
    from measuring import ratio  # it loads torch, of which the process that 2. measures is free

    kinds = (faiss.Kmeans, faiss.SuperKmeans)
    seconds: tuple[list[float], list[float]] = ([], [])
    reached: tuple[list[float], list[float]] = ([], [])
    for seed in range(options.rounds):
        for side, kind in enumerate(kinds):
            took, kmeans = trained(kind, points, clusters, options.iterations, seed)
            seconds[side].append(took)
            reached[side].append(objective(points, kmeans.centroids))
    print(
        f"{title} ({len(points):,} × {points.shape[1]}), {clusters:,} clusters: Kmeans "
        f"{statistics.median(seconds[0]):.2f} s; it takes {ratio(*seconds)} times as long as "
        f"SuperKmeans, whose objective is "
        f"{statistics.median(reached[1]) / statistics.median(reached[0]):.4f} times as large "
        f"({min(reached[1]):.5f} to {max(reached[1]):.5f})",
        flush=True,
    )
    excess = statistics.median(reached[1]) / statistics.median(reached[0]) - 1
    if abs(excess) > options.tolerance:
        worse = int(excess > 0)
        targets = reached[1 - worse]
        again = [
            seconds_to(target, kinds[worse], points, clusters, options.iterations, seed)
            for seed, target in enumerate(targets)
        ]
        same = (seconds[0], again) if worse else (again, seconds[1])
        print(f"  to the same objective, Kmeans takes {ratio(*same)} times as long", flush=True)


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


def cluster_and_pack(folder: Path, options: argparse.Namespace, connection: Connection) -> None:
    """What the process of its own does; it sends what it held before, and then what it found."""
    most = int(options.limit * 2**30)
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))  # files mapped for reading do not count
    queries, documents = (
        np.load(folder / f"{side}.npy", mmap_mode="r") for side in ("queries", "documents")
    )
    before, begun = status("self", "RssAnon"), time.perf_counter()
    labels = cluster_pairs(
        queries,
        documents,
        cluster_size=CLUSTER_SIZE,
        iterations=options.iterations,
        attempts=1,
        shard_size=options.shard_size,
    )
    clustered = time.perf_counter()
    batches = pack_batches(labels, batch_size=BATCH_SIZE, order="tsp", vectors=documents)
    packed = time.perf_counter()
    assert len(np.unique(np.concatenate(batches))) == len(labels) // BATCH_SIZE * BATCH_SIZE
    connection.send(
        {
            "before": before,
            "clustering": clustered - begun,
            "packing": packed - clustered,
            "clusters": int(labels.max()) + 1,
            "batches": len(batches),
            "resident": status("self", "VmHWM"),
        }
    )


def at_size(options: argparse.Namespace) -> dict[str, float]:
    """What the process of its own found, with the most GiB that it `held`, all its own."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), options.pairs_at_size, options.dim)
        process = context.Process(target=cluster_and_pack, args=(Path(folder), options, theirs))
        process.start()
        theirs.close()
        held = 0.0
        while not ours.poll(0.01):
            held = max(held, status(str(process.pid), "RssAnon"))
        try:
            found = ours.recv()
        except EOFError:
            raise SystemExit(f"no result within {options.limit} GiB; see the error above") from None
        finally:
            process.join()
    return {**found, "held": held}


def tell_size(found: dict[str, float], options: argparse.Namespace) -> None:
    expected = 28 * options.dim * min(options.shard_size, options.pairs_at_size) / 2**30
    mapped = 4 * options.dim * options.pairs_at_size / 2**30
    print(
        f"{options.pairs_at_size:,} pairs in shards of {options.shard_size:,}, "
        f"{options.iterations} iterations: {found['clusters']:,} clusters in "
        f"{found['clustering']:.1f} s, {found['batches']:,} batches packed in "
        f"{found['packing']:.1f} s\n"
        f"  memory: at most {found['held']:.2f} GiB of its own (allowed: {options.limit:g}), "
        f"{(found['held'] - found['before']) / expected:.2f} times 28 · dim bytes a pair of a "
        f"shard above the {found['before']:.2f} it began with; at most {found['resident']:.2f} GiB "
        f"resident with pages of the {mapped:.2f} GiB of mapped files"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parts = ["kmeans", "size"]
    parser.add_argument("--parts", nargs="+", choices=parts, default=parts)
    parser.add_argument("--pairs", type=int, default=50_000)
    parser.add_argument("--clusters", type=int, nargs="+", default=[1_024, 128])
    parser.add_argument("--dim", type=int, default=384)
    parser.add_argument("--iterations", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tolerance", type=float, default=0.01)
    parser.add_argument("--pairs-at-size", type=int, default=100_000)
    parser.add_argument("--shard-size", type=int, default=50_000)
    parser.add_argument("--limit", type=float, default=4)
    options = parser.parse_args()
    print(f"{faiss.omp_get_max_threads()} threads, FAISS {faiss.__version__}", flush=True)
    if "kmeans" in options.parts:
        queries, documents = map(
            np.concatenate, zip(*mixture(options.pairs, options.dim), strict=True)
        )
        for clusters in options.clusters:
            compare("one side", documents, clusters, options)
        few = max(1, options.pairs // 5)
        points = paired_points(queries[:few], documents[:few])
        for clusters in (max(options.clusters), math.ceil(few / CLUSTER_SIZE)):
            compare("paired points", points, clusters, options)
    if "size" in options.parts:
        tell_size(at_size(options), options)

"""Two machines that share one cache folder: their vectors, their runs, and each other's files.

    python tests/reliability/shared_folder.py [--seconds S] [--out FILE.json]

A machine is a host name (`unshare --uts`) and a mount of one folder by `bindfs` (Linux, root): with
`--enable-lock-forwarding` each sees the other's locks (flock), as over NFS version 4; without it a
lock stays on its machine, as with `nolock`. It is not NFS, which was not tried.

Each machine has two processes, which write and read vectors and files and look for leftovers; each
is killed again and again. Nothing that is read may differ from what was written; no file may vanish
while its writer lives. Then both make the same run. Where bindfs forwards locks it gives those of
SQLite (fcntl) to all processes of a machine at once; so there are no vectors then.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
from report import write_report

from cde import storage
from cde.training import runs
from cde.vector_store import VectorStore

DIM, TEXTS, PORTION = 384, 4000, 64
FORWARDED = ("--multithreaded", "--enable-lock-forwarding")
COUNTS = ("vectors_read", "wrong", "files", "vanished", "damage", "errors")


def vector_of(text: str) -> np.ndarray:
    """What a text's vector is, whoever computes it."""
    return np.random.default_rng(int(text)).standard_normal(DIM).astype(np.float32)


def work(counts: Path, seed: int) -> None:
    """Write and read until killed; what was seen goes to a file that is outside the cache."""
    # one kernel runs both machines: what would tell them apart is another one's
    storage._BOOT = Path(os.environ["BOOT"])
    draws, seen = np.random.default_rng(seed), dict.fromkeys(COUNTS, 0)
    folder = storage.cache_folder("files")
    while True:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            try:
                _one_round(draws, seen, folder)
            except Exception as error:
                seen["errors"] += 1
                print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        seen["damage"] += sum(issubclass(one.category, storage.DamageWarning) for one in told)
        with storage.atomic_path(counts) as path:  # whole when this process is killed
            path.write_text(json.dumps(seen))


def _one_round(draws: np.random.Generator, seen: dict[str, int], folder: Path) -> None:
    texts = [str(one) for one in draws.choice(TEXTS, PORTION, replace=False)]
    if os.environ["VECTORS"]:
        with VectorStore("shared", DIM) as store:
            known = store.read(texts)
            missing = [text for text in texts if text not in known]
            if missing:
                store.write(missing, np.stack([vector_of(text) for text in missing]))
        seen["vectors_read"] += len(known)
        seen["wrong"] += sum(
            not np.array_equal(vector, vector_of(text)) for text, vector in known.items()
        )
    with storage.atomic_path(folder / f"{texts[0]}.txt") as path:
        path.write_text(texts[0])
        storage.remove_leftovers(folder)
        seen["vanished"] += not path.exists()
    seen["files"] += 1


def serve(base: Path, name: str, seconds: float) -> None:
    """Be a machine: keep two processes at work and kill them, then make the run."""
    draws, kills, number = random.Random(name), 0, 0
    (base / f"{name}.ready").touch()
    while not (base / "go").exists():
        time.sleep(0.01)
    until, children = time.monotonic() + seconds, []
    while time.monotonic() < until:
        while len(children) < 2:
            number += 1
            child = os.fork()
            if child == 0:
                work(base / f"counts-{name}-{number}.json", 2 * number + (name == "b"))
            children.append(child)
        time.sleep(draws.uniform(0.2, 1.5))
        child = children.pop(0)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        kills += 1
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    (base / f"{name}.kills").write_text(str(kills))
    make_run("shared")


def make_run(key: str) -> None:
    """Make a run that takes a second, or read it back; fail unless it is whole."""

    def make(folder: Path) -> dict[str, Any]:
        time.sleep(1)
        with storage.atomic_path(folder / "model" / "weights") as path:
            path.write_text("weights")
        with Path(os.environ["MADE"]).open("a") as file:
            file.write("x")
        return {"metrics": []}

    folder = runs.stored(key, make, 0)
    files = (storage.read_json(folder / "run.json") or {})["files"]
    if damaged := storage.differing_file(folder, files):
        raise RuntimeError(f"{damaged}")


@contextmanager
def machines(base: Path, options: tuple[str, ...]) -> Iterator[list[Path]]:
    """Two mounts of one folder."""
    real, mounts = base / "real", [base / "a", base / "b"]
    for folder in (real, *mounts):
        folder.mkdir(parents=True)
    mounted: list[Path] = []
    try:
        for mount in mounts:
            subprocess.run(["bindfs", *options, str(real), str(mount)], check=True)
            mounted.append(mount)
        yield mounts
    finally:
        for mount in mounted:
            subprocess.run(["umount", "-l", str(mount)], check=True)


def start(mount: Path, base: Path, seconds: float, **more: str) -> subprocess.Popen[bytes]:
    """Start a machine."""
    boot = base / f"{mount.name}.boot"
    boot.write_text(mount.name)
    told = {"CDE_CACHE": str(mount), "BOOT": str(boot), "MADE": str(base / "made")}
    name = f'hostname machine-{mount.name} && exec "$@"'
    command = ["unshare", "--uts", "sh", "-c", name, "sh", sys.executable, __file__]
    command += ["serve", str(base), mount.name, str(seconds)]
    with (base / f"{mount.name}.errors").open("ab") as errors:
        return subprocess.Popen(command, env={**os.environ, **told, **more}, stderr=errors)


def observe(kind: str, options: tuple[str, ...], base: Path, seconds: float) -> dict[str, Any]:
    """Let two machines write at once, and kill their processes; a row of the report."""
    seen = dict.fromkeys(COUNTS, 0)
    with machines(base, options) as mounts:
        vectors = "" if options else "yes"
        both = [start(mount, base, seconds, VECTORS=vectors) for mount in mounts]
        while len(list(base.glob("*.ready"))) < 2:
            if any(one.poll() is not None for one in both):
                raise RuntimeError([path.read_text() for path in base.glob("*.errors")])
            time.sleep(0.05)
        (base / "go").touch()
        whole = sum(process.wait() == 0 for process in both)
        for path in base.glob("counts-*.json"):
            for name, count in json.loads(path.read_text() or "{}").items():
                seen[name] += count
        kills = sum(int((base / f"{mount.name}.kills").read_text()) for mount in mounts)
        made = len((base / "made").read_text())
    return {"locks": kind, "kills": kills, **seen, "runs_made": made, "runs_whole": whole}


def main() -> int:
    """Observe both kinds of disk; a report as JSON. Status 1 if anything was wrong or vanished."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--seconds", type=float, default=60, help="for each kind of disk")
    parser.add_argument("--out", type=Path, help="a JSON file for the rows")
    options = parser.parse_args()
    rows = []
    for kind, flags in (("seen by both", FORWARDED), ("of one machine", ())):
        with tempfile.TemporaryDirectory(prefix="shared-") as folder:
            rows.append(observe(kind, flags, Path(folder), options.seconds))
            said = [path.read_text()[-600:] for path in Path(folder).glob("*.errors")]
        print(json.dumps(rows[-1]), *(one for one in said if one), sep="\n", flush=True)
    if options.out is not None:
        note = "the machines are two mounts by bindfs and two host names on one system"
        write_report(options.out, "two machines and one folder", rows, note=note)
    bad = ("wrong", "vanished", "damage", "errors")
    return int(any(row["runs_whole"] != 2 or any(row[name] for name in bad) for row in rows))


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        serve(Path(sys.argv[2]), sys.argv[3], float(sys.argv[4]))
    else:
        sys.exit(main())

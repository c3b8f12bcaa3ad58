"""Plant one fault at a time in a copy of the package, and see whether the tests named for it fail.

`mutants.yml` lists the faults. Each is planted in a fresh copy, in a process and a cache folder of
its own; the checkout and the user's cache stay as they are. First all tests that are named run on
the unchanged package: what fails there says nothing about a fault.

    make mutants
    python tests/reliability/mutants.py --only loss-temperature --jobs 1

Exit code 1 if a fault survived, ran out of time or cannot be planted, 2 if a test fails without
one. Cost: 3 to 10 seconds a fault and core. Libraries are loaded once: every process is a fork.
"""

from __future__ import annotations

import argparse
import compileall
import contextlib
import importlib
import multiprocessing
import os
import py_compile
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

# before torch is loaded: a fork must not inherit threads, and two faults share two cores
os.environ.update({"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"})

import psutil
import yaml

ROOT = Path(__file__).resolve().parents[2]
LIST = Path(__file__).with_suffix(".yml")
FIELDS = {"id", "what", "old", "new", "tests"}
#: what the tests need of the repository
COPIED = ("cde", "tests", "book", "notebooks", "pyproject.toml", "README.md", "_toc.yml")
#: loaded before the forks: most of what the tests wait for otherwise
LIBRARIES = """
    pytest hypothesis torch transformers sentence_transformers accelerate faiss scipy.stats
    sklearn.cluster sklearn.feature_extraction.text pandas pyarrow bm25s pytrec_eval
    matplotlib.pyplot pydantic
""".split()  # noqa: SIM905


@dataclass(frozen=True)
class Fault:
    """One entry of the list: `old`, which stands once in `file`, becomes `new`."""

    id: str
    what: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def planted(self, text: str) -> str:
        """The file's text with the fault.

        Raises:
            ValueError: `old` does not stand in it exactly once.
        """
        if (count := text.count(self.old)) != 1:
            raise ValueError(f"{self.id}: {self.file} has {self.old!r} {count} times, not once")
        return text.replace(self.old, self.new)


@dataclass(frozen=True)
class Result:
    """What became of a fault: caught, survived, out of time, or not to be planted."""

    id: str
    file: str
    what: str
    outcome: str
    by: str
    seconds: float


def read_faults(path: Path = LIST) -> list[Fault]:
    """The faults of a list.

    Raises:
        ValueError: an entry with other fields than a fault has, or an id that occurs twice.
    """
    faults, text = [], path.read_text(encoding="utf-8")
    for file, entries in yaml.safe_load(text).items():
        for entry in entries:
            if set(entry) != FIELDS:
                raise ValueError(f"{path}: {entry.get('id')} must have the fields {sorted(FIELDS)}")
            tests = entry["tests"]
            several = (tests,) if isinstance(tests, str) else tuple(tests)
            faults.append(Fault(**{**entry, "file": file, "tests": several}))
    if twice := [name for name, count in Counter(one.id for one in faults).items() if count > 1]:
        raise ValueError(f"{path}: ids that occur twice: {', '.join(twice)}")
    if len(faults) < text.count("\n- id:"):
        raise ValueError(f"{path}: a file has two lists")  # of which YAML keeps the last
    return faults


def copy_of(source: Path, target: Path) -> Path:
    """The parts of a tree that the tests need, without what is built."""
    built = shutil.ignore_patterns("_build", "executed", "generated", "reruns", ".ipynb*")
    for name in COPIED:
        if (source / name).is_dir():
            shutil.copytree(source / name, target / name, ignore=built)
        elif (source / name).is_file():
            target.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source / name, target / name)
    return target


def run_tests(tree: Path, cache: Path, tests: Sequence[str], told: Path, options: list[str]) -> int:
    """Run tests of a tree, in this process: it is a fork and ends with them."""
    import pytest

    class Failures:
        """Notes which test failed first."""

        def pytest_runtest_logreport(self, report: Any) -> None:
            if report.failed:
                with told.open("a", encoding="utf-8") as file:
                    file.write(f"{report.nodeid}\n")

    log = os.open(told.with_suffix(".log"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 1)
    os.dup2(log, 2)
    places = [tree, tree / "book", tree / "notebooks"]
    os.environ.update({"CDE_CACHE": str(cache), "PYTHONPATH": os.pathsep.join(map(str, places))})
    # the copy's own byte code is checked by content, and none is written
    sys.dont_write_bytecode = True
    sys.path[:] = [*map(str, places), *(path for path in sys.path if Path(path).resolve() != ROOT)]
    os.chdir(tree)
    import cde

    if not Path(cde.__file__).is_relative_to(tree):
        return 70
    arguments = ["-q", "-p", "no:cacheprovider", *options, *tests]
    code = int(pytest.main(arguments, plugins=[Failures()]))
    for child in psutil.Process().children(recursive=True):  # a pool would be waited for
        child.kill()
    return code


@contextlib.contextmanager
def forked(run: Callable[[], int], limit: float) -> Iterator[int | None]:
    """The exit code of a function in a fork of this process; None if it ran out of time."""
    child = multiprocessing.get_context("fork").Process(target=lambda: os._exit(run()))
    child.start()
    try:
        child.join(limit)
        yield child.exitcode
    finally:
        if child.is_alive():
            child.kill()
        child.join()


def judged(fault: Fault, base: Path, cache: Path, limit: float) -> Result:
    """Plant a fault in a fresh copy and run its tests."""
    begun = time.perf_counter()

    def result(outcome: str, by: str = "") -> Result:
        seconds = round(time.perf_counter() - begun, 1)
        return Result(fault.id, fault.file, fault.what, outcome, by, seconds)

    with tempfile.TemporaryDirectory(prefix="cde-mutant-") as folder:
        tree = copy_of(base, Path(folder) / "tree")
        shutil.copytree(cache, Path(folder) / "cache")
        path = tree / fault.file
        try:
            path.write_text(fault.planted(path.read_text(encoding="utf-8")), encoding="utf-8")
            compile(path.read_bytes(), str(path), "exec")
        except (OSError, ValueError, SyntaxError) as error:
            return result("cannot be planted", str(error))
        told = Path(folder) / "failures.txt"

        def run() -> int:
            return run_tests(tree, Path(folder) / "cache", fault.tests, told, ["-x"])

        with forked(run, limit) as code:
            failed = told.read_text(encoding="utf-8").splitlines() if told.is_file() else []
            if code == 1 and failed:
                return result("caught", failed[0])
            if code == 0:
                return result("survived")
            if code is None:
                return result("out of time", f"{limit:.0f} s")
            log = told.with_suffix(".log").read_text(encoding="utf-8", errors="replace")
            return result("cannot be tested", f"exit code {code}: {log[-400:]}")


def each(tasks: Iterable[Callable[[], Any]], jobs: int) -> Iterator[Any]:
    """Results of functions as they end, `jobs` at a time, each in a fork of its own."""
    context = multiprocessing.get_context("fork")
    running: dict[Any, Any] = {}
    waiting = iter(tasks)

    def start() -> None:
        task = next(waiting, None)
        if task is not None:
            receiving, sending = context.Pipe(duplex=False)
            child = context.Process(target=lambda: sending.send(task()))
            child.start()
            sending.close()
            running[receiving] = child

    for _ in range(jobs):
        start()
    while running:
        for receiving in multiprocessing.connection.wait(list(running)):
            child = running.pop(receiving)
            value = receiving.recv()
            child.join()
            start()
            yield value


def prepared(folder: Path) -> tuple[Path, Path]:
    """A copy of the tree, its byte code valid by content; and a cache with pydocs and no more.

    Neither vectors nor trained models are taken over: they would hide a fault in what makes them.
    """
    base = copy_of(ROOT, folder / "tree")
    checked = py_compile.PycInvalidationMode.CHECKED_HASH
    compileall.compile_dir(base, quiet=2, force=True, invalidation_mode=checked)
    cache = folder / "cache"
    cache.mkdir()

    def extract() -> int:
        sys.path.insert(0, str(base))
        import cde
        from cde.storage import cache_folder

        cde.load_pairs("pydocs")
        shutil.copytree(cache_folder("pydocs"), cache / "pydocs")
        return 0

    with forked(extract, 600) as code:
        if code != 0:
            raise RuntimeError(f"pydocs could not be read (exit code {code})")
    return base, cache


def failing(tests: Sequence[str], base: Path, cache: Path, jobs: int) -> list[str]:
    """Which of the tests fail without a fault."""
    files: dict[str, list[str]] = {}
    for test in dict.fromkeys(tests):
        files.setdefault(test.partition("::")[0], []).append(test)

    def task(file: str, some: list[str]) -> Callable[[], list[str]]:
        def run() -> list[str]:
            with tempfile.TemporaryDirectory(prefix="cde-mutant-") as folder:
                own, told = shutil.copytree(cache, Path(folder) / "cache"), Path(folder) / "told"
                with forked(lambda: run_tests(base, Path(own), some, told, []), 600) as code:
                    failed = told.read_text(encoding="utf-8").splitlines() if told.is_file() else []
                    return [] if code == 0 else failed or [f"{file} (exit code {code})"]

        return run

    return [one for some in each((task(*one) for one in files.items()), jobs) for one in some]


def main(arguments: Sequence[str] | None = None) -> int:
    """Plant the faults, print a row for each, and say by the exit code whether all were caught."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", nargs="+", metavar="ID", help="these faults, by id")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="at once")
    parser.add_argument("--limit", type=float, default=240, help="seconds a fault")
    parser.add_argument("--out", type=Path, metavar="JSON", help="write the results here as well")
    given = parser.parse_args(arguments)
    faults = read_faults()
    if strange := set(given.only or ()) - {one.id for one in faults}:
        parser.error(f"{LIST.name} has no fault {', '.join(sorted(strange))}")
    faults = [one for one in faults if given.only is None or one.id in given.only]
    begun = time.perf_counter()
    for name in LIBRARIES:
        importlib.import_module(name)
    with tempfile.TemporaryDirectory(prefix="cde-mutants-") as folder:
        base, cache = prepared(Path(folder))
        tests = [test for one in faults for test in one.tests]
        print(f"{len(faults)} faults; first {len(set(tests))} tests without any", flush=True)
        if broken := failing(tests, base, cache, given.jobs):
            print("these tests fail without a fault:", *broken, sep="\n  ")
            return 2
        results: list[Result] = []
        tasks = [lambda one=one: judged(one, base, cache, given.limit) for one in faults]
        for result in each(tasks, given.jobs):
            results.append(result)
            print(
                f"{result.outcome:9} {result.id:34} {result.seconds:5.1f} s  "
                f"{result.by or result.what}",
                flush=True,
            )
    counts = Counter(result.outcome for result in results)
    seconds = round(time.perf_counter() - begun)
    print(f"{', '.join(f'{count} {name}' for name, count in counts.items())}; {seconds} s")
    if given.out:
        # only now: what a fork inherits would be the package without a fault
        from report import write_report

        order = {one.id: place for place, one in enumerate(faults)}
        rows = [asdict(one) for one in sorted(results, key=lambda one: order[one.id])]
        write_report(given.out, "planted faults", rows, seconds=seconds)
    return int(set(counts) != {"caught"})


if __name__ == "__main__":
    sys.exit(main())

"""SIGKILL at random moments, in each stage of the work: nothing lost, nothing left.

    python tests/reliability/kills.py [--count N] [--only STAGE]… [--seed S] [--out FILE.json]

For each stage, the work is done once without a stop, which gives its numbers and its time. Then it
is begun in an empty folder, killed up to three times at moments drawn from that time, and begun
again until it ends. It must end with the same numbers; no process of it may live on, and no
temporary file of it may lie anywhere.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parent))
from report import write_report
from stages import MARK, STAGES

COUNTED = ("kills", "completions", "same", "processes_left", "files_left", "seconds")

#: kills of a stage, for one of the default 200: what takes long is killed less often
SHARES = {
    "extraction": 0.13, "embedding": 0.19, "training": 0.19, "indexing": 0.19, "executing": 0.07,
    "rendering": 0.04,
}  # fmt: skip
_TEMPORARY = re.compile(
    r"\..*\.cde-[0-9a-f]{8,16}(\..*)?|.*-journal$|\.lock$|\.checkpoint.*|.*damaged.*"
)


@dataclass
class Count:
    """What came of a stage's kills."""

    kills: int = 0  #: that met a process which was still at work
    completions: int = 0
    same: int = 0  #: of these, how many ended with the numbers of work without a stop
    processes_left: int = 0
    files_left: int = 0
    seconds: float = 0.0
    problems: list[str] = field(default_factory=list)


class Server:
    """A process that forks the work of some stages."""

    def __init__(self, stages: Sequence[str], folder: Path) -> None:
        self.folder = folder
        self.temporary = folder / "tmp"
        self.temporary.mkdir(parents=True)
        environment = {**os.environ, "TMPDIR": str(self.temporary), "OMP_NUM_THREADS": "1"}
        environment |= {"OMP_WAIT_POLICY": "PASSIVE", "TOKENIZERS_PARALLELISM": "false"}
        # not the machine's shared memory, where others leave theirs
        environment["JOBLIB_TEMP_FOLDER"] = str(self.temporary)
        script = Path(__file__).with_name("stages.py")
        self.process = subprocess.Popen(
            [sys.executable, str(script), str(folder / "shared"), *stages],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        if (said := self._line()) != "ready":
            raise RuntimeError(f"{stages}: the server did not start; it said {said!r}")
        shutil.rmtree(self.temporary)
        self.temporary.mkdir()

    def _line(self) -> str:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if re.fullmatch(r"ready|-?\d+", line.strip()):
                return line.strip()
        return ""

    def attempt(
        self, stage: str, folder: Path, mark: str, delay: float | None = None
    ) -> tuple[Any, bool, float]:
        """Do the work of a stage; kill it after a delay.

        Returns:
            Its numbers (None if it was killed or failed), whether it was killed, and its seconds.
        """
        folder.mkdir(parents=True, exist_ok=True)
        result = folder.with_name(f"{folder.name}.json")
        result.unlink(missing_ok=True)
        assert self.process.stdin is not None
        self.process.stdin.write(f"{stage}\t{folder}\t{result}\t{mark}\n")
        self.process.stdin.flush()
        begun = time.perf_counter()
        child = int(self._line())
        if delay is not None:
            time.sleep(delay)
            if not result.exists():
                os.kill(child, signal.SIGKILL)  # the server has not waited for it if it has ended
        ended = int(self._line())
        seconds = time.perf_counter() - begun
        numbers = json.loads(result.read_text()) if ended == 0 else None
        return numbers, ended == -signal.SIGKILL, seconds

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def processes_of(mark: str) -> list[psutil.Process]:
    """The processes that were started by an attempt, and live."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == mark and process.status() != "zombie":
                found.append(process)
        except psutil.Error:
            continue
    return found


def live_after(mark: str, patience: float = 60.0) -> list[psutil.Process]:
    """Those that have not ended after a while: a worker looks for its parent ten times a second."""
    until = time.monotonic() + patience
    while (left := processes_of(mark)) and time.monotonic() < until:
        time.sleep(0.05)
    return left


def files_left(folder: Path, temporary: Path) -> list[str]:
    """Temporary files below a folder, and whatever is in the system's temporary folder."""
    found = [path for path in folder.rglob("*") if _TEMPORARY.fullmatch(path.name)]
    # the store of runs keeps a lock in each run's folder
    kept = [path for path in found if not (path.name == ".lock" and "runs" in path.parts)]
    return [str(path) for path in (*kept, *temporary.iterdir())]


def killed(stage: str, count: int, draws: random.Random, server: Server) -> Count:
    """Kill a stage's work so many times."""
    begun, total = time.perf_counter(), Count()
    home = server.folder / stage
    expected, _, seconds = server.attempt(stage, home / "whole", f"{stage} whole")
    if expected is None:
        said = (home / "whole" / "errors.txt").read_text()
        raise RuntimeError(f"{stage}: the work failed without a kill:\n{said}")
    series = 0
    while total.kills < count:
        series += 1
        place, before = home / f"series-{series}", total.kills
        for number in range(draws.choice((1, 1, 2, 3))):
            mark = f"{stage} {os.getpid()} {series} {number}"
            total.kills += server.attempt(stage, place, mark, draws.uniform(0, seconds))[1]
            if left := live_after(mark):
                total.processes_left += len(left)
                total.problems.append(f"{place.name}: {[one.cmdline() for one in left]}")
                for one in left:
                    one.kill()
        mark = f"{stage} {os.getpid()} {series} last"
        numbers, _, _ = server.attempt(stage, place, mark)
        total.processes_left += len(live_after(mark))
        total.completions += 1
        total.same += numbers == expected
        if numbers != expected:
            said = (place / "errors.txt").read_text()[-1500:]
            total.problems.append(f"{place.name}: {numbers}, expected {expected}; {said}")
        if left_over := files_left(place, server.temporary):
            total.files_left += len(left_over)
            total.problems.append(f"{place.name}: {left_over}")
            shutil.rmtree(server.temporary)
            server.temporary.mkdir()
        shutil.rmtree(place)
        if total.kills == before:  # the work ended before each kill: it was slower at first
            seconds *= 0.8
    total.seconds = round(time.perf_counter() - begun, 1)
    return total


def main() -> int:
    """Kill each stage's work; say what came of it as JSON. Status 1 if anything was lost or left."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--count", type=int, default=200, help="kills in all")
    parser.add_argument("--only", action="append", choices=list(STAGES), help="repeatable")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="a JSON file for the counts")
    options = parser.parse_args()
    shares = {stage: SHARES[stage] for stage in options.only or STAGES}
    counts = {}
    for stage, share in shares.items():
        number = max(1, round(options.count * share / sum(shares.values()) + 0.49))
        with tempfile.TemporaryDirectory(prefix="kills-") as folder:
            draws, server = random.Random(f"{stage} {options.seed}"), Server([stage], Path(folder))
            try:
                counts[stage] = asdict(killed(stage, number, draws, server))
            finally:
                server.close()
        print(json.dumps({stage: counts[stage]}), flush=True)
        if options.out is not None:
            rows = [
                {"stage": stage, **{name: count[name] for name in COUNTED}}
                for stage, count in counts.items()
            ]
            write_report(options.out, "kills", rows, seed=options.seed)
    wrong = [stage for stage, count in counts.items() if count["problems"]]
    total = sum(count["kills"] for count in counts.values())
    print(f"{total} kills; {'all is well' if not wrong else 'wrong: ' + ', '.join(wrong)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

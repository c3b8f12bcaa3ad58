"""Execute many chapters, two at a time where there are cores for it.

A chapter spends seconds on loading libraries, on one core, whatever it does afterwards. Two at
once, each with half of the machine's threads, take little more than half the time of one by one.
One worker takes chapters from the front of the book, the others from its end: the first chapters
embed the same texts, and each finds in the cache what the one before has embedded.

Cost: for each worker a process, and the memory of one more chapter (2 GiB).
"""

from __future__ import annotations

import os
import signal
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from cde.storage import end_with
from cde_book.chapter_run import tell_of_failure
from cde_book.chapters import Chapter, find_chapter
from cde_book.execution import execute, raw_notebook
from cde_book.run_mode import PLAIN, RunMode

__all__ = ["execute_all", "usual_jobs"]

_INTERRUPTED = "interrupted"
#: chapters from which on it pays to load the libraries once, and to fork
_MANY = 6


def usual_jobs(profile: str) -> int:
    """How many chapters at once, unless the user says otherwise: two where there are two cores, one
    at profiles that a GPU runs.
    """
    return 1 if profile in ("gpu", "paper") else min(2, _cores())


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def execute_all(
    due: Sequence[tuple[Chapter, str]], profile: str, jobs: int, mode: RunMode = PLAIN
) -> dict[str, str]:
    """Execute chapters; each says why when it starts, and a failed one in which cell."""
    if jobs < 1:
        raise ValueError(f"jobs must be 1 or more; it is {jobs}")
    jobs = min(jobs, len(due))
    # a process that has looked for CUDA hands it to no fork
    fork = len(due) >= _MANY and hasattr(os, "fork") and not Path("/dev/nvidiactl").exists()
    if jobs < 2:
        return {chapter.name: _one(chapter, why, profile, mode, fork) for chapter, why in due}
    waiting = deque(due)
    errors: dict[str, str] = {}
    with _workers(jobs, fork) as workers:
        running: dict[Connection, Chapter] = {}

        def start(place: int) -> None:
            chapter, why = waiting.pop() if place else waiting.popleft()
            _announce(chapter, why)
            running[workers[place]] = chapter
            workers[place].send((chapter.name, profile, mode))

        for place in range(jobs):
            start(place)
        while running:
            for ready in wait(list(running)):
                chapter = running.pop(ready)  # type: ignore[call-overload]
                error = _answer(ready)
                if error == _INTERRUPTED:
                    waiting.clear()
                    continue
                errors[chapter.name] = error
                tell_of_failure(chapter.name, error)
                if waiting:
                    start(workers.index(ready))  # type: ignore[arg-type]
    return errors


def _announce(chapter: Chapter, why: str) -> None:
    print(f"{chapter.name}: runs, since {why}", flush=True)


def _one(chapter: Chapter, why: str, profile: str, mode: RunMode, fork: bool) -> str:
    _announce(chapter, why)
    place = raw_notebook(chapter, profile)
    error = execute(chapter, {"profile": profile}, place, mode=mode, fork=fork)[1].error
    tell_of_failure(chapter.name, error)
    return error


def _answer(worker: Any) -> str:
    try:
        answer = worker.recv()
    except EOFError:
        return "no cell in particular: the process that ran it died; was there memory enough?"
    if isinstance(answer, Exception):
        raise answer
    return str(answer)


@contextmanager
def _workers(count: int, fork: bool) -> Iterator[list[Connection]]:
    """Processes that execute what they are sent; Ctrl-C is handed on to them, and raised when they
    have ended.
    """
    context = get_context("spawn")  # a fork would carry over locks of threads that it has not
    threads = max(1, _cores() // count)
    pressed = False
    ours: list[Connection] = []
    processes: list[Any] = []

    def hand_on(*_: object) -> None:
        nonlocal pressed
        pressed = True
        for process in processes:
            if process.is_alive() and process.pid is not None:
                os.kill(process.pid, signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    listens = threading.current_thread() is threading.main_thread() and before != signal.SIG_IGN
    for place in range(count):
        here, there = context.Pipe()
        process = context.Process(
            target=_serve, args=(there, place, threads, os.getpid(), fork), daemon=False
        )
        process.start()
        there.close()
        ours.append(here)
        processes.append(process)
    if listens:
        signal.signal(signal.SIGINT, hand_on)
    try:
        yield ours
    finally:
        for here in ours:
            here.close()
        for process in processes:
            process.join()
        if listens:
            signal.signal(signal.SIGINT, before)
    if pressed:
        raise KeyboardInterrupt


def _serve(pipe: Connection, place: int, threads: int, parent: int, fork: bool) -> None:
    """What a worker does: chapters by name, until the other end is closed."""
    end_with(parent)
    if hasattr(os, "setpgid"):
        os.setpgid(0, 0)  # the terminal's Ctrl-C comes by way of the parent, once
    os.environ.setdefault("OMP_NUM_THREADS", str(threads))
    while True:
        try:
            name, profile, mode = pipe.recv()
        except (EOFError, KeyboardInterrupt):
            return
        answer: str | Exception
        try:
            chapter = find_chapter(name)
            given, output = {"profile": profile}, raw_notebook(chapter, profile)
            answer = execute(chapter, given, output, mode=mode, bar=place, fork=fork)[1].error
        except KeyboardInterrupt:
            answer = _INTERRUPTED
        except Exception as error:  # a full disk, say: the parent tells of it, and ends
            answer = error
        pipe.send(answer)

"""Tasks in several processes, here or on other machines, by joblib: a killed worker costs no more
than the tasks that were at work.

joblib's own setting says where: nothing, and it is a pool of processes on this machine (loky);
`with joblib.parallel_config("dask")`, and it is a Dask cluster. When a process of loky's pool is
killed, loky ends them all; what they were at is done again, and what the task keeps in the cache by
then (checkpoints, finished runs, vectors) is not. Dask gives a lost worker's tasks to another one.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor
from typing import Any, TypeVar

import joblib
from joblib.parallel import get_active_backend

from cde.progress import progress

Item = TypeVar("Item")
Result = TypeVar("Result")

#: failures in a row, without a task done in between, after which a task is to blame
_PATIENCE = 3
#: variables of the environment that the pool's processes, which may be older, take over
_SETTINGS = ("CDE_CACHE", "CDE_DATA", "CDE_PRECISION")


def end_with(parent: int) -> None:
    """End this process when its parent has ended, by SIGKILL too, which tells nobody."""
    # Linux's PR_SET_PDEATHSIG comes when the thread ends that started this process

    def watch() -> None:
        pause = threading.Event()
        while os.getppid() == parent:  # an orphan has another one
            pause.wait(0.1)
        os._exit(1)  # what is kept is kept in whole files

    threading.Thread(target=watch, name="cde-parent", daemon=True).start()


def in_workers(
    task: Callable[[Item], Result], items: Sequence[Item], title: str, unit: str = "runs"
) -> list[Result]:
    """What a task gives for each item, in the items' order, behind a progress bar.

    Processes of this machine take this one's number of threads, but no more than their share of the
    processors. With one thread (`OMP_NUM_THREADS=1`) numbers are those of a single process; another
    number of threads may move their last digits.
    """
    found = dict(progress(_as_done(task, items), title, total=len(items), unit=unit))
    return [found[place] for place in range(len(items))]


def _as_done(task: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[tuple[int, Result]]:
    """The place of each item, and what the task gives for it, as they are done."""
    backend, active = get_active_backend()
    jobs = _wanted(active)
    count = backend.effective_n_jobs(jobs)
    if count == 1 or len(items) < 2:
        for place, item in enumerate(items):
            yield place, task(item)
        return
    if getattr(backend, "supports_sharedmem", False):
        raise ValueError(
            "joblib is set to threads, which share torch's random state and so change each other's "
            'numbers: take parallel_config("loky") or a cluster\'s'
        )
    options: dict[str, Any] = {}
    settings: dict[str, str | None] = {}
    if type(backend).__name__ == "LokyBackend":  # another machine has an environment of its own
        import torch

        threads = min(torch.get_num_threads(), max(1, joblib.cpu_count() // count))
        options = {"backend": "loky", "inner_max_num_threads": threads}
        options |= {"initializer": end_with, "initargs": (os.getpid(),)}
        settings = {name: os.environ.get(name) for name in _SETTINGS}
    left, failures = set(range(len(items))), 0
    while left:
        try:
            with joblib.parallel_config(n_jobs=jobs, **options):
                found = joblib.Parallel(batch_size=1, return_as="generator_unordered")(
                    joblib.delayed(_one)(task, items[place], place, settings)
                    for place in sorted(left)
                )
            for place, result in found:
                left.discard(place)
                failures = 0
                yield place, result
        except BrokenExecutor as error:  # what was handed back by then is done
            failures += 1
            if failures == _PATIENCE:
                raise RuntimeError(
                    f"{len(left)} of {len(items)} tasks are not done: their processes were killed "
                    f"{failures} times in a row, which a system does that is out of memory. Take "
                    f"fewer jobs than {count}; what was kept is read back"
                ) from error


def _wanted(active: int | None) -> int:
    """`$CDE_JOBS`, where joblib's own setting says nothing."""
    given = os.environ.get("CDE_JOBS")
    if active not in (None, 1) or not given:
        return int(active or 1)
    if not given.removeprefix("-").isdigit() or int(given) == 0:
        raise ValueError(
            f"CDE_JOBS is {given!r}: give a number of processes, or -1 for all processors"
        )
    return int(given)


def _one(
    task: Callable[[Item], Result], item: Item, place: int, settings: Mapping[str, str | None]
) -> tuple[int, Result]:
    for name, value in settings.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    return place, task(item)

"""Tasks in processes: what one process gives, in spite of a worker that is killed."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import joblib
import pytest

from cde_studies.workers import in_workers


def die_once(mark: Path) -> None:
    """End this process the first time."""
    if not mark.exists():
        mark.write_text(str(os.getpid()))
        os.kill(os.getpid(), signal.SIGKILL)


def squared(item: tuple[Path, int]) -> int:
    """A task that leaves a mark of each attempt, and dies in its first one where it is asked to."""
    folder, number = item
    (folder / f"{number}-{os.getpid()}").touch()
    if number == 2:
        die_once(folder / "died")
    return number**2


def die(_: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_killed_worker_costs_its_task_and_what_the_pool_was_at(tmp_path: Path) -> None:
    done = dict(in_workers(squared, [(tmp_path, number) for number in range(6)], jobs=2))
    assert done == {number: number**2 for number in range(6)}
    assert (tmp_path / "died").exists() and len(list(tmp_path.glob("2-*"))) == 2
    with pytest.raises(RuntimeError, match="3 times in a row.*fewer jobs than 2"):
        list(in_workers(die, [0, 1], jobs=2))


def test_threads_and_numbers_of_no_processes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads share torch's random state."""
    with (
        joblib.parallel_config("threading", n_jobs=2),
        pytest.raises(ValueError, match="share torch's random state"),
    ):
        list(in_workers(abs, [1, 2]))
    for jobs in (0, "all", 1.5):
        with pytest.raises(ValueError, match="give a number of processes"):
            list(in_workers(abs, [1, 2], jobs=jobs))  # type: ignore[arg-type]
    monkeypatch.setenv("CDE_JOBS", "many")
    with pytest.raises(ValueError, match="CDE_JOBS is 'many'"):
        list(in_workers(abs, [1, 2]))


def setting(name: str) -> str | None:
    return os.environ.get(name)


def test_a_pool_that_is_running_takes_over_the_settings_of_each_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = ("CDE_PRECISION", "CDE_DATA", "CDE_CACHE")
    for value in ("float32", "bfloat16", None):
        for name in names:
            if value is None:
                monkeypatch.delenv(name, raising=False)
            else:
                monkeypatch.setenv(name, value)
        found = dict(in_workers(setting, names, jobs=2))
        assert found == dict.fromkeys(range(3), value)


def told(pipe: Path | None) -> str:
    """What is written into a pipe, as soon as somebody does."""
    return pipe.read_text() if pipe else "at once"


def test_what_ends_first_comes_first_and_bears_the_place_of_its_item(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    found = in_workers(told, [tmp_path / "pipe", None, None], jobs=2)
    assert sorted([next(found), next(found)]) == [(1, "at once"), (2, "at once")]
    (tmp_path / "pipe").write_text("at last")
    assert next(found) == (0, "at last")

"""Tasks in processes: what one process gives, in spite of a worker that is killed."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import joblib
import pytest

from cde_studies.workers import in_workers


def squared(item: tuple[Path, int]) -> int:
    """A task that leaves a mark of each attempt, and dies in its first one where it is asked to."""
    folder, number = item
    (folder / f"{number}-{os.getpid()}").touch()
    if number == 2 and not (folder / "died").exists():
        (folder / "died").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return number**2


def die(_: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.fixture
def two_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CDE_JOBS", "2")


@pytest.mark.usefixtures("two_jobs")
def test_a_killed_worker_costs_its_task_and_what_the_pool_was_at(tmp_path: Path) -> None:
    items = [(tmp_path, number) for number in range(6)]
    done = in_workers(squared, items, "squaring")
    assert done == [number**2 for number in range(6)]
    assert (tmp_path / "died").exists() and len(list(tmp_path.glob("2-*"))) == 2
    with pytest.raises(RuntimeError, match="3 times in a row.*fewer jobs than 2"):
        in_workers(die, [0, 1], "dying")


def test_threads_are_refused() -> None:
    with (
        joblib.parallel_config("threading", n_jobs=2),
        pytest.raises(ValueError, match="share torch's random state"),
    ):
        in_workers(abs, [1, 2], "")


def setting(name: str) -> str | None:
    return os.environ.get(name)


@pytest.mark.usefixtures("two_jobs")
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
        assert in_workers(setting, names, "reading") == [value] * 3


def told(pipe: Path) -> str:
    """What is written into a pipe, as soon as somebody does."""
    return pipe.read_text()


def tell(pipe: Path) -> str:
    pipe.write_text("at last")
    return "at once"


@pytest.mark.usefixtures("two_jobs")
def test_what_ends_last_keeps_the_place_of_its_item(tmp_path: Path) -> None:
    """The first task waits for the second."""
    os.mkfifo(tmp_path / "pipe")
    found = in_workers(lambda task: task(tmp_path / "pipe"), [told, tell], "telling")
    assert found == ["at last", "at once"]

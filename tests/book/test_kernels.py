"""A kernel that is forked makes the page that a kernel of its own makes."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from cde_book.chapters import Chapter
from cde_book.execution import execute
from cde_book.run_mode import RunMode

CHAPTER = """# %% [markdown]
# # A toy

# %%
from cde_book.parameters import Profile, Seed

# %% tags=["parameters"]
profile: Profile = "laptop"
seed: Seed = 0

# %%
import os
import sys

import matplotlib
import torch

from cde.intervals import mean_interval
from cde_book import page

settings = page.settings(globals(), laptop={}, smoke={})
there = os.getcwd(), page.this_run(), torch.get_num_threads(), matplotlib.get_backend()
page.answer(f"{mean_interval([1.0, 2.0, 4.0])} {there} {sys.flags.optimize}")
"""


@pytest.mark.slow
@pytest.mark.parametrize("fresh", [False, True])
def test_it_has_the_same_answer_and_tells_the_same_modules(fresh: bool, tmp_path: Path) -> None:
    path = tmp_path / "notebooks" / "part" / "toy.py"
    path.parent.mkdir(parents=True)
    path.write_text(CHAPTER)
    chapter, mode = Chapter(path), RunMode(fresh=fresh)
    logs = [
        execute(chapter, {"profile": "smoke"}, tmp_path / f"{fork}.ipynb", mode=mode, fork=fork)[1]
        for fork in (False, True)
    ]
    assert not {"CDE_RUN", "MPLBACKEND"} & set(os.environ), "a kernel alone is told"
    assert [log.error for log in logs] == ["", ""]
    assert logs[0].answer == logs[1].answer
    assert f"RunMode(chapter='toy', record='', add=False, prove=(), fresh={fresh}" in logs[0].answer
    assert logs[0].modules == logs[1].modules
    assert "cde/intervals.py" in logs[1].modules and "cde/cli.py" not in logs[1].modules


RUNNER = """
from pathlib import Path
from cde_book.chapters import Chapter
from cde_book.execution import execute
execute(Chapter(Path({path!r})), {{"profile": "smoke"}}, Path({out!r}), fork=True)
"""


@pytest.mark.slow
def test_it_ends_with_the_process_that_asked_for_it_though_that_is_killed(tmp_path: Path) -> None:
    path, told = tmp_path / "notebooks" / "part" / "toy.py", tmp_path / "number"
    path.parent.mkdir(parents=True)
    os.mkfifo(told)
    waits = f"open({str(told)!r}, 'w').write(str(os.getpid()))\nimport threading\n"
    waits += "threading.Event().wait()\n"
    path.write_text(CHAPTER.partition("settings =")[0] + waits)
    code = RUNNER.format(path=str(path), out=str(tmp_path / "out.ipynb"))
    runner = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL)
    line = os.open(told, os.O_RDWR)
    assert select.select([line], [], [], 300)[0], "the kernel has not begun"
    kernel = psutil.Process(int(os.read(line, 20)))
    os.kill(runner.pid, signal.SIGKILL)
    runner.wait()
    _, alive = psutil.wait_procs([kernel], timeout=30)
    assert all(one.status() == psutil.STATUS_ZOMBIE for one in alive)

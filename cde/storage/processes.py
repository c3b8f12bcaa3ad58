"""Processes that end with the one that started them."""

from __future__ import annotations

import multiprocessing
import os
import threading

__all__ = ["end_with"]


def end_with(parent: int) -> None:
    """End this process when its parent has ended, by SIGKILL too, which tells nobody.

    A signal on the parent's death (Linux's PR_SET_PDEATHSIG) would not do: it comes when the thread
    ends that started this process.
    """

    def watch() -> None:
        pause = threading.Event()
        while _is_alive(parent):
            pause.wait(0.1)
        os._exit(1)  # what is kept is kept in whole files

    threading.Thread(target=watch, name="cde-parent", daemon=True).start()


def _is_alive(parent: int) -> bool:
    if os.name == "posix":
        return os.getppid() == parent  # an orphan has another one
    process = multiprocessing.parent_process()
    return process is None or process.is_alive()

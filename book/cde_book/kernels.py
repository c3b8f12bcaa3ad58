"""Kernels forked from a process that has the heavy libraries loaded, so that a page begins at once.

The libraries are other people's. Of this checkout nothing is loaded before: by what a kernel has
imported it tells what its page depends on.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from importlib.metadata import EntryPoint
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

from jupyter_client.provisioning.factory import KernelProvisionerFactory
from jupyter_client.provisioning.local_provisioner import LocalProvisioner

from cde_book.checkout import PACKAGES

_NAME = "cde-forked"
_BACKEND = "module://matplotlib_inline.backend_inline"
_STARTS = threading.Lock()  # chapters side by side start kernels in threads
#: what most pages import; tqdm, which comes with `transformers`, asks whether a notebook is there
_LIBRARIES = [
    "torch",
    "transformers.modeling_utils",
    "transformers.models.auto.modeling_auto",
    "transformers.models.bert.modeling_bert",
    "safetensors.torch",
    "scipy.stats",
    "pandas",
    "bm25s",
    "pytrec_eval",
    "joblib",
    "pydantic",
    "yaml",
    "jinja2",
    "myst_nb",
    "matplotlib.pyplot",
    "matplotlib_inline.backend_inline",
    "ipykernel.kernelapp",
    "ipykernel.ipkernel",
]


class ForkedKernel(LocalProvisioner):
    """A kernel that is a fork, in a process group of its own."""

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> Any:
        """Fork, and wait until the kernel has its own process group."""
        context = get_context("forkserver")
        context.set_forkserver_preload(_LIBRARIES)
        here, there = context.Pipe()
        arguments = cmd[cmd.index("-f") :]
        process = context.Process(
            target=_be_a_kernel, args=(arguments, dict(kwargs["env"]), kwargs.get("cwd"), there)
        )
        with _as_a_server_starts():
            process.start()
        there.close()
        here.recv()
        self.line = here  # which breaks off when this process ends, however it does
        self.process = _as_popen(process)
        self.pid = self.pgid = process.pid
        return self.connection_info


def _as_popen(process: Any) -> Any:
    """A process of `multiprocessing`, with what the provisioner asks of a `Popen`."""
    process.stdin = process.stdout = process.stderr = None
    process.poll = lambda: process.exitcode
    process.wait = process.join
    process.send_signal = partial(os.kill, process.pid)
    return process


@contextmanager
def _as_a_server_starts() -> Iterator[None]:
    """Let a process start without this one's main module, and with the kernels' backend."""
    main: dict[str, Any] = sys.modules["__main__"].__dict__
    with _STARTS:
        own = os.environ.get("MPLBACKEND")
        os.environ["MPLBACKEND"] = own or _BACKEND
        kept: dict[str, Any] = {
            name: main.pop(name) for name in ("__file__", "__spec__") if name in main
        }
        main["__spec__"] = None
        try:
            yield
        finally:
            main.update(kept)
            if own is None:
                del os.environ["MPLBACKEND"]


def _be_a_kernel(
    arguments: Sequence[str], environment: Mapping[str, str], folder: str | None, line: Connection
) -> None:
    os.setsid()
    line.send(True)
    threading.Thread(target=_end_with, args=(line,), daemon=True).start()
    os.environ.clear()
    os.environ.update(environment)
    if folder:
        os.chdir(folder)
    first = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.path[:] = [*first, *(path for path in sys.path if path not in (*first, ""))]
    ours = {package.rpartition("/")[2] for package in PACKAGES}
    for name in [name for name in sys.modules if name.partition(".")[0] in ours]:
        del sys.modules[name]
    # a parent, or it would say that Ctrl-C does not reach it
    sys.argv = ["ipykernel_launcher", *arguments, f"--IPKernelApp.parent_handle={os.getppid()}"]
    from ipykernel.kernelapp import launch_new_instance

    launch_new_instance()


def _end_with(line: Connection) -> None:
    with suppress(EOFError, OSError):
        line.recv()
    os._exit(1)  # what is kept is kept in whole files


def fork_its_kernel(manager: Any) -> None:
    """Have a kernel manager fork the kernel that it is about to start."""
    KernelProvisionerFactory.instance().provisioners[_NAME] = EntryPoint(
        _NAME, f"{__name__}:ForkedKernel", KernelProvisionerFactory.GROUP_NAME
    )
    manager.kernel_spec.metadata["kernel_provisioner"] = {"provisioner_name": _NAME}

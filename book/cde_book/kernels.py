"""Kernels forked from a process that has the heavy libraries loaded, so that a page begins at once.

The libraries are other people's. Of this checkout nothing is loaded before: by what a kernel has
imported it tells what its page depends on.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import EntryPoint
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

from jupyter_client.provisioning.factory import KernelProvisionerFactory
from jupyter_client.provisioning.local_provisioner import LocalProvisioner

from cde_book.checkout import PACKAGES

__all__ = ["ForkedKernel", "fork_its_kernel"]

_NAME = "cde-forked"
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


class _Process:
    """A process of `multiprocessing`, with what the provisioner asks of a `Popen`."""

    stdin = stdout = stderr = None

    def __init__(self, process: Any) -> None:
        self._process = process
        self.pid = process.pid
        self.kill, self.terminate = process.kill, process.terminate

    def poll(self) -> int | None:
        code: int | None = self._process.exitcode
        return code

    def wait(self) -> int | None:
        self._process.join()
        return self.poll()

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)


class ForkedKernel(LocalProvisioner):
    """A kernel that is a fork, in a process group of its own."""

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> Any:
        """Fork, and wait until the kernel has its own process group."""
        # read where matplotlib is loaded, which is before the kernel would set it
        os.environ.setdefault("MPLBACKEND", "module://matplotlib_inline.backend_inline")
        context = get_context("forkserver")
        context.set_forkserver_preload(_LIBRARIES)
        here, there = context.Pipe(duplex=False)
        arguments = cmd[cmd.index("-f") :]
        process = context.Process(
            target=_be_a_kernel, args=(arguments, dict(kwargs["env"]), kwargs.get("cwd"), there)
        )
        process.start()
        there.close()
        here.recv()
        self.process = _Process(process)  # type: ignore[assignment]
        self.pid = self.pgid = process.pid
        return self.connection_info


def _be_a_kernel(
    arguments: Sequence[str], environment: Mapping[str, str], folder: str | None, ready: Connection
) -> None:
    os.setsid()
    ready.send(True)
    ready.close()
    os.environ.clear()
    os.environ.update(environment)
    os.environ["JPY_PARENT_PID"] = str(
        os.getppid()
    )  # it ends when the process it was forked from does
    if folder:
        os.chdir(folder)
    first = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.path[:] = [*first, *(path for path in sys.path if path not in (*first, ""))]
    ours = {package.rpartition("/")[2] for package in PACKAGES}
    for name in [name for name in sys.modules if name.partition(".")[0] in ours]:
        del sys.modules[name]
    sys.argv = ["ipykernel_launcher", *arguments]
    from ipykernel.kernelapp import launch_new_instance

    launch_new_instance()


def fork_its_kernel(manager: Any) -> None:
    """Have a kernel manager fork the kernel that it is about to start."""
    KernelProvisionerFactory.instance().provisioners[_NAME] = EntryPoint(
        _NAME, f"{__name__}:ForkedKernel", KernelProvisionerFactory.GROUP_NAME
    )
    manager.kernel_spec.metadata["kernel_provisioner"] = {"provisioner_name": _NAME}

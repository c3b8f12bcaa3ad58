"""Several processes training one model: who they are, what they exchange, and that they are alike.

`torchrun` or `accelerate launch` starts them, and `accelerate` connects them. Gradients are added
up once a step, after the last chunk: DistributedDataParallel would exchange them at every backward
pass of the cache. With shared negatives every process sees all embeddings of the batch, computes
the same loss and differentiates it with respect to its own embeddings: the sum of the processes'
gradients is that of one process with the whole batch. Without, each has a loss of its own part, and
the sum is that of their mean.

The processes may run on several machines, which need not share a cache folder: process 0 says which
pairs a batch has, what the surrogate's vectors are, and where a run goes on. A machine that is lost
ends the others with an error, after `CDE_TIMEOUT` seconds at the latest.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor, nn

from cde.hardware import compute_device
from cde.storage import content_hash
from cde.validation import shown

Value = TypeVar("Value")
Array = TypeVar("Array", bound=NDArray[Any])


@dataclass(frozen=True)
class Processes:
    """This process among those that train together."""

    rank: int = 0
    count: int = 1
    device: torch.device = torch.device("cpu")  # noqa: RUF009

    @classmethod
    def connect(cls) -> Processes:
        """Join the processes that the launcher started; alone without one."""
        if "WORLD_SIZE" not in os.environ:
            return cls(device=torch.device(compute_device()))
        from accelerate import PartialState

        with _naming_lost_processes(os.environ.get("RANK", "0")):
            state = PartialState(cpu=not torch.cuda.is_available(), **_patience())
        return cls(state.process_index, state.num_processes, state.device)

    def gathered(self, own: Tensor) -> Tensor:
        """Rows of all processes, rank after rank; gradients flow into this process's own."""
        if self.count == 1:
            return own
        others = [torch.empty_like(own) for _ in range(self.count)]
        with _naming_lost_processes(self.rank):
            dist.all_gather(others, own.detach().contiguous())
        others[self.rank] = own
        return torch.cat(others)

    def add_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Add up the processes' gradients; what has none in any process keeps none, as in one."""
        if self.count == 1:
            return
        wanted = [parameter for parameter in parameters if parameter.requires_grad]
        gradients = [torch.zeros_like(part) if part.grad is None else part.grad for part in wanted]
        flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
        reached = torch.tensor([part.grad is not None for part in wanted], device=flat.device).int()
        with _naming_lost_processes(self.rank):
            dist.all_reduce(flat)
            dist.all_reduce(reached, dist.ReduceOp.MAX)
        parts = torch.split(flat, [part.numel() for part in wanted])
        for parameter, gradient, anywhere in zip(wanted, parts, reached.tolist(), strict=True):
            parameter.grad = gradient.view_as(parameter).clone() if anywhere else None

    def mean(self, value: float) -> float:
        """The mean of a number over processes."""
        if self.count == 1:
            return value
        total = torch.tensor([value], dtype=torch.float64, device=self.device)
        with _naming_lost_processes(self.rank):
            dist.all_reduce(total)
            return float(total) / self.count

    def of_all(self, own: Value) -> list[Value]:
        """What each process has, in the order of their ranks; anything that can be pickled."""
        if self.count == 1:
            return [own]
        found: list[Any] = [None] * self.count
        with _naming_lost_processes(self.rank):
            dist.all_gather_object(found, own)
        return found

    def of_first(self, own: Value) -> Value:
        """What process 0 has; what the others have does not count."""
        if self.count == 1:
            return own
        sent = [own]
        with _naming_lost_processes(self.rank):
            dist.broadcast_object_list(sent, device=self.device)
        return sent[0]

    def agreed(self, own: Array) -> Array:
        """An array that all processes made: process 0's, which is sent where others differ."""
        if self.count == 1:
            return own
        marks = self.of_all(content_hash([str(own.dtype), str(own.shape), own.tobytes()]))
        return own if len(set(marks)) == 1 else self.of_first(own)


def _patience() -> dict[str, timedelta]:
    """How long to wait for other processes, where `CDE_TIMEOUT` says so."""
    given = os.environ.get("CDE_TIMEOUT")
    if not given or "WORLD_SIZE" not in os.environ:
        return {}
    with suppress(ValueError):
        if 0 < float(given) < float("inf"):
            return {"timeout": timedelta(seconds=float(given))}
    raise ValueError(f"CDE_TIMEOUT must be seconds above 0, such as 600; it is {shown(given)}")


@contextmanager
def _naming_lost_processes(rank: int | str) -> Iterator[None]:
    """Let an exchange that fails say what it means for the run."""
    try:
        yield
    except RuntimeError as error:  # as gloo and NCCL word a connection that is gone
        raise ConnectionError(
            f"process {rank} cannot reach another one: it has ended, or the network between them "
            "is gone. Start all processes again with the same command, and the run goes on from "
            f"its last checkpoint ({str(error).splitlines()[0][:200]})"
        ) from error


def differing_process(model: nn.Module, processes: Processes) -> int | None:
    """The first process whose weights are not those of process 0; None if all are alike (§10.3: an
    embedding that shows which process made it lets the loss fall for the wrong reason).
    """
    if processes.count == 1:
        return None
    # of their bytes: a sum would depend on the number of threads
    weights = (part.detach().cpu().reshape(-1) for part in model.state_dict().values())
    own = content_hash(
        part.view(torch.uint8).numpy().tobytes() for part in weights if part.is_floating_point()
    )
    first, *others = processes.of_all(own)
    return next((rank for rank, other in enumerate(others, start=1) if other != first), None)

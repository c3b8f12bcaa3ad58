"""Several processes training one model: who they are, what they exchange, and that they are alike.

Started by `torchrun` or `accelerate launch`, which set the environment; `accelerate` connects them
(gloo on CPUs, NCCL on GPUs). Gradients are added up once a step, after the last chunk: the model is
not wrapped in DistributedDataParallel, which would exchange them at every backward pass of the
cache.

With shared negatives every process sees all embeddings of the batch and computes the same loss.
Each differentiates it with respect to its own embeddings. The sum of the processes' gradients is
the gradient of one process with the whole batch. Without shared negatives, each process has a loss
of its own part, and the sum is that of their mean.

§10.3 of the CDE paper warns of copies of the model that differ: `differing_process` finds them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn

__all__ = ["Processes", "differing_process"]


@dataclass(frozen=True)
class Processes:
    """This process among those that train together.

    Attributes:
        rank: its number.
        count: how many there are; 1 without a launcher.
        device: where it computes.
    """

    rank: int = 0
    count: int = 1
    device: torch.device = torch.device("cpu")  # noqa: RUF009

    @classmethod
    def connect(cls) -> Processes:
        """Join the processes that the launcher started; alone without one.

        Example:
            >>> Processes.connect().count
            1
        """
        from accelerate import PartialState

        state = PartialState(cpu=not torch.cuda.is_available())
        return cls(state.process_index, state.num_processes, state.device)

    def gathered(self, own: Tensor) -> Tensor:
        """Rows of all processes in the order of their ranks; gradients flow into this process's
        own.
        """
        if self.count == 1:
            return own
        others = [torch.empty_like(own) for _ in range(self.count)]
        dist.all_gather(others, own.detach().contiguous())
        others[self.rank] = own
        return torch.cat(others)

    def add_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Add up the processes' gradients, once; a parameter without one counts as zero."""
        if self.count == 1:
            return
        wanted = [parameter for parameter in parameters if parameter.requires_grad]
        flat = torch.cat(
            [
                (
                    parameter.grad if parameter.grad is not None else torch.zeros_like(parameter)
                ).reshape(-1)
                for parameter in wanted
            ]
        )
        dist.all_reduce(flat)
        for parameter, gradient in zip(
            wanted, torch.split(flat, [one.numel() for one in wanted]), strict=True
        ):
            parameter.grad = gradient.view_as(parameter).clone()

    def mean(self, value: float) -> float:
        """The mean of a number over processes."""
        if self.count == 1:
            return value
        total = torch.tensor([value], dtype=torch.float64, device=self.device)
        dist.all_reduce(total)
        return float(total) / self.count


def differing_process(model: nn.Module, processes: Processes) -> int | None:
    """The first process whose weights are not those of process 0; None if all are alike.

    An embedding that shows which process made it lets the loss fall for the wrong reason (§10.3):
    negatives of other processes become easy. Called before the first step, and at every checkpoint.

    Example:
        >>> differing_process(nn.Linear(2, 2), Processes()) is None
        True
    """
    if processes.count == 1:
        return None
    # two sums a tensor: equal weights give equal bits, and a change of any weight changes them
    parts = [
        tensor.detach().double()
        for tensor in model.state_dict().values()
        if tensor.is_floating_point()
    ]
    digest = torch.stack(
        [torch.stack([part.sum(), part.square().sum()]) for part in parts]
    ).reshape(1, -1)
    all_digests = Processes(processes.rank, processes.count).gathered(digest)
    for rank in range(1, processes.count):
        if not torch.equal(all_digests[rank], all_digests[0]):
            return rank
    return None

"""Products of linear layers where texts are embedded on a CPU: in bfloat16, or in 8-bit numbers.

Inside `multiplying()` every linear layer over token vectors multiplies a copy of its weight, which
is made when it is first used, and again after the weight has changed: PyTorch counts the changes of
a tensor, but not those of a fused optimiser, whose steps are counted here. The model's own weights,
its norms, sums and pooling stay in float32.

In bfloat16 the copy lies as oneDNN wants it, and the bias is added within the product. The numbers
are those of `torch.autocast`, which would round each weight once a batch.

In whole numbers, for processors where bfloat16 is slow, token vectors get a range for each token
(with one for the whole batch, MiniLM's cosine to float32 falls to 0.95; so it stays above 0.998),
weights a scale for each output; attention and the layers behind pooling stay in float32. The sums
are the same on every machine. Processors without VNNI add the products of two neighbours in 16 bits
first: so that these do not overflow, no two neighbouring weights are larger than 128 together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakIdKeyDictionary

from cde.hardware import chosen_precision

#: of all optimisers, since this module was imported
_steps = 0


def _count(*_: Any) -> None:
    global _steps
    _steps += 1


register_optimizer_step_post_hook(_count)


_ROWS = 512  # tokens at once, a thread: what stands between two products stays near the processor
_INPUTS, _OUTPUTS = 64, 16  # multiples that layers have; the kernels for others may overflow


class Bfloat16Weight:
    """A weight in bfloat16, in oneDNN's order."""

    known: ClassVar[WeakIdKeyDictionary] = WeakIdKeyDictionary()
    refuses_gradients = False  # `torch.autocast` has them

    def __init__(self, weight: Tensor) -> None:
        self.packed = torch.ops.mkldnn._reorder_linear_weight(weight.detach().bfloat16())
        self.mark = changes(weight)

    @staticmethod
    def rounded(states: Tensor) -> Tensor:
        """States as they are multiplied."""
        return states.bfloat16()

    def linear(self, rounded: Tensor, bias: Tensor | None) -> Tensor:
        """What the linear layer gives, `(…, inputs)` to `(…, outputs)` bfloat16."""
        added = None if bias is None else bias.bfloat16()
        return torch.ops.mkldnn._linear_pointwise(  # type: ignore[no-any-return]
            rounded, self.packed, added, "none", [], ""
        )

    @staticmethod
    def fits(weight: Tensor) -> bool:
        """Whether the products of this weight can be taken so."""
        return weight.dtype == torch.float32 and _onednn_has_bfloat16()


class Int8States(NamedTuple):
    """Token vectors in whole numbers: `codes * step + middle`, with a step and a middle a row."""

    shape: torch.Size  #: but for the last dimension
    parts: list[tuple[Tensor, Tensor, Tensor]]


class Int8Weight:
    """A weight in whole numbers: `weight[i, j]` is about `codes[i, j] * scales[i]`."""

    known: ClassVar[WeakIdKeyDictionary] = WeakIdKeyDictionary()
    refuses_gradients = True

    def __init__(self, weight: Tensor) -> None:
        values = weight.detach().float()
        neighbours = values.abs().reshape(len(values), -1, 2).sum(dim=2)
        scales = neighbours.amax(dim=1).clamp_(min=1e-30) / 127  # rounded, they are 128 at most
        self.codes = (values / scales[:, None]).round_().to(torch.int8)
        self.scales = scales
        self.sums = self.codes.sum(dim=1) * scales
        self.mark = changes(weight)

    @staticmethod
    def rounded(states: Tensor) -> Int8States:
        """Float32 states as they are multiplied, some rows at once."""
        parts = []
        rows = states.reshape(-1, states.shape[-1])
        for some in torch.split(rows, _ROWS * torch.get_num_threads()):
            low = some.amin(dim=1, keepdim=True)
            step = (some.amax(dim=1, keepdim=True) - low).div_(255).clamp_(min=1e-30)
            middle = low + 128 * step
            codes = some.sub(middle).mul_(1 / step).round_().to(torch.int8)
            parts.append((codes, step, middle))
        return Int8States(states.shape[:-1], parts)

    def linear(self, rounded: Int8States, bias: Tensor | None) -> Tensor:
        """What the linear layer gives, `(…, inputs)` to `(…, outputs)` float32."""
        result = self.scales.new_empty(rounded.shape.numel(), len(self.codes))
        start = 0
        for codes, step, middle in rounded.parts:
            place = result[start : (start := start + len(codes))]
            products = torch._int_mm(codes, self.codes.t())
            torch.mul(products, self.scales, out=place).mul_(step).addcmul_(middle, self.sums)
            if bias is not None:
                place.add_(bias)
        return result.reshape(*rounded.shape, len(self.codes))

    @staticmethod
    def fits(weight: Tensor) -> bool:
        """Whether the products of this weight can be taken so."""
        outputs, inputs = weight.shape
        whole = inputs % _INPUTS == 0 and outputs % _OUTPUTS == 0
        return whole and weight.dtype == torch.float32


def changes(weight: Tensor) -> tuple[int, int, int]:
    """Numbers that change when a weight is trained on, loaded or moved."""
    return _steps, weight.data_ptr(), 0 if weight.is_inference() else weight._version


#: what stands between the layers that make queries, keys and values of the same states
_BETWEEN = (torch.nn.functional.linear, Tensor.view, Tensor.transpose)


class products_by(TorchFunctionMode):
    """In this context, on a CPU, linear layers over token vectors multiply copies of one kind."""

    def __init__(self, kind: type[Bfloat16Weight | Int8Weight]) -> None:
        super().__init__()
        self.kind = kind
        self.given: tuple[Tensor, Any] | None = None  # states, and as they are multiplied

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Stand in for `torch.nn.functional.linear`; call anything else as it is."""
        if func not in _BETWEEN:  # it may change the states
            self.given = None
        if func is not torch.nn.functional.linear or kwargs or args[0].ndim < 3:
            return func(*args, **kwargs or {})
        states, weight, bias = (*args, None)[:3]
        if states.device.type != "cpu" or not self.kind.fits(weight):
            return func(*args)
        if torch.is_grad_enabled() and (weight.requires_grad or states.requires_grad):
            if self.kind.refuses_gradients:
                raise RuntimeError(
                    "whole numbers have no gradient: precision 'int8' is for embedding alone"
                )
            return func(*args)
        copy = self.kind.known.get(weight)  # type: ignore[no-untyped-call]
        if copy is None or copy.mark != changes(weight):
            copy = self.kind.known[weight] = self.kind(weight)
        if self.given is None or self.given[0] is not states:
            self.given = states, self.kind.rounded(states)
        return copy.linear(self.given[1], bias)


@lru_cache(maxsize=1)
def _onednn_has_bfloat16() -> bool:
    there = getattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", None)
    return there is not None and bool(there())


@lru_cache(maxsize=1)
def _require_exact() -> None:
    """Ask for the largest sums that can come up: whether they are added without an overflow."""
    codes = torch.full((64, 256), 127, dtype=torch.int8)
    weights = torch.tensor([127, 1] * 64 + [1, 127] * 64, dtype=torch.int8).repeat(64, 1)
    if bool((torch._int_mm(codes, weights.t()) != 127 * 128 * 128).any()):
        raise RuntimeError(
            "this processor's products of 8-bit numbers overflow: take precision='float32'"
        )


@contextmanager
def multiplying(precision: str, device: torch.device) -> Iterator[None]:
    """Embed in a precision, within this context."""
    chosen = chosen_precision(precision)
    if chosen == "int8" and device.type != "cpu":
        raise ValueError(
            f"precision 'int8' is for CPUs, and the model is on {device}: take 'auto' there"
        )
    kinds: dict[str, type[Bfloat16Weight | Int8Weight]] = {
        "bfloat16": Bfloat16Weight,
        "int8": Int8Weight,
    }
    if chosen == "int8":
        _require_exact()
    products = products_by(kinds[chosen]) if chosen in kinds else nullcontext()
    with torch.autocast(device.type, torch.bfloat16, enabled=chosen == "bfloat16"), products:
        yield

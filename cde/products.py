"""Products of linear layers in bfloat16, where texts are embedded on a CPU.

Inside `multiplying()` every linear layer over token vectors multiplies a copy of its weight, which
is made when it is first used, and again after the weight has changed: PyTorch counts the changes of
a tensor, but not those of a fused optimiser, whose steps are counted here. The model's own weights,
its norms, sums and pooling stay in float32.

The copy lies as oneDNN wants it, and the bias is added within the product. The numbers are those of
`torch.autocast`, which would round each weight once a batch. Where GELU follows (`gelu_of_linear`),
it is taken before the product is rounded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import gelu, linear
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.overrides import TorchFunctionMode, handle_torch_function, has_torch_function
from torch.utils.weak import WeakIdKeyDictionary

from cde.hardware import half_precision, onednn_has_bfloat16

#: of all optimisers, since this module was imported
_steps = 0


def _count(*_: Any) -> None:
    global _steps
    _steps += 1


register_optimizer_step_post_hook(_count)


class Bfloat16Weight:
    """A weight in bfloat16, in oneDNN's order."""

    known: ClassVar[WeakIdKeyDictionary] = WeakIdKeyDictionary()

    def __init__(self, weight: Tensor) -> None:
        self.packed = torch.ops.mkldnn._reorder_linear_weight(weight.detach().bfloat16())
        self.mark = changes(weight)

    def linear(self, rounded: Tensor, bias: Tensor | None, then: str) -> Tensor:
        """The linear layer's `(…, outputs)`, bfloat16, with `then` "gelu" taken, or "none"."""
        added = None if bias is None else bias.bfloat16()
        return torch.ops.mkldnn._linear_pointwise(  # type: ignore[no-any-return]
            rounded, self.packed, added, then, [], "none"
        )


def changes(weight: Tensor) -> tuple[int, int, int]:
    """Numbers that change when a weight is trained on, loaded or moved, or changed in place; not
    when it is by `weight.data`, of which torch keeps no count.
    """
    return _steps, weight.data_ptr(), 0 if weight.is_inference() else weight._version


def gelu_of_linear(states: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """GELU of a linear layer: one operation where `multiplying` has its own products."""
    given = (states, weight, bias)
    if has_torch_function(given):
        return handle_torch_function(gelu_of_linear, given, *given)
    return gelu(linear(*given))


#: what stands between the layers that make queries, keys and values of the same states
_BETWEEN = (linear, Tensor.view, Tensor.transpose)


class products_in_bfloat16(TorchFunctionMode):
    """In this context, on a CPU, linear layers over token vectors multiply copies in bfloat16."""

    def __init__(self) -> None:
        super().__init__()
        self.given: tuple[Tensor, Tensor] | None = None  # states, and as they are multiplied

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Stand in for linear layers, with GELU or without; call anything else as it is."""
        if func not in _BETWEEN:  # it may change the states
            self.given = None
        if func not in (linear, gelu_of_linear) or kwargs or args[0].ndim < 3:
            return func(*args, **kwargs or {})
        states, weight, bias = (*args, None)[:3]
        trains = torch.is_grad_enabled() and (weight.requires_grad or states.requires_grad)
        if weight.dtype != torch.float32 or trains:
            return func(*args)  # `torch.autocast` has gradients
        copy = Bfloat16Weight.known.get(weight)  # type: ignore[no-untyped-call]
        if copy is None or copy.mark != changes(weight):
            copy = Bfloat16Weight.known[weight] = Bfloat16Weight(weight)
        if self.given is None or self.given[0] is not states:
            self.given = states, states.bfloat16()
        return copy.linear(self.given[1], bias, "none" if func is linear else "gelu")


@contextmanager
def multiplying(precision: str, device: torch.device) -> Iterator[None]:
    """Embed in a precision, within this context."""
    half = half_precision(precision)
    here = half and device.type == "cpu" and onednn_has_bfloat16()
    own = products_in_bfloat16() if here else nullcontext()
    with torch.autocast(device.type, torch.bfloat16, enabled=half), own:
        yield

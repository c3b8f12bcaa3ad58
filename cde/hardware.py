"""What computes here: the device, the precision that "auto" stands for, and the threads.

`$CDE_PRECISION` may be set to `float32` or `bfloat16` to say what "auto" is.
"""

from __future__ import annotations

import os
import platform
import sys
from functools import lru_cache
from pathlib import Path
from typing import Literal, get_args

from cde.validation import checked_text, shown

Precision = Literal["auto", "bfloat16", "float32"]


@lru_cache(maxsize=1)  # to ask takes most of a millisecond, and attention asks in every layer
def has_amx() -> bool:
    """Whether the processor multiplies whole tiles of bfloat16 (Intel's AMX)."""
    import torch

    return bool(torch.cpu.get_capabilities().get("amx_bf16"))


@lru_cache(maxsize=1)
def bfloat16_is_fast() -> bool:
    """Whether this machine multiplies bfloat16 matrices faster than float32 ones, not merely
    whether it can. Intel's AVX512-BF16 without AMX is half as fast as float32, AMD's twice as fast.
    """
    import torch

    if torch.cuda.is_available():
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    has = torch.cpu.get_capabilities()
    if has.get("architecture") == "x86_64":
        of_amd = "AMD" in str(has.get("cpu_name"))
        return has_amx() or bool(has.get("avx512_bf16") and of_amd)
    return onednn_has_bfloat16()


def onednn_has_bfloat16() -> bool:
    """Whether oneDNN, by which torch multiplies on a CPU, has products in bfloat16 here."""
    import torch

    check = getattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", None)
    return check is not None and bool(check())


def cpu_class() -> Literal["avx2", "avx512", "bfloat16", "cuda", "other"]:
    """The kind of machine, as far as speed goes."""
    import torch

    if torch.cuda.is_available():
        return "cuda"
    if bfloat16_is_fast():
        return "bfloat16"
    has = torch.cpu.get_capabilities()
    return "avx512" if has.get("avx512_f") else "avx2" if has.get("avx2") else "other"


def chosen_precision(precision: str) -> Literal["bfloat16", "float32"]:
    """What is computed in: "auto" is bfloat16 where that is fast and float32 elsewhere."""
    own = os.environ.get("CDE_PRECISION", "auto")
    for name, given in (("precision", precision), ("CDE_PRECISION", own)):
        if not isinstance(given, str) or given not in get_args(Precision):
            raise ValueError(
                f"{name} must be 'auto', 'bfloat16' or 'float32'; it is {shown(given)}"
            )
    if precision == "auto":
        precision = own
    if precision == "auto":
        precision = "bfloat16" if bfloat16_is_fast() else "float32"
    return precision  # type: ignore[return-value]


def half_precision(precision: str) -> bool:
    """Whether to compute in bfloat16; in float32 otherwise."""
    return chosen_precision(precision) == "bfloat16"


def tokens_at_once(device_type: str, precision: str) -> int:
    """Tokens of texts that are embedded at once. A GPU wants many; a CPU is faster, in float32,
    where what stands between two layers stays near it (`benchmarks/precision.py`).
    """
    if device_type == "cuda":
        return 131_072
    return 4_096 if chosen_precision(precision) == "bfloat16" else 1_024


def compute_device(device: str | None = None) -> str:
    """The device that is named, else CUDA where there is a GPU, else the CPU."""
    import torch

    try:
        if device is not None:
            torch.device(checked_text(device, "device"))
    except RuntimeError as error:
        raise ValueError(
            f"device must be one of torch, such as 'cpu' or 'cuda'; it is {shown(device)}"
        ) from error
    return device or ("cuda" if torch.cuda.is_available() else "cpu")


def prefer_short_waits() -> None:
    """Let OpenMP's threads sleep soon while they wait, before torch: beside other work, waiting by
    spinning makes steps slower.
    """
    if "OMP_WAIT_POLICY" not in os.environ and "torch" not in sys.modules:
        os.environ.setdefault("GOMP_SPINCOUNT", "10000")


def describe() -> str:
    """What computes here: the GPU, or the processor, its threads and the precision of "auto"."""
    torch = sys.modules.get("torch")
    if torch is None:  # the precision moves numbers; a page that never loaded torch has none
        return f"CPU ({_processor()}), 1 thread"
    if torch.cuda.is_available():
        return f"{torch.cuda.get_device_name()}, {chosen_precision('auto')}"
    return f"CPU ({_processor()}), {torch.get_num_threads()} threads, {chosen_precision('auto')}"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(one.partition(":")[2].strip() for one in lines if one.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()

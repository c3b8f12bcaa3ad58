"""What computes here: the device, the precision that "auto" stands for, and the threads.

Every encoder and every trainer asks this room, so that one answer holds for a whole process.
`$CDE_PRECISION` may be set to `float32` or `bfloat16` to say what "auto" is; the profile `smoke`
sets it to `float32`, since its numbers are compared between machines.

Cost: nothing; each question is answered once.
"""

from __future__ import annotations

import os
import platform
import sys
from functools import lru_cache
from pathlib import Path
from typing import Literal

from cde.validation import checked_text, shown

__all__ = [
    "Precision",
    "bfloat16_is_fast",
    "compute_device",
    "describe",
    "half_precision",
    "prefer_short_waits",
]

Precision = Literal["auto", "bfloat16", "float32"]


@lru_cache(maxsize=1)
def bfloat16_is_fast() -> bool:
    """Whether this machine multiplies bfloat16 matrices faster than float32 ones, not merely
    whether it can.

    CUDA where it is not emulated; AMX; AVX512-BF16 of AMD; what oneDNN says of processors that are
    not x86. Intel's AVX512-BF16 without AMX, as in many virtual machines, is half as fast as
    float32, and AVX512 alone a fifth (measured with 2 cores of a Xeon at 4096 x 384 x 1536; AMD's
    EPYC: 2.1 times as fast).

    Example:
        >>> isinstance(bfloat16_is_fast(), bool)
        True
    """
    import torch

    if torch.cuda.is_available():
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    has = torch.cpu.get_capabilities()
    if has.get("architecture") == "x86_64":
        return bool(has.get("amx_bf16")) or bool(
            has.get("avx512_bf16") and "AMD" in str(has.get("cpu_name"))
        )
    check = getattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", None)
    return bool(check()) if check is not None else False


def half_precision(precision: str) -> bool:
    """Whether to multiply in bfloat16: "auto" where it is fast, "bfloat16" and "float32" insist.

    Args:
        precision: one of the three words; `$CDE_PRECISION` takes the place of "auto".

    Raises:
        ValueError: any other word, here or in `$CDE_PRECISION`.

    Example:
        >>> half_precision("bfloat16"), half_precision("float32")
        (True, False)
    """
    words = ("auto", "bfloat16", "float32")
    if not isinstance(precision, str) or precision not in words:
        raise ValueError(
            f"precision must be 'auto', 'bfloat16' or 'float32'; it is {shown(precision)}"
        )
    if precision == "auto":
        precision = os.environ.get("CDE_PRECISION", "auto")
        if precision not in words:
            raise ValueError(
                f"CDE_PRECISION must be auto, bfloat16 or float32; it is {precision!r}"
            )
    return precision == "bfloat16" or (precision == "auto" and bfloat16_is_fast())


def compute_device(device: str | None = None) -> str:
    """The device to compute on: the one that is named, else CUDA where there is a GPU, else the
    CPU.

    Raises:
        ValueError: a name that torch has no device for.

    Example:
        >>> compute_device("cpu")
        'cpu'
    """
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
    """Let OpenMP's threads spin briefly while they wait, then sleep; call before torch is loaded.

    Threads that spin for long wait for each other: beside one busy process a training step takes
    half as long again and more. Threads that sleep at once cost some per cent on an idle machine.
    Ten thousand spins cost nothing there that we could measure, and help as much beside other work
    (`benchmarks/waiting.py`). A user's own `OMP_WAIT_POLICY` or `GOMP_SPINCOUNT` wins.
    """
    if "OMP_WAIT_POLICY" not in os.environ and "torch" not in sys.modules:
        os.environ.setdefault("GOMP_SPINCOUNT", "10000")


def describe() -> str:
    """What computes here: the GPU, or the processor, the number of threads and the precision of
    "auto" on it.

    Example:
        >>> describe() != ""
        True
    """
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        return str(torch.cuda.get_device_name())
    cores = f"{torch.get_num_threads()} threads" if torch is not None else "1 thread"
    # the precision moves numbers; a page that never loaded torch has none
    precision = "" if torch is None else ", bfloat16" if half_precision("auto") else ", float32"
    return f"CPU ({_processor()}), {cores}{precision}"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(
            line.partition(":")[2].strip() for line in lines if line.startswith("model name")
        )
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()

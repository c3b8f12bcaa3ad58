"""One answer to what computes here: precision, device, and how threads wait."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

from cde import hardware
from cde.hardware import half_precision


@pytest.mark.parametrize(
    ("fast", "environment", "auto"),
    [
        (True, "auto", True),
        (False, "auto", False),
        (True, "float32", False),
        (False, "bfloat16", True),
    ],
)
def test_bfloat16_is_taken_where_it_is_fast_unless_the_environment_or_the_caller_insists(
    monkeypatch: pytest.MonkeyPatch, fast: bool, environment: str, auto: bool
) -> None:
    monkeypatch.setattr(hardware, "bfloat16_is_fast", lambda: fast)
    monkeypatch.setenv("CDE_PRECISION", environment)
    assert [half_precision(word) for word in ("auto", "bfloat16", "float32")] == [auto, True, False]


def test_another_precision_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for word in ("float16", "", "AUTO", "half"):
        said = f"precision must be 'auto', 'bfloat16' or 'float32'; it is {word!r}"
        with pytest.raises(ValueError, match=said):
            half_precision(word)
    monkeypatch.setenv("CDE_PRECISION", "half")
    with pytest.raises(ValueError, match="CDE_PRECISION must be 'auto', 'bfloat16' or 'float32'"):
        half_precision("auto")


@pytest.mark.parametrize(
    ("machine", "fast"),
    [
        ({"cpu_name": "Intel Xeon", "amx_bf16": True, "avx512_bf16": True}, True),
        ({"cpu_name": "Intel Xeon", "amx_bf16": False, "avx512_bf16": True}, False),
        ({"cpu_name": "AMD EPYC", "avx512_bf16": True}, True),
        ({"cpu_name": "AMD EPYC", "avx512_bf16": False}, False),
        # oneDNN emulates it, five times as slow as float32
        ({"cpu_name": "Intel Core", "avx512_f": True}, False),
    ],
)
def test_bfloat16_must_be_faster_than_float32_and_not_only_possible(
    monkeypatch: pytest.MonkeyPatch, machine: dict[str, object], fast: bool
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(
        torch.cpu, "get_capabilities", lambda: {"architecture": "x86_64", **machine}
    )
    monkeypatch.setattr(hardware, "has_amx", hardware.has_amx.__wrapped__)
    assert hardware.bfloat16_is_fast.__wrapped__() is fast


@pytest.mark.parametrize(
    ("given", "spins"),
    [({}, "10000"), ({"OMP_WAIT_POLICY": "ACTIVE"}, "None"), ({"GOMP_SPINCOUNT": "5"}, "5")],
)
def test_threads_wait_shortly_unless_the_user_says_otherwise(
    given: dict[str, str], spins: str
) -> None:
    """The command sets it before torch is loaded; chapters inherit it; the user's own wins."""
    names = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
    bare = {name: value for name, value in os.environ.items() if name not in names}
    code = "import os, cde.cli; print(os.environ.get('GOMP_SPINCOUNT'))"
    done = subprocess.run(
        [sys.executable, "-c", code], env={**bare, **given}, capture_output=True, text=True
    )
    assert done.stdout.strip() == spins

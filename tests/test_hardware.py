"""One answer to what computes here: precision and device."""

from __future__ import annotations

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
